"""SentencePiece model files, built byte by byte like those of its library."""

from __future__ import annotations

import base64
import struct
from pathlib import Path

import pytest

from components.errors import ArtifactError
from components.tokenization.published import read_vocabulary
from components.tokenization.sentencepiece import read_sentencepiece

NORMAL, UNKNOWN, CONTROL = 1, 2, 3
PIECES = [
    ("<unk>", 0.0, UNKNOWN),
    ("<s>", 0.0, CONTROL),
    ("▁a", -1.0, NORMAL),
    ("b", -2.5, NORMAL),
    ("▁", -3.0, NORMAL),
]


def varint(value: int) -> bytes:
    encoded = b""
    while value > 0x7F:
        encoded += bytes([value & 0x7F | 0x80])
        value >>= 7
    return encoded + bytes([value])


def field(number: int, value: int | float | bytes) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def model(*, kind: int = 1, charsmap: bytes = b"", pieces: list[tuple[str, float, int]] = PIECES) -> bytes:
    body = b"".join(
        field(1, field(1, name.encode()) + field(2, score) + (field(3, sort) if sort != NORMAL else b""))
        for name, score, sort in pieces
    )
    # A field that nothing here reads, and a large number in it.
    trainer = field(3, kind) + field(4, 300_000) + field(40, 0)
    return body + field(2, trainer) + field(3, field(1, b"nmt_nfkc") + (field(2, charsmap) if charsmap else b""))


def test_pieces_scores_and_rules(tmp_path: Path) -> None:
    (tmp_path / "spiece.model").write_bytes(model(charsmap=b"\x01\x02" * 100))
    read = read_sentencepiece(tmp_path / "spiece.model")
    assert read.pieces == [(name, score) for name, score, _ in PIECES]
    assert read.unknown == 0
    assert read.controls == {"<unk>", "<s>"}
    assert base64.b64decode(read.charsmap) == b"\x01\x02" * 100


def test_a_folder_with_a_sentencepiece_model_only(tmp_path: Path) -> None:
    (tmp_path / "spiece.model").write_bytes(model())
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    vocabulary = read_vocabulary(tmp_path)
    tokenizer = vocabulary.tokenizer
    assert tokenizer.pieces[5:] == ["▁a", "b", "▁"]
    assert vocabulary.rows == [-1, 0, 1, -1, -1, 2, 3, 4]
    # Lower case, accents off; `<s>` in a text is no piece.
    assert tokenizer.encode_batch(["Áb B", "<s>"])[0].tolist() == [5, 6, 7, 6]
    assert 2 not in tokenizer.encode_batch(["<s>"])[0]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (model(kind=2), "not a unigram model; add the tokenizer.json of the model"),
        (b"", "not a unigram model"),
        (model()[:-3], r"not a readable SentencePiece model \(ValueError\('truncated'\)\); download it again"),
        (b"\x0a", "not a readable SentencePiece model"),
        (b"{}", "not a readable SentencePiece model"),
    ],
)
def test_damaged_files(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "spiece.model").write_bytes(content)
    with pytest.raises(ArtifactError, match=message):
        read_sentencepiece(tmp_path / "spiece.model")
