"""Files of the kinds that people have are read rightly, at every entry point."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from components.cli.common import InitOptions
from components.cli.onboarding.command import init
from components.core.errors import DataError, HeadstartError
from components.data.checks.measure import task_units
from components.data.formats.lines import Reading
from components.data.formats.rows import open_rows
from components.data.formats.stored import open_stored, store
from components.data.ingestion.readers import read_documents
from components.labelling.rows import read_rows
from components.settings.data import CorpusSource
from headstart.tasks import read_task
from tests.data.public_inputs import CASES, LABELS, TEXTS, Case, delimited, jsonl, made, put, rows_of, targets_of

EVERY = pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])


@pytest.fixture
def file(case: Case, tmp_path: Path) -> Path:
    return put(tmp_path / case.name, case.content)


def labels_of(target: Any) -> str:
    return ",".join(sorted(map(str, target))) if isinstance(target, list | tuple) else str(target)


def rows(texts: Iterable[str], targets: Iterable[Any]) -> list[tuple[str, str]]:
    return sorted(zip(texts, map(labels_of, targets), strict=True))


def expected(case: Case) -> list[tuple[str, str]]:
    return rows(case.texts, case.labels)


@EVERY
def test_init_a_run_check_and_label(case, file, tmp_path, monkeypatch):
    name, source, said = made(file, tmp_path, monkeypatch)
    label = source.score if case.kind == "regression" else source.label
    assert (source.kind, source.text, label) == (case.kind, case.text, case.label)
    for part in case.says:
        assert part in said
    read = rows_of(name, source)
    targets = (target if case.kind == "multilabel" else target[0] for _, target in read)
    assert rows((fields[0] for fields, _ in read), targets) == expected(case)
    assert sum(unit.statistics["rows"] for unit in task_units(name, source)) == len(case.texts)
    if case.kind != "regression":
        labelled = [row for row in read_rows(name, source) if row.labels is not None]
        assert rows((row.fields[0] for row in labelled), (row.labels for row in labelled)) == expected(case)


@EVERY
def test_fit_in_python(case, file):
    task = read_task(str(file))
    assert task.kind == case.kind
    assert rows((fields[0] for fields in task.fields), targets_of(task)) == expected(case)
    assert len(task.unlabelled) == len(case.all_texts or case.texts) - len(case.texts)


@EVERY
def test_texts_without_labels(case, file):
    if file.suffix in (".txt", ".json") or case.name == "lines.csv":
        pytest.skip("a txt file holds documents; a JSON document is no corpus")
    reading = Reading()
    texts = [text for _, (text,), _ in read_documents(file, CorpusSource(path=str(file), text=case.text), reading)]
    assert texts == list(case.all_texts or case.texts)
    assert reading.skipped["rows_malformed"] == case.left_out


@EVERY
def test_predict(case, file, tmp_path):
    bad: list[str] = []
    table = open_rows(file, rejected=lambda error, row: bad.append(str(error)))
    assert [row[case.text] for _, row in table.rows] == list(case.all_texts or case.texts)
    assert len(bad) == case.left_out
    # The command reads the rows in parts.
    parts = store(file, tmp_path / "rows", part_bytes=300, part_rows=5, rejected=lambda error, row: None)
    path = file if table.schema is not None else tmp_path / "rows"
    read = [row[case.text] for part in parts for _, row in open_stored(path, part).rows]
    assert read == list(case.all_texts or case.texts)


BAD = {
    # Name -> content, and parts of the message of `init` and of Python.
    "letter.docx": (b"PK\x03\x04", "zip archive"),
    "paper.csv": (b"%PDF-1.7\n", "is a PDF file; extract its text first"),
    "table.dat": (b"\x89HDF\r\n\x1a\n", "is an HDF5 file; save the table as parquet or csv"),
    "frame.pkl": (b"\x80\x04\x95\x00", "is a pickle, which can execute code and is not read"),
    "base.csv": (b"SQLite format 3\0", "is an SQLite database; export the table as csv"),
    "table.csv.bz2": (b"BZh91AY", "is compressed with bzip2; unpack it first"),
    "page.xls": (b"<html><table>", "is an HTML page; save the table as csv"),
    "pointer.csv": (b"version https://git-lfs.github.com/spec/v1\n", "is a pointer of Git LFS"),
    "empty.xlsx": (b"", "is empty"),
    "text.xlsx": (b"text\tlabel\na\tb\n", "is no workbook; if it is text, name it .csv"),
    "unquoted.csv": (
        delimited(row="{text} and, more,{label}", quote="", texts=[f"text {n}" for n in range(24)]),
        "3 field(s) instead of 2",
    ),
    "words.csv": (
        delimited(header="word,tag", texts=("train", "station", "platform") * 8, labels=("O", "B-LOC") * 12),
        "the tag of one word a row",
    ),
    "same.csv": (delimited(labels=("good",) * 24), "only one class ('good')"),
    "own.csv": (delimited(labels=[f"class {n}" for n in range(24)]), "class of its own"),
    "sentences.lst": ("".join(f"Word{n % 9} of a sentence {n}\n" for n in range(60)), "is not recognised"),
    "nested.jsonl": (jsonl(lambda text, label: {"text": text, "label": {"name": label}}), "line 1, column 'label'"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_not_read_is_named(name, tmp_path, monkeypatch):
    content, message = BAD[name]
    path = put(tmp_path / name, content)
    root = tmp_path / "project"
    root.mkdir()
    monkeypatch.chdir(root)
    with pytest.raises(HeadstartError) as of_init:
        init(InitOptions(path), root=root)
    with pytest.raises(HeadstartError) as of_python:
        read_task(str(path))
    for error in (of_init, of_python):
        assert message in str(error.value)
        assert "params.yaml" not in str(error.value) and "data.tasks" not in str(error.value)
    assert not list(root.iterdir())


ROWS = list(zip(TEXTS, LABELS, strict=True))


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def lines(values: list[str]) -> str:
    return "".join(f"{value}\n" for value in values)


def of_class(label: str) -> list[str]:
    return [text for text, other in ROWS if other == label]


def class_folders(folder: Path) -> None:
    write(folder, {f"{label}/{number}.txt": text for number, (text, label) in enumerate(ROWS)} | {"README": "x"})


def class_files(folder: Path) -> None:
    write(folder, {f"{label}.txt": lines(of_class(label)) for label in set(LABELS)})


def class_suffixes(folder: Path) -> None:
    write(folder, {f"polarity.{label}": lines(of_class(label)) for label in set(LABELS)})


def parallel(folder: Path) -> None:
    write(folder, {"x_text.txt": lines(list(TEXTS)), "x_labels.txt": lines(list(LABELS))})


def parallel_splits(folder: Path) -> None:
    for split, rows in (("train", ROWS[:12]), ("val", ROWS[12:18]), ("test", ROWS[18:])):
        write(
            folder, {f"{split}_{name}.txt": lines([row[n] for row in rows]) for n, name in enumerate(["text", "label"])}
        )
    write(folder, {"mapping.txt": "0\tbad\n"})


def review_folders(folder: Path) -> None:
    for split, rows in (("train", ROWS[:16]), ("test", ROWS[16:])):
        files = {f"{split}/{label}/{number}_7.txt": text for number, (text, label) in enumerate(rows)}
        write(folder, files | {f"{split}/urls_pos.txt": "http://www.example.org\n"})
    write(folder, {"train/unsup/0_0.txt": "nobody has labelled this", "review.vocab": "the\n"})


FOLDERS = [class_folders, class_files, class_suffixes, parallel, parallel_splits, review_folders]


@pytest.mark.parametrize("make", FOLDERS)
def test_a_folder_is_read(make, tmp_path, monkeypatch):
    data = tmp_path / "reviews"
    make(data)
    name, source, _ = made(data, tmp_path, monkeypatch)
    assert [(text, label) for (text,), (label,) in rows_of(name, source)] == sorted(ROWS)
    assert [unit.name for unit in task_units(name, source)] == [f"{name} {split}" for split in ("train", "dev", "test")]
    assert sorted((row.fields[0], *(row.labels or ())) for row in read_rows(name, source)) == sorted(ROWS)
    if "test" not in source.model_fields_set or source.test is None:
        task = read_task(str(data))
        assert sorted(zip((fields[0] for fields in task.fields), targets_of(task), strict=True)) == sorted(ROWS)
        rows = [row for _, row in open_rows(Path(source.path) / str(source.train)).rows]
        assert sorted(row["text"] for row in rows) == sorted(TEXTS)


def test_a_folder_of_other_files_is_refused(tmp_path):
    write(tmp_path / "a", {"x.txt": "a\nb\n", "y.csv": "text,label\na,b\n"})
    with pytest.raises(DataError, match=r"no file is called train \(y\.csv\); name the labelled file itself"):
        init(InitOptions(tmp_path / "a"), root=tmp_path)


ROWS_OF_TEXT = [f"this is text number {number}\t{number % 2}" for number in range(20)]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"amazon_labelled.txt": ROWS_OF_TEXT, "imdb_labelled.txt": ROWS_OF_TEXT[:11]}, "amazon_labelled.txt imdb_"),
        ({"data_a.txt": ROWS_OF_TEXT, "data_b.txt": ROWS_OF_TEXT}, "cat data_a.txt data_b.txt > all.tsv"),
        ({"train_1.txt": ROWS_OF_TEXT, "train_2.txt": ROWS_OF_TEXT}, "cat train_1.txt train_2.txt > all.tsv"),
        ({f"{name}.txt": ["__label__x a b", "__label__y c d"] for name in "ab"}, "cat a.txt b.txt > all.tsv"),
        ({"1.txt": ["Ada lives"], "1.ann": ["T1\tPER 0 3\tAda"], "2.txt": ["x"]}, r"annotations of brat \(.txt and"),
    ],
)
def test_files_with_their_own_labels_are_no_classes(files, message, tmp_path):
    write(tmp_path / "a", {name: lines(values) for name, values in files.items()})
    with pytest.raises(DataError, match=message):
        init(InitOptions(tmp_path / "a"), root=tmp_path)
    with pytest.raises(DataError, match=message):
        read_task(str(tmp_path / "a"))
