"""SentencePiece's model files (spiece.model), read without its library: a Protocol Buffers message of few fields.

The fields and their numbers: google/sentencepiece, src/sentencepiece_model.proto.
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
    """What such a file says.

    Attributes:
        pieces: piece -> log probability, in the order of the ids.
        unknown: id of the unknown piece.
        controls: pieces that stand for no text (the unknown one, `<s>`, what a user defined ...).
        charsmap: the normalisation rules, in base64 as the `tokenizers` library takes them; "" for none.
    """

    pieces: list[tuple[str, float]]
    unknown: int
    controls: frozenset[str]
    charsmap: str


def read_sentencepiece(path: Path) -> SentencePieceModel:
    """Read a unigram model.

    Raises:
        ArtifactError: the file is damaged, or a model of another type (BPE, words, characters).
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
        raise ArtifactError(f"{path}: no readable SentencePiece model ({error!r}); fetch it again") from error
    if kind != UNIGRAM or not pieces:
        raise ArtifactError(f"{path}: not a unigram model; put the folder's tokenizer.json beside it instead")
    return SentencePieceModel(pieces, unknown, frozenset(controls), base64.b64encode(charsmap).decode())


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Number and value of each field of a message."""
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
            raise ValueError("cut off")
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
        raise TypeError("a number where a text was expected")
    return value
