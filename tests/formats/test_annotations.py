"""Exports of annotation tools and data sets of Hugging Face, in the documented layouts of these tools."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from components.core.errors import DataError
from components.data.formats.annotations import CharSpan, PredictedRow
from components.data.formats.hub import WRITERS
from components.data.formats.lines import Reading
from components.data.formats.rows import open_rows
from components.data.formats.words import covered, words_of
from components.settings.detection import detected
from tests.formats.reading import columns, numbered
from tests.tasks.labelled import jsonl, read, targets

TEXT = "Marie Curie went to Paris."
WORDS = ["Marie", "Curie", "went", "to", "Paris", "."]
TAGS = ["B-PER", "I-PER", "O", "O", "B-LOC", "O"]
PERSON = ["B-PER", "I-PER", "O", "O", "O", "O"]
TAGGED = {"nested": True, "tagged": True}


def label_studio_task(number: int, text: str, *results: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A task as in https://labelstud.io/guide/export#Label-Studio-JSON-format-of-annotated-tasks."""
    annotation = {"id": number, "completed_by": 1, "was_cancelled": False, "ground_truth": False}
    annotation |= {"updated_at": "2026-01-01T00:00:00Z", "result": list(results)} | more
    return {"id": number, "data": {"text": text, "source": "mail"}, "annotations": [annotation], "predictions": []}


def result(kind: str, control: str, **value: Any) -> dict[str, Any]:
    return {"id": "x", "type": kind, "from_name": control, "to_name": "text", "value": value}


def choices(*labels: str, control: str = "sentiment") -> dict[str, Any]:
    return result("choices", control, choices=list(labels))


def span(start: int, end: int, label: str) -> dict[str, Any]:
    return result("labels", "entity", start=start, end=end, text=TEXT[start:end], labels=[label])


def prodigy_row(text: str, **more: Any) -> dict[str, Any]:
    return {"text": text, "_input_hash": 1, "_task_hash": 2, "_view_id": "x", "answer": "accept"} | more


def tokens_of(text: str, *places: tuple[int, int]) -> list[dict[str, Any]]:
    return [{"text": text[start:end], "start": start, "end": end, "id": n} for n, (start, end) in enumerate(places)]


def write_json(path: Path, value: Any) -> Path:
    path.write_text(json.dumps(value))
    return path


def lines(path: Path, *rows: dict[str, Any]) -> Path:
    jsonl(path, *rows)
    return path


def test_tokens_of_white_space_are_no_words(tmp_path):
    """As spaCy makes them of line breaks: in training as in `init`."""
    text = "Marie\n\nwent to \u00a0Paris"
    tokens = tokens_of(text, (0, 5), (5, 7), (7, 11), (12, 14), (15, 16), (16, 21))
    spans = [{"start": 0, "end": 7, "label": "PER"}, {"start": 15, "end": 21, "label": "LOC"}]
    path = lines(tmp_path / "a.jsonl", prodigy_row(text, tokens=tokens, spans=spans))
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
    path, reading = write_json(tmp_path / "a.json", tasks), Reading()
    chosen = columns("label-studio", path, "text", "source", "id", "sentiment", reading=reading)
    assert chosen == [(TEXT, "mail", "1", "pos"), ("d", "mail", "4", "b")]
    assert reading.skipped == {"skipped": 1, "without_annotation": 1, "annotators_disagree": 1, "relations": 1}
    assert [row["tags"] for _, row in open_rows(path).rows] == [TAGS, ["O"]]


def test_label_studio_pairs_and_ratings(tmp_path):
    tasks = [
        {
            "id": n,
            "data": {"a": f"x{n}", "b": f"y{n}"},
            "annotations": [
                {"result": [result("pairwise", "better", selected=side), result("rating", "stars", rating=(4, "2")[n])]}
            ],
        }
        for n, side in enumerate(("left", "right"))
    ]
    write_json(tmp_path / "a.json", tasks)
    names = {"train": "a.json", "dev": None, "test": "a.json", "overlap": "report"}
    actual = read("pair", tmp_path, first="a", second="b", label="better", **names)
    assert actual.labels == ["left", "right"] and actual.train.fields == [("x0", "y0"), ("x1", "y1")]
    assert targets(read("regression", tmp_path, text="a", score="stars", **names).train) == [[4.0], [2.0]]


def test_label_studio_json_min(tmp_path):
    row = {"id": 1, "text": TEXT, "label": [span(0, 11, "PER")["value"]], "annotation_id": 1, "annotator": 1}
    ((_, actual),) = open_rows(write_json(tmp_path / "a.json", [row])).rows
    assert (actual["words"], actual["tags"]) == (WORDS, PERSON)


def test_doccano(tmp_path):
    """https://doccano.github.io/doccano/tutorial, and the export of projects with relations."""
    entities = [{"id": 4, "label": "PER", "start_offset": 0, "end_offset": 11}]
    path = lines(
        tmp_path / "a.jsonl",
        {"id": 1, "text": TEXT, "label": [[20, 25, "LOC"], [0, 11, "PER"]], "Comments": []},
        {"id": 2, "text": TEXT, "entities": entities, "relations": [{"id": 1, "from_id": 4, "to_id": 4, "type": "r"}]},
        {"id": 3, "text": "good", "label": ["pos"], "meta": {"source": "mail"}},
        {"id": 4, "text": "?", "label": []},
    )
    reading = Reading()
    tagged = columns("doccano", path, "text", "label", reading=reading, **TAGGED)
    assert tagged == [(WORDS, TAGS), (WORDS, PERSON), (["?"], ["O"])]
    assert reading.skipped == {"relations": 1, "without_annotation": 1}
    assert numbered("doccano", path, "text", "label", "source", nested=True) == [(3, ("good", ["pos"], "mail"))]
    assert numbered("doccano", path, "label", nested=True) == [(3, (["pos"],)), (4, ([],))]


def test_prodigy(tmp_path):
    """https://prodi.gy/docs/api-interfaces: ner.manual, choice, and binary decisions."""
    tokens = tokens_of(TEXT, (0, 5), (6, 11), (12, 16), (17, 19), (20, 26))
    spans = [{"token_start": 3, "token_end": 1, "start": 0, "end": 11, "label": "PER"}]
    path = lines(
        tmp_path / "a.jsonl",
        prodigy_row(TEXT, tokens=tokens, spans=spans),
        prodigy_row("b", options=[{"id": 1, "text": "good"}, {"id": 2, "text": "bad"}], accept=[2]),
        prodigy_row("c", label="pos", meta={"source": "mail"}),
        prodigy_row("d", label="pos", answer="reject"),
        prodigy_row("e", answer="ignore"),
        prodigy_row("f", tokens=tokens[:1]),
    )
    reading = Reading()
    tagged = columns("prodigy", path, "text", "label", reading=reading, **TAGGED)
    assert tagged == [([*WORDS[:4], "Paris."], PERSON[:5]), (["f"], ["O"])]
    assert reading.skipped == {"rejected": 1, "ignored": 1, "without_annotation": 2}
    assert numbered("prodigy", path, "text", "label") == [(2, ("b", "bad")), (3, ("c", "pos"))]
    assert numbered("prodigy", path, "label", "source") == [(3, ("pos", "mail"))]


CLASSES = {"names": ["neg", "pos"], "_type": "ClassLabel"}
FEATURES = {
    "text": {"dtype": "string", "_type": "Value"},
    "label": CLASSES,
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
    name = "data-00000-of-00001.arrow"
    table = pa.table(ROWS).replace_schema_metadata({"huggingface": json.dumps({"info": {"features": FEATURES}})})
    with pa.OSFile(str(folder / name), "wb") as file, pa.ipc.new_stream(file, table.schema) as out:
        out.write_table(table)
    write_json(folder / "state.json", {"_data_files": [{"filename": name}], "_split": None})
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
    names = {"train": "train", "dev": None, "test": "test.csv"}
    actual = read("classification", tmp_path, **names)
    assert actual.labels == ["neg", "pos"] and targets(actual.train) == targets(actual.test) == [[1], [0]]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, 1.0, True, "1", " 1", "pos"], ["pos"] * 6),
        ([0, -1, "-1", -1.0, None], ["neg", None, None, None, None]),
        ([[[0, 1], [1]], [-1]], [[["neg", "pos"], ["pos"]], [None]]),
    ],
)
def test_numbers_of_classes_in_all_forms(tmp_path, values, expected):
    write_json(tmp_path / "dataset_infos.json", {"default": {"features": {"label": CLASSES}}})
    path = lines(tmp_path / "train.jsonl", *({"text": "a", "label": value} for value in values))
    assert [row["label"] for _, row in open_rows(path, form="datasets").rows] == expected


@pytest.mark.parametrize("value", [2, -2, 0.5, "a", {}, [[3]], float("inf")])
def test_numbers_of_no_class_are_refused(tmp_path, value):
    write_json(tmp_path / "dataset_infos.json", {"default": {"features": {"label": CLASSES}}})
    path = lines(tmp_path / "train.jsonl", {"text": "a", "label": value})
    with pytest.raises(DataError, match=r"train\.jsonl, line 1: 'label' is .*, and the data set has 2 classes"):
        list(open_rows(path, form="datasets").rows)


SPANS = [CharSpan(0, 11, "PER"), CharSpan(20, 25, "LOC")]
PREDICTED = [
    PredictedRow({"text": TEXT, "n": 1}, TEXT, spans=SPANS, tokens=words_of(TEXT)),
    PredictedRow({"text": "It  rains", "n": 2}, "It  rains", spans=[], tokens=[(0, 2), (4, 9)]),
]
LABELLED = [
    PredictedRow({"text": text}, text, [label], score=sure, shares={"neg": 1 - share, "pos": share})
    for text, label, sure, share in (("good", "pos", 0.75, 0.75), ("bad", "neg", 0.5, 0.5))
]


@pytest.mark.parametrize("tagged", [True, False])
@pytest.mark.parametrize("form", ["doccano", "prodigy"])
def test_predictions_are_read_again(tmp_path, form, tagged):
    WRITERS[form](tmp_path / "a", PREDICTED if tagged else LABELLED, model="m 1")
    expected = [(WORDS, TAGS), (["It", "rains"], ["O", "O"])] if tagged else [("good", "pos"), ("bad", "neg")]
    assert columns(form, tmp_path / "a", "text", "label", nested=tagged, tagged=tagged) == expected


def test_prodigy_tasks_to_correct_have_tokens_and_no_answer(tmp_path):
    def first(rows):
        WRITERS["prodigy"](tmp_path / "a", rows, model="m")
        return json.loads((tmp_path / "a").read_text().splitlines()[0])

    task = first(PREDICTED)
    assert "answer" not in task and task["meta"] == {"model": "m"}
    assert task["tokens"][1] == {"text": "Curie", "start": 6, "end": 11, "id": 1, "ws": True}
    assert task["spans"][0] == {"start": 0, "end": 11, "label": "PER", "token_start": 0, "token_end": 1}
    task = first(LABELLED)
    assert task["options"] == [{"id": "neg", "text": "neg"}, {"id": "pos", "text": "pos"}]
    assert task["accept"] == ["pos"] and task["meta"] == {"model": "m", "score": 0.75}


def test_label_studio_predictions(tmp_path):
    """https://labelstud.io/guide/predictions, with the labelling interface that the names refer to."""

    def tasks(rows):
        WRITERS["label-studio"](tmp_path / "a.json", rows, model="m:1")
        return json.loads((tmp_path / "a.json").read_text()), (tmp_path / "a.xml").read_text()

    (first, _), interface = tasks(LABELLED)
    prediction = {"model_version": "m:1", "score": 0.75, "result": [choices("pos", control="label") | {"id": "p0"}]}
    assert first == {"data": {"text": "good"}, "predictions": [prediction]}
    assert '<Choices name="label" toName="text" choice="single">\n    <Choice value="neg"/>' in interface
    (first, second), interface = tasks(PREDICTED)
    values = [single["value"] for single in first["predictions"][0]["result"]]
    assert values == [span(0, 11, "PER")["value"], span(20, 25, "LOC")["value"]]
    assert second["predictions"][0]["result"] == [] and '<Label value="LOC"/>' in interface


def test_a_data_set_of_predictions(tmp_path):
    for name, rows in (("a", LABELLED), ("b", PREDICTED)):
        WRITERS["datasets"](tmp_path / name, rows, model="m")
    first, second = (next((tmp_path / name / "data").iterdir()) for name in "ab")
    info = json.loads(pq.read_schema(first).metadata[b"huggingface"])["info"]
    assert info["features"]["label"] == CLASSES
    assert columns("datasets", first, "text", "label") == [("good", "pos"), ("bad", "neg")]
    assert columns("datasets", second, "tokens", "ner_tags", nested=True)[0] == (WORDS, TAGS)


def test_words_and_what_spans_cover():
    assert [TEXT[start:end] for start, end in words_of(TEXT)] == WORDS
    # A vowel sign of Thai is a mark, and belongs to its word.
    assert words_of("ดี มาก") == [(0, 2), (3, 6)]
    bounds = words_of("New York-based Ada")
    assert bounds == [(0, 3), (4, 8), (8, 9), (9, 14), (15, 18)]
    # The first span ends within a word, the second overlaps it, the third covers a space.
    spans = [(0, 7, "LOC"), (4, 8, "ORG"), (3, 4, "X"), (15, 18, "PER")]
    assert covered(bounds, spans) == (
        ["B-LOC", "I-LOC", "O", "O", "B-PER"],
        {"spans_within_words": 1, "spans_overlapping": 1, "spans_without_word": 1},
    )


HTML = {"start": "/p[1]/text()[1]", "end": "/p[1]/text()[1]", "startOffset": 0, "endOffset": 3}


@pytest.mark.parametrize(
    ("form", "content", "message"),
    [
        ("label-studio", {"a": 1}, r"a: is a dict, not a list of tasks; export as JSON"),
        ("label-studio", [3], r"a, task 1: is a int, not an object"),
        (
            "label-studio",
            [label_studio_task(1, "ab", span(0, 9, "X"))],
            r"a, task 1: the span 0 to 9 \('X'\) does not lie within the text of 2 characters",
        ),
        (
            "label-studio",
            [label_studio_task(1, "ab", result("hypertextlabels", "x", **HTML, hypertextlabels=["X"]))],
            r"a, task 1: spans of HTML are named by paths, not by characters; annotate plain text",
        ),
        (
            "label-studio",
            [{"id": 1, "text": "ab", "x": [{"start": 0, "end": 1, "labels": []}]}],
            r"a, task 1: a span has no label; label it or remove it",
        ),
        (
            "label-studio",
            [label_studio_task(1, "ab", result("labels", "x", start=0, end=1, labels=[" "]))],
            r"a, task 1: the span 0 to 1 \(' '\) has no label; label it or remove it",
        ),
        (
            "label-studio",
            [label_studio_task(1, "ab", choices("a", "b"))],
            r"a, task 1: has 2 labels \(a, b\); set kind: multilabel, or leave one of them",
        ),
        (
            "label-studio",
            [label_studio_task(1, "ab", choices("a"), choices("b", control="topic"))],
            r"a, task 1: has annotations of sentiment, topic; name one of them with label",
        ),
        ("label-studio", [label_studio_task(1, "ab") | {"data": 3}], r"a, task 1: no 'data' \(an object\)"),
        ("doccano", {"text": "a"}, r"a, line 1: has neither 'label' nor 'entities'; export as JSONL"),
        *(
            (
                "doccano",
                {"text": "a", "label": [label]},
                r"a, line 1: the label \[0, 1.*\] is not \[start, end, label\]",
            )
            for label in ([0, 1], [0, 1, ""])
        ),
        (
            "label-studio",
            [label_studio_task(1, "ab", result("number", "x", number="4 {of} 5"))],
            r"a, task 1: 'number' is '4 \{of\} 5', not a number",
        ),
        ("doccano", {"text": 1234, "label": [[0, 300, "A"]]}, r"a, line 1: no text \('text'\), whose spans are listed"),
        ("doccano", {"entities": []}, r"a, line 1: no text \('text'\), whose spans are listed"),
        ("prodigy", {"text": "a", "answer": "yes"}, r"a, line 1: the answer is 'yes', expected one of accept"),
        ("prodigy", {"answer": "accept", "spans": []}, r"a, line 1: no 'text' \(text\)"),
        (
            "prodigy",
            {"text": "ab", "spans": [{"token_start": 0, "token_end": 1, "label": "A"}]},
            r"a, line 1: no 'start' \(a number\)",
        ),
    ],
)
def test_bad_records_are_named(tmp_path, form, content, message):
    with pytest.raises(DataError, match=message):
        columns(form, write_json(tmp_path / "a", content), "text", "label")


def test_a_control_that_does_not_exist_is_named(tmp_path):
    path = write_json(tmp_path / "a", [label_studio_task(1, "a", choices("x"))])
    with pytest.raises(
        DataError, match=r"a, task 1: no column or control 'sentimnt'; did you mean 'sentiment'\?; name it"
    ):
        columns("label-studio", path, "text", "sentimnt")
    assert columns("label-studio", write_json(tmp_path / "b", [{"id": 1, "data": {}, "annotations": []}]), "text") == []


def test_formats_are_recognised_by_their_content(tmp_path):
    write_json(tmp_path / "ls.json", [label_studio_task(1, "a", choices("x"))])
    write_json(tmp_path / "rows.json", [{"text": "a", "label": "x"}])
    jsonl(tmp_path / "p.jsonl", prodigy_row("a"))
    jsonl(tmp_path / "d.jsonl", {"id": 1, "text": "a", "label": [[0, 1, "X"]]})
    jsonl(tmp_path / "c.jsonl", {"text": "a", "label": ["x"]})
    jsonl(tmp_path / "w.jsonl", {"words": ["a"], "tags": ["O"]})
    jsonl(tmp_path / "t.jsonl", {"text": "a", "label": "x"})
    saved(tmp_path / "saved")
    every = ("classification", "multilabel", "tagging")
    assert {
        (path.name, kind): form for path in tmp_path.iterdir() for kind in every if (form := detected(path, kind=kind))
    } == {
        **{("ls.json", kind): "label-studio" for kind in every},
        **{("p.jsonl", kind): "prodigy" for kind in every},
        **{("saved", kind): "datasets" for kind in every},
        ("d.jsonl", "tagging"): "doccano",
        ("c.jsonl", "classification"): "doccano",
        ("c.jsonl", "tagging"): "doccano",
    }


ANSWERS = [{"text": "a metal", "answer_start": 8}, {"text": "metal", "answer_start": 10}]


def squad(tmp_path: Path, *qas: Any, context: Any = "Iron is a metal.") -> list[tuple[Any, ...]]:
    content = {"data": [{"title": "Iron", "paragraphs": [{"context": context, "qas": list(qas)}]}]}
    path = write_json(tmp_path / "a.json", content)
    return columns("squad", path, "id", "title", "question", "context", "answers", nested=True)


def test_both_versions_of_squad(tmp_path):
    plain = {"id": 7, "question": "What is iron?", "answers": [*ANSWERS, ANSWERS[0]]}
    impossible = {"id": "b", "question": "Who?", "is_impossible": True, "answers": [], "plausible_answers": ANSWERS}
    assert squad(tmp_path, plain, impossible) == [
        ("7", "Iron", "What is iron?", "Iron is a metal.", [*ANSWERS, ANSWERS[0]]),
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
        read("questions", tmp_path, train="a.json", dev=None, test="a.json")


def test_a_file_that_is_not_squad(tmp_path):
    path = write_json(tmp_path / "a.json", [])
    with pytest.raises(DataError, match=r"a\.json: no 'data' \(a list\); SQuAD files have data, paragraphs, context"):
        columns("squad", path, "id", nested=True)
    with pytest.raises(DataError, match=r"paragraphs\[0\]: no 'context' \(text\)"):
        squad(tmp_path, context=None)
