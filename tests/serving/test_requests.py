"""Request bodies: each format, and each bad row with its reason."""

from __future__ import annotations

import json
from typing import Any

import pytest

from components.errors import DataError
from components.serving.requests import read_rows
from components.tasks.kinds import find_kind

TEXT = find_kind("classification").io
PAIR = find_kind("pair").io
WORDS = find_kind("tagging").io


def read(content: Any, io: Any = TEXT, characters: int = 100) -> list[Any]:
    rows = read_rows(json.dumps(content).encode(), io, characters=characters)
    found = zip(rows.fields, rows.problems, strict=True)
    return [fields if fields is not None else problem for fields, problem in found]


@pytest.mark.parametrize(
    "content",
    [
        {"inputs": {"text": ["a", "b"]}},
        {"inputs": [{"text": "a"}, {"text": "b"}]},
        {"dataframe_records": [{"text": "a"}, {"text": "b", "id": 7}]},
        {"dataframe_split": {"columns": ["text", "id"], "data": [["a", 1], ["b", 2]]}},
    ],
)
def test_formats(content: Any) -> None:
    assert read(content) == [("a",), ("b",)]


def test_inputs_of_other_kinds() -> None:
    assert read({"inputs": {"first": "a", "second": "b"}}, PAIR) == [("a", "b")]
    assert read({"inputs": [{"words": ["a", "b"]}, {"words": ["a", 5]}]}, WORDS) == [
        ("a", "b"),
        "'words' is list, expected a list of texts",
    ]


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"text": None}, "'text' is missing or null"),
        ({}, "'text' is missing or null"),
        ({"text": float("nan")}, "'text' is NaN, expected text"),
        ({"text": 5}, "'text' is int, expected text"),
        ({"text": ["a"]}, "'text' is list, expected text"),
        ({"text": "  "}, "a part of the input is empty (text)"),
        ({"text": "x" * 101}, "101 characters, more than the limit of 100 (serve.row_characters)"),
        (5, "the row is a number, expected an object with text"),
        (None, "the row is null, expected an object with text"),
    ],
)
def test_a_bad_row_is_refused_and_the_others_stay(row: Any, problem: str) -> None:
    assert read({"inputs": [{"text": "a"}, row, {"text": "b"}]}) == [("a",), problem, ("b",)]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "the body is not JSON"),
        (b"[" * 100_000, "the body is not JSON"),
        (b"[1]", "the body is a list, expected an object with the key inputs"),
        (b"{}", "the body needs one of the keys inputs, dataframe_records, dataframe_split; found none"),
        (b'{"inputs": 5}', "inputs is a number, expected a list of rows"),
        (b'{"inputs": {"txt": ["a"]}}', "inputs: unknown column 'txt'; did you mean 'text'?"),
        (b'{"dataframe_split": {"columns": ["text"]}}', "dataframe_split needs the lists columns and data"),
    ],
)
def test_a_body_in_another_format(body: bytes, message: str) -> None:
    with pytest.raises(DataError) as caught:
        read_rows(body, TEXT, characters=100)
    assert str(caught.value).startswith(message)


def test_columns_of_different_lengths() -> None:
    with pytest.raises(DataError, match="different numbers of values"):
        read({"inputs": {"first": ["a"], "second": ["b", "c"]}}, PAIR)
