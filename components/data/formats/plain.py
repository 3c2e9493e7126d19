"""Formats without columns: lines that begin with a label, parallel files, and folders or files of a class."""

from collections.abc import Iterable
from itertools import zip_longest
from pathlib import Path

from components.core.errors import DataError
from components.data.formats.lines import NO_DATA, whole
from components.data.formats.tables import Numbered, Row, Rows
from components.settings.detection import matching

#: What labels of fastText begin with.
FASTTEXT = "__label__"
#: Folders of texts without labels beside those of the classes.
NO_CLASS = ("unsup", "unlabeled", "unlabelled")


def read_label_first(file: Rows) -> Numbered:
    """One example per line: a label, white space, the text (TREC). Empty lines are skipped. Labels that begin with
    `__label__` (fastText) lose it; of several, the value is a list."""
    for number, line in file.lines():
        if line.strip():
            label, *rest = line.split(maxsplit=1)
            text = rest[0].rstrip() if rest else ""
            labels = [label.removeprefix(FASTTEXT)]
            while label.startswith(FASTTEXT) and text.startswith(FASTTEXT):
                label, _, text = text.partition(" ")
                labels.append(label.removeprefix(FASTTEXT))
            yield number, {"label": labels[0] if len(labels) == 1 else labels, "text": text}


def read_texts(file: Rows) -> Numbered:
    """One text per line, in the column `text`. An empty line is a row with an empty text, so row n is line n."""
    for number, line in file.lines():
        yield number, {"text": line.strip()}


def parallel_files(path: Path) -> dict[str, Path]:
    """Column -> file: the files of a folder by their names, or the files of a pattern such as `train_*.txt` by what
    stands for the asterisk."""
    if "*" not in path.name:
        return {file.name: file for file in sorted(path.iterdir()) if file.is_file() and file.name[0] != "."}
    before, _, after = path.name.partition("*")
    return {file.name[len(before) : len(file.name) - len(after)]: file for file in matching(path) if file.is_file()}


def files_at(path: Path) -> list[Path]:
    """The files that a path names: one, or all below a folder or of a pattern."""
    if path.is_dir():
        return [file for file in sorted(path.rglob("*")) if file.is_file()]
    return [*parallel_files(path).values()] if "*" in path.name else [path]


def read_parallel(file: Rows) -> Numbered:
    """Rows of parallel files (`parallel_files`): line n of each file is a value of row n (SNIPS: seq.in, seq.out).
    Trailing lines that are empty in all files are not rows.

    Raises:
        DataError: the folder or a file does not exist, or the files have different numbers of lines.
    """
    if not file.path.is_dir() and "*" not in file.path.name:
        expected = f"the files {', '.join(file.columns)}" if file.columns else "a file for each column"
        raise DataError(f"{file.path}: is not a folder; expected one with {expected}, or name the format of a file")
    files = parallel_files(file.path)
    file.names, names = [*files], [*filter(file.wants, files)]
    waiting: list[tuple[int, Row]] = []
    for number, entries in enumerate(zip_longest(*(file.lines(files[name]) for name in names)), 1):
        row = {name: entry[1] for name, entry in zip(names, entries, strict=True) if entry is not None}
        if len(row) < len(names):
            short = next(name for name in file.columns or names if name not in row)
            raise DataError(
                f"{files[short]}: ends after line {number - 1}, but {files[next(iter(row))].name} continues; "
                "parallel files need the same number of lines"
            )
        waiting.append((number, row))
        if any(map(str.strip, row.values())):
            yield from waiting
            waiting.clear()


def class_files(folder: Path) -> dict[str, list[Path]]:
    """Class -> its files: a folder of texts, or one file with a text a line. Files that differ only in their suffix
    (`polarity.pos`, `polarity.neg`) are named by it; a folder `unsup` holds texts without labels."""
    entries = [entry for entry in sorted(folder.iterdir()) if not NO_DATA.search(entry.name)]
    if folders := [entry for entry in entries if entry.is_dir() and entry.name not in NO_CLASS]:
        return {each.name: [file for file in files_at(each) if not NO_DATA.search(file.name)] for each in folders}
    by_suffix = len({entry.stem for entry in entries}) == 1
    return {entry.suffix.removeprefix(".") if by_suffix else entry.stem: [entry] for entry in entries}


def read_classes(file: Rows) -> Numbered:
    """Rows of a folder of classes (`class_files`), numbered in the order of the classes and files.

    Raises:
        DataError: the folder does not exist, or a file cannot be read.
    """
    if not file.path.is_dir():
        raise DataError(f"{file.path}: is not a folder; expected one with a folder, or a file, of each class")
    number = 0
    for label, files in class_files(file.path).items():
        for each in files:
            if not is_text(each):
                file.reading.skipped["files_not_text"] += 1
                continue
            texts: Iterable[tuple[int, str]] = file.lines(each)
            if each.parent != file.path:
                size = each.stat().st_size
                texts = [(1, whole(each, file.reading, encoding=file.layout.encoding).strip() if size else "")]
            for _, text in texts:
                number += 1
                yield number, {"label": label, "text": text}


def is_text(file: Path) -> bool:
    """Whether a file begins like text, unlike a PDF file, an image or an archive."""
    with file.open("rb") as stream:
        head = stream.read(4_096)
    # PDF files may begin without NUL bytes; UTF-16 text has them.
    return not head.startswith(b"%PDF") and (b"\0" not in head or head.startswith((b"\xff\xfe", b"\xfe\xff")))
