"""Import of ELMo's published weights, of bilm-tf and AllenNLP (Peters et al. 2018): options as JSON, weights as HDF5.

The package h5py reads PREFIXweights.hdf5; PREFIXoptions.json or options.json is beside it. TensorFlow's LSTM has the
gates in the order i, g, f, o, and adds 1 to f. The files have neither a softmax nor words: the vocabulary has
the special pieces only, every word is read by its characters, and adaptation learns the softmax of the domain's words.
<S> and </S> become [CLS] and [SEP]; the characters of the other special pieces have zero embeddings.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from components.core.errors import ArtifactError, ConfigError
from components.data.segmenters import Segmentation
from components.interchange.huggingface import Restored
from components.interchange.huggingface.rules import Rule, plain, restored, transposed
from components.interchange.published import Imported, check_family, chosen_rows, errors_of
from components.models.elmo import BEGIN, CHARACTERS, FINISH, FIRST_SPECIAL, PADDING, WORD_CHARACTERS
from components.tokenization.published import json_content
from components.tokenization.special import END, SPECIAL_PIECES, START
from components.tokenization.word import OpenWordTokenizer

SUFFIX: Final = ".hdf5"
WEIGHTS: Final = f"weights{SUFFIX}"
OPTIONS: Final = "options.json"
#: Rows of the published table of characters: 256 bytes, begin and end of a sentence and of a word, padding.
PUBLISHED_CHARACTERS: Final = 261
#: Character id of the family -> published id, for characters that are not bytes.
_MARKS: Final = {BEGIN: 258, FINISH: 259, PADDING: 260, FIRST_SPECIAL + START: 256, FIRST_SPECIAL + END: 257}
#: Gates i, f, g, o in the order of TensorFlow.
_GATES: Final = (0, 2, 1, 3)


def options_file(weights: Path) -> Path:
    names = [weights.name.removesuffix(WEIGHTS) + OPTIONS, OPTIONS]
    for name in names:
        if weights.with_name(name).is_file():
            return weights.with_name(name)
    raise ArtifactError(f"{weights}: its options are missing; put {' or '.join(dict.fromkeys(names))} beside it")


def from_elmo_file(weights: Path, *, family: str | None, digest: str) -> Imported:
    check_family(family, weights, "elmo")
    options = json_content(options_file(weights))
    with errors_of(weights):
        result = from_elmo(options, read_arrays(weights))
    tokenizer = OpenWordTokenizer(
        SPECIAL_PIECES, segmentation=Segmentation("none"), lowercase=False, strip_accents=False
    )
    log = [
        f"{weights}: ELMo -> family 'elmo', {result.settings}",
        f"tokenizer: {tokenizer.kind}, cased; every word is read by its characters",
        f"not in the file, initialised with zeros: {', '.join(result.fresh)}",
    ]
    return Imported.of("elmo", result.settings, result.tensors, tokenizer, digest, log, result.fresh)


def read_arrays(path: Path) -> dict[str, NDArray[np.float32]]:
    """The arrays of an HDF5 file by path. Raises ArtifactError: it is damaged; ConfigError: h5py is not installed."""
    try:
        import h5py
    except ImportError as error:
        raise ConfigError(f"{path}: reading HDF5 needs the package h5py: pip install h5py") from error
    arrays: dict[str, NDArray[np.float32]] = {}

    def keep(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            arrays[name] = item[()]

    try:
        with h5py.File(path, "r") as file:
            file.visititems(keep)
    except OSError as error:
        raise ArtifactError(f"not readable as HDF5 ({error}); download it again") from error
    return arrays


def from_elmo(options: Any, arrays: Mapping[str, NDArray[np.float32]]) -> Restored:
    """Convert options and arrays; the settings have a vocabulary of the special pieces.

    Raises:
        ArtifactError: an option is missing or not supported, or arrays are missing, surplus or misshapen.
    """
    try:
        lstm, characters = options["lstm"], options["char_cnn"]
        settings = {
            "vocabulary": len(SPECIAL_PIECES),
            "characters": characters["embedding"]["dim"],
            "filters": characters["filters"],
            "highway": characters.get("n_highway") or 0,
            "cells": lstm["dim"],
            "projection": lstm["projection_dim"],
            "layers": lstm["n_layers"],
            "clip": lstm["cell_clip"],
            "residual": lstm.get("use_skip_connections", False),
            "sentences": True,
        }
        values = {
            "lstm.proj_clip": (lstm["proj_clip"], lstm["cell_clip"]),
            "char_cnn.activation": (characters["activation"], "relu"),
            "char_cnn.max_characters_per_token": (characters["max_characters_per_token"], WORD_CHARACTERS),
        }
        rules = [*_word_rules(settings), *_lstm_rules(settings)]
    except (KeyError, TypeError, AttributeError) as error:
        raise ArtifactError(f"{OPTIONS}: not the options of an ELMo that reads characters ({error!r})") from error
    if problems := [
        f"{key} is {value!r}, only {only!r} is supported" for key, (value, only) in values.items() if value != only
    ]:
        raise ArtifactError(f"{OPTIONS}: {'; '.join(problems)}")
    tensors = {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}
    return restored("elmo", settings, rules, tensors, file=OPTIONS)


def _word_rules(settings: Mapping[str, Any]) -> list[Rule]:
    rows = torch.tensor([*range(256), *(_MARKS.get(character, -1) for character in range(256, CHARACTERS))])
    rules = [
        Rule(
            "words.characters",
            ("char_embed",),
            lambda table: (table.new_empty(PUBLISHED_CHARACTERS, table.shape[1]),),
            lambda table: chosen_rows(table, rows, 0.0),
        ),
        transposed("words.projection.weight", "CNN_proj/W_proj"),
        plain("words.projection.bias", "CNN_proj/b_proj"),
        plain("output", "softmax/W", part="softmax"),
        plain("bias", "softmax/b", part="softmax"),
    ]
    for index in range(len(settings["filters"])):
        # (1, width, characters, filters) -> (filters, characters, width).
        rules.append(
            Rule(
                f"words.filters.{index}.weight",
                (f"CNN/W_cnn_{index}",),
                lambda weight: (weight.permute(2, 1, 0).unsqueeze(0),),
                lambda weight: weight[0].permute(2, 1, 0),
            )
        )
        rules.append(plain(f"words.filters.{index}.bias", f"CNN/b_cnn_{index}"))
    for index in range(settings["highway"]):
        for ours, theirs in (("transform", "transform"), ("gate", "carry")):
            name = f"words.highways.{index}.{ours}"
            rules.append(transposed(f"{name}.weight", f"CNN_high_{index}/W_{theirs}"))
            rules.append(plain(f"{name}.bias", f"CNN_high_{index}/b_{theirs}"))
    return rules


def _lstm_rules(settings: Mapping[str, Any]) -> list[Rule]:
    inputs, cells = settings["projection"], settings["cells"]

    def rows(weight: Tensor) -> Tensor:
        gates = weight.t().chunk(4)
        return torch.cat([gates[gate] for gate in _GATES])

    def bias(values: Tensor) -> Tensor:
        gates = [values.chunk(4)[gate] for gate in _GATES]
        return torch.cat([gates[0], gates[1] + 1, *gates[2:]])

    def joint(weight: Tensor) -> tuple[Tensor]:
        # The weights of input and recurrent state in one matrix.
        return (weight.new_empty(2 * inputs, 4 * cells),)

    rules = []
    for direction, index in (("forwards", 0), ("backwards", 1)):
        ours, theirs = f"{direction}.lstms.{{layer}}", f"RNN_{index}/RNN/MultiRNNCell/Cell{{layer}}/LSTMCell"
        rules += [
            Rule(f"{ours}.weight_ih", (f"{theirs}/W_0",), joint, lambda weight: rows(weight)[:, :inputs]),
            Rule(f"{ours}.weight_hh", (f"{theirs}/W_0",), joint, lambda weight: rows(weight)[:, inputs:]),
            Rule(f"{ours}.bias", (f"{theirs}/B",), restore=bias),
            transposed(f"{ours}.weight_hr", f"{theirs}/W_P_0"),
        ]
    return rules
