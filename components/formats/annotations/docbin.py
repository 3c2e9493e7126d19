"""spaCy's DocBin (`.spacy`): texts split into tokens, with entities and categories.

https://spacy.io/api/docbin. The file is a zlib-compressed MessagePack of arrays: ids of the token texts, of the
entities and their position in an entity (0 unknown, 1 inside, 2 outside, 3 begin), and one map of categories per text.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import astuple
from pathlib import Path
from typing import Any, Final

import msgpack
import numpy as np

from components.errors import DataError
from components.formats.annotations.records import LABEL, Annotated, CharSpan, PredictedRow
from components.formats.annotations.spacy_strings import ENT_IOB, ENT_TYPE, ORTH, SYMBOLS, string_id
from components.formats.lines import Reading
from components.formats.words import covered

VERSION: Final = "0.1"
INSIDE, OUTSIDE, BEGIN = 1, 2, 3
_POSITIONS: Final = {"I": INSIDE, "O": OUTSIDE, "B": BEGIN}
_COLUMNS: Final = {"orth": ORTH, "iob": ENT_IOB, "type": ENT_TYPE}
#: A category counts as given from this value.
GIVEN: Final = 0.5


def read_docbin(path: Path, reading: Reading, *, every: bool = False) -> Iterator[Annotated]:
    """Iterate over the texts of a file, each with its entities and the categories whose value is at least 0.5.

    Texts without entity annotation (all positions 0) have no spans. Other annotations are ignored. Texts without any
    annotation are counted and left out, or with `every` yielded too.

    Raises:
        DataError: the file is not a DocBin, or a string is missing in it.
    """
    content = _content(path, reading)
    try:
        attributes = [int(number) for number in content["attrs"]]
        lengths = np.frombuffer(content["lengths"], dtype=np.int32)
        tokens = np.frombuffer(content["tokens"], dtype=np.uint64).reshape(-1, len(attributes))
        spaces = np.frombuffer(content["spaces"], dtype=bool)
        names = {string_id(text): text for text in content["strings"]}
        cats: list[dict[str, float]] = content["cats"]
        flags: list[dict[str, Any]] = content.get("flags") or [{}] * len(lengths)
        if not len(cats) == len(flags) == len(lengths) or not len(tokens) == len(spaces) == lengths.sum():
            raise ValueError("its arrays differ in length")
        column = {name: attributes.index(number) for name, number in _COLUMNS.items() if number in attributes}
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise DataError(f"{path}: is not a DocBin of spaCy 3 ({error}); write it with DocBin.to_disk") from error
    end = 0
    for number, length in enumerate(lengths.tolist(), 1):
        start, end = end, end + length
        where = f"{path}, text {number}"
        own = tokens[start:end]
        words = [_string(int(key), names, where) for key in own[:, column["orth"]]]
        spaced = [True] * length if flags[number - 1].get("has_unknown_spaces") else spaces[start:end].tolist()
        text, bounds = _joined(words, spaced)
        found = Annotated(number, {"text": text, "words": [word for word in words if word.strip()]})
        found.tokens = [bound for bound, word in zip(bounds, words, strict=True) if word.strip()]
        if "iob" in column and "type" in column and own[:, column["iob"]].any():
            kinds = [_string(int(key), names, where) for key in own[:, column["type"]]]
            found.spans[LABEL] = _entities(own[:, column["iob"]].tolist(), kinds, bounds)
        if given := cats[number - 1]:
            found.chosen[LABEL] = [str(name) for name, value in given.items() if value >= GIVEN]
        if not (found.spans or found.chosen or every):
            reading.skipped["without_annotation"] += 1
            continue
        yield found


def remove_texts(path: Path, target: Path, held: Callable[[str], bool]) -> tuple[int, int]:
    """Write a DocBin without the texts for which `held` is true; returns the numbers of removed and of kept texts.

    Raises:
        DataError: as `read_docbin`.
    """
    content = dict(_content(path, Reading()))
    gone = [held(record.data["text"]) for record in read_docbin(path, Reading(), every=True)]
    lengths, before = np.frombuffer(content["lengths"], dtype=np.int32), content["tokens"]
    kept = np.repeat([not one for one in gone], lengths)
    tokens = np.frombuffer(content["tokens"], dtype=np.uint64).reshape(len(kept), -1)[kept]
    content["tokens"] = tokens.tobytes()
    content["spaces"] = np.frombuffer(content["spaces"], dtype=bool)[kept].tobytes()
    content["lengths"] = lengths[[not one for one in gone]].tobytes()
    for name in ("cats", "flags", "span_groups", "user_data"):
        if name in content:
            content[name] = [value for value, one in zip(content[name], gone, strict=True) if not one]
    # Of the strings, those that only removed texts use go too.
    used = {int(key) for key in np.unique(tokens)}
    unused = {int(key) for key in np.unique(np.frombuffer(before, dtype=np.uint64))} - used
    content["strings"] = [text for text in content["strings"] if string_id(text) not in unused]
    target.write_bytes(zlib.compress(msgpack.packb(content, use_bin_type=True)))
    return sum(gone), len(gone) - sum(gone)


def _content(path: Path, reading: Reading) -> Mapping[str, Any]:
    try:
        raw = path.read_bytes()
        content = msgpack.unpackb(zlib.decompress(raw), strict_map_key=False)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    except (zlib.error, ValueError, msgpack.UnpackException) as error:
        raise DataError(f"{path}: is not a DocBin of spaCy 3 ({error}); write it with DocBin.to_disk") from error
    if not isinstance(content, dict):
        raise DataError(f"{path}: is not a DocBin of spaCy 3; write it with DocBin.to_disk")
    reading.consumed += len(raw)
    return content


def _string(key: int, names: Mapping[int, str], where: str) -> str:
    if key in names:
        return names[key]
    if key < len(SYMBOLS):
        return SYMBOLS[key]
    raise DataError(f"{where}: the string with the id {key} is not in the file; write it again with DocBin.to_disk")


def _joined(words: list[str], spaced: list[bool]) -> tuple[str, list[tuple[int, int]]]:
    """The text of tokens, and the characters of each."""
    parts, bounds, position = [], [], 0
    for word, space in zip(words, spaced, strict=True):
        parts.append(word + " " * space)
        bounds.append((position, position + len(word)))
        position += len(word) + space
    return "".join(parts), bounds


def _entities(positions: list[int], kinds: list[str], bounds: list[tuple[int, int]]) -> list[CharSpan]:
    spans: list[CharSpan] = []
    inside = False
    for position, kind, (start, end) in zip(positions, kinds, bounds, strict=True):
        if position == INSIDE and inside and spans[-1].label == kind:
            spans[-1] = CharSpan(spans[-1].start, end, kind)
        elif position in (BEGIN, INSIDE):
            spans.append(CharSpan(start, end, kind))
        inside = position in (BEGIN, INSIDE)
    return spans


def write_docbin(path: Path, rows: Iterable[PredictedRow], *, model: str) -> None:
    """Write texts with predicted entities, or with the predicted probabilities as categories.

    Args:
        path: of the file.
        rows: with their predictions.
        model: name of the model; the format has no place for it.
    """
    strings: set[str] = set()
    tokens: list[tuple[int, int, int]] = []
    spaces: list[bool] = []
    lengths: list[int] = []
    cats: list[dict[str, float]] = []
    for row in rows:
        bounds = _tokens(row)
        lengths.append(len(bounds))
        shares = dict(row.shares) or dict.fromkeys(row.labels or (), 1.0)
        cats.append({} if row.labels is None else shares)
        tags = None if row.spans is None else covered(bounds, map(astuple, row.spans))[0]
        for index, (start, end) in enumerate(bounds):
            prefix, _, kind = tags[index].partition("-") if tags else ("", "", "")
            strings |= {row.text[start:end], kind}
            tokens.append((string_id(row.text[start:end]), _POSITIONS.get(prefix, 0), string_id(kind)))
            spaces.append(row.text[end : end + 1] == " ")
    content = {
        "version": VERSION,
        "attrs": [ORTH, ENT_IOB, ENT_TYPE],
        "tokens": np.asarray(tokens, dtype=np.uint64).reshape(-1, 3).tobytes(),
        "spaces": np.asarray(spaces, dtype=bool).tobytes(),
        "lengths": np.asarray(lengths, dtype=np.int32).tobytes(),
        "strings": sorted(strings),
        "cats": cats,
        "flags": [{"has_unknown_spaces": False}] * len(lengths),
        "span_groups": [b""] * len(lengths),
    }
    path.write_bytes(zlib.compress(msgpack.packb(content, use_bin_type=True)))


def _tokens(row: PredictedRow) -> list[tuple[int, int]]:
    """The words, and between them the white space that is more than one space, as spaCy's tokenizer does."""
    found: list[tuple[int, int]] = []
    position = 0
    for start, end in [*row.tokens, (len(row.text), len(row.text))]:
        # The first space after a word is part of it.
        begin = position + (bool(found) and row.text[position : position + 1] == " ")
        if begin < start:
            found.append((begin, start))
        if start < end:
            found.append((start, end))
        position = end
    return found
