"""Sentences in their documents: where documents begin, and that no text of another document or split is context."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from components.settings.tasks import TaskSource
from components.tasks.data import Fields
from components.tasks.documents import InDocument, between, in_documents, neighbours, stream_in_documents
from components.tasks.examples import ExamplesJob, examples, read_split
from components.tasks.kinds import find_kind


def context(words: Fields) -> tuple[str, str]:
    """All words before and after a sentence."""
    left, right = neighbours(words, 100)
    return " ".join(left), " ".join(right)


def test_neighbours() -> None:
    first, second, third, alone, last = in_documents(
        [("a", "b"), ("c",), ("d", "e"), ("x",), ("f", "g", "h")], ["one", "one", "one", None, "one"]
    )
    assert [context(words) for words in (first, second, third, last)] == [
        ("", "c d e f g h"),
        ("a b", "d e f g h"),
        ("a b c", "f g h"),
        ("a b c d e", ""),
    ]
    assert neighbours(third, 2) == (["b", "c"], ["f", "g"])
    assert neighbours(third, 0) == neighbours(alone, 5) == ([], [])
    # The same input as without a document, for everything but the encoder.
    assert third == ("d", "e") and {third: 1}[("d", "e")] == 1
    assert context(copy.deepcopy(third)) == context(third)
    assert context(between(("b",), left=["a"], right=["c", "d"])) == ("a", "c d")
    assert type(between(("b",))) is tuple


def test_a_stream_of_sentences() -> None:
    rows: list[tuple[str, Fields | None]] = [("1", ("a",)), ("1", None), ("1", ("b",)), ("2", ("c",)), ("1", ("d",))]
    found = stream_in_documents(
        rows, document=lambda row: row[0], words=lambda row: row[1], replaced=lambda row, words: (row[0], words)
    )
    got = [None if words is None else context(words) for _, words in found]
    assert got == [("", "b"), None, ("a", ""), ("", ""), ("", "")]


def read(folder: Path, **settings: Any) -> Any:
    source = TaskSource.model_validate({"path": str(folder), "kind": "tagging", "dev": None, **settings})
    return find_kind("tagging").read("names", source)


CONLL = {"train": "train.conll", "test": "test.conll"}


def conll(path: Path, *documents: str, mark: str) -> None:
    """Documents of sentences, separated by `|`; a capitalised word is a name."""
    parts = []
    for document in documents:
        sentences = [
            "\n".join(f"{word} {'B-PER' if word.istitle() else 'O'}" for word in sentence.split())
            for sentence in document.split("|")
        ]
        parts.append("\n\n".join(sentences))
    path.write_text(mark.join(parts) + "\n")


def test_marks_of_conll_files(tmp_path: Path) -> None:
    conll(tmp_path / "train.conll", "Anna sleeps|She dreams", "Berta walks", mark="\n\n-DOCSTART- -X-\n\n")
    conll(tmp_path / "test.conll", "Carla runs|Then Dora", mark="")
    found = read(tmp_path, **CONLL, document="marks")
    assert list(map(context, found.train.fields)) == [("", "She dreams"), ("Anna sleeps", ""), ("", "")]
    # A file without a mark is one document.
    assert list(map(context, found.test.fields)) == [("", "Then Dora"), ("Carla runs", "")]
    assert not isinstance(read(tmp_path, **CONLL).train.fields[0], InDocument)


def test_two_empty_lines_and_whole_files(tmp_path: Path) -> None:
    conll(tmp_path / "train.conll", "Anna sleeps|She dreams", "Berta walks", mark="\n\n\n")
    conll(tmp_path / "test.conll", "Carla runs", "Then Dora", mark="\n\n\n")
    assert list(map(context, read(tmp_path, **CONLL, document="empty_lines").test.fields)) == [("", ""), ("", "")]
    whole = read(tmp_path, **CONLL, document="file")
    assert list(map(context, whole.train.fields)) == [
        ("", "She dreams Berta walks"),
        ("Anna sleeps", "Berta walks"),
        ("Anna sleeps She dreams", ""),
    ]


def test_documents_of_conllu_files(tmp_path: Path) -> None:
    def row(word: str) -> str:
        return "\t".join(["1", word, "_", "NOUN" if word < "c" else "VERB", *["_"] * 6])

    text = "\n\n".join(["# newdoc id = 1\n" + row("a"), row("b"), "# newdoc\n" + row("c"), row("d")]) + "\n\n"
    for name in ("train", "test"):
        (tmp_path / f"{name}.conllu").write_text(text)
    files = {"train": "train.conllu", "test": "test.conllu", "scheme": "none", "overlap": "report"}
    found = read(tmp_path, **files, document="marks")
    assert list(map(context, found.train.fields)) == [("", "b"), ("a", ""), ("", "d"), ("c", "")]


def jsonl(path: Path, rows: list[tuple[str, str]]) -> None:
    path.write_text(
        "".join(
            json.dumps(
                {"words": text.split(), "tags": ["B-X" if word.istitle() else "O" for word in text.split()], "doc": doc}
            )
            + "\n"
            for text, doc in rows
        )
    )


def test_text_of_test_is_no_context_of_train(tmp_path: Path) -> None:
    """Train rows that are also in test are dropped, and with them their words in the context of others."""
    jsonl(tmp_path / "train.jsonl", [("Anna one", "1"), ("Same text", "1"), ("Berta two", "1"), ("Cora", "2")])
    jsonl(tmp_path / "test.jsonl", [("Same text", "1"), ("Dora here", "1"), ("Else where", "1")])
    job = ExamplesJob.model_validate(
        {
            "task": "names",
            "source": {
                "path": str(tmp_path),
                "kind": "tagging",
                "dev": None,
                "document": "doc",
                "test_rows": 2,
                "budgets": [2],
            },
            "output": tmp_path / "examples",
        }
    )
    out = examples(job)
    assert list(map(context, read_split(out, "train").fields)) == [("", "Berta two"), ("Anna one", ""), ("", "")]
    # Rows that are not used keep their place in the context of the others.
    test = read_split(out, "test").fields
    assert len(test) == 2
    assert {" ".join((left, " ".join(words), right)).strip() for words in test for left, right in [context(words)]} == {
        "Same text Dora here Else where"
    }
    chosen = read_split(out, "train", rows=[1])  # type: ignore[arg-type]
    assert context(chosen.fields[0]) == ("Anna one", "")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "classification", "document": "doc"}, "key document does not fit kind classification"),
        (
            {"kind": "tagging", "document": "doc", **CONLL},
            "document can only be marks, empty_lines or file in format conll",
        ),
        ({"kind": "tagging", "document": "marks"}, "document must name a column in format jsonl"),
    ],
)
def test_settings_that_do_not_fit(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        TaskSource.model_validate({"path": "data", "dev": None, **settings})
