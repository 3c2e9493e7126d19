"""Formats without columns: lines that begin with a label, parallel files, and folders or files of a class."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path

from components.core.errors import DataError
from components.data.formats.lines import NO_DATA, whole
from components.data.formats.tables import Opening, Row, Rows

_LABEL_FIRST = ["label", "text"]
#: What labels of fastText begin with.
FASTTEXT = "__label__"


def read_label_first(file: Opening) -> Rows:
    """One example per line: a label, white space, the text (TREC). Empty lines are skipped. Labels that begin with
    `__label__` (fastText) lose it; of several, the value is a list."""

    def rows() -> Iterator[tuple[int, Row]]:
        for number, line in file.lines():
            if line.strip():
                label, *rest = line.split(maxsplit=1)
                text = rest[0].rstrip() if rest else ""
                labels = [label.removeprefix(FASTTEXT)]
                while label.startswith(FASTTEXT) and text.startswith(FASTTEXT):
                    label, _, text = text.partition(" ")
                    labels.append(label.removeprefix(FASTTEXT))
                yield number, {"label": labels[0] if len(labels) == 1 else labels, "text": text}

    lacks = "no column {name!r}; a line has a label and a text only"
    return file.rows(_LABEL_FIRST, rows(), no_column=lacks, name_it="")


def read_texts(file: Opening) -> Rows:
    """One text per line, in the column `text`. An empty line is a row with an empty text, so row n is line n."""
    return file.rows(["text"], ((number, {"text": line.strip()}) for number, line in file.lines()))


def parallel_files(path: Path) -> dict[str, Path]:
    """Column -> file: the files of a folder by their names, or the files of a pattern such as `train_*.txt` by what
    stands for the asterisk."""
    if "*" not in path.name:
        return {file.name: file for file in sorted(path.iterdir()) if file.is_file() and file.name[0] != "."}
    before, _, after = path.name.partition("*")
    files = sorted(path.parent.glob(path.name))
    return {file.name[len(before) : len(file.name) - len(after)]: file for file in files if file.is_file()}


def files_at(path: Path) -> list[Path]:
    """The files that a path names: one, or all below a folder or of a pattern."""
    if path.is_dir():
        return [file for file in sorted(path.rglob("*")) if file.is_file()]
    return [*parallel_files(path).values()] if "*" in path.name else [path]


def read_parallel(file: Opening) -> Rows:
    """Rows of parallel files (`parallel_files`): line n of each file is a value of row n (SNIPS: seq.in, seq.out).
    Trailing lines that are empty in all files are not rows.

    Raises:
        DataError: the folder or a file does not exist, or the files have different numbers of lines.
    """
    path, columns = file.path, file.columns
    if not path.is_dir() and "*" not in path.name:
        raise DataError(f"{path}: is not a folder; expected one with the files {', '.join(columns or ())}")
    files = parallel_files(path)
    names = list(filter(file.wants, files))

    def rows() -> Iterator[tuple[int, Row]]:
        waiting: list[tuple[int, Row]] = []
        streams = [replace(file, path=files[name]).lines() for name in names]
        for number, entries in enumerate(zip_longest(*streams), 1):
            there = {name: entry[1] for name, entry in zip(names, entries, strict=True) if entry is not None}
            if len(there) < len(names):
                short = next(name for name in columns or names if name not in there)
                raise DataError(
                    f"{files[short]}: ends after line {number - 1}, but {files[next(iter(there))].name} continues; "
                    "parallel files need the same number of lines"
                )
            waiting.append((number, there))
            if any(map(str.strip, there.values())):
                yield from waiting
                waiting.clear()

    lacks = "has no file {name!r}{near}; the columns are names of files"
    return file.rows(list(files), rows(), no_column=lacks, name_it="")


def class_files(folder: Path) -> dict[str, list[Path]]:
    """Class -> its files: a folder of texts, or one file with a text a line. Files that differ only in their suffix
    (`polarity.pos`, `polarity.neg`) are named by it; a folder `unsup` holds texts without labels."""
    entries = [entry for entry in sorted(folder.iterdir()) if not NO_DATA.search(entry.name)]
    folders = [entry for entry in entries if entry.is_dir() and entry.name not in NO_CLASS]
    if folders:
        texts = {entry.name: sorted(file for file in entry.rglob("*") if file.is_file()) for entry in folders}
        return {name: [file for file in files if not NO_DATA.search(file.name)] for name, files in texts.items()}
    by_suffix = len({entry.stem for entry in entries}) == 1
    return {entry.suffix.removeprefix(".") if by_suffix else entry.stem: [entry] for entry in entries}


def read_classes(file: Opening) -> Rows:
    """Rows of a folder of classes (`class_files`), numbered in the order of the classes and files.

    Raises:
        DataError: the folder does not exist, or a file cannot be read.
    """
    path, reading, encoding = file.path, file.reading, file.layout.encoding
    if not path.is_dir():
        raise DataError(f"{path}: is not a folder; expected one with a folder, or a file, of each class")

    def texts() -> Iterator[Row]:
        for label, files in class_files(path).items():
            for each in files:
                if not is_text(each):
                    reading.skipped["files_not_text"] += 1
                elif each.parent == path:
                    yield from ({"label": label, "text": text} for _, text in replace(file, path=each).lines())
                else:
                    text = whole(each, reading, encoding=encoding).strip() if each.stat().st_size else ""
                    yield {"label": label, "text": text}

    lacks = "no column {name!r}; a folder of classes has text and label only"
    return file.rows(_LABEL_FIRST, enumerate(texts(), 1), no_column=lacks, name_it="")


def is_text(file: Path) -> bool:
    """Whether a file begins like text, unlike a PDF file, an image or an archive."""
    with file.open("rb") as stream:
        head = stream.read(4_096)
    # PDF files may begin without NUL bytes; UTF-16 text has them.
    return not head.startswith(b"%PDF") and (b"\0" not in head or head.startswith((b"\xff\xfe", b"\xfe\xff")))


#: Folders of texts without labels beside those of the classes.
NO_CLASS = ("unsup", "unlabeled", "unlabelled")
