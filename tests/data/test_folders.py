"""Folders of a class each, files of a class each, and parallel files, at every entry point."""

from pathlib import Path

import pytest

from components.cli.common import InitOptions
from components.cli.onboarding.command import init
from components.core.errors import DataError
from components.data.checks.measure import task_units
from components.data.formats.rows import open_rows
from components.labelling.rows import read_rows
from headstart.tasks import read_task
from tests.data.public_inputs import LABELS, TEXTS, made, rows_of, targets_of

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
