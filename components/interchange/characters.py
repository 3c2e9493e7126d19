"""Import of flair's character models, forward and backward, as a FLAIR model.

The folder holds forward.safetensors and backward.safetensors, the tensors of `LanguageModel`, and characters.json, the
items of their dictionary in order (docs/families.md). The order of the gates is the same; the two biases of a gate are
added. <unk> becomes [UNK], and the line feed, with which flair begins a text, [SEP]. Other special pieces have no
counterpart: their embeddings are zero and their bias is `NEVER`. Items of more than one character are never used.
"""

from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from components.core.errors import ArtifactError
from components.data.segmenters import Segmentation
from components.interchange.huggingface import Restored
from components.interchange.huggingface.rules import Rule, lstm, plain, restored
from components.interchange.published import (
    NEVER,
    Imported,
    check_family,
    chosen_rows,
    errors_of,
    read_tensors,
    texts_in,
)
from components.tokenization.char import CharTokenizer
from components.tokenization.published import json_content
from components.tokenization.special import END, FIRST_ORDINARY, SPECIAL_PIECES, UNK

CHARACTERS: Final = "characters.json"
#: Direction -> file.
DIRECTIONS: Final = {"forwards": "forward.safetensors", "backwards": "backward.safetensors"}
FILES: Final = (*DIRECTIONS.values(), CHARACTERS)
#: Special piece -> item of flair's dictionary.
ITEMS: Final = {UNK: "<unk>", END: "\n"}


def from_flair(folder: Path, *, family: str | None, digest: str) -> Imported:
    check_family(family, folder, "flair")
    items = _items(folder / CHARACTERS)
    row_of = {item: row for row, item in enumerate(items)}
    ordinary = [item for item in items if len(item) == 1 and item not in ITEMS.values()]
    special = [row_of.get(ITEMS.get(piece, ""), -1) for piece in range(FIRST_ORDINARY)]
    rows = torch.tensor([*special, *(row_of[item] for item in ordinary)])
    tensors: dict[str, Tensor] = {}
    settings: dict[str, Any] = {}
    for direction, name in DIRECTIONS.items():
        result = _converted(folder / name, direction, len(items))
        if settings not in ({}, result.settings):
            raise ArtifactError(f"{folder}: the sizes of the two directions differ: {settings}, {result.settings}")
        settings = result.settings
        tensors |= result.tensors
        for part, missing in (("embedding", 0.0), ("output", 0.0), ("bias", NEVER)):
            tensors[f"{direction}.{part}"] = chosen_rows(tensors[f"{direction}.{part}"], rows, missing)
    tokenizer = CharTokenizer([*SPECIAL_PIECES, *ordinary], segmentation=Segmentation("none"))
    log = [
        f"{folder}: flair's language models, forward and backward -> family 'flair', {settings}",
        f"tokenizer: char, {len(ordinary)} of {len(items)} items are characters",
    ]
    return Imported.of("flair", settings, tensors, tokenizer, digest, log)


def _items(path: Path) -> list[str]:
    items = texts_in(json_content(path), f"{path}: expected a list of characters")
    if len({*items}) != len(items):
        raise ArtifactError(f"{path}: an item occurs twice")
    return items


def _rules(direction: str) -> list[Rule]:
    return [
        plain(f"{direction}.embedding", "encoder.weight"),
        plain(f"{direction}.output", "decoder.weight"),
        plain(f"{direction}.bias", "decoder.bias"),
        *lstm(f"{direction}.lstms.{{layer}}", "rnn.{}_l{layer}"),
    ]


def _converted(path: Path, direction: str, items: int) -> Restored:
    given = read_tensors([path])
    try:
        embedding, hidden = given["encoder.weight"].shape[-1], given["rnn.weight_hh_l0"].shape[-1]
        layers = sum(name.startswith("rnn.weight_hh") for name in given)
        settings = {"vocabulary": items, "embedding": embedding, "hidden": hidden, "layers": layers}
        with errors_of(path):
            return restored("flair", settings, _rules(direction), given, file=f"{CHARACTERS}, or are another model's")
    except KeyError as error:
        raise ArtifactError(f"{path}: not a language model of flair") from error
