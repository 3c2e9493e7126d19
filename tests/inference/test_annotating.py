"""Predictions for annotation tools: from inputs of every form, and read again by the readers of training data."""

import json
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from components.core.errors import ArtifactError, ConfigError, DataError
from components.data.formats.parquets import classes_of
from components.data.formats.rows import read_columns
from components.data.tasks.data import Fields
from components.serving.annotating import predict_annotations
from components.serving.parts import LoadableModel, PartOptions
from components.settings.cluster import ClusterSettings
from tests.inference.files import ByLength, names
from tests.tasks.labelled import jsonl, read


class Capitals:
    """Tags words that begin with a capital letter."""

    kind = "tagging"
    labels = ("B-NAME", "I-NAME", "O")

    def answer(self, rows: Sequence[Fields], batch_size: int = 64) -> list[np.ndarray]:
        return [np.asarray([0 if word[0].isupper() else 2 for word in words], dtype=np.float32) for words in rows]


def predict(source: Path, output: Path, form: str, load: Any = ByLength, **more: Any) -> Any:
    options = PartOptions(ClusterSettings(), **{"overwrite": True, "workers": 1, **more})
    model = LoadableModel(load, load().kind, "x", name="m")
    return predict_annotations(source, output, form=form, model=model, options=options)


def test_tags_of_a_table_become_spans_of_its_texts(tmp_path):
    jsonl(tmp_path / "in.jsonl", {"body": "Ada  met Bo.", "label": "kept"}, {"body": None}, {"body": "ไปบ้าน Ada"})
    done = predict(tmp_path / "in.jsonl", tmp_path / "out.jsonl", "doccano", Capitals, columns={"text": "body"})
    assert (done.rows, done.empty) == (3, 1)
    assert [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()] == [
        {"body": "Ada  met Bo.", "text": "Ada  met Bo.", "label": [[0, 3, "NAME"], [9, 11, "NAME"]], "model": "m"},
        {"body": None, "text": "", "label": [], "model": "m"},
        {"body": "ไปบ้าน Ada", "text": "ไปบ้าน Ada", "label": [[7, 10, "NAME"]], "model": "m"},
    ]
    # Nothing else is left behind.
    assert names(tmp_path) == ["in.jsonl", "out.jsonl"]
    # Only a task of Label Studio has its columns in `data`.
    jsonl(tmp_path / "column.jsonl", {"text": "Ada", "data": {"text": "other"}})
    predict(tmp_path / "column.jsonl", tmp_path / "again.jsonl", "doccano", Capitals)
    assert json.loads((tmp_path / "again.jsonl").read_text())["text"] == "Ada"
    actual = read("tagging", tmp_path, train="out.jsonl", dev=None, test="out.jsonl", overlap="report", empty="drop")
    assert actual.train.fields == [("Ada", "met", "Bo", "."), ("ไป", "บ้าน", "Ada")]
    assert actual.counts["train_rows_empty"] == 1


def test_every_form_of_input(tmp_path):
    (tmp_path / "a.json").write_text(
        json.dumps([{"id": 7, "data": {"text": "abc"}}, {"id": 8, "data": {"text": "abcdef"}}])
    )
    predict(tmp_path / "a.json", tmp_path / "out", "datasets")
    (file,) = (tmp_path / "out" / "data").iterdir()
    assert classes_of(pq.read_schema(file)) == {"label": ["short", "long"]}
    columns = ["text", "label", "score"]
    assert list(read_columns(file, "datasets", columns)) == [
        (1, ("abc", "short", "0.75")),
        (2, ("abcdef", "long", "1.0")),
    ]
    predict(tmp_path / "a.json", tmp_path / "out.json", "label-studio", partial(ByLength, "multilabel"))
    tasks = json.loads((tmp_path / "out.json").read_text())
    assert [task["data"]["text"] for task in tasks] == ["abc", "abcdef"]
    assert tasks[0]["predictions"][0]["score"] == 0.75
    assert tasks[0]["predictions"][0]["result"][0]["value"] == {"choices": ["short"]}


def test_what_a_form_cannot_express(tmp_path):
    jsonl(tmp_path / "a.jsonl", {"text": "abc"}, {"text": 3})
    with pytest.raises(ConfigError, match=r"unknown format 'docano'; did you mean 'doccano'"):
        predict(tmp_path / "a.jsonl", tmp_path / "b.jsonl", "docano")
    with pytest.raises(ConfigError, match=r"b\.csv: predictions for prodigy are a file b\.jsonl"):
        predict(tmp_path / "a.jsonl", tmp_path / "b.csv", "prodigy")
    with pytest.raises(ConfigError, match=r"doccano: cannot express predictions of a pair task; write csv"):
        predict(tmp_path / "a.jsonl", tmp_path / "b.jsonl", "doccano", partial(ByLength, "pair"))
    with pytest.raises(DataError, match=r"a\.jsonl, line 2: 'text' is int, expected text"):
        predict(tmp_path / "a.jsonl", tmp_path / "b.jsonl", "doccano")
    with pytest.raises(DataError, match=r"a\.jsonl, line 1: no column 'body'; known: text; name it with --column"):
        predict(tmp_path / "a.jsonl", tmp_path / "b.jsonl", "doccano", columns={"text": "body"})
    with pytest.raises(ArtifactError, match=r"a\.jsonl: exists, and was not written by Headstart"):
        predict(tmp_path / "a.jsonl", tmp_path / "a.jsonl", "doccano")


def test_bad_rows_are_those_of_the_input(tmp_path):
    source, rejects = tmp_path / "in.jsonl", tmp_path / "bad.jsonl"
    jsonl(source, {"text": "abc", "id": 1}, {"text": "a\0c", "id": 2})
    done = predict(source, tmp_path / "out.jsonl", "doccano", rejects=rejects)
    assert (done.rows, done.rejected) == (1, 1)
    reason = f"{source}, line 2: contains a NUL character; remove it"
    assert json.loads(rejects.read_text()) == {"reason": reason, "row": {"text": "a\0c", "id": 2}}
    with pytest.raises(DataError, match=re.escape(reason)):
        predict(source, tmp_path / "out.jsonl", "doccano")
    jsonl(source, {"text": "a\0c"})
    with pytest.raises(
        DataError, match=re.escape(f"{source}: every row is rejected, the first because: {source}, line 1: ")
    ):
        predict(source, tmp_path / "out.jsonl", "doccano", rejects=rejects)


@pytest.mark.parametrize(
    ("form", "name"), [("datasets", "results"), ("doccano", "out.jsonl"), ("label-studio", "o.json")]
)
def test_what_others_have_written_stays(tmp_path, form, name):
    jsonl(tmp_path / "in.jsonl", {"text": "abc"})
    output = tmp_path / name
    # The labelling interface stands beside the tasks of Label Studio.
    mine = output.with_suffix(".xml") if form == "label-studio" else output if output.suffix else output / "thesis.txt"
    mine.parent.mkdir(exist_ok=True)
    mine.write_text("mine")
    with pytest.raises(ArtifactError, match="exists, and was not written by Headstart; move it away"):
        predict(tmp_path / "in.jsonl", output, form)
    assert mine.read_text() == "mine" and len(names(tmp_path)) == 2
    mine.unlink()
    predict(tmp_path / "in.jsonl", output, form)
    predict(tmp_path / "in.jsonl", output, form)
