"""File formats of labelled data and corpora: suffixes, keys of `data.tasks.<name>` with an effect, and kinds of task.

A format is an entry here and a reader in `components.data.formats.rows`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

#: Keys of columns that any table can have.
_PLACES: Final = frozenset(("slice", "group", "id"))
#: Keys that only some formats have.
FORMAT_KEYS: Final = _PLACES | {"header", "delimiter", "quotes", "encoding"}
_TAGGED: Final = ("classification", "multilabel", "tagging")
_LINES: Final = (*_TAGGED, "pair", "similarity", "regression")
_NESTED: Final = (*_LINES, "choice", "questions")


@dataclass(frozen=True)
class Format:
    """A format.

    Attributes:
        kinds: of task that it can hold.
        keys: of `FORMAT_KEYS` that have an effect.
        suffixes: of its files, in lower case; of a compressed one before .gz, .zst or .zip.
        table: whether it is a table whose columns have names or numbers.
        corpus: whether a corpus can have such files.
        tool: whether an annotation tool exports it, whose spans are characters.
    """

    kinds: tuple[str, ...]
    keys: frozenset[str] = _PLACES
    suffixes: tuple[str, ...] = ()
    table: bool = False
    corpus: bool = False
    tool: bool = False


FORMATS: Final = {
    "csv": Format((*_LINES, "choice"), FORMAT_KEYS, (".csv",), table=True, corpus=True),
    "tsv": Format((*_LINES, "choice"), FORMAT_KEYS, (".tsv", ".tab"), table=True, corpus=True),
    "jsonl": Format(_NESTED, _PLACES | {"encoding"}, (".jsonl", ".ndjson"), table=True, corpus=True),
    "json": Format(_NESTED, suffixes=(".json",), table=True),
    "parquet": Format(_NESTED, suffixes=(".parquet",), table=True, corpus=True),
    "workbook": Format(
        (*_LINES, "choice"),
        _PLACES | {"header"},
        (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods"),
        table=True,
        corpus=True,
    ),
    "parallel": Format(_LINES, _PLACES | {"encoding"}),
    "datasets": Format(_NESTED, suffixes=(".arrow",)),
    "label-studio": Format(_LINES, tool=True),
    "doccano": Format(_TAGGED, tool=True),
    "prodigy": Format(_TAGGED, tool=True),
    "label-first": Format(("classification", "multilabel"), frozenset(("encoding",))),
    "classes": Format(("classification",), frozenset(("encoding",))),
    "conll": Format(("tagging",), frozenset(("delimiter", "encoding")), (".conll", ".bio", ".iob")),
    "conllu": Format(("tagging",), suffixes=(".conllu",)),
    "squad": Format(("questions",), frozenset(("slice", "group"))),
}
#: Suffix -> format.
SUFFIXES: Final = {suffix: name for name, format in FORMATS.items() for suffix in format.suffixes}


def is_table(name: str) -> bool:
    """Whether a format is a table; `texts` and others that hold no labelled data are none."""
    return name in FORMATS and FORMATS[name].table


def holding(kind: str) -> Iterator[str]:
    """The formats that can hold a kind of task."""
    return (name for name, format in FORMATS.items() if kind in format.kinds)
