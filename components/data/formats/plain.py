"""Formats without columns: lines that begin with a label, parallel files, and folders or files of a class."""

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path

from components.core.errors import DataError, nearest
from components.data.formats.lines import NO_DATA, Reading, lines, whole
from components.data.formats.tables import Layout, Row

LABEL_FIRST = ("text", "label")
#: What labels of fastText begin with.
FASTTEXT = "__label__"


def read_label_first(path: Path, columns: Sequence[str], layout: Layout, reading: Reading) -> Iterator[Row]:
    """One example per line: a label, white space, the text (TREC). Empty lines are skipped.

    The columns are `text` and `label`. Labels that begin with `__label__` (fastText) lose it; of several, the value is
    a list.

    Raises:
        DataError: a column has another name, or the file cannot be read.
    """
    for name in columns:
        if name not in LABEL_FIRST:
            raise DataError(f"{path}: no column {name!r}; a line has a label and a text only")
    for number, line in lines(path, reading, encoding=layout.encoding):
        if line.strip():
            label, *rest = line.split(maxsplit=1)
            text = rest[0].rstrip() if rest else ""
            labels = [label.removeprefix(FASTTEXT)]
            while label.startswith(FASTTEXT) and text.startswith(FASTTEXT):
                label, _, text = text.partition(" ")
                labels.append(label.removeprefix(FASTTEXT))
            values = {"label": labels[0] if len(labels) == 1 else labels, "text": text}
            yield number, tuple(values[name] for name in columns)


def read_texts(path: Path, columns: Sequence[str], layout: Layout, reading: Reading) -> Iterator[Row]:
    """One text per line, in the column `text`. An empty line is a row with an empty text, so row n is line n."""
    for number, line in lines(path, reading, encoding=layout.encoding):
        yield number, (line.strip(),) * len(columns)


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


def read_parallel(path: Path, columns: Sequence[str], layout: Layout, reading: Reading) -> Iterator[Row]:
    """Rows of parallel files (`parallel_files`): line n of each file is a value of row n (SNIPS: seq.in, seq.out).

    Trailing lines that are empty in all files are not rows.

    Raises:
        DataError: the folder or a file does not exist, or the files have different numbers of lines.
    """
    if not path.is_dir() and "*" not in path.name:
        raise DataError(f"{path}: is not a folder; expected one with the files {', '.join(columns)}")
    files = parallel_files(path)
    for name in columns:
        if name not in files:
            raise DataError(f"{path}: has no file {name!r}{nearest(name, files)}; the columns are names of files")
    waiting: list[Row] = []
    streams = [lines(files[name], reading, encoding=layout.encoding) for name in columns]
    for row in zip_longest(*streams):
        number = next(entry[0] for entry in row if entry is not None)
        if any(entry is None for entry in row):
            short = next(name for name, entry in zip(columns, row, strict=True) if entry is None)
            long = next(name for name, entry in zip(columns, row, strict=True) if entry is not None)
            raise DataError(
                f"{files[short]}: ends after line {number - 1}, but {files[long].name} continues; parallel files need "
                "the same number of lines"
            )
        waiting.append((number, tuple(text for _, text in row)))
        if any(text.strip() for _, text in row):
            yield from waiting
            waiting.clear()


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


def read_classes(path: Path, columns: Sequence[str], layout: Layout, reading: Reading) -> Iterator[Row]:
    """Rows of a folder of classes (`class_files`), numbered in the order of the classes and files.

    The columns are `text` and `label`.

    Raises:
        DataError: a column has another name, the folder does not exist, or a file cannot be read.
    """
    if not path.is_dir():
        raise DataError(f"{path}: is not a folder; expected one with a folder, or a file, of each class")
    for name in columns:
        if name not in LABEL_FIRST:
            raise DataError(f"{path}: no column {name!r}; a folder of classes has text and label only")
    number = 0
    for label, files in class_files(path).items():
        for file in files:
            if not is_text(file):
                reading.skipped["files_not_text"] += 1
                continue
            if file.parent == path:
                texts: Iterator[str] = (text for _, text in lines(file, reading, encoding=layout.encoding))
            else:
                texts = iter([whole(file, reading, encoding=layout.encoding).strip() if file.stat().st_size else ""])
            for text in texts:
                number += 1
                values = {"label": label, "text": text}
                yield number, tuple(values[name] for name in columns)


def is_text(file: Path) -> bool:
    """Whether a file begins like text, unlike a PDF file, an image or an archive."""
    with file.open("rb") as stream:
        head = stream.read(4_096)
    # PDF files may begin without NUL bytes; UTF-16 text has them.
    return not head.startswith(b"%PDF") and (b"\0" not in head or head.startswith((b"\xff\xfe", b"\xfe\xff")))


#: Folders of texts without labels beside those of the classes.
NO_CLASS = ("unsup", "unlabeled", "unlabelled")
