"""Import of transformers' Transformer-XL, against loops over the paper's equations (Dai et al. 2019)."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional as F

from components.core.errors import ArtifactError, ConfigError
from components.interchange.importing import import_encoder, read_published, source_digest
from components.models.encoder import load_encoder
from components.models.transformer_xl import TransformerXL
from tests.interchange.importing.conftest import change

WORDS = ["the", "<eos>", "of", "<unk>", "film", "good", "bad", "Seoul", "a", "plot", "it", "is"]
CONFIG = {
    "model_type": "transfo-xl",
    "vocab_size": 12,
    "d_model": 8,
    "d_embed": 8,
    "n_layer": 2,
    "n_head": 2,
    "d_head": 4,
    "d_inner": 12,
    "mem_len": 4,
    "clamp_len": 2,
}
#: What each kind of published weights has in addition.
KINDS: dict[str, dict[str, Any]] = {
    "as wt103": {"cutoffs": [5, 9], "div_val": 2, "untie_r": True, "same_length": True},
    "one table": {"cutoffs": [5, 9], "div_val": 1, "untie_r": False, "same_length": True, "clamp_len": -1},
    "one projection": {"cutoffs": [5, 9], "div_val": 2, "untie_r": True, "same_length": False, "mem_len": 20},
    "no clusters": {"cutoffs": [], "div_val": 1, "untie_r": True, "same_length": False, "mem_len": 20},
}


def tensors_of(kind: str) -> dict[str, Tensor]:
    """Random tensors with the published names."""
    torch.manual_seed(0)
    config = CONFIG | KINDS[kind]
    bounds = [0, *config["cutoffs"], 12]
    widths = [8 // config["div_val"] ** index for index in range(len(bounds) - 1)]
    tables = [(high - low, width) for low, high, width in zip(bounds, bounds[1:], widths, strict=False)]
    result: dict[str, Tensor] = {}
    for index, (rows, width) in enumerate(tables if config["div_val"] > 1 else [(12, 8)]):
        result[f"transformer.word_emb.emb_layers.{index}.weight"] = torch.randn(rows, width)
        result[f"crit.out_layers.{index}.bias"] = torch.randn(rows)
        if config["div_val"] > 1:
            result[f"transformer.word_emb.emb_projs.{index}"] = torch.randn(8, width) / 2
    if config["cutoffs"]:
        result |= {"crit.cluster_weight": torch.randn(2, 8), "crit.cluster_bias": torch.randn(2)}
    if kind == "as wt103":
        result["crit.out_projs.0"] = torch.randn(8, 8) / 2
    for layer in range(2):
        name = f"transformer.layers.{layer}"
        shapes = {"qkv_net.weight": (24, 8), "r_net.weight": (8, 8), "o_net.weight": (8, 8)}
        result |= {f"{name}.dec_attn.{part}": torch.randn(shape) / 2 for part, shape in shapes.items()}
        for part, inputs, outputs in (("CoreNet.0", 8, 12), ("CoreNet.3", 12, 8)):
            result[f"{name}.pos_ff.{part}.weight"] = torch.randn(outputs, inputs) / 2
            result[f"{name}.pos_ff.{part}.bias"] = torch.randn(outputs)
        for norm in ("dec_attn", "pos_ff"):
            result[f"{name}.{norm}.layer_norm.weight"] = torch.rand(8) + 0.5
            result[f"{name}.{norm}.layer_norm.bias"] = torch.randn(8)
    for layer in (0, 1) if config["untie_r"] else (None,):
        name = "transformer" if layer is None else f"transformer.layers.{layer}.dec_attn"
        result |= {f"{name}.{bias}": torch.randn(2, 4) for bias in ("r_w_bias", "r_r_bias")}
    return result


def by_loops(tensors: dict[str, Tensor], ids: list[int], config: dict[str, Any]) -> tuple[list[Tensor], Tensor]:
    """Hidden states (T, D) of every layer, and log probabilities (T, V) of the next word. Position i attends to all
    positions up to i; with same_length only to those closer than mem_len."""
    bounds = [0, *config["cutoffs"], 12]
    one_table = config["div_val"] == 1

    def parts(name: str) -> list[Tensor]:
        if one_table:
            return list(
                tensors[name.format(0)].split([high - low for low, high in zip(bounds, bounds[1:], strict=False)])
            )
        return [tensors[name.format(index)] for index in range(len(bounds) - 1)]

    tables, biases = parts("transformer.word_emb.emb_layers.{}.weight"), parts("crit.out_layers.{}.bias")
    eye = torch.eye(8)
    projections = [eye] * len(tables) if one_table else parts("transformer.word_emb.emb_projs.{}")
    rows = torch.cat([table @ projection.t() for table, projection in zip(tables, projections, strict=True)])
    x = rows[ids] * 8**0.5
    states = [x]
    for layer in range(2):
        name = f"transformer.layers.{layer}"
        q, k, v = (x @ tensors[f"{name}.dec_attn.qkv_net.weight"].t()).chunk(3, dim=1)
        u, w = (
            tensors.get(f"{name}.dec_attn.{bias}", tensors.get(f"transformer.{bias}"))
            for bias in ("r_w_bias", "r_r_bias")
        )
        attended = torch.zeros_like(x)
        for head in range(2):
            part = slice(4 * head, 4 * head + 4)
            for i in range(len(ids)):
                near = [j for j in range(i + 1) if not config["same_length"] or i - j < config["mem_len"]]
                scores = []
                for j in near:
                    distance = min(i - j, config["clamp_len"]) if config["clamp_len"] > 0 else i - j
                    angles = [distance / 10000 ** (2 * index / 8) for index in range(4)]
                    encoding = torch.tensor([*map(math.sin, angles), *map(math.cos, angles)])
                    r = tensors[f"{name}.dec_attn.r_net.weight"][part] @ encoding
                    scores.append(((q[i, part] + u[head]) @ k[j, part] + (q[i, part] + w[head]) @ r) / 2)
                attended[i, part] = torch.stack(scores).softmax(0) @ v[near, part]

        def norm(x: Tensor, kind: str, name: str = name) -> Tensor:
            prefix = f"{name}.{kind}.layer_norm"
            return F.layer_norm(x, (8,), tensors[f"{prefix}.weight"], tensors[f"{prefix}.bias"])

        x = norm(x + attended @ tensors[f"{name}.dec_attn.o_net.weight"].t(), "dec_attn")
        weights = [tensors[f"{name}.pos_ff.CoreNet.{part}"] for part in ("0.weight", "0.bias", "3.weight", "3.bias")]
        x = norm(x + F.linear(F.linear(x, *weights[:2]).relu(), *weights[2:]), "pos_ff")
        states.append(x)
    narrow = [x @ projection for projection in [tensors.get("crit.out_projs.0", projections[0]), *projections[1:]]]
    heads = [narrow[0] @ tables[0].t() + biases[0]]
    if len(tables) > 1:
        heads.append(narrow[0] @ tensors["crit.cluster_weight"].t() + tensors["crit.cluster_bias"])
    head = torch.cat(heads, dim=1).log_softmax(1)
    predicted = [head[:, : len(tables[0])]]
    for index in range(1, len(tables)):
        inside = (narrow[index] @ tables[index].t() + biases[index]).log_softmax(1)
        predicted.append(head[:, len(tables[0]) + index - 1, None] + inside)
    return states, torch.cat(predicted, dim=1)


def write(folder: Path, kind: str) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG | KINDS[kind]))
    (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in WORDS))
    save_file(tensors_of(kind), folder / "model.safetensors")
    return folder


@pytest.mark.parametrize("kind", list(KINDS))
def test_states_and_predictions_equal_the_equations(kind, tmp_path):
    folder = write(tmp_path / "published", kind)
    import_encoder(folder, output=tmp_path / "encoder")
    encoder = load_encoder(tmp_path / "encoder", verify=True)
    model, tokenizer = encoder.model, encoder.tokenizer
    assert isinstance(model, TransformerXL)
    assert tokenizer.pieces[5:] == [word for word in WORDS if word not in ("<eos>", "<unk>")]
    (ids,) = tokenizer.encode_batch(["the film is good Seoul it films a bad"])
    tokens = torch.tensor([model.special_tokens(ids.tolist())])
    theirs = [1, 0, 4, 11, 5, 7, 10, 3, 8, 6]
    states, predicted = by_loops(tensors_of(kind), theirs, CONFIG | KINDS[kind])
    places = [WORDS.index({"[UNK]": "<unk>", "[SEP]": "<eos>"}.get(piece, piece)) for piece in tokenizer.pieces if piece not in ("[PAD]", "[CLS]", "[MASK]")]  # noqa: E501  # fmt: skip
    with torch.no_grad():
        ours = [layer[0] for layer in model.hidden_states(tokens, torch.tensor([10]))]
        torch.testing.assert_close(ours, states, atol=1e-4, rtol=1e-4)
        whole = model.predict(tokens)[0]
        by_pieces, carry = [], ()
        for position in range(10):
            logits, carry = model.predict(tokens[:, position : position + 1], carry)
            by_pieces.append(logits)
    for logits in (whole, torch.cat(by_pieces, dim=1)):
        ours = logits[0].log_softmax(1)
        kept = [piece not in (0, 2, 4) for piece in range(15)]
        torch.testing.assert_close(ours[:, kept], predicted[:, places], atol=1e-4, rtol=1e-4)
        assert (ours.exp()[:, [0, 2, 4]] < 1e-12).all()


def test_a_folder_of_torch_files(tmp_path):
    folder = write(tmp_path / "published", "as wt103")
    before = read_published(folder)
    assert before.model.config.memory == before.model.config.evaluation_memory == 4
    (folder / "model.safetensors").unlink()
    tensors = tensors_of("as wt103")
    # As transformers wrote them: tied tensors under both names, and a buffer.
    for index in range(3):
        tensors[f"crit.out_layers.{index}.weight"] = tensors[f"transformer.word_emb.emb_layers.{index}.weight"]
    tensors |= {f"crit.out_projs.{index}": tensors[f"transformer.word_emb.emb_projs.{index}"] for index in (1, 2)}
    torch.save(tensors | {"transformer.pos_emb.inv_freq": torch.ones(4)}, folder / "pytorch_model.bin")
    (folder / "vocab.txt").unlink()
    torch.save({"idx2sym": WORDS, "lower_case": False}, folder / "vocab.bin")
    after = read_published(folder, digest=source_digest(folder))
    assert after.tokenizer.pieces == before.tokenizer.pieces
    torch.testing.assert_close(after.model.state_dict(), before.model.state_dict(), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: change(folder, pre_lnorm=True), "pre_lnorm is True, only False is supported"),
        (lambda folder: change(folder, attn_type=2), "attn_type is 2, only 0"),
        (lambda folder: change(folder, d_head=2), "d_head is 2, only None or 4"),
        (lambda folder: change(folder, d_embed=4), "d_embed is 4, only 8"),
        (
            lambda folder: change(folder, cutoffs="5"),
            "cutoffs is '5', expected a list of whole numbers",
        ),
        (
            lambda folder: change(folder, n_layer=1),
            "surplus transformer.layers.1.dec_attn.layer_norm.bias",
        ),
        (lambda folder: change(folder, d_inner=9), r"CoreNet.0.bias is \(12,\), expected \(9,\)"),
        (
            lambda folder: (folder / "vocab.txt").write_text("the\n"),
            "vocab.txt: has 1 words, but the model has 12 rows",
        ),
        (lambda folder: (folder / "vocab.txt").unlink(), r"no vocab.txt or vocab.bin; a pickle \(vocab.pkl\) can"),
        (
            lambda folder: (folder / "vocab.txt").write_text("\n".join([*WORDS[2:], *WORDS[:2]])),
            "vocab.txt: <unk> and <eos> are not among the first 5 words",
        ),
        (lambda folder: (folder / "model.safetensors").unlink(), "no model.safetensors; this folder has no weights"),
        (
            lambda folder: ((folder / "vocab.txt").unlink(), torch.save(["the"], folder / "vocab.bin")),
            "vocab.bin: has no list of words idx2sym",
        ),
        (
            lambda folder: ((folder / "model.safetensors").unlink(), torch.save([1], folder / "pytorch_model.bin")),
            "pytorch_model.bin: expected the tensors of a model by name",
        ),
        (
            lambda folder: save_file(
                tensors_of("as wt103") | {"crit.out_projs.1": torch.zeros(8, 4)}, folder / "model.safetensors"
            ),
            r"crit.out_projs.1 differs from transformer.word_emb.emb_projs.1: untied",
        ),
    ],
)
def test_folders_that_cannot_be_imported(damage, message, tmp_path):
    folder = write(tmp_path / "published", "as wt103")
    damage(folder)
    with pytest.raises(ArtifactError, match=message):
        read_published(folder)


def test_another_family(tmp_path):
    with pytest.raises(ConfigError, match="not supported by the family 'xlnet'; known: transformer-xl"):
        read_published(write(tmp_path / "published", "as wt103"), family="xlnet")
