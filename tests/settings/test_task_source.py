"""`data.tasks.<name>`: the keys of each kind and format; all problems are reported at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from components.core.errors import ConfigError
from components.settings.formats import FORMAT_KEYS, FORMATS
from components.settings.loading import load_params
from components.settings.tasks import KINDS, TaskSource

ROOT = Path(__file__).parents[2]


def problem(**source: Any) -> str:
    with pytest.raises(ValidationError) as caught:
        TaskSource(path="x", **source)
    (result,) = caught.value.errors()
    return str(result["msg"]).removeprefix("Value error, ")


def test_formats_are_inferred_from_file_names():
    files = {
        "a.jsonl.zst": "jsonl",
        "A.CSV.gz": "csv",
        "b.json#train": "json",
        "c.conll": "conll",
        "d.conllu.zst": "conllu",
        "train": "parallel",
    }
    source = TaskSource(path="x", kind="tagging")
    assert {file: source.format_of(file) for file in files} == files
    assert TaskSource(path="x", kind="questions").format_of("dev-v1.1.json") == "squad"
    assert TaskSource(path="x", format="tsv").format_of("SICK_train.txt") == "tsv"


def test_an_ambiguous_file_name_needs_a_format():
    assert problem(train="TREC.train.all") == (
        "the suffix of 'TREC.train.all' is unknown; set format to one of csv, tsv, jsonl, json, parquet, "
        "workbook, parallel, datasets, label-studio, doccano, prodigy, label-first, classes, conll, conllu, squad"
    )


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"kind": "tagging", "text": "x"}, "key text does not fit kind tagging; known: document, scheme, tags, words"),
        (
            {"kind": "questions", "train": "a.csv"},
            "format csv cannot hold kind questions; use jsonl, json, parquet, datasets, squad",
        ),
        ({"quotes": False}, "key quotes has no effect in format jsonl"),
        (
            {"kind": "tagging", "format": "conll", "words": "word", "tags": -1, "slice": "part"},
            "key slice has no effect in format conll; words must be the number of a column in format conll, from 0 "
            "(-1: the last); found 'word'",
        ),
        (
            {"kind": "tagging", "format": "conllu", "words": "lemma"},
            "words can only be form in format conllu; found 'lemma'",
        ),
        (
            {"kind": "questions", "format": "squad", "slice": "topic"},
            "slice can only be title in format squad; found 'topic'",
        ),
        (
            {"kind": "multilabel", "label": "x", "labels": ["a", "b"]},
            "set either label (one column) or labels (one column of 0 and 1 each)",
        ),
        ({"encoding": "latin-99"}, "is not an encoding of Python; use for example utf-8, latin-1, cp874"),
    ],
)
def test_keys_of_other_kinds_and_formats_are_errors(source, message):
    assert problem(**source) == message


def test_a_problem_of_a_task_is_reported_once_with_its_key(tmp_path):
    raw = yaml.safe_load((ROOT / "params.yaml").read_text())
    raw["data"]["tasks"]["aws-type"] |= {"scheme": "bio", "test": "test.conll"}
    raw["data"]["tasks"]["aws-service"]["txt"] = "text"
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(raw))
    with pytest.raises(ConfigError) as caught:
        load_params(tmp_path / "params.yaml")
    lines = (tmp_path / "params.yaml").read_text().splitlines()
    misspelt, wrong = lines.index("      txt: text") + 1, lines.index("    aws-type:") + 1
    assert [line.strip() for line in str(caught.value).splitlines()[1:]] == [
        f"data.tasks.aws-service.txt: unknown key; did you mean 'text'? (line {misspelt})",
        "data.tasks.aws-type: key scheme does not fit kind classification; known: label, no_label, outside, text; "
        "format conll cannot hold kind classification; use csv, tsv, jsonl, json, parquet, workbook, parallel, "
        "datasets, label-studio, doccano, prodigy, label-first, classes; key slice "
        f"has no effect in format conll (line {wrong})",
    ]


def test_encodings_are_normalised():
    assert TaskSource(path="x", encoding="UTF8").encoding == "utf-8"
    assert TaskSource(path="x", encoding="latin-1").encoding == "iso8859-1"


def test_every_key_of_the_tables_is_a_field_of_the_section():
    keys = {key for keys in KINDS.values() for key in keys} | FORMAT_KEYS
    assert keys <= set(TaskSource.model_fields)
    assert all(format.keys <= FORMAT_KEYS and {*format.kinds} <= KINDS.keys() for format in FORMATS.values())


def test_a_split_is_one_file_or_several():
    source = TaskSource(path="x", train=["a.jsonl", "b.jsonl"], dev=None)
    assert [source.files(split) for split in ("train", "dev", "test")] == [["a.jsonl", "b.jsonl"], [], ["test.jsonl"]]
