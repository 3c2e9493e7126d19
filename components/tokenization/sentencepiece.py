"""Reader of SentencePiece models (spiece.model) without the sentencepiece library.

A model is a Protocol Buffers message; field numbers are from google/sentencepiece, src/sentencepiece_model.proto.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from components.errors import ArtifactError

UNIGRAM: Final = 1
_NORMAL: Final = 1


@dataclass(frozen=True)
class SentencePieceModel:
    """Content of a model file.

    Attributes:
        pieces: (piece, log probability), by id.
        unknown: id of the unknown piece.
        controls: pieces that do not represent text (the unknown piece, `<s>`, user-defined ones ...).
        charsmap: normalisation rules in base64, as the `tokenizers` library expects them; "" if there are none.
    """

    pieces: list[tuple[str, float]]
    unknown: int
    controls: frozenset[str]
    charsmap: str


def read_sentencepiece(path: Path) -> SentencePieceModel:
    """Read a unigram model.

    Raises:
        ArtifactError: the file is damaged, or the model is of another type (BPE, words, characters).
    """
    pieces: list[tuple[str, float]] = []
    controls: set[str] = set()
    unknown, kind, charsmap = 0, UNIGRAM, b""
    try:
        for number, value in _fields(path.read_bytes()):
            if number == 1:
                piece = dict(_fields(_bytes(value)))
                text = _bytes(piece[1]).decode()
                pieces.append((text, struct.unpack("<f", _bytes(piece.get(2, bytes(4))))[0]))
                if piece.get(3, _NORMAL) != _NORMAL:
                    controls.add(text)
            elif number == 2:
                trainer = dict(_fields(_bytes(value)))
                kind, unknown = int(trainer.get(3, UNIGRAM)), int(trainer.get(40, 0))
            elif number == 3:
                charsmap = _bytes(dict(_fields(_bytes(value))).get(2, b""))
    except (IndexError, KeyError, TypeError, ValueError, struct.error) as error:
        raise ArtifactError(f"{path}: not a readable SentencePiece model ({error!r}); download it again") from error
    if kind != UNIGRAM or not pieces:
        raise ArtifactError(f"{path}: not a unigram model; add the tokenizer.json of the model to the folder")
    return SentencePieceModel(pieces, unknown, frozenset(controls), base64.b64encode(charsmap).decode())


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """(number, value) of each field of a message."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, at = _varint(data, at)
            yield number, value
            continue
        if wire == 2:
            length, at = _varint(data, at)
        else:
            length = {1: 8, 5: 4}[wire]
        if at + length > len(data):
            raise ValueError("truncated")
        yield number, data[at : at + length]
        at += length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise TypeError("expected bytes, found a number")
    return value
