"""Small files of the kinds that people have, and how each is read.

Every file has the same texts and labels, unless a case says otherwise.
"""

import gzip
import io
import json
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from xml.sax.saxutils import escape

import pytest

from components.cli.common import InitOptions
from components.cli.onboarding.command import init
from components.data.tasks.kinds import find_kind
from components.settings.loading import load_params
from components.settings.tasks import TaskSource
from headstart.tasks import TaskRows

_SENTENCES: Final = (
    "the train was tidy and quiet",
    "the seat was broken, sadly",
    "we liked the friendly staff; truly",
    "my ticket cost far too much",
    "a calm and pleasant journey",
    "nobody answered my question",
    "the view from the window was great",
    "it was late again, by an hour",
    "clean carriages and good coffee",
    "the heating did not work at all",
    "a very helpful conductor",
    "too loud and too crowded",
)
TEXTS: Final = tuple(f"{text} {number}" for number in range(2) for text in _SENTENCES)
LABELS: Final = ("good", "bad") * 12


@dataclass(frozen=True)
class Case:
    """A file and how it is read.

    Attributes:
        name: of the file.
        content: its text or bytes.
        text, label: columns that are taken for the text and the label.
        texts, labels: their values; None where `init` decides about labels in another way.
        kind: of the task.
        says: parts of what `init` prints.
        left_out: number of rows that are not well formed.
        all_texts: texts of the rows with and without labels; empty: `texts`.
    """

    name: str
    content: str | bytes
    text: str = "text"
    label: str | None = "label"
    texts: Sequence[str] = TEXTS
    labels: Sequence[Any] | None = LABELS
    kind: str = "classification"
    says: tuple[str, ...] = ()
    left_out: int = 0
    all_texts: Sequence[str] = ()


def delimited(
    sign: str = ",",
    *,
    header: str | None = "text{0}label",
    row: str = "{text}{sign}{label}",
    quote: str = '"',
    end: str = "\n",
    texts: Sequence[str] = TEXTS,
    labels: Sequence[Any] = LABELS,
    always: bool = False,
) -> str:
    """A file with one row per text; `row` may use `text`, `label`, `sign`, `number` and `rare`, of few rows."""
    lines = [] if header is None else [header.format(sign)]
    for number, (text, label) in enumerate(zip(texts, labels, strict=True)):
        quoted = text
        if quote and (always or sign in text or quote in text or "\n" in text):
            quoted = f"{quote}{text.replace(quote, quote * 2)}{quote}"
        lines.append(
            row.format(text=quoted, label=label, sign=sign, number=number, rare="" if number % 8 else f"t{number % 16}")
        )
    return end.join(lines) + end


def archive(content: dict[str, bytes]) -> bytes:
    """A zip archive."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        for name, data in content.items():
            file.writestr(name, data)
    return out.getvalue()


_RELATIONS: Final = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_MAIN: Final = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"


def workbook(rows: Sequence[Sequence[Any]], merged: Sequence[str] = ()) -> bytes:
    """An xlsx file with one sheet; `merged` are ranges of merged cells, such as `A1:A3`."""

    def cell(value: Any) -> str:
        if isinstance(value, int | float):
            return f"<c><v>{value}</v></c>"
        return f'<c t="inlineStr"><is><t>{escape(str(value))}</t></is></c>'

    lines = "".join(f"<row>{''.join(map(cell, row))}</row>" for row in rows)
    ranges = "".join(f'<mergeCell ref="{cells}"/>' for cells in merged)
    merges = f"<mergeCells>{ranges}</mergeCells>" if merged else ""
    packages = "http://schemas.openxmlformats.org/package/2006"
    kinds = "application/vnd.openxmlformats-officedocument.spreadsheetml"
    return archive(
        {
            "[Content_Types].xml": f'<Types xmlns="{packages}/content-types">'
            '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
            f'<Override PartName="/xl/workbook.xml" ContentType="{kinds}.sheet.main+xml"/>'
            f'<Override PartName="/xl/worksheets/sheet1.xml" ContentType="{kinds}.worksheet+xml"/></Types>'.encode(),
            "_rels/.rels": f'<Relationships xmlns="{packages}/relationships"><Relationship Id="r1" '
            f'Type="{_RELATIONS}/officeDocument" Target="xl/workbook.xml"/></Relationships>'.encode(),
            "xl/workbook.xml": f'<workbook xmlns="{_MAIN}" xmlns:r="{_RELATIONS}"><sheets>'
            '<sheet name="Sheet1" sheetId="1" r:id="r1"/></sheets></workbook>'.encode(),
            "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{packages}/relationships"><Relationship Id="r1" '
            f'Type="{_RELATIONS}/worksheet" Target="worksheets/sheet1.xml"/></Relationships>'.encode(),
            "xl/worksheets/sheet1.xml": f'<worksheet xmlns="{_MAIN}"><sheetData>{lines}</sheetData>{merges}'
            "</worksheet>".encode(),
        }
    )


def open_document(rows: Sequence[Sequence[Any]]) -> bytes:
    """An ods file with one sheet."""
    office = "urn:oasis:names:tc:opendocument:xmlns:office:1.0"
    table, text = office.replace("office:1", "table:1"), office.replace("office:1", "text:1")
    lines = "".join(
        "<table:table-row>"
        + "".join(
            f'<table:table-cell office:value-type="string"><text:p>{escape(str(value))}</text:p></table:table-cell>'
            for value in row
        )
        + "</table:table-row>"
        for row in rows
    )
    content = (
        f'<office:document-content xmlns:office="{office}" xmlns:table="{table}" xmlns:text="{text}"><office:body>'
        f'<office:spreadsheet><table:table table:name="Sheet1">{lines}</table:table></office:spreadsheet>'
        "</office:body></office:document-content>"
    )
    kind = "application/vnd.oasis.opendocument.spreadsheet"
    manifest = (
        '<manifest:manifest xmlns:manifest="urn:oasis:names:tc:opendocument:xmlns:manifest:1.0"><manifest:file-entry '
        f'manifest:full-path="/" manifest:media-type="{kind}"/></manifest:manifest>'
    )
    files = {"mimetype": kind, "content.xml": content, "META-INF/manifest.xml": manifest}
    return archive({name: text.encode() for name, text in files.items()})


_ROWS: Final = [("text", "label"), *zip(TEXTS, LABELS, strict=True)]


def jsonl(row: Callable[[str, Any], dict[str, Any]], labels: Sequence[Any] = LABELS) -> str:
    """One object per line."""
    return "".join(
        json.dumps(row(text, label), ensure_ascii=False) + "\n" for text, label in zip(TEXTS, labels, strict=True)
    )


GERMAN: Final = tuple(f"{text} für 30 €" for text in TEXTS)
FRENCH: Final = tuple(f"{text} – très agréable l’été" for text in TEXTS)
RUSSIAN: Final = tuple(f"поезд был чистым и тихим {number}" for number in range(24))
CHINESE: Final = tuple(f"房间很干净，服务员态度也很好{number}" for number in range(24))
JAPANESE: Final = tuple(f"部屋はとても清潔で親切でした{number}" for number in range(24))
ARABIC: Final = tuple(f"الغرفة نظيفة والموظفون لطفاء {number}" for number in range(24))
THAI: Final = tuple(f"ห้องพักสะอาดมากและพนักงานบริการดี {number}" for number in range(24))
TWO_LINES: Final = tuple(f"the lamp was great\nbye {number}" for number in range(24))
SINGLE: Final = tuple(f"it's fine, {text}" for text in TEXTS)
SAID: Final = tuple(f'he said "go", {number}' for number in range(24))
RETURNS: Final = tuple(f"first part\rsecond part {number}" for number in range(24))
LONG: Final = (*TEXTS[:23], "word, " * 40_000)

SLOW: Final = (("slow",), ("rude", "slow"), ("rude",)) * 8

CASES: Final[tuple[Case, ...]] = (
    # Header.
    Case("kaggle.csv", delimited(header=",text,label", row="{number},{text},{label}")),
    Case("spam.csv", delimited(header="v1,v2,,,", row="{label},{text},,,"), "v2", "v1"),
    Case("excel.csv", delimited(";", header="text;label;;", row="{text};{label};;")),
    Case("notes.csv", delimited(header="text,note,note,label", row="{text},x,y,{label}")),
    Case(
        "survey.csv",
        delimited(header="what did the customer say about it,label"),
        "what did the customer say about it",
    ),
    Case("years.csv", delimited(header="text,2019,label", row="{text},{number},{label}")),
    Case("headless.csv", delimited(header=None), "0", "1", says=("the first row is not the header",)),
    Case("headless.tsv", delimited("\t", header=None), "0", "1"),
    Case(
        "joined.csv",
        (delimited(texts=TEXTS[:6], labels=LABELS[:6]) + delimited(texts=TEXTS[6:], labels=LABELS[6:])),
        says=("1 row(s) repeat the header",),
    ),
    # Encodings.
    Case("german.csv", delimited(texts=GERMAN).encode("cp1252"), texts=GERMAN, says=("encoding cp1252",)),
    Case("mac.csv", delimited(texts=FRENCH).encode("mac_roman"), texts=FRENCH, says=("encoding mac_roman",)),
    Case("russian.csv", delimited(texts=RUSSIAN).encode("cp1251"), texts=RUSSIAN, says=("encoding cp1251",)),
    Case("chinese.csv", delimited(texts=CHINESE).encode("gb18030"), texts=CHINESE, says=("encoding gb18030",)),
    Case("japanese.csv", delimited(texts=JAPANESE).encode("cp932"), texts=JAPANESE, says=("encoding cp932",)),
    Case("arabic.csv", delimited(texts=ARABIC).encode("cp1256"), texts=ARABIC, says=("encoding cp1256",)),
    Case("thai.csv", delimited(texts=THAI).encode("cp874"), texts=THAI, says=("encoding cp874",)),
    Case("unicode.csv", delimited("\t").encode("utf-16"), says=("encoding utf-16",)),
    Case("marked.csv", "\ufeff" + delimited()),
    Case(
        "damaged.csv",
        delimited(texts=GERMAN).encode().replace("für".encode(), b"f\xfcr", 1),
        texts=(GERMAN[0].replace("ü", "\ufffd"), *GERMAN[1:]),
        says=("1 line(s) have bytes that are not utf-8: line 2",),
    ),
    # Dialects.
    Case("semicolon.csv", delimited(";"), says=("delimiter semicolon",)),
    Case("tabs.csv", delimited("\t"), says=("delimiter tab",)),
    Case("bars.csv", delimited("|"), says=("delimiter vertical bar",)),
    Case("sep.csv", ("sep=;\n" + delimited(";"))),
    Case("quoted.tsv", delimited("\t", texts=TWO_LINES), texts=TWO_LINES),
    Case("single.csv", delimited(quote="'", texts=SINGLE), texts=SINGLE),
    Case(
        "escaped.csv",
        "text,label\n"
        + "".join(
            '"{}",{}\n'.format(text.replace('"', '\\"'), label) for text, label in zip(SAID, LABELS, strict=True)
        ),
        texts=SAID,
    ),
    Case("old_mac.csv", delimited(end="\r")),
    Case("windows.csv", delimited(end="\r\n")),
    Case("returns.csv", delimited(texts=RETURNS), texts=RETURNS),
    Case("long.csv", delimited(texts=LONG), texts=LONG),
    Case(
        "unclosed.csv",
        delimited(always=True).replace(f'"{TEXTS[5]}"', f'"{TEXTS[5]}'),
        texts=(*TEXTS[:5], *TEXTS[6:]),
        labels=(*LABELS[:5], *LABELS[6:]),
        says=("1 row(s) cannot be read and are left out", "line 7"),
        left_out=1,
    ),
    # Columns.
    Case(
        "news.csv",
        delimited(header="category,headline,link", row="{label},{text},https://news.example/{number}/a-b"),
        "headline",
        "category",
    ),
    Case(
        "airline.csv",
        delimited(header="airline_sentiment,airline,text", row="{label},united,{text}"),
        "text",
        "airline_sentiment",
    ),
    Case(
        "replies.csv",
        delimited(header="comment,is_reply,is_retweet,verdict", row="{text},0,1,{label}"),
        "comment",
        "verdict",
    ),
    Case(
        "annotators.csv",
        delimited(header="comment,annotator1,annotator2,label_final", row="{text},good,bad,{label}"),
        "comment",
        "label_final",
    ),
    # Labels.
    Case("spaces.csv", delimited(row="{text},{label} ")),
    Case(
        "floats.csv",
        delimited(labels=("1", "0", "1.0", "0.0") * 6),
        labels=("1", "0", "1", "0") * 6,
    ),
    Case("truth.csv", delimited(labels=("TRUE", "False", "true", "FALSE") * 6), labels=("TRUE", "FALSE") * 12),
    Case(
        "commas.csv",
        delimited(";", labels=("1,5", "2,25", "3,0") * 8),
        label="label",
        kind="regression",
        labels=(1.5, 2.25, 3.0) * 8,
    ),
    Case("choices.csv", delimited(";", row='{text};{{"choices": ["{label}"]}}')),
    Case(
        "missing.csv",
        delimited(labels=("NA", *("2.5", "4.25") * 3, "1.5") * 3),
        texts=[text for number, text in enumerate(TEXTS) if number % 8],
        labels=(*(2.5, 4.25) * 3, 1.5) * 3,
        kind="regression",
        says=("3 row(s) have no label",),
        all_texts=TEXTS,
    ),
    Case(
        "thousands.csv",
        delimited(";", labels=("1,500", "22,250", "300") * 8),
        kind="regression",
        labels=(1500.0, 22250.0, 300.0) * 8,
        says=("separates thousands",),
    ),
    Case(
        "pairs.tsv",
        delimited("\t", labels=("3", "7", "12", "3,7", "7,12", "12,3") * 4),
        kind="multilabel",
        labels=(("3",), ("7",), ("12",), ("3", "7"), ("12", "7"), ("12", "3")) * 4,
    ),
    Case("hashes.csv", delimited(labels=("slow", "slow#rude", "rude") * 8), kind="multilabel", labels=SLOW),
    Case(
        "breaks.csv",
        delimited(labels=('"slow"', '"slow\nrude"', '"rude"') * 8),
        kind="multilabel",
        labels=SLOW,
    ),
    Case(
        "python.csv",
        delimited(";", labels=("['slow']", "['slow', 'rude']", "('rude',)") * 8),
        kind="multilabel",
        labels=SLOW,
    ),
    Case(
        "arrays.csv",
        delimited(labels=("['slow']", "['slow' 'rude']", "['rude']") * 8),
        kind="multilabel",
        labels=SLOW,
    ),
    Case("codes.csv", delimited(labels=("0101", "101") * 12), labels=("0101", "101") * 12),
    Case(
        "invisible.csv",
        delimited(labels=("good", "good\u200b", "bad") * 8),
        labels=("good", "good", "bad") * 8,
        says=("labels that differ in spaces or Unicode form only are one class: good",),
    ),
    Case(
        "unlabelled.csv",
        delimited(labels=("good", "", "bad") * 8),
        labels=("good", "bad") * 8,
        texts=[t for n, t in enumerate(TEXTS) if n % 3 != 1],
        says=("8 row(s) have no label",),
        all_texts=TEXTS,
    ),
    Case(
        "rare.csv",
        delimited(header="product,text,Tags", row="{label},{text},{rare}"),
        label="product",
        says=("'Tags' may also be the label",),
    ),
    # Titles and notes above the header.
    Case("export.csv", "# exported 2024-01-01\n# by the shop\n" + delimited(), says=("2 line(s) above",)),
    Case("survey_title.csv", "Survey 2024,\n" + delimited(), says=("1 line(s) above",)),
    Case("title.xlsx", workbook([("Feedback 2024", ""), ("", ""), *_ROWS])),
    # Annotation of fastText; objects of pandas.
    Case("fasttext.txt", delimited(header=None, row="__label__{label} {text}", quote=""), says=("2 classes",)),
    Case(
        "several.txt",
        delimited(
            header=None,
            row="{label} {text}",
            quote="",
            labels=("__label__slow", "__label__slow __label__rude", "__label__rude") * 8,
        ),
        kind="multilabel",
        labels=SLOW,
    ),
    Case("columns.json", json.dumps({"text": dict(enumerate(TEXTS)), "label": dict(enumerate(LABELS))})),
    Case("split.json", json.dumps({"columns": ["text", "label"], "data": list(zip(TEXTS, LABELS, strict=True))})),
    Case(
        "data.json",
        json.dumps(
            {
                "version": 1,
                "data": [dict(zip(("text", "label"), row, strict=True)) for row in zip(TEXTS, LABELS, strict=True)],
            }
        ),
    ),
    Case("rows.json", json.dumps([("text", "label"), *zip(TEXTS, LABELS, strict=True)])),
    # Encodings and line ends of joined or old files.
    Case("old_german.csv", delimited(texts=GERMAN, end="\r").encode("cp1252"), texts=GERMAN),
    Case(
        "joined_encodings.csv",
        delimited(texts=GERMAN[:12], labels=LABELS[:12]).encode()
        + delimited(texts=GERMAN[12:], labels=LABELS[12:], header=None).encode("cp1252"),
        texts=(*GERMAN[:12], *(text.replace("\u00fc", "\ufffd").replace("\u20ac", "\ufffd") for text in GERMAN[12:])),
        says=("12 line(s) have bytes that are not utf-8",),
    ),
    Case(
        "backslash.csv",
        delimited(row='"{text} \\""ok\\""",{label}', texts=TEXTS, quote=""),
        texts=tuple(f'{text} \\"ok\\"' for text in TEXTS),
    ),
    Case("lines.csv", jsonl(lambda text, label: {"text": text, "label": label})),
    # Containers.
    Case("TABLE.CSV", delimited()),
    Case("table.csv.gz", gzip.compress(delimited().encode())),
    Case("table.zip", archive({"table.csv": delimited().encode(), "__MACOSX/._table.csv": b"x"})),
    Case("book.xlsx", workbook(_ROWS), says=("sheet 'Sheet1'",)),
    Case(
        "grades.xlsx",
        workbook([(text, grade) for text, grade in [("text", "label"), *zip(TEXTS, (1, 2) * 12, strict=True)]]),
        labels=("1", "2") * 12,
    ),
    Case("book.ods", open_document(_ROWS)),
    Case("rows.ndjson", jsonl(lambda text, label: {"text": text, "label": label})),
    Case("lines.json", jsonl(lambda text, label: {"text": text, "label": label})),
    Case("table.txt", delimited("\t")),
)


def put(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def made(file: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, TaskSource, str]:
    """The task that `init` has made in a new folder, and what it has printed."""
    (root := folder / "project").mkdir()
    monkeypatch.chdir(root)
    said = "\n".join(init(InitOptions(file), root=root))
    ((name, source),) = load_params(root / "params.yaml").data.tasks.items()
    return name, source, said


def rows_of(name: str, source: TaskSource) -> list[tuple[tuple[str, ...], list[Any]]]:
    """The rows that a run reads, sorted, with the names of their labels or their numbers."""
    read = find_kind(source.kind).read(name, source)
    return sorted(
        (fields, [read.labels[int(number)] for number in target] if read.labels else target.tolist())
        for split in (read.train, read.dev, read.test)
        for fields, target in zip(split.fields, split.targets, strict=True)
    )


def targets_of(task: TaskRows) -> list[Any]:
    """The labels by name, or the numbers, of the rows that Python has read."""
    names, result = task.examples.labels, []
    for target in task.examples.train.targets:
        given = [names[int(number)] for number in target] if names else target.tolist()
        result.append(given if task.kind in ("multilabel", "tagging") else given[0])
    return result
