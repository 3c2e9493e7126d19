"""Import of Hugging Face folders: same output, same tokenization, use in later stages; errors."""

import json
import shutil
import unicodedata
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer as LibraryTokenizer
from torch import Tensor
from transformers import AutoModel, AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer

from components.core.artifacts import read_manifest
from components.core.errors import ArtifactError, ConfigError
from components.interchange.huggingface import MODEL_TYPES
from components.interchange.importing import import_encoder, read_published, source_digest
from components.interchange.tokenizer_json import write_tokenizer
from components.models.encoder import Encoder, architecture_of, load_encoder
from components.serving.generation import Sampling, try_model
from components.tokenization import load_tokenizer
from components.tokenization.published import Vocabulary, read_vocabulary
from components.tokenization.special import FIRST_ORDINARY, SPECIAL_PIECES
from headstart.fitting import finetuning_of
from tests.interchange.importing.conftest import TEXTS, change
from tests.interchange.importing.conftest import write_tokenizer as write_tokenizer_files
from tests.tokenization.test_bpe import texts

NAMED = {
    "bert": ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"],
    "distilbert": ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"],
    "xlm-roberta": ["<pad>", "<unk>", "<s>", "</s>", "<mask>"],
    "albert": ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"],
    "modernbert": ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"],
    "mpnet": ["<pad>", "[UNK]", "<s>", "</s>", "<mask>"],
    "roberta": ["<pad>", "<unk>", "<s>", "</s>", "<mask>"],
    "gpt": [None, None, None, "<|endoftext|>", None],
    "llama": [None, None, None, "<|endoftext|>", None],
    "openai-gpt": [None, "<unk>", None, "\n</w>", None],
    "xlnet": ["<pad>", "<unk>", "<cls>", "<sep>", "<mask>"],
}


@pytest.fixture
def neox(tmp_path: Path) -> tuple[Vocabulary, LibraryTokenizer]:
    if not (tmp_path / "tokenizer.json").exists():
        write_tokenizer_files("modernbert", tmp_path)
    other = LibraryTokenizer.from_file(str(tmp_path / "tokenizer.json"))
    # Text is never encoded to a special piece here.
    content = json.loads(other.to_str())
    content["added_tokens"] = [entry for entry in content["added_tokens"] if not entry["special"]]
    content["model"]["vocab"] |= {entry["content"]: entry["id"] for entry in json.loads(other.to_str())["added_tokens"]}
    return read_vocabulary(tmp_path), LibraryTokenizer.from_str(json.dumps(content))


def imported(folder: Path) -> Encoder:
    import_encoder(folder, output=folder.parent / "encoder")
    return load_encoder(folder.parent / "encoder", verify=True)


def theirs(folder: Path, tokens: Tensor, lengths: Tensor) -> list[Tensor]:
    """Hidden states of transformers' own model for padded rows."""
    model = AutoModel.from_pretrained(folder).eval()
    mask = torch.arange(tokens.shape[1]) < lengths[:, None]
    with torch.no_grad():
        return list(model(input_ids=tokens, attention_mask=mask.long(), output_hidden_states=True).hidden_states)


def test_hidden_states_and_predictions_equal_those_of_transformers(family, save_folder):
    folder = save_folder(family)
    published = read_published(folder)
    assert published.learned_output
    rows = torch.tensor(read_vocabulary(folder).rows)
    tokens = torch.randint(FIRST_ORDINARY, len(rows), (3, 9))
    lengths = torch.tensor([9, 4, 6])
    if family == "xlnet":
        # transformers pads on the left; rows of equal length need no padding.
        lengths = torch.full((3,), 9)
    inside = torch.arange(9) < lengths[:, None]
    pad = max(0, int(rows[0]))
    expected = theirs(folder, rows[tokens].masked_fill(~inside, pad), lengths)
    with torch.no_grad():
        actual = published.model.hidden_states(tokens.masked_fill(~inside, 0), lengths)
    # What ours calls the last state of GPT-2 and XLNet is theirs, too.
    torch.testing.assert_close(
        [layer[inside] for layer in actual], [layer[inside] for layer in expected], atol=1e-5, rtol=1e-5
    )
    if family == "xlnet":
        return  # test_xlnet compares what it fills in
    auto = AutoModelForCausalLM if family in ("gpt", "openai-gpt", "llama") else AutoModelForMaskedLM
    with torch.no_grad():
        logits = auto.from_pretrained(folder).eval()(rows[tokens]).logits
        ours = published.model.predict(tokens)[0][..., rows >= 0]
    torch.testing.assert_close(ours, logits[..., rows[rows >= 0]], atol=1e-5, rtol=1e-5)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.one_of(texts, st.sampled_from(["|||IP|||", "a  [unused0]", "e\u0301   b", " \u0301"])), max_size=5))
def test_pieces_beside_the_merges_are_cut_out_of_composed_text(neox, many):
    """Whole texts and every split of them give the ids of the published tokenizer."""
    vocabulary, other = neox
    expected = [encoding.ids for encoding in other.encode_batch(many, add_special_tokens=False)]
    ids = vocabulary.tokenizer.encode_batch(many)
    assert [[vocabulary.rows[id_] for id_ in row] for row in ids] == expected
    text = "".join(many)
    (whole,) = vocabulary.tokenizer.encode_batch([text])
    assert vocabulary.tokenizer.decode(whole) == unicodedata.normalize("NFC", text)
    assert vocabulary.tokenizer.encode_with_offsets(text)[0].tolist() == whole.tolist()


def test_pieces_beside_the_merges_are_kept(neox, tmp_path):
    tokenizer = neox[0].tokenizer
    tokenizer.save(tmp_path / "saved")
    again = load_tokenizer(tmp_path / "saved")
    (ids,) = again.encode_batch(["it\u00eb  x    y[unused0] e\u0301"])
    assert ids.tolist() == tokenizer.encode_batch(["it\u00eb  x    y[unused0] \u00e9"])[0].tolist()
    assert [again.pieces[id_] for id_ in ids if " " in again.pieces[id_] or "[" in again.pieces[id_]] == [
        "  ", "   ", "[unused0]"
    ]  # fmt: skip
    tokenizer.after_prompt("query: ")
    assert tokenizer.fingerprint() == again.fingerprint()


def test_pairs_of_gpt_are_read_from_every_form_and_stored(save_folder, tmp_path):
    folder = save_folder("openai-gpt")
    first = read_vocabulary(folder)
    AutoTokenizer.from_pretrained(folder).save_pretrained(tmp_path / "json")
    content = json.loads((tmp_path / "json" / "tokenizer.json").read_text())
    del content["model"]["type"]  # as in files of older versions
    (tmp_path / "json" / "tokenizer.json").write_text(json.dumps(content))
    again = read_vocabulary(tmp_path / "json")
    assert (again.rows, again.tokenizer.fingerprint()) == (first.rows, first.tokenizer.fingerprint())
    first.tokenizer.save(tmp_path / "saved")
    tokenizer = load_tokenizer(tmp_path / "saved")
    ids = tokenizer.encode_batch(["The LISTED names, (4!)"])[0].tolist()
    assert [tokenizer.pieces[id_] for id_ in ids] == [
        "the</w>", "lis", "t", "ed</w>", "nam", "e", "s</w>", ",</w>", "(</w>", "[UNK]", "[UNK]", ")</w>"
    ]  # fmt: skip
    assert tokenizer.decode(ids) == "the listed names, ([UNK] [UNK])"
    assert [tokenizer.continues(id_) for id_ in ids[:4]] == [False, True, True, False]
    assert [tokenizer.surface(id_) for id_ in ids[:4]] == ["the", "lis", "t", "ed"]
    log = write_tokenizer(tmp_path / "json", tokenizer, imported(folder).model)
    assert log == [] and read_vocabulary(tmp_path / "json").tokenizer.fingerprint() == tokenizer.fingerprint()
    content["model"]["merges"] = [["t", "t"]]
    (tmp_path / "json" / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(ArtifactError, match=r"tokenizer.json: merges do not fit the pieces: .*`tt`"):
        read_vocabulary(tmp_path / "json")


def test_weights_in_shards(save_folder):
    folder = save_folder("bert")
    before = read_published(folder).model.state_dict()
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    shards = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, held in shards.items():
        save_file({name: tensors[name] for name in held}, folder / file)
    index = {"weight_map": {name: file for file, held in shards.items() for name in held}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    after = read_published(folder).model.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    (folder / "b.safetensors").unlink()
    with pytest.raises(ArtifactError, match="missing b.safetensors; download the folder again"):
        read_published(folder)


def test_the_digest_covers_all_files_that_are_read(save_folder):
    folder = save_folder("bert")
    digest = source_digest(folder)
    (folder / "README.md").write_text("of no weight")
    assert source_digest(folder) == digest
    assert read_published(folder, digest=digest).digest == digest
    (folder / "config.json").write_text((folder / "config.json").read_text().replace("gelu", "gelu_new"))
    with pytest.raises(ArtifactError, match=f"its digest is [0-9a-f]{{64}}, expected {digest}; it is not the model"):
        read_published(folder, digest=digest)


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (lambda folder: shutil.rmtree(folder), "does not exist"),
        (lambda folder: (folder / "config.json").unlink(), "no config.json; this is not a Hugging Face model"),
        (lambda folder: (folder / "config.json").write_text("{"), "config.json: not readable as JSON"),
        (lambda folder: change(folder, model_type="mamba"), "config.json: no family supports model_type 'mamba'"),
        (lambda folder: change(folder, hidden_act="mish"), "hidden_act is 'mish', only"),
        (lambda folder: (folder / "model.safetensors").unlink(), "no model.safetensors; this folder has no weights"),
        (
            lambda folder: (folder / "model.safetensors").rename(folder / "pytorch_model.bin"),
            r"pytorch_model.bin: a pickle can execute code.* AutoModel.from_pretrained\(folder\).save_pretrained",
        ),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"\x08"), "not readable as safetensors"),
        (lambda folder: (folder / "vocab.txt").unlink(), "no tokenizer found; expected tokenizer.json, vocab.txt"),
        (
            lambda folder: (folder / "vocab.txt").rename(folder / "sentencepiece.bpe.model"),
            "sentencepiece.bpe.model alone is not read: save the model's tokenizer.json",
        ),
        (
            lambda folder: (folder / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n"),
            r"the tokenizer has 6 pieces, but the model has \d+ rows",
        ),
        (lambda folder: (folder / "vocab.txt").write_text("a\nb\na\n"), "vocab.txt: 'a' occurs twice"),
        (
            lambda folder: (folder / "tokenizer_config.json").write_text('{"tokenize_chinese_chars": false}'),
            "words without BERT's normaliser are not supported",
        ),
        (lambda folder: (folder / "tokenizer.json").write_text("{}"), "tokenizer.json: damaged"),
        (
            lambda folder: (folder / "tokenizer.json").write_text(
                '{"model": {"type": "WordLevel", "vocab": {}}, "normalizer": null, "pre_tokenizer": null}'
            ),
            "vocabulary of type 'WordLevel'; WordPiece, BPE and Unigram are supported",
        ),
        (
            lambda folder: (folder / "tokenizer.json").write_text(
                '{"model": {"type": "BPE", "vocab": {}, "merges": []}, "normalizer": null, "pre_tokenizer": null}'
            ),
            "only byte-level BPE with GPT-2's pre-tokenizer",
        ),
    ],
)  # fmt: skip
def test_folders_that_cannot_be_imported(prepare, message, save_folder):
    folder = save_folder("bert")
    prepare(folder)
    with pytest.raises(ArtifactError, match=message):
        read_published(folder)


def test_a_requested_family_that_does_not_match(save_folder):
    folder = save_folder("bert")
    with pytest.raises(ConfigError, match="its model_type 'bert' belongs to the family 'bert', not 'roberta'"):
        read_published(folder, family="roberta")
    with pytest.raises(ConfigError, match="unknown family 'brt'; did you mean 'bert'"):
        read_published(folder, family="brt")


def test_a_file_of_an_unknown_format(tmp_path):
    (tmp_path / "model.onnx").write_bytes(b"")
    with pytest.raises(ArtifactError, match="unknown format; give a Hugging Face folder, a fastai file"):
        read_published(tmp_path / "model.onnx")


def test_special_pieces_are_first_and_text_is_tokenized_like_by_the_published_tokenizer(family, save_folder):
    folder = save_folder(family)
    encoder = imported(folder)
    vocabulary = read_vocabulary(folder)
    other = AutoTokenizer.from_pretrained(folder)
    for text in TEXTS:
        ids = vocabulary.tokenizer.encode_batch([text])[0].tolist()
        assert [vocabulary.rows[id_] for id_ in ids] == other(text, add_special_tokens=False)["input_ids"]
    assert encoder.tokenizer.pieces[:FIRST_ORDINARY] == list(SPECIAL_PIECES)
    assert [vocabulary.named.get(piece) for piece in SPECIAL_PIECES] == NAMED[family]
    learned = [row for row in vocabulary.rows if row >= 0]
    assert sorted(learned) == list(range(vocabulary.size))
    facts = encoder.manifest.facts if encoder.manifest else {}
    assert (facts["trained"], facts["family"], facts["source"]) == (True, MODEL_TYPES.get(family, family), str(folder))
    assert facts["source_digest"] == source_digest(folder)
    log = (folder.parent / "encoder" / "import.log").read_text()
    assert all(f"{name!r}" in log for name in NAMED[family] if name)
    if family == "gpt":
        assert "[MASK] (id 4): not in the published vocabulary, initialised with the mean of all rows" in log


def test_a_folder_of_the_bare_encoder(save_folder):
    folder = save_folder("bert")
    AutoModel.from_pretrained(folder).save_pretrained(folder)
    log = import_encoder(folder, output=folder.parent / "encoder")
    assert "initialised as in a new model: " in log[-1] and "cls.predictions.bias" in log[-1]
    fresh = read_manifest(folder.parent / "encoder").facts["fresh"]
    assert "cls.predictions.transform.dense.weight" in fresh
    encoder = folder.parent / "encoder"
    with pytest.raises(ConfigError, match="imported without its output layer .* adapt it first, which trains that"):
        try_model(encoder, "a [MASK]", length=1, count=1, sampling=Sampling(), seed=0)
    # Only modules make a sentence encoder.
    assert architecture_of(encoder).config.reading is None
    assert not finetuning_of(encoder, [("the apple",)] * 20, kind="classification", minutes=2).unit_length
