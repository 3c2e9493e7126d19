"""Predictions of an exported graph by onnxruntime and tokenizers, as a user of the folder computes them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from components.errors import ConfigError
from components.interchange.task_onnx import CONFIG, INT8, MODEL, TOKENIZER
from components.tasks.data import Fields


def predict(directory: Path, rows: Sequence[Fields], *, int8: bool = False) -> list[NDArray[np.float32]]:
    """The outputs of the graph of a folder, one row at a time.

    Args:
        directory: with config.json, tokenizer.json and the graph.
        int8: whether the quantised graph is used.

    Returns:
        N vectors (C,).

    Raises:
        ConfigError: onnxruntime is missing.
    """
    try:
        import onnxruntime
        from tokenizers import Tokenizer
    except ImportError as error:
        raise ConfigError(f"the exported model needs the package {error.name}: pip install {error.name}") from error
    config = json.loads((directory / CONFIG).read_text(encoding="utf-8"))
    tokenizer = Tokenizer.from_file(str(directory / TOKENIZER))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    graph = str(directory / (INT8 if int8 else MODEL))
    session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    names = {given.name for given in session.get_inputs()}
    answers = []
    for row in rows:
        pieces = [list(tokenizer.encode(text, add_special_tokens=False).ids) for text in row]
        ids, segments = zip(*_joined(pieces, config), strict=True)
        inputs = {"tokens": [ids], "lengths": [len(ids)], "segments": [segments]}
        given = {name: np.asarray(value, dtype=np.int64) for name, value in inputs.items() if name in names}
        answers.append(np.asarray(session.run(None, given)[0][0], dtype=np.float32))
    return answers


def _joined(pieces: list[list[int]], config: dict[str, Any]) -> Iterator[tuple[int, int]]:
    """(piece, segment) of one input; longer texts are truncated."""
    room = max(1, config["room"])
    if len(pieces) == 1:
        pieces = [pieces[0][:room] or [config["unknown"]]]
    else:
        first, second = pieces
        kept = max(1, min(len(first), max(room - len(second), -(-room // 2))))
        pieces = [first[:kept], second[: max(1, room - kept)]]
    # The entries -1 and -2 of the template stand for the pieces of the texts.
    for entry, segment in zip(config["template"], config["segments"], strict=True):
        for piece in [entry] if entry >= 0 else pieces[-1 - entry]:
            yield piece, segment
