"""Sentence encoders are read as they were trained: the same vectors as sentence-transformers from the same folder."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing

from components.core.errors import ArtifactError
from components.interchange.importing import import_encoder, read_published, source_digest
from components.models.encoder import Encoder, load_encoder
from components.registry.exports.champion import export_encoder
from components.registry.pyfunc import embed
from tests.interchange.importing.conftest import TEXTS, change

LONG = [*TEXTS, "The Cat SAT on the mat"]
PARTS: dict[str, dict[str, Any]] = {
    "first": {"pooling": "cls", "after": ["normalize"]},
    "mean": {"pooling": "mean"},
    "max": {"pooling": "max"},
    "root": {"pooling": "mean_sqrt_len_tokens"},
    "weighted": {"pooling": "weightedmean"},
    "last": {"pooling": "lasttoken"},
    "two": {"pooling": ("cls", "mean")},
    "dense": {"pooling": "mean", "after": ["dense", "normalize"]},
    "normalised before": {"pooling": "mean", "after": ["normalize", "dense"]},
    "prompt": {"pooling": "mean", "prompt": "the cat: "},
    "prompt not pooled": {"pooling": "mean", "prompt": "the cat: ", "include_prompt": False},
    "weighted without prompt": {"pooling": "weightedmean", "prompt": "the cat: ", "include_prompt": False},
    "shortened": {"pooling": "mean", "length": 7},
    "lower case": {"pooling": "mean", "lower": True},
}


def write_folder(
    folder: Path,
    *,
    pooling: Any,
    after: tuple[str, ...] | list[str] = (),
    prompt: str = "",
    include_prompt: bool = True,
    length: int | None = None,
    lower: bool = False,
) -> None:
    """Make a folder of transformers one of sentence-transformers, written by that library."""
    torch.manual_seed(1)
    if (folder / "tokenizer.json").is_file():
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        first, last = ("<s>", "</s>") if tokenizer.token_to_id("<s>") is not None else ("[CLS]", "[SEP]")
        named = [(piece, tokenizer.token_to_id(piece)) for piece in (first, last)]
        tokenizer.post_processor = TemplateProcessing(single=f"{first} $A {last}", special_tokens=named)
        tokenizer.save(str(folder / "tokenizer.json"))
    transformer = Transformer(str(folder))
    width = transformer.get_embedding_dimension()
    pool = Pooling(width, pooling_mode=pooling, include_prompt=include_prompt)
    modules: list[Any] = [transformer, pool]
    for name in after:
        size = pool.pooling_output_dimension
        modules.append(Normalize() if name == "normalize" else Dense(size, 10))
    prompts: Any = {"prompts": {"given": prompt}, "default_prompt_name": "given"} if prompt else {}
    SentenceTransformer(modules=modules, **prompts).save(str(folder))
    # Of the form that most published folders have.
    settings = {"do_lower_case": lower} | ({"max_seq_length": length} if length else {})
    (folder / "sentence_bert_config.json").write_text(json.dumps(settings))


def theirs(folder: Path, texts: list[str]) -> torch.Tensor:
    return torch.tensor(SentenceTransformer(str(folder), device="cpu").encode(texts))


def ours(folder: Path) -> Encoder:
    output = folder.parent / f"encoder-{source_digest(folder)[:8]}"
    if not output.exists():
        import_encoder(folder, output=output)
    return load_encoder(output)


@pytest.mark.parametrize(
    ("family", "parts"),
    [*(("bert", name) for name in PARTS),
     *((family, name) for family in ("xlm-roberta", "mpnet", "modernbert")
       for name in ("first", "prompt", "shortened")),
     ("xlm-roberta", "weighted without prompt"), ("roberta", "prompt")],
)  # fmt: skip
def test_the_vectors_of_sentence_transformers(family, parts, save_folder):
    folder = save_folder(family)
    write_folder(folder, **PARTS[parts])
    expected = theirs(folder, LONG)
    torch.testing.assert_close(torch.tensor(embed(ours(folder), LONG)), expected, atol=1e-5, rtol=1e-5)
    # Alone, without padding.
    torch.testing.assert_close(torch.tensor(embed(ours(folder), LONG[1:2])), expected[1:2], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("family", "parts"),
    [*(("bert", name) for name in ("dense", "prompt not pooled", "shortened", "lower case")),
     ("mpnet", "mean"), ("modernbert", "prompt")],
)  # fmt: skip
def test_sentence_transformers_reads_our_export(family, parts, save_folder, tmp_path):
    folder = save_folder(family)
    write_folder(folder, **PARTS[parts])
    expected = embed(ours(folder), LONG)
    export_encoder(next(tmp_path.glob("encoder-*")), output=tmp_path / "exported")
    torch.testing.assert_close(theirs(tmp_path / "exported", LONG), torch.tensor(expected), atol=1e-5, rtol=1e-5)
    # And so do we.
    torch.testing.assert_close(embed(ours(tmp_path / "exported"), LONG), expected, atol=1e-6, rtol=1e-6)


def test_the_digest_covers_every_file_that_decides_the_vectors(save_folder):
    folder = save_folder("bert")
    write_folder(folder, pooling="mean", after=["dense"], prompt="the ")
    digests = {source_digest(folder)}
    for name in ("1_Pooling/config.json", "2_Dense/config.json", "config_sentence_transformers.json", "modules.json",
                 "sentence_bert_config.json"):  # fmt: skip
        path = folder / name
        path.write_text(path.read_text() + " ")
        digests.add(source_digest(folder))
    assert len(digests) == 6


def change_module(folder: Path, number: int, **values: str) -> None:
    modules = json.loads((folder / "modules.json").read_text())
    modules[number] |= values
    (folder / "modules.json").write_text(json.dumps(modules))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: change_module(folder, 2, type="sentence_transformers.models.LayerNorm"),
         r"modules.json: LayerNorm is not supported, only Dense and Normalize after Pooling; choose"),
        (lambda folder: change_module(folder, 1, path="../1_Pooling"),
         r"modules.json: names ../1_Pooling, which is outside of the folder; use another copy"),
        (lambda folder: change(folder, "1_Pooling/config.json", pooling_mode="attention"),
         r"1_Pooling/config.json: pooling attention is not supported, only cls, max, .*; choose"),
        (lambda folder: change(folder, "2_Dense/config.json", use_residual=True),
         r"2_Dense/config.json: use_residual True is not supported; choose"),
        (lambda folder: change(folder, "2_Dense/config.json", activation_function="torch.nn.Mish"),
         r"2_Dense/config.json: activation_function mish is not supported; choose"),
        (lambda folder: (folder / "2_Dense/model.safetensors").rename(folder / "2_Dense/pytorch_model.bin"),
         r"2_Dense: no model.safetensors; a pickle can execute code"),
        (lambda folder: change(folder, "2_Dense/config.json", in_features=9),
         r"the weights of its modules do not fit: .*size mismatch.*; download it again"),
        (lambda folder: change(folder, "config_sentence_transformers.json", default_prompt_name="other"),
         r"default_prompt_name 'other' is none of prompts; download it again"),
    ],
)  # fmt: skip
def test_what_is_not_understood_is_refused(damage, message, save_folder):
    folder = save_folder("bert")
    write_folder(folder, pooling="mean", after=["dense"], prompt="the ")
    damage(folder)
    with pytest.raises(ArtifactError, match=f"(?s){message}"):
        read_published(folder)


@pytest.mark.parametrize(
    ("family", "prompt", "pooled", "name"),
    [("bert", "un", True, "BERT"), ("roberta", "the cat: ", False, "RoBERTa")],
)
def test_a_prompt_that_the_tokenizer_joins_with_the_text_is_refused(family, prompt, pooled, name, save_folder):
    folder = save_folder(family)
    write_folder(folder, pooling="mean", prompt=prompt, include_prompt=pooled)
    with pytest.raises(ArtifactError, match=f"a prompt of a {name} with this tokenizer is not supported; choose"):
        read_published(folder)


def test_an_old_folder_with_the_transformer_inside(save_folder, tmp_path):
    folder = save_folder("bert")
    write_folder(folder, pooling="cls", length=7)
    expected = theirs(folder, LONG)
    inner = folder / "0_BERT"
    inner.mkdir()
    for path in [path for path in folder.iterdir() if path.is_file() and path.name != "modules.json"]:
        path.rename(inner / path.name)
    change_module(folder, 0, path="0_BERT")
    torch.testing.assert_close(torch.tensor(embed(ours(folder), LONG)), expected, atol=1e-5, rtol=1e-5)
