"""Layouts of JSON that common tools write are read at every entry point, or a line converts them."""

import json
import re
import shlex
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from components.core.errors import DataError
from components.data.formats.layouts import rows_of as laid
from components.data.formats.rows import open_rows
from components.data.sampling import read_rows
from components.data.tasks.kinds import find_kind
from components.data.understanding import understand
from components.settings.tasks import TaskSource
from headstart.tasks import read_task
from tests.data.public_inputs import made, rows_of, targets_of
from tests.tasks.labelled import jsonl

GREET, BYE = ["hello there", "good morning", "hi you", "hey friend"], ["see you", "bye now", "until then"]
INTENTS = [(text, "greet") for text in GREET] + [(text, "bye") for text in BYE]
SENTENCES = ["Ada lives in Rome", "nobody came", "we saw Bonn"]
SPANS = [[(0, 3, "PER"), (13, 17, "LOC")], [], [(7, 11, "LOC")]]
TAGGED = [
    (("Ada", "lives", "in", "Rome"), ["B-PER", "O", "O", "B-LOC"]),
    (("nobody", "came"), ["O", "O"]),
    (("we", "saw", "Bonn"), ["O", "O", "B-LOC"]),
]


def examples(label: str = "intent", **more: Any) -> list[dict[str, Any]]:
    return [{"text": text, label: intent, **more} for text, intent in INTENTS]


def classes(label: str, texts: str, **more: Any) -> list[dict[str, Any]]:
    return [{label: "greet", texts: GREET, **more}, {label: "bye", texts: BYE, **more}]


def spans(start: str, end: str, kind: str) -> list[list[dict[str, Any]]]:
    return [[{"id": 7, start: a, end: b, kind: name} for a, b, name in each] for each in SPANS]


CLASSIFIED = {
    "rasa": {
        "rasa_nlu_data": {
            "common_examples": examples(entities=[]),
            "entity_synonyms": [{"value": "nyc", "synonyms": ["new york"]}],
            "regex_features": [{"name": "zip", "pattern": "[0-9]{5}"}],
        }
    },
    "patterns": {"intents": classes("tag", "patterns", responses=["hello"], context=[""])},
    "texts": {"intents": classes("intent", "text", responses=["hello"], extension={"function": ""})},
    "utterances": classes("name", "utterances"),
    "nested": {"data": {"version": 1, "nlu": classes("intent", "examples")}},
    "by name": {"greet": GREET, "bye": BYE},
    "cats": [
        [text, {"cats": {"greet": float(name == "greet"), "bye": float(name == "bye")}}] for text, name in INTENTS
    ],
}
TAGS = {
    "spacy": [[text, {"entities": each}] for text, each in zip(SENTENCES, SPANS, strict=True)],
    "annotator": {
        "classes": ["PER", "LOC"],
        "annotations": [[text, {"entities": each}] for text, each in zip(SENTENCES, SPANS, strict=True)],
    },
    "objects": [
        {"text": text, "spans": each} for text, each in zip(SENTENCES, spans("start", "end", "label"), strict=True)
    ],
    "content": {
        "examples": [
            {"id": 1, "content": text, "annotations": each}
            for text, each in zip(SENTENCES, spans("startOffset", "endOffset", "tag_name"), strict=True)
        ]
    },
    "points": [
        {
            "content": text,
            "annotation": [
                {"label": [name], "points": [{"start": a, "end": b - 1, "text": "x"}]} for a, b, name in each
            ],
        }
        for text, each in zip(SENTENCES, SPANS, strict=True)
    ],
}
CONTEXT = "Ada was born in Rome. She lived in Bonn."
ASKED = {"Where was Ada born?": [("Rome", 16)], "Where did she live?": [("Bonn", 35)], "Who is Bob?": []}
QUESTIONS = {
    "paragraphs": {
        "documents": [
            {
                "name": "Ada",
                "passages": [
                    {
                        "text": CONTEXT,
                        "questions": [
                            {"id": n, "query": asked, "answer": [{"text": text, "start": at} for text, at in each]}
                            for n, (asked, each) in enumerate(ASKED.items())
                        ],
                    }
                ],
            }
        ]
    },
    "flat": [
        {"passage": CONTEXT, "question": asked, "answer": each[0][0] if each else ""} for asked, each in ASKED.items()
    ],
    "beside": {
        "data": [
            {
                "story": CONTEXT,
                "questions": [{"input_text": asked, "turn_id": n} for n, asked in enumerate(ASKED)][:2],
                "answers": [
                    {"span_start": at, "span_end": at + len(text), "span_text": text, "input_text": "in words"}
                    for ((text, at),) in [*ASKED.values()][:2]
                ],
            },
            {"story": CONTEXT, "qas": [{"question": [*ASKED][2], "answers": []}]},
        ]
    },
    "ends": {
        "story": CONTEXT,
        "qas": [
            {"question": asked, "answers": [{"span_start": at, "span_end": at + len(text)} for text, at in each]}
            for asked, each in ASKED.items()
        ],
    },
}


def split_rows(split: Any) -> list[tuple[Any, Any]]:
    return list(zip(split.fields, split.targets, strict=True))


@pytest.mark.parametrize("name", CLASSIFIED)
def test_texts_with_intents(name, tmp_path, monkeypatch):
    document = CLASSIFIED[name]
    (tmp_path / "data.json").write_text(json.dumps(document))
    task, source, said = made(tmp_path / "data.json", tmp_path, monkeypatch)
    assert source.kind == "classification" and "layout: " in said
    assert rows_of(task, source) == sorted(((text,), [intent]) for text, intent in INTENTS)
    for data in (document, str(tmp_path / "data.json")):
        task = read_task(data)
        assert (task.kind, sorted(zip(task.fields, targets_of(task), strict=True))) == (
            "classification",
            sorted(((text,), intent) for text, intent in INTENTS),
        )
    assert sorted(row["text"] for _, row in open_rows(tmp_path / "data.json").rows) == sorted(GREET + BYE)


@pytest.mark.parametrize("name", TAGS)
def test_texts_with_spans(name, tmp_path):
    document = TAGS[name]
    path = tmp_path / "data.json"
    path.write_text(json.dumps(document))
    assert understand(read_rows(path)).keys == {"kind": "tagging", "words": "words", "tags": "tags", "scheme": "bio"}
    lines = tmp_path / "data.jsonl"
    rows = document if isinstance(document, list) else next(reversed(document.values()))
    jsonl(lines, *rows)
    for data in (document, str(path), str(lines)):
        task = read_task(data)
        assert (task.kind, list(zip(task.fields, targets_of(task), strict=True))) == ("tagging", TAGGED)


@pytest.mark.parametrize("span", [(13, 40, "LOC"), (4, 4, "LOC"), (-1, 3, "PER")])
def test_a_row_with_a_span_outside_of_its_text_is_left_out_and_named(span, tmp_path):
    path = tmp_path / "a.jsonl"
    rows = [{"text": text, "spans": each} for text, each in zip(SENTENCES, [*SPANS[:2], [span]], strict=True)]
    jsonl(path, *rows)
    for data, place in ((str(path), f"{path}, line 3"), (rows, "row 2")):
        task = read_task(data)
        assert len(task.fields) == 2
        assert f"1 row(s) have no text and are left out, the first: {place}" in task.notes


@pytest.mark.parametrize("name", QUESTIONS)
def test_questions_with_other_names(name, tmp_path):
    path = tmp_path / "data.json"
    path.write_text(json.dumps(QUESTIONS[name]))
    keys = {"kind": "questions", "question": "question", "context": "context", "answers": "answers"}
    assert understand(read_rows(path)).keys == keys
    rows = [row for _, row in open_rows(path).rows]
    assert {row["context"] for row in rows} == {CONTEXT}
    source = TaskSource(path=str(tmp_path), format="json", train="data.json", dev=None, test="data.json", **keys)
    read = find_kind("questions").read("t", source.model_copy(update={"overlap": "report"}))
    assert {
        question: [(context[int(a) : int(b)], int(a)) for a, b in np.reshape(target, (-1, 2))]
        for (question, context), target in split_rows(read.train)
    } == ASKED
    assert {
        row["question"]: list(zip(row["answers"]["text"], row["answers"]["answer_start"], strict=True)) for row in rows
    } == ASKED


@pytest.mark.parametrize(
    "document",
    [
        [{"text": "a b", "labels": ["x", "y"]}, {"text": "c d", "labels": []}],
        [
            {"prompt": "a b?", "choices": ["x", "y"], "label": "A"},
            {"prompt": "c d?", "choices": ["x", "z"], "label": "B"},
        ],
        [{"question": "is it so?", "passage": "it is so", "answer": True}],
        [{"question": "q x?", "context": "a x b", "options": ["x", "y"], "answer": "x"}],
        {"text": ["a", "b"], "label": ["x", "y"]},
        {"words": [["a", "b"]], "tags": [["O", "B-X"]]},
        {"train": [{"text": "a", "label": "x"}], "test": [{"text": "b", "label": "y"}]},
    ],
)
def test_other_documents_are_no_layout(document):
    assert not laid(document).said


def test_a_list_of_objects_is_named_with_a_line_that_converts_it(tmp_path):
    reviews = [
        {"text": "good food, bad staff", "aspects": [{"term": "food", "mood": "+"}, {"term": "staff", "mood": "-"}]},
        {"text": "fine wine", "aspects": [{"term": "wine", "mood": "+"}]},
        {"text": "we came late", "aspects": []},
    ]
    for name, content in (("a.json", {"reviews": reviews}), ("b.jsonl", reviews)):
        path = tmp_path / name
        jsonl(path, *([content] if name == "a.json" else content))
        with pytest.raises(DataError, match=r"'aspects' lists objects with 'term', 'mood', several a row") as caught:
            understand(read_rows(path))
        command = shlex.split(str(caught.value).partition("each: python ")[2])
        subprocess.run([sys.executable, *command], cwd=tmp_path, check=True)
        assert (tmp_path / "rows.csv").read_text().split("\n")[:3] == [
            "aspects.term,aspects.mood,text",
            'food,+,"good food, bad staff"',
            'staff,-,"good food, bad staff"',
        ]
    with pytest.raises(DataError, match=re.escape("'aspects' lists objects with")):
        read_task(str(tmp_path / "a.json"))
