"""What people pass from Python is accepted, or refused with the argument's name."""

from collections.abc import Iterator
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from components.data.sampling import read_rows
from components.data.understanding import understand
from headstart import fit
from headstart.estimators import HeadstartClassifier
from headstart.tables import InputError, read_table
from headstart.tasks import holds_pairs, read_unlabelled
from headstart.tasks import read_task as task
from tests.data.public_inputs import LABELS, TEXTS, targets_of

ROWS = [{"text": text, "label": label} for text, label in zip(TEXTS, LABELS, strict=True)]


class Capsule:
    """A table of another library, such as polars."""

    def __arrow_c_stream__(self, requested: object = None) -> object:
        return pa.table({"text": TEXTS, "label": LABELS}).__arrow_c_stream__(requested)


class Dataset:
    """As `datasets.Dataset`."""

    features = ("text", "label")

    def to_dict(self) -> dict[str, list[str]]:
        return {"text": list(TEXTS), "label": list(LABELS)}


def generator() -> Iterator[dict[str, str]]:
    yield from ROWS


@pytest.mark.parametrize(
    "data",
    [ROWS, generator(), pa.table({"text": TEXTS, "label": LABELS}), Capsule(), Dataset(), pd.DataFrame(ROWS)],
    ids=["dicts", "generator", "arrow", "capsule", "dataset", "frame"],
)
def test_tables(data):
    read = task(data)
    assert [fields[0] for fields in read.fields] == list(TEXTS)
    assert targets_of(read) == list(LABELS)


@pytest.mark.parametrize(
    "make", [pd.DataFrame, pa.table, dict, lambda columns: pd.DataFrame(columns).to_dict("records")]
)
def test_a_column_that_is_called_input(make):
    data = make({"input": list(TEXTS)})
    assert read_table(data).is_named and not read_table(list(TEXTS)).is_named
    read = task(data, text="input", label=list(LABELS))
    assert [fields[0] for fields in read.fields] == list(TEXTS)
    assert read_unlabelled(data, read) == [(text,) for text in TEXTS]


def test_dates_and_decimal_numbers_are_no_obstacle(tmp_path):
    further = {"date": pd.Timestamp("2024-01-02"), "price": Decimal("1.5"), "raw": b"x", "after": pd.Timedelta(days=1)}
    frame = pd.DataFrame({"text": TEXTS, "mood": LABELS}).assign(**further)
    assert targets_of(task(frame)) == list(LABELS)
    frame.drop(columns="after").to_parquet(tmp_path / "a.parquet")
    assert targets_of(task(tmp_path / "a.parquet")) == list(LABELS)
    assert understand(read_rows(tmp_path / "a.parquet")).keys == {
        "kind": "classification",
        "text": "text",
        "label": "mood",
    }


def test_a_matrix_of_labels():
    matrix = np.array([[1, 0, 1], [0, 1, 0]] * 12)
    read = task(list(TEXTS), label=matrix)
    assert (read.kind, targets_of(read)[:2]) == ("multilabel", [["0", "2"], ["1"]])


@pytest.mark.parametrize("cells", [(1, 0), ("x", ""), ("Yes", "no"), (True, None), ("1.0", "0.0")])
def test_columns_with_one_label_each(cells):
    """They are several labels also where each row has one of them, as in `headstart init`."""
    columns = {"late": [cells[row % 3 == 0 or row % 3 == 1] for row in range(24)], "dear": [cells[0], cells[1]] * 12}
    read = task(pd.DataFrame({"text": TEXTS} | columns))
    assert (read.kind, targets_of(read)[:3]) == ("multilabel", [["dear"], [], ["dear", "late"]])
    single = task(pd.DataFrame({"text": TEXTS, "late": [*cells] * 12, "dear": [*reversed(cells)] * 12}))
    assert (single.kind, targets_of(single)[:2]) == ("multilabel", [["late"], ["dear"]])
    assert (
        "column 'text' is the text, 'late', 'dear' are columns of labels, one in each row; a single column with its "
        "name makes it a classification"
    ) in single.notes


@pytest.mark.parametrize(("second", "pairs"), [([*reversed(TEXTS)], True), ([*range(24)], False)])
def test_two_columns_without_names_are_those_of_an_array(second, pairs):
    frame = pd.DataFrame([*zip(TEXTS, second, strict=True)])
    inputs = HeadstartClassifier()._inputs(frame)
    assert isinstance(inputs, np.ndarray) == holds_pairs(inputs, None) == pairs


def test_names_of_files_are_no_texts(tmp_path):
    (tmp_path / "a.csv").write_text("text\nfirst\nsecond\n")
    read = read_unlabelled([str(tmp_path / "a.csv")], task(ROWS))
    assert read == [("first",), ("second",)]


def test_a_text_file_is_a_table_if_it_has_names_of_columns(tmp_path):
    (tmp_path / "a.txt").write_text("Text|Label\nfast, good|pos\nlate, dear|neg\n")
    assert list(read_table(tmp_path / "a.txt").columns) == ["Text", "Label"]
    (tmp_path / "b.txt").write_text("fast, good\nlate, dear\n")
    assert read_table(tmp_path / "b.txt").columns == {"input": ["fast, good", "late, dear"]}


def test_lone_surrogates_are_replaced():
    table = read_table(["good \ud83d\ude00", "bad \ud83d"])
    assert table.columns["input"] == ["good \U0001f600", "bad \ufffd"]


def test_a_space_or_another_unicode_form_makes_no_class():
    labels = ["caf\u00e9", "cafe\u0301 ", "tea"] * 8
    assert sorted(set(targets_of(task(list(TEXTS), label=labels)))) == ["caf\u00e9", "tea"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"seed": None}, "seed: None; give a whole number from 0"),
        ({"folds": "5"}, "folds: '5'; give a whole number from 2"),
        ({"seed": 2**32}, "seed: 4294967296; give a whole number from 0, below 2**32"),
        ({"minutes": "x"}, "minutes: 'x'; give a number above 0"),
        ({"folder": 5}, "folder: 5: expected str, bytes or os.PathLike object, not int; give the name"),
        ({"text": "label"}, "the list: 'label' is the column of the label; name that of the text with text="),
        ({"label": "mood"}, "no column 'mood'"),
        ({"data": "this is one text, not a file"}, "does not exist; to pass one text, put it in a list"),
        ({"data": "long " * 1000}, "does not exist; to pass one text, put it in a list"),
        ({"data": np.empty((3, 0))}, "data: an array of shape (3, 0); expected (N,) texts or (N, 2) pairs of texts"),
        ({"data": 5}, "data: int is not supported; give a DataFrame"),
    ],
)
def test_what_is_wrong_is_named(arguments, message):
    given = {"data": ROWS} | arguments
    with pytest.raises(InputError) as error:
        fit(given.pop("data"), verbose=False, **given)
    assert message in str(error.value)
    assert "/tmp" not in str(error.value)


def test_an_empty_column_of_words_is_not_read():
    frame = pd.DataFrame({"text": [f"text {row}" for row in range(8)], "tokens": None, "labels": ["pos", "neg"] * 4})
    read = task(frame)
    assert read.source.kind == "classification"
    assert len(read.examples.train) == 8


def test_a_column_without_a_name_is_no_label_of_several():
    frame = pd.DataFrame(
        {"": None, "text": [f"text {row}" for row in range(8)], "a": [0, 1] * 4, "b": [1, 1, 0, 0] * 2}
    )
    assert len(task(frame).examples.train) == 8


def test_a_label_that_is_no_tag_is_refused():
    frame = pd.DataFrame({"words": [["a", "b"]] * 4, "label": [1, 2, 1, 2]})
    with pytest.raises(InputError, match="'label' holds 1; expected a list of tags"):
        task(frame, label="label")


def test_tags_as_one_text_have_their_scheme():
    words = [["Ann", "of", "Rome"]] * 4
    for tags, scheme in (("B-P O B-L", "bio"), ("S-P O S-L", "iobes")):
        assert task(pd.DataFrame({"words": words, "tags": [tags] * 4})).source.scheme == scheme


def test_numbers_as_tags_stay_numbers():
    frame = pd.DataFrame({"words": [["a", "b"], ["c", "d"]] * 4, "tags": [[0, 1], [1, 0]] * 4})
    assert task(frame).classes == {"0": 0, "1": 1}
