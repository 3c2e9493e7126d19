"""Request bodies: the same rules in every form, each bad row with its reason, and no body that fails."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from components.core.errors import DataError
from components.data.tasks.kinds import KINDS, find_kind
from components.serving.app import TooManyRowsError, read_rows

TEXT = find_kind("classification").io
PAIR = find_kind("pair").io
WORDS = find_kind("tagging").io
MOST = 50


def read(content: Any, io: Any = TEXT, characters: int = 100) -> list[Any]:
    rows = read_rows(json.dumps(content).encode(), io, characters=characters, most=MOST)
    result = zip(rows.fields, rows.problems, strict=True)
    return [fields if fields is not None else problem for fields, problem in result]


TABLE = {"columns": ["id", "text"], "data": [[1, "a"], [2, "b"]]}
VALUES = [
    ["a", "b"],
    [{"text": "a"}, {"text": "b", "id": 7}],
    ["a", {"text": "b"}],
    {"text": ["a", "b"]},
    {"text": ["a", "b"], "id": [1, 2]},
    TABLE,
    TABLE | {"index": [0, 1]},
]


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("key", ["inputs", "instances", "dataframe_records", "dataframe_split", None])
def test_every_form_has_the_same_values(key, value):
    assert read(value if key is None else {key: value, "params": {}}) == [("a",), ("b",)]


@pytest.mark.parametrize("value", ["a", ["a"], {"text": "a"}])
@pytest.mark.parametrize("key", ["inputs", "instances", None])
def test_one_row(key, value):
    assert read(value if key is None else {key: value}) == [("a",)]


def test_inputs_of_other_kinds():
    assert read({"inputs": {"first": "a", "second": "b"}}, PAIR) == [("a", "b")]
    assert read({"inputs": ["a", ["a", "b"]]}, PAIR) == [
        "the row is text, expected an object with first, second",
        "the row is a list, expected an object with first, second",
    ]
    wrong = "'words' is list, expected a list of texts"
    assert read({"inputs": [{"words": ["a", "b"]}, {"words": ["a", 5]}]}, WORDS) == [("a", "b"), wrong]
    assert read([["a", "b"], ["c"]], WORDS) == read({"words": [["a", "b"], ["c"]]}, WORDS) == [("a", "b"), ("c",)]


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"text": None}, "'text' is missing or null"),
        ({}, "'text' is missing or null"),
        ({"txt": "a", "\ud800": 1}, "'text' is missing or null; the row has 'txt', '\ufffd'"),
        ({"text": float("nan")}, "'text' is NaN, expected text"),
        ({"text": 5}, "'text' is int, expected text"),
        ({"text": ["a"]}, "'text' is list, expected text"),
        (["a"], "'text' is list, expected text"),
        ({"text": "  "}, "a part of the input is empty (text)"),
        ({"text": "x" * 101}, "101 characters, more than the limit of 100"),
        ({"text": "a\0"}, "contains a NUL character; remove it"),
        (5, "the row is a number, expected an object with text"),
        (None, "the row is null, expected an object with text"),
    ],
)
def test_a_bad_row_is_refused_and_the_others_stay(row, problem):
    assert read({"inputs": [{"text": "a"}, row, {"text": "b"}]}) == [("a",), problem, ("b",)]


def test_choices_that_are_nested_too_deeply():
    (problem,) = read({"text": "a", "choices": "[" * 100_000}, find_kind("choice").io, characters=10**6)
    assert problem.startswith("'choices' is not a list in JSON")


@pytest.mark.parametrize("row", [["a"], ["a", "b", "c"], "a", {"text": "a"}, None])
def test_a_row_of_a_table_has_a_value_per_column(row):
    value = {"dataframe_split": TABLE | {"data": [[1, "a"], row]}}
    first, second = read(value)
    assert first == ("a",) and second.endswith("expected a list of 2 values")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "the body is not JSON"),
        (b"The name of the bucket.", "the body is not JSON"),
        (b"\xff\xfe\xff", "the body is not JSON"),
        (b"[" * 100_000, "the body is not JSON"),
        (b'{"inputs": ' + b"9" * 5000 + b"}", "the body is not JSON"),
        (b"5", "the body: a number, expected a list of rows or an object of columns"),
        (b"{}", "the body: no rows"),
        (b'{"inputs": []}', "inputs: no rows"),
        (b'{"inputs": {"text": []}}', "inputs: no rows"),
        (b'{"inputs": 5}', "inputs: a number, expected a list of rows"),
        (b'{"inputs": null}', "inputs: null, expected a list of rows"),
        (b'{"inputs": {"text": ["a"], "id": [1, 2]}}', "inputs: the columns have different numbers of values"),
        (b'{"inputs": ["a"], "instances": ["a"]}', "the body has several of the keys"),
        (b'{"dataframe_split": {"columns": "text", "data": []}}', "dataframe_split: columns and data have to be lists"),
        (
            b'{"dataframe_split": {"columns": [{"a": 1}], "data": [[1]]}}',
            "dataframe_split: a name of a column is an ob",
        ),
        (b'{"dataframe_split": {"columns": [["a"]], "data": [[1]]}}', "dataframe_split: a name of a column is a list"),
        (b'{"dataframe_split": {"columns": [null], "data": [[1]]}}', "dataframe_split: a name of a column is null"),
        (
            b'{"dataframe_split": {"columns": ["a", "a"], "data": [[1, 2]]}}',
            "dataframe_split: two columns have the same",
        ),
    ],
)
def test_a_body_in_another_form(body, message):
    with pytest.raises(DataError) as caught:
        read_rows(body, TEXT, characters=100, most=MOST)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    "value", [["a"] * 51, [{}] * 51, {"text": ["a"] * 51}, {"columns": ["text"], "data": [["a"]] * 51}, [None] * 51]
)
@pytest.mark.parametrize("key", ["inputs", "instances", "dataframe_records", "dataframe_split", None])
def test_too_many_rows_in_every_form(key, value):
    with pytest.raises(TooManyRowsError, match=r"51 rows, more than 50; send fewer at once"):
        read(value if key is None else {key: value})


NAMES = st.sampled_from(["text", "first", "second", "words", "context", "choices", "columns", "data"])
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=3)
JSON = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES | st.text(max_size=2), inner, max_size=3),
    max_leaves=8,
)
BODIES = JSON | st.builds(
    lambda key, value: {key: value},
    st.sampled_from(["inputs", "instances", "dataframe_records", "dataframe_split"]),
    JSON | st.fixed_dictionaries({"columns": JSON | st.lists(NAMES | JSON, max_size=3), "data": JSON}),
)


@settings(max_examples=150, deadline=None)
@given(content=BODIES, kind=st.sampled_from(sorted(KINDS)))
def test_no_body_fails_and_every_reason_can_be_sent(content, kind):
    try:
        rows = read_rows(json.dumps(content).encode(), find_kind(kind).io, characters=100, most=MOST)
    except DataError as error:
        str(error).encode()
        return
    assert len(rows.fields) == len(rows.problems)
    for fields, problem in zip(rows.fields, rows.problems, strict=True):
        assert (fields is None) == bool(problem)
        "".join([problem, *(fields or ())]).encode()


def test_the_example_request_is_a_row_of_the_task():
    from components.data.tasks.kinds import find_kind
    from components.serving.server import example_of

    def io(kind):
        return find_kind(kind).io

    assert example_of(io("classification"), ("my printer is on fire",)) == {"text": "my printer is on fire"}
    assert example_of(io("pair"), ("a", "b")) == {"first": "a", "second": "b"}
    assert example_of(io("questions"), ("who", "they")) == {"question": "who", "context": "they"}
    assert example_of(io("tagging"), ("Anna", "sleeps")) == {"words": ["Anna", "sleeps"]}
    # Without a row, or for inputs of another form, the example of the kind.
    assert example_of(io("classification"), ()) == dict(io("classification").examples[0])
    assert example_of(io("choice"), ("a", "b", "c")) == dict(io("choice").examples[0])
