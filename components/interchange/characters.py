"""Import of flair's character models, forward and backward, as a FLAIR model.

The folder holds forward.safetensors and backward.safetensors, the tensors of `LanguageModel`, and characters.json, the
items of their dictionary in order (docs/families.md). The order of the gates is the same; the two biases of a gate are
added. <unk> becomes [UNK], and the line feed, with which flair begins a text, [SEP]. Other special pieces have no
counterpart: their embeddings are zero and their bias is `NEVER`. Items of more than one character are never used.
"""

import re
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from components.core.errors import ArtifactError
from components.data.segmenters import Segmentation
from components.interchange.published import NEVER, Imported, chosen_rows, unfit
from components.models.encoder import build_model, misfits
from components.tokenization.char import CharTokenizer
from components.tokenization.published import json_content
from components.tokenization.special import END, FIRST_ORDINARY, SPECIAL_PIECES, UNK

CHARACTERS: Final = "characters.json"
#: Direction -> file.
DIRECTIONS: Final = {"forwards": "forward.safetensors", "backwards": "backward.safetensors"}
FILES: Final = (*DIRECTIONS.values(), CHARACTERS)
#: Special piece -> item of flair's dictionary.
ITEMS: Final = {UNK: "<unk>", END: "\n"}
_LSTM: Final = re.compile(r"rnn\.weight_hh_l(\d+)")


def from_flair(folder: Path, *, family: str | None, digest: str) -> Imported:
    if family not in (None, "flair"):
        raise unfit(str(family), folder, ("flair",))
    items = _items(folder / CHARACTERS)
    row_of = {item: row for row, item in enumerate(items)}
    ordinary = [item for item in items if len(item) == 1 and item not in ITEMS.values()]
    special = [row_of.get(ITEMS.get(piece, ""), -1) for piece in range(FIRST_ORDINARY)]
    rows = torch.tensor([*special, *(row_of[item] for item in ordinary)])
    tensors: dict[str, Tensor] = {}
    settings: dict[str, Any] = {}
    for direction, name in DIRECTIONS.items():
        sizes, of_direction = _converted(folder / name, len(items), rows)
        if settings not in ({}, sizes):
            raise ArtifactError(f"{folder}: the sizes of the two directions differ: {settings}, {sizes}")
        settings = sizes
        tensors |= {f"{direction}.{key}": tensor for key, tensor in of_direction.items()}
    tokenizer = CharTokenizer([*SPECIAL_PIECES, *ordinary], segmentation=Segmentation("none"))
    model = build_model("flair", vocabulary=tokenizer.vocab_size, settings=settings, tokenizer=tokenizer.kind)
    model.load_state_dict(tensors)
    model.bind(tokenizer)
    log = [
        f"{folder}: flair's language models, forward and backward -> family 'flair', {settings}",
        f"tokenizer: char, {len(ordinary)} of {len(items)} items are characters",
    ]
    return Imported("flair", model.eval(), tokenizer, digest, log)


def _items(path: Path) -> list[str]:
    items = json_content(path)
    if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
        raise ArtifactError(f"{path}: expected a list of characters")
    if len({*items}) != len(items):
        raise ArtifactError(f"{path}: an item occurs twice")
    return items


def _converted(path: Path, items: int, rows: Tensor) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Settings, and the tensors of one direction; `rows` are the items of our pieces, -1 for none."""
    try:
        given = {name: tensor.float() for name, tensor in load_file(path).items()}
    except FileNotFoundError as error:
        raise ArtifactError(f"{path}: does not exist") from error
    except (SafetensorError, OSError) as error:
        raise ArtifactError(f"{path}: not readable as safetensors ({error}); write it again") from error
    layers = sum(_LSTM.fullmatch(name) is not None for name in given)
    if "encoder.weight" not in given or not layers or "rnn.weight_hh_l0" not in given:
        raise ArtifactError(f"{path}: not a language model of flair")
    embedding, hidden = given["encoder.weight"].shape[-1], given["rnn.weight_hh_l0"].shape[-1]
    if problems := misfits(
        _shapes(items, embedding, hidden, layers), {name: tuple(tensor.shape) for name, tensor in given.items()}
    ):
        raise ArtifactError(f"{path}: does not fit {CHARACTERS}, or is another model: {'; '.join(problems)}")
    result = {
        "embedding": chosen_rows(given["encoder.weight"], rows, 0.0),
        "output": chosen_rows(given["decoder.weight"], rows, 0.0),
        "bias": chosen_rows(given["decoder.bias"], rows, NEVER),
    }
    for layer in range(layers):
        result |= {f"lstms.{layer}.{part}": given[f"rnn.{part}_l{layer}"] for part in ("weight_ih", "weight_hh")}
        result[f"lstms.{layer}.bias"] = given[f"rnn.bias_ih_l{layer}"] + given[f"rnn.bias_hh_l{layer}"]
    return {"embedding": embedding, "hidden": hidden, "layers": layers}, result


def _shapes(items: int, embedding: int, hidden: int, layers: int) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {
        "encoder.weight": (items, embedding),
        "decoder.weight": (items, hidden),
        "decoder.bias": (items,),
    }
    for layer in range(layers):
        shapes |= {
            f"rnn.weight_ih_l{layer}": (4 * hidden, hidden if layer else embedding),
            f"rnn.weight_hh_l{layer}": (4 * hidden, hidden),
            f"rnn.bias_ih_l{layer}": (4 * hidden,),
            f"rnn.bias_hh_l{layer}": (4 * hidden,),
        }
    return shapes
