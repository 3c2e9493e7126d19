"""The format of a file: by its name, and where that says nothing by its content."""

import re
import tarfile
import zipfile
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice, pairwise
from pathlib import Path
from typing import Final

from components.core.errors import DataError
from components.data.formats.jsontables import is_squad
from components.data.formats.lines import CODECS, NO_DATA, Reading, lines, member_of, text_blocks
from components.data.formats.plain import FASTTEXT, files_at, parallel_files
from components.settings.detection import detected
from components.settings.formats import FORMATS, by_name, suffix_of

#: Lines of each file of a folder that are looked at.
_LINES: Final = 1_000
#: First bytes of a file -> what it is, and what to do.
_MAGIC: Final = {
    b"PAR1": "parquet",
    b"PK\x03\x04": "zip",
    b"%PDF": "a PDF file; extract its text first",
    b"\x89HDF": "an HDF5 file; save the table as parquet or csv",
    **{
        bytes((0x80, protocol)): "a pickle, which can execute code and is not read; save the table as parquet or csv"
        for protocol in range(2, 6)
    },
    b"version https://git-lfs": "a pointer of Git LFS, not the data; run `git lfs pull`",
    b"<!DOCTYPE": "an HTML page; save the table as csv",
    b"<html": "an HTML page; save the table as csv",
    b"{\\rtf": "an RTF document; save it as text",
    b"SQLite format 3": "an SQLite database; export the table as csv",
    b"ARROW1": "an Arrow file; save it as parquet",
    b"\xff\xff\xff\xff": "an Arrow file; save it as parquet",
    b"\x28\xb5\x2f\xfd": "compressed with zstd; name it .zst",
    b"\x1f\x8b": "compressed with gzip; name it .gz",
    b"BZh": "compressed with bzip2; unpack it first",
    b"\xfd7zXZ": "compressed with xz; unpack it first",
    b"7z\xbc\xaf": "a 7z archive; unpack it first",
    b"Rar!": "a RAR archive; unpack it first",
}


def form_of(path: Path, *, whole: bool = False) -> str:
    """The format of a file, one of `FORMATS`, or `texts` (one text a line, without labels); of a folder or pattern
    `parallel` or `classes`. `whole`: JSON is read as the tool has written it, not a member of it.

    Raises:
        DataError: the file does not exist, or its format is not read; what it is, and what to do.
    """
    if path.is_dir() or "*" in path.name:
        return _form_of_folder(path)
    if not path.is_file():
        raise DataError(f"{path}: does not exist")
    form = by_name(inner_name(path))
    with path.open("rb") as file:
        head = file.read(32)
    if form == "parquet" or (form == "workbook" and head.startswith((b"PK", b"\xd0\xcf\x11\xe0"))):
        return form
    if not head:
        raise DataError(f"{path}: is empty")
    packed = path.suffix.lower() in (*CODECS, ".zip")
    what = next((what for magic, what in _MAGIC.items() if head.startswith(magic) and not packed), "")
    if what == "parquet":
        return what
    if what == "zip":
        names = zipfile.ZipFile(path).namelist() if zipfile.is_zipfile(path) else []
        inside = {
            "word/document.xml": "a Word document; save it as text, or its table as csv",
            "xl/workbook.xml": "a workbook; name it .xlsx",
        }
        what = next((inside[name] for name in names if name in inside), "a zip archive; name it .zip, or unpack it")
    if form == "workbook" and not what:
        raise DataError(f"{path}: is no workbook; if it is text, name it .csv, else save it again as xlsx")
    if re.search(r"\.tar|\.tgz$", path.name.lower()) and tarfile.is_tarfile(path):
        what = "a tar archive; unpack it first"
    if what:
        raise DataError(f"{path}: is {what}")
    head = next(text_blocks(path, Reading()), b"") if form in ("json", "csv", "tsv", "") else b""
    texts = head.decode().rstrip("\n").split("\n")[:5_000]
    full = [line for line in texts if line.strip()]
    if form and len(full) > 1 and {(line.strip()[0], line.strip()[-1]) for line in full[:3]} == {("{", "}")}:
        return "jsonl"
    if form == "tsv" and _sentences(texts, spans=True) is not None:
        return "conll"
    form = form or _sniffed(path, texts, full)
    if whole and form in ("json", "jsonl"):
        if (tool := detected(path, kind="tagging")) and FORMATS[tool].tool:
            return tool
        return "squad" if form == "json" and is_squad(path) else form
    return form


def _form_of_folder(path: Path) -> str:
    """`classes`: a folder or file of texts per class; `parallel`: files with equally many lines, one of labels."""
    if "*" in path.name:
        _refuse_tables(path)
        return "parallel"
    if any((path / name).is_file() for name in ("dataset_dict.json", "dataset_info.json")):
        raise DataError(f"{path}: was written by `save_to_disk`; write each split with `to_parquet` instead")
    names = {file.name for file in path.rglob("*") if file.is_file()}
    if any(name.endswith(".ann") and f"{name[:-4]}.txt" in names for name in names):
        raise DataError(
            f"{path}: texts with annotations of brat (.txt and .ann), which are not read; convert them to one JSON "
            'object a line, {"text": "...", "entities": [[START, END, "TYPE"]]}: a line T1<TAB>TYPE START END<TAB>... '
            "of an .ann file is one entity"
        )
    folders = [folder for folder in path.iterdir() if folder.is_dir() and not NO_DATA.search(folder.name)]
    if len([folder for folder in folders if any(folder.rglob("*"))]) > 1:
        return "classes"
    files = parallel_files(path)
    texts = {name: [line for _, line in lines(file, Reading())] for name, file in files.items()}
    counts = {name: len(values) for name, values in texts.items()}
    if len(counts) > 1 and len(set(counts.values())) == 1 and any(map(are_labels, texts.values())):
        return "parallel"
    tables = any(by_name(name) for name in files)
    if not tables:
        _refuse_tables(path)
    languages = len(set(counts.values())) == 1 and all(len(Path(name).suffix) == 3 for name in files)
    if len(counts) > 1 and not tables and not languages and not any(map(are_labels, texts.values())):
        return "classes"
    listed = ", ".join(f"{name}: {count} lines" for name, count in counts.items()) or "no files"
    raise DataError(
        f"{path}: is no folder of parallel files, which have one value a line and equally many lines ({listed}), and "
        "has no folder for each class; name a labelled file (csv, tsv, jsonl, json, parquet, conll)"
    )


def _refuse_tables(path: Path) -> None:
    """Check that the files of a folder or pattern do not hold texts together with their labels.

    Raises:
        DataError: they do.
    """
    heads = {file.name: [line for _, line in islice(lines(file, Reading()), _LINES)] for file in files_at(path)}
    labelled = [name for name, head in heads.items() if _are_rows(head)]
    if len(labelled) > 1:
        raise DataError(
            f"{path}: each file holds texts with their labels ({', '.join(labelled[:5])}); name one of them, or make "
            f"them one: cat {' '.join(labelled)} > all.tsv"
        )


def _are_rows(texts: Sequence[str]) -> bool:
    """Whether nearly all lines are a text and a label, separated by a tab, or begin with a label of fastText."""
    full = [line for line in texts if line.strip()]
    cells = [line.rsplit("\t", 1) for line in full if line.count("\t") == 1]
    marked = sum(line.startswith(FASTTEXT) for line in full)
    if max(len(cells), marked) <= 0.9 * len(full) or len(full) < 2:
        return False
    return marked > len(cells) or any(are_labels([cell[side].strip() for cell in cells]) for side in (0, 1))


def are_labels(values: Sequence[str]) -> bool:
    """Whether lines are labels, few different ones, or tags of words."""
    return len(set(values)) <= len(values) / 2 or are_tags(part for value in values for part in value.split())


#: A number, `DESC:manner`, or a word in upper or in lower case, unlike the first word of a sentence.
_FIRST_LABEL: Final = re.compile(r"[+-]?\d+|[\w-]+:\S+|[A-Z_]{2,}|[a-z_-]+")


def _are_first_labels(counts: Counter[str]) -> bool:
    """Whether the first words of lines are labels: each of them in several lines, and unlike words of a sentence."""
    if not counts:
        return False
    if all(re.fullmatch(rf"{FASTTEXT}[^,;|]+", word) for word in counts):
        return True
    lines = sum(counts.values())
    if any(count == 1 for count in counts.values()) and len(counts) > lines / 20:
        return False
    return 1 < len(counts) <= min(200, lines / 2) and all(_FIRST_LABEL.fullmatch(word) for word in counts)


def are_tags(values: Iterable[str]) -> bool:
    return all(re.fullmatch(r"O|[BIESLU]-\S+", value) for value in set(values))


def inner_name(path: Path) -> str:
    """The name of the table in a compressed file, in lower case."""
    name = path.name.lower()
    if name.endswith(".zip") and zipfile.is_zipfile(path):
        return Path(member_of(path)).name.lower()
    return name


def _sentences(texts: Sequence[str], *, spans: bool = False) -> str | None:
    """`conll` or `conllu` if lines are words with a tag, else None. `spans`: the tags have to be of spans."""
    full = [line for line in texts if line.strip()]
    blank = len(texts) - len(full)
    words = [re.split(r"[\t ]+", line.strip()) for line in full if not line.startswith(("#", "-DOCSTART-"))]
    (most, count), *_ = Counter(map(len, words)).most_common(1) or [(0, 0)]
    if most not in range(2, 11) or count <= 0.95 * len(words):
        return None
    last = [cells[-1] for cells in words]
    if spans and not (blank and are_tags(last)):
        return None
    # Texts may have equally many words, too. They repeat no tags, or stand alone between empty lines.
    if (most < 10 and not are_labels(last) and any(tag != tag.upper() for tag in last)) or not any(
        before and after for before, after in pairwise(map(str.strip, texts))
    ):
        return None
    # Sentences may be long, and a table has no empty lines.
    if blank > len(texts) / 100 or (are_tags(last) and (blank or len(set(last)) > 1)):
        return "conllu" if most == 10 else "conll"
    return None


def _sniffed(path: Path, texts: Sequence[str], full: Sequence[str]) -> str:
    """The format of a file whose name says none, by its first lines, and those that are not blank."""
    if full and full[0].lstrip()[0] in "{[":
        objects = all(line.lstrip().startswith("{") for line in full[:20])
        return "jsonl" if objects and len(full) > 1 and full[0].rstrip().endswith("}") else "json"
    if (sentences := _sentences(texts)) is not None:
        return sentences
    first = Counter(line.split(maxsplit=1)[0] for line in full)
    label_first = all(" " in line.strip() for line in full) and _are_first_labels(first)
    # A comma that a space follows is punctuation.
    commas = any(re.search(r",\S", line) for line in full)
    if label_first and (not commas or all(word.startswith(FASTTEXT) for word in first)):
        delimiters = "" if full[0].startswith(FASTTEXT) else "\t;|"
    else:
        delimiters = "\t;|,"
    for delimiter in delimiters:
        counts = Counter(line.count(delimiter) for line in full)
        if counts and (usual := counts.most_common(1)[0])[0] and usual[1] > 0.9 * len(full):
            return "tsv" if delimiter == "\t" else "csv"
    if label_first:
        return "label-first"
    if suffix_of(inner_name(path)) == ".txt":
        return "texts"
    raise DataError(
        f"{path}: the format is not recognised; save it as csv, tsv, jsonl, json, parquet, xlsx, ods or conll, with a "
        "suffix that says so"
    )
