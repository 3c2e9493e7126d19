"""Exports of annotation tools and data sets of Hugging Face, in the documented layouts of these tools."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from components.core.errors import DataError
from components.data.formats.annotations.doccano import read_doccano, write_doccano
from components.data.formats.annotations.hub import write_hub
from components.data.formats.annotations.labelstudio import read_label_studio, write_label_studio
from components.data.formats.annotations.prodigy import read_prodigy, write_prodigy
from components.data.formats.annotations.records import CharSpan, PredictedRow
from components.data.formats.annotations.tables import READERS
from components.data.formats.lines import Reading
from components.data.formats.parquets import classes_of
from components.data.formats.rows import open_rows, read_columns
from components.data.formats.tables import Layout
from components.data.formats.words import covered, word_bounds
from components.settings.detection import detected
from tests.tasks.labelled import jsonl, read, targets

TEXT = "Marie Curie went to Paris."
PERSON, PLACE = CharSpan(0, 11, "PER"), CharSpan(20, 25, "LOC")


def label_studio_task(number: int, text: str, *results: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A task as in https://labelstud.io/guide/export#Label-Studio-JSON-format-of-annotated-tasks."""
    annotation = {"id": number, "completed_by": 1, "was_cancelled": False, "ground_truth": False}
    annotation |= {"updated_at": "2026-01-01T00:00:00Z", "result": list(results)} | more
    return {"id": number, "data": {"text": text, "source": "mail"}, "annotations": [annotation], "predictions": []}


def choices(*labels: str, control: str = "sentiment") -> dict[str, Any]:
    value = {"choices": list(labels)}
    return {"id": "x", "type": "choices", "from_name": control, "to_name": "text", "value": value}


def span(start: int, end: int, label: str) -> dict[str, Any]:
    value = {"start": start, "end": end, "text": TEXT[start:end], "labels": [label]}
    return {"id": "y", "type": "labels", "from_name": "entity", "to_name": "text", "value": value}


def write_json(path: Path, value: Any) -> Path:
    path.write_text(json.dumps(value))
    return path


def test_tokens_of_white_space_are_no_words(tmp_path):
    """As spaCy makes them of line breaks: in training as in `init`."""
    text = "Marie\n\nwent to \u00a0Paris"
    places = [(0, 5), (5, 7), (7, 11), (12, 14), (15, 16), (16, 21)]
    tokens = [{"text": text[start:end], "start": start, "end": end, "id": n} for n, (start, end) in enumerate(places)]
    spans = [{"start": 0, "end": 7, "label": "PER"}, {"start": 15, "end": 21, "label": "LOC"}]
    path = tmp_path / "a.jsonl"
    jsonl(path, prodigy_row(text, tokens=tokens, spans=spans))
    expected = (["Marie", "went", "to", "Paris"], ["B-PER", "O", "O", "B-LOC"])
    (_, row) = next(open_rows(path).rows)
    assert (row["words"], row["tags"]) == expected
    examples = read("tagging", tmp_path, train=path.name, dev=None, test=path.name, overlap="report")
    assert examples.train.fields == [tuple(expected[0])]


def test_label_studio_choices_and_spans(tmp_path):
    relation = {"type": "relation", "from_id": "x", "to_id": "y", "direction": "right"}
    several = label_studio_task(4, "d", choices("a"))
    late = {"updated_at": "2026-02-01T00:00:00Z", "result": [choices("b")]}
    several["annotations"].append(several["annotations"][0] | late)
    tasks = [
        label_studio_task(1, TEXT, span(20, 25, "LOC"), span(0, 11, "PER"), relation, choices("pos")),
        label_studio_task(2, "b", choices("neg"), was_cancelled=True),
        {"id": 3, "data": {"text": "c"}, "annotations": []},
        several,
    ]
    reading = Reading()
    first, last = read_label_studio(write_json(tmp_path / "a.json", tasks), reading)
    assert first.data == {"text": TEXT, "source": "mail", "id": 1}
    assert first.chosen == {"sentiment": ["pos"]} and first.spans == {"entity": [PERSON, PLACE]}
    assert first.ignored == {"relations": 1}
    assert last.chosen == {"sentiment": ["b"]}
    assert reading.skipped == {"skipped": 1, "without_annotation": 1, "annotators_disagree": 1}


def test_label_studio_pairs_and_ratings(tmp_path):
    value = {"type": "pairwise", "from_name": "better", "to_name": "a,b", "value": {"selected": "left"}}
    stars = {"type": "rating", "from_name": "stars", "to_name": "text", "value": {"rating": 4}}
    other = value | {"value": {"selected": "right"}}
    tasks = [
        {"id": n, "data": {"a": f"x{n}", "b": f"y{n}"}, "annotations": [{"result": [single, stars]}]}
        for n, single in enumerate((value, other))
    ]
    write_json(tmp_path / "a.json", tasks)
    names = {"train": "a.json", "dev": None, "test": "a.json", "overlap": "report"}
    actual = read("pair", tmp_path, first="a", second="b", label="better", **names)
    assert actual.labels == ["left", "right"] and actual.train.fields == [("x0", "y0"), ("x1", "y1")]
    tasks[1]["annotations"][0]["result"][1] = stars | {"value": {"rating": 2}}
    write_json(tmp_path / "a.json", tasks)
    assert targets(read("regression", tmp_path, text="a", score="stars", **names).train) == [[4.0], [2.0]]


def test_label_studio_json_min(tmp_path):
    spans = [{"start": 0, "end": 11, "text": TEXT[:11], "labels": ["PER"]}]
    row = {"id": 1, "text": TEXT, "label": spans, "annotation_id": 1, "annotator": 1}
    (actual,) = read_label_studio(write_json(tmp_path / "a.json", [row]), Reading())
    assert actual.spans == {"label": [PERSON]}


def test_doccano(tmp_path):
    """https://doccano.github.io/doccano/tutorial, and the export of projects with relations."""
    entities = [{"id": 4, "label": "PER", "start_offset": 0, "end_offset": 11}]
    rows = [
        {"id": 1, "text": TEXT, "label": [[20, 25, "LOC"], [0, 11, "PER"]], "Comments": []},
        {"id": 2, "text": TEXT, "entities": entities, "relations": [{"id": 1, "from_id": 4, "to_id": 4, "type": "r"}]},
        {"id": 3, "text": "good", "label": ["pos"], "meta": {"source": "mail"}},
        {"id": 4, "text": "?", "label": []},
    ]
    jsonl(tmp_path / "a.jsonl", *rows)
    first, second, third, last = read_doccano(tmp_path / "a.jsonl", Reading())
    assert first.spans == {"label": [PERSON, PLACE]}
    assert second.spans == {"label": [PERSON]} and second.ignored == {"relations": 1}
    assert third.chosen == {"label": ["pos"]} and third.data["source"] == "mail"
    assert last.chosen == {"label": []} and last.spans == {"label": []}


def prodigy_row(text: str, **more: Any) -> dict[str, Any]:
    return {"text": text, "_input_hash": 1, "_task_hash": 2, "_view_id": "x", "answer": "accept"} | more


def test_prodigy(tmp_path):
    """https://prodi.gy/docs/api-interfaces: ner.manual, choice, and binary decisions."""
    tokens = [
        {"text": TEXT[start:end], "start": start, "end": end, "id": number, "ws": True}
        for number, (start, end) in enumerate([(0, 5), (6, 11), (12, 16), (17, 19), (20, 26)])
    ]
    spans = [{"start": 0, "end": 11, "token_start": 0, "token_end": 1, "label": "PER"}]
    options = [{"id": 1, "text": "good"}, {"id": 2, "text": "bad"}]
    rows = [
        prodigy_row(TEXT, tokens=tokens, spans=spans),
        prodigy_row("b", options=options, accept=[2], meta={"source": "mail"}),
        prodigy_row("c", label="pos"),
        prodigy_row("d", label="pos", answer="reject"),
        prodigy_row("e", answer="ignore"),
        prodigy_row("f", tokens=tokens[:1]),
    ]
    jsonl(tmp_path / "a.jsonl", *rows)
    reading = Reading()
    spanned, chosen, binary, empty = read_prodigy(tmp_path / "a.jsonl", reading)
    assert spanned.spans == {"label": [PERSON]} and spanned.tokens == [(0, 5), (6, 11), (12, 16), (17, 19), (20, 26)]
    assert chosen.chosen == {"label": ["bad"]} and chosen.data["source"] == "mail"
    assert binary.chosen == {"label": ["pos"]} and empty.spans == {"label": []}
    assert reading.skipped == {"rejected": 1, "ignored": 1}


FEATURES = {
    "text": {"dtype": "string", "_type": "Value"},
    "label": {"names": ["neg", "pos"], "_type": "ClassLabel"},
    "ner_tags": {"feature": {"names": ["O", "B-LOC"], "_type": "ClassLabel"}, "_type": "List"},
}
ROWS = {
    "text": ["good film", "bad film"],
    "label": [1, 0],
    "tokens": [["in", "Bonn"], ["no"]],
    "ner_tags": [[0, 1], [0]],
}


def saved(folder: Path) -> None:
    """A split as `Dataset.save_to_disk` of datasets 5.2 writes it."""
    folder.mkdir(parents=True)
    table = pa.table(ROWS).replace_schema_metadata({"huggingface": json.dumps({"info": {"features": FEATURES}})})
    with (
        pa.OSFile(str(folder / "data-00000-of-00001.arrow"), "wb") as file,
        pa.ipc.new_stream(file, table.schema) as out,
    ):
        out.write_table(table)
    write_json(folder / "state.json", {"_data_files": [{"filename": "data-00000-of-00001.arrow"}], "_split": None})
    write_json(folder / "dataset_info.json", {"features": FEATURES})


def test_a_folder_of_save_to_disk(tmp_path):
    for split in ("train", "test"):
        saved(tmp_path / split)
    write_json(tmp_path / "dataset_dict.json", {"splits": ["train", "test"]})
    names = {"train": "train", "dev": None, "test": "test", "overlap": "report"}
    actual = read("classification", tmp_path, **names)
    assert actual.labels == ["neg", "pos"] and targets(actual.train) == [[1], [0]]
    tagged = read("tagging", tmp_path, **names)
    assert tagged.train.fields == [("in", "Bonn"), ("no",)] and targets(tagged.train) == [[2, 0], [2]]
    (tmp_path / "train" / "data-00000-of-00001.arrow").unlink()
    with pytest.raises(DataError, match=r"data-00000-of-00001\.arrow: does not exist"):
        read("classification", tmp_path, **names)


@pytest.mark.parametrize("described", ["readme", "infos"])
def test_a_repository_of_parquet_and_csv_files(tmp_path, described):
    (tmp_path / "data").mkdir()
    pq.write_table(pa.table(ROWS), tmp_path / "data" / "train-00000-of-00001.parquet")
    (tmp_path / "test.csv").write_text("text,label\nfine,1\npoor,0\n")
    if described == "infos":
        write_json(tmp_path / "dataset_infos.json", {"default": {"features": FEATURES}})
    else:
        (tmp_path / "README.md").write_text(
            "---\ndataset_info:\n  features:\n  - name: text\n    dtype: string\n  - name: label\n    dtype:\n"
            "      class_label:\n        names:\n          '0': neg\n          '1': pos\n---\n# A data set\n"
        )
    actual = read("classification", tmp_path, train="train", dev=None, test="test.csv")
    assert (
        actual.labels == ["neg", "pos"] and targets(actual.train) == [[1], [0]] and targets(actual.test) == [[1], [0]]
    )
    (tmp_path / "test.csv").write_text("text,label\nfine,1\npoor,2\n")
    with pytest.raises(DataError, match=r"test\.csv, line 3: 'label' is '2', and the data set has 2 classes"):
        read("classification", tmp_path, train="train", dev=None, test="test.csv")


PREDICTED = [
    PredictedRow(
        {"text": TEXT, "n": 1},
        TEXT,
        spans=[PERSON, PLACE],
        tokens=[(0, 5), (6, 11), (12, 16), (17, 19), (20, 25), (25, 26)],
    ),
    PredictedRow({"text": "It  rains", "n": 2}, "It  rains", spans=[], tokens=[(0, 2), (4, 9)]),
]
LABELLED = [
    PredictedRow(
        {"text": "good"}, "good", labels=["pos"], score=0.75, shares={"neg": 0.25, "pos": 0.75}, tokens=[(0, 4)]
    ),
    PredictedRow({"text": "bad"}, "bad", labels=["neg"], score=0.5, shares={"neg": 0.5, "pos": 0.5}, tokens=[(0, 3)]),
]


@pytest.mark.parametrize(("rows", "kind"), [(PREDICTED, "tagging"), (LABELLED, "classification")])
@pytest.mark.parametrize("form", ["doccano", "prodigy"])
def test_predictions_are_read_again(tmp_path, form, rows, kind):
    path = tmp_path / "a"
    {"doccano": write_doccano, "prodigy": write_prodigy}[form](path, rows, model="m 1")
    actual = list(READERS[form](path, Reading()))
    assert [record.data["text"] for record in actual] == [row.text for row in rows]
    if kind == "tagging":
        assert [record.spans for record in actual] == [{"label": row.spans} for row in rows]
    else:
        assert [record.chosen for record in actual] == [{"label": row.labels} for row in rows]


def test_prodigy_tasks_to_correct_have_tokens_and_no_answer(tmp_path):
    write_prodigy(tmp_path / "a", PREDICTED, model="m")
    first = json.loads((tmp_path / "a").read_text().splitlines()[0])
    assert "answer" not in first and first["meta"] == {"model": "m"}
    assert first["tokens"][1] == {"text": "Curie", "start": 6, "end": 11, "id": 1, "ws": True}
    assert first["spans"][0] == {"start": 0, "end": 11, "label": "PER", "token_start": 0, "token_end": 1}
    write_prodigy(tmp_path / "a", LABELLED, model="m")
    first = json.loads((tmp_path / "a").read_text().splitlines()[0])
    assert first["options"] == [{"id": "neg", "text": "neg"}, {"id": "pos", "text": "pos"}]
    assert first["accept"] == ["pos"] and first["meta"] == {"model": "m", "score": 0.75}


def test_label_studio_predictions(tmp_path):
    """https://labelstud.io/guide/predictions, with the labelling interface that the names refer to."""
    write_label_studio(tmp_path / "a.json", LABELLED, model="m:1")
    first = json.loads((tmp_path / "a.json").read_text())[0]
    result = {"id": "p0", "from_name": "label", "to_name": "text", "type": "choices", "value": {"choices": ["pos"]}}
    assert first == {
        "data": {"text": "good"},
        "predictions": [{"model_version": "m:1", "score": 0.75, "result": [result]}],
    }
    assert (
        '<Choices name="label" toName="text" choice="single">\n    <Choice value="neg"/>'
        in (tmp_path / "a.xml").read_text()
    )
    write_label_studio(tmp_path / "a.json", PREDICTED, model="m:1")
    first, second = json.loads((tmp_path / "a.json").read_text())
    assert [single["value"] for single in first["predictions"][0]["result"]] == [
        {"start": 0, "end": 11, "text": "Marie Curie", "labels": ["PER"]},
        {"start": 20, "end": 25, "text": "Paris", "labels": ["LOC"]},
    ]
    assert second["predictions"][0]["result"] == []
    assert '<Label value="LOC"/>' in (tmp_path / "a.xml").read_text()


def test_a_data_set_of_predictions(tmp_path):
    write_hub(tmp_path / "a", LABELLED, model="m")
    (file,) = (tmp_path / "a" / "data").iterdir()
    assert classes_of(pq.read_schema(file)) == {"label": ["neg", "pos"]}
    assert [row for _, row in read_columns(file, "datasets", ["text", "label"], Layout(), Reading())] == [
        ("good", "pos"),
        ("bad", "neg"),
    ]
    write_hub(tmp_path / "b", PREDICTED, model="m")
    (file,) = (tmp_path / "b" / "data").iterdir()
    assert next(read_columns(file, "datasets", ["tokens", "ner_tags"], Layout(nested=True), Reading())) == (
        1,
        (["Marie", "Curie", "went", "to", "Paris", "."], ["B-PER", "I-PER", "O", "O", "B-LOC", "O"]),
    )


def test_words_and_what_spans_cover():
    assert [TEXT[start:end] for start, end in word_bounds(TEXT)] == ["Marie", "Curie", "went", "to", "Paris", "."]
    # A vowel sign of Thai is a mark, and belongs to its word.
    assert word_bounds("ดี มาก") == [(0, 2), (3, 6)]
    assert word_bounds("ดีมาก", [2]) == [(0, 2), (2, 5)]
    bounds = word_bounds("New York-based Ada")
    assert bounds == [(0, 3), (4, 8), (8, 9), (9, 14), (15, 18)]
    # The first span ends within a word, the second overlaps it, the third covers a space.
    spans = [(0, 7, "LOC"), (4, 8, "ORG"), (3, 4, "X"), (15, 18, "PER")]
    assert covered(bounds, spans) == (
        ["B-LOC", "I-LOC", "O", "O", "B-PER"],
        {"spans_within_words": 1, "spans_overlapping": 1, "spans_without_word": 1},
    )


@pytest.mark.parametrize(
    ("form", "content", "message"),
    [
        ("label-studio", '{"a": 1}', r"a: is a dict, not a list of tasks; export as JSON"),
        ("label-studio", "[3]", r"a, task 1: is a int, not an object"),
        (
            "label-studio",
            json.dumps([label_studio_task(1, "ab", span(0, 9, "X"))]),
            r"a, task 1: the span 0 to 9 \('X'\) does not lie within the text of 2 characters",
        ),
        (
            "label-studio",
            json.dumps([label_studio_task(1, "ab", choices("a", "b"))]),
            r"a, task 1: has 2 labels \(a, b\); set kind: multilabel, or leave one of them",
        ),
        (
            "label-studio",
            json.dumps([label_studio_task(1, "ab", choices("a"), choices("b", control="topic"))]),
            r"a, task 1: has annotations of sentiment, topic; name one of them with label",
        ),
        ("doccano", '{"text": "a"}', r"a, line 1: has neither 'label' nor 'entities'; export as JSONL"),
        ("doccano", '{"text": "a", "label": [[0, 1]]}', r"a, line 1: the label \[0, 1\] is not \[start, end, label\]"),
        ("prodigy", '{"text": "a", "answer": "yes"}', r"a, line 1: the answer is 'yes', expected one of accept"),
    ],
)
def test_bad_records_are_named(tmp_path: Path, form: str, content: str, message: str) -> None:
    (tmp_path / "a").write_text(content)
    with pytest.raises(DataError, match=message):
        list(read_columns(tmp_path / "a", form, ["text", "label"], Layout(), Reading()))


def test_a_control_that_does_not_exist_is_named(tmp_path):
    path = write_json(tmp_path / "a", [label_studio_task(1, "a", choices("x"))])
    with pytest.raises(DataError, match=r"a, task 1: no column or control 'sentimnt'; did you mean 'sentiment'"):
        list(read_columns(path, "label-studio", ["text", "sentimnt"], Layout(), Reading()))


def test_formats_are_recognised_by_their_content(tmp_path):
    write_json(tmp_path / "ls.json", [label_studio_task(1, "a", choices("x"))])
    write_json(tmp_path / "rows.json", [{"text": "a", "label": "x"}])
    jsonl(tmp_path / "p.jsonl", prodigy_row("a"))
    jsonl(tmp_path / "d.jsonl", {"id": 1, "text": "a", "label": [[0, 1, "X"]]})
    jsonl(tmp_path / "c.jsonl", {"text": "a", "label": ["x"]})
    jsonl(tmp_path / "w.jsonl", {"words": ["a"], "tags": ["O"]})
    jsonl(tmp_path / "t.jsonl", {"text": "a", "label": "x"})
    saved(tmp_path / "saved")
    actual = {
        (path.name, kind): form
        for path in sorted(tmp_path.iterdir())
        for kind in ("classification", "multilabel", "tagging")
        if (form := detected(path, kind=kind))
    }
    every = ("classification", "multilabel", "tagging")
    assert actual == {
        **{("ls.json", kind): "label-studio" for kind in every},
        **{("p.jsonl", kind): "prodigy" for kind in every},
        **{("saved", kind): "datasets" for kind in every},
        ("d.jsonl", "tagging"): "doccano",
        ("c.jsonl", "classification"): "doccano",
        ("c.jsonl", "tagging"): "doccano",
    }


#


SQUAD = ["id", "title", "question", "context", "answers"]


def squad(tmp_path: Path, *qas: Any, context: Any = "Iron is a metal.") -> list[tuple[Any, ...]]:
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"data": [{"title": "Iron", "paragraphs": [{"context": context, "qas": list(qas)}]}]}))
    return [values for _, values in read_columns(path, "squad", SQUAD, Layout(nested=True), Reading())]


def test_both_versions(tmp_path):
    answers = [{"text": "a metal", "answer_start": 8}, {"text": "metal", "answer_start": 10}]
    plain = {"id": 7, "question": "What is iron?", "answers": [*answers, answers[0]]}
    impossible = {
        "id": "b",
        "question": "Who?",
        "is_impossible": True,
        "answers": [],
        "plausible_answers": answers,
    }
    assert squad(tmp_path, plain, impossible) == [
        ("7", "Iron", "What is iron?", "Iron is a metal.", [*answers, answers[0]]),
        ("b", "Iron", "Who?", "Iron is a metal.", []),
    ]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"question": "x"}, r"a\.json, data\[0\]\.paragraphs\[0\]\.qas\[0\]: no 'id' \(text or a number\)"),
        ({"id": "k"}, r"question k: no 'question' \(text\)"),
        ({"id": "k", "question": "x"}, r"question k: no 'answers' \(a list\)"),
        ({"id": "k", "question": "x", "answers": [{"text": "x"}]}, r"k, an answer: no 'answer_start' \(a number\)"),
    ],
)
def test_a_missing_member_is_named(tmp_path, entry, message):
    with pytest.raises(DataError, match=message):
        squad(tmp_path, entry)
        read("questions", tmp_path, train="a.json", test="a.json")


def test_a_file_that_is_not_squad(tmp_path):
    path = tmp_path / "a.json"
    path.write_text("[]")
    with pytest.raises(
        DataError, match=r"a\.json: no 'data' \(a list\); SQuAD files have data, paragraphs, context, qas"
    ):
        list(read_columns(path, "squad", SQUAD, Layout(nested=True), Reading()))
    with pytest.raises(DataError, match=r"paragraphs\[0\]: no 'context' \(text\)"):
        squad(tmp_path, context=None)
