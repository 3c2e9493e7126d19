"""File formats of labelled data and corpora: suffixes, keys of `data.tasks.<name>` with an effect, and kinds of task.

A format is an entry here and the module that it names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Final

#: Keys of columns that any table can have.
_PLACES: Final = frozenset(("slice", "group", "id"))
#: Keys that only some formats have.
FORMAT_KEYS: Final = _PLACES | {"header", "delimiter", "quotes", "encoding"}
_TAGGED: Final = ("classification", "multilabel", "tagging")
_LINES: Final = (*_TAGGED, "pair", "similarity", "regression")
_ROWS: Final = (*_LINES, "choice")
_NESTED: Final = (*_ROWS, "questions")


@dataclass(frozen=True)
class Format:
    """A format.

    Attributes:
        reader: "module:function" of `components.data.formats` that reads its files.
        kinds: of task that it can hold.
        keys: of `FORMAT_KEYS` that have an effect.
        suffixes: of its files, in lower case; of a compressed one before .gz, .zst or .zip.
        table: whether it is a table whose columns have names or numbers.
        corpus: whether a corpus can have such files.
        tool: whether an annotation tool exports it, whose spans are characters.
        only: key -> the values that it can have.
        unit: what a row is called in messages.
        id: column of a row's id, if the format has one.
        tagging: columns of the words and of the tags, unless they are named.
    """

    reader: str
    kinds: tuple[str, ...]
    keys: frozenset[str] = _PLACES
    suffixes: tuple[str, ...] = ()
    table: bool = False
    corpus: bool = False
    tool: bool = False
    only: Mapping[str, tuple[str | None, ...]] = field(default_factory=dict)
    unit: str = "line"
    id: str | None = None
    tagging: tuple[str, str] = ("words", "tags")


_SPANS: Final = ("text", "label")
#: The reader of a file without labels.
TEXTS: Final = "plain:read_texts"
FORMATS: Final = {
    "csv": Format("delimited:read_delimited", _ROWS, FORMAT_KEYS, (".csv",), table=True, corpus=True),
    "tsv": Format("delimited:read_delimited", _ROWS, FORMAT_KEYS, (".tsv", ".tab"), table=True, corpus=True),
    "jsonl": Format(
        "jsontables:read_jsonl", _NESTED, _PLACES | {"encoding"}, (".jsonl", ".ndjson"), table=True, corpus=True
    ),
    "json": Format("jsontables:read_json", _NESTED, suffixes=(".json",), table=True, unit="row"),
    "parquet": Format("parquets:read_parquet", _NESTED, suffixes=(".parquet",), table=True, corpus=True, unit="row"),
    "workbook": Format(
        "workbook:read_workbook",
        _ROWS,
        _PLACES | {"header"},
        (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods"),
        table=True,
        corpus=True,
        unit="row",
    ),
    "parallel": Format("plain:read_parallel", _LINES, _PLACES | {"encoding"}, tagging=("seq.in", "seq.out")),
    "datasets": Format("hub:read_hub", _NESTED, suffixes=(".arrow",), unit="row"),
    "label-studio": Format("annotations:read_annotated", _LINES, tool=True, unit="task", tagging=_SPANS),
    "doccano": Format("annotations:read_annotated", _TAGGED, tool=True, tagging=_SPANS),
    "prodigy": Format("annotations:read_annotated", _TAGGED, tool=True, tagging=_SPANS),
    "label-first": Format("plain:read_label_first", ("classification", "multilabel"), frozenset(("encoding",))),
    "classes": Format("plain:read_classes", ("classification",), frozenset(("encoding",)), unit="text"),
    "conll": Format(
        "conll:read_conll",
        ("tagging",),
        frozenset(("delimiter", "encoding")),
        (".conll", ".bio", ".iob"),
        only={"document": (None, "marks", "empty_lines", "file")},
        id="sent_id",
        tagging=("0", "-1"),
    ),
    "conllu": Format(
        "conll:read_conll",
        ("tagging",),
        suffixes=(".conllu",),
        only={"words": (None, "form")},
        id="sent_id",
        tagging=("form", "upos"),
    ),
    "squad": Format(
        "jsontables:read_squad",
        ("questions",),
        frozenset(("slice", "group")),
        only={"slice": (None, "title"), "group": (None, "auto", "title")},
        unit="question",
        id="id",
    ),
}


def reader_of(name: str) -> Any:
    """The function that reads a format, or `texts`, lines without labels. Who imports this function can reach every
    reader (`components.pipeline.code_identity`)."""
    module, _, function = (FORMATS[name].reader if name in FORMATS else TEXTS).partition(":")
    return getattr(import_module(f"components.data.formats.{module}"), function)


def suffix_of(name: str) -> str:
    """The suffix of a file's name that says its format: `.jsonl` of `A.JSONL.gz`; empty if there is none."""
    name = name.lower()
    for packed in (".gz", ".zst", ".zip"):
        name = name.removesuffix(packed)
    return Path(name).suffix


def by_name(name: str) -> str:
    """The format that the name of a file says; empty if it says none."""
    suffix = suffix_of(name)
    return next((form for form, format in FORMATS.items() if suffix in format.suffixes), "")


def is_table(name: str) -> bool:
    """Whether a format is a table; `texts` and others that hold no labelled data are none."""
    return name in FORMATS and FORMATS[name].table
