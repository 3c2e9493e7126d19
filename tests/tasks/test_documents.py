"""Documents of sentences (`data.tasks.<name>.document`): which sentences belong together, by format."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from components.settings.tasks import TaskSource
from tests.tasks.labelled import read

CONLL = {"train": "train.conll", "test": "test.conll"}


def units(folder: Path, split: str = "train", **settings: Any) -> list[int]:
    actual = getattr(read("tagging", folder, dev=None, **settings), split).units.tolist()
    return [actual.index(unit) for unit in actual]


def conll(path: Path, *documents: str, mark: str) -> None:
    """Documents of sentences, separated by `|`; a capitalised word is a name."""
    parts = [
        "\n\n".join(
            "\n".join(f"{word} {'B-PER' if word.istitle() else 'O'}" for word in sentence.split())
            for sentence in document.split("|")
        )
        for document in documents
    ]
    path.write_text(mark.join(parts) + "\n")


@pytest.mark.parametrize(
    ("document", "mark", "expected"),
    [
        ("marks", "\n\n-DOCSTART- -X-\n\n", [0, 0, 2]),
        ("empty_lines", "\n\n\n", [0, 0, 2]),
        ("file", "\n\n\n", [0, 0, 0]),
        (None, "\n\n\n", [0, 1, 2]),
    ],
)
def test_documents_of_conll_files(document, mark, expected, tmp_path):
    conll(tmp_path / "train.conll", "Anna sleeps|She dreams", "Berta walks", mark=mark)
    conll(tmp_path / "test.conll", "Carla runs|Then Dora|Emma", mark="")
    assert units(tmp_path, **CONLL, document=document) == expected
    # A file without a mark is one document.
    assert document != "marks" or units(tmp_path, "test", **CONLL, document=document) == [0, 0, 0]


def test_documents_of_conllu_files(tmp_path):
    def row(word):
        return "\t".join(["1", word, "_", "NOUN" if word < "c" else "VERB", *["_"] * 6])

    for name, words in (("train", "abcd"), ("test", "abcd")):
        first, second, third, fourth = map(row, words)
        text = "\n\n".join(["# newdoc id = 1\n" + first, second, "# newdoc\n" + third, fourth]) + "\n\n"
        (tmp_path / f"{name}.conllu").write_text(text)
    files = {"train": "train.conllu", "test": "test.conllu", "scheme": "none", "overlap": "report"}
    assert units(tmp_path, **files, document="marks") == [0, 0, 2, 2]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"kind": "tagging", "document": "doc", **CONLL},
            "document can only be marks or empty_lines or file in format conll",
        ),
        ({"kind": "tagging", "document": "marks"}, "document must name a column in format jsonl"),
    ],
)
def test_settings_that_do_not_fit(settings, message):
    with pytest.raises(ValidationError, match=message):
        TaskSource.model_validate({"path": "data", "dev": None, **settings})
