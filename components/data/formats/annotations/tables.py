"""Exports of annotation tools as tables, whose columns are texts, and controls with labels; forms of predictions."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from components.core.errors import ConfigError, DataError, nearest
from components.data.formats.annotations.doccano import read_doccano, write_doccano
from components.data.formats.annotations.hub import write_hub
from components.data.formats.annotations.labelstudio import read_label_studio, write_label_studio
from components.data.formats.annotations.prodigy import read_prodigy, write_prodigy
from components.data.formats.annotations.records import LABEL, Annotated, CharSpan, control_of
from components.data.formats.lines import Reading
from components.data.formats.tables import Layout, Opening, Row, Rows, as_text
from components.data.formats.words import covered, words_of

#: Format -> reader of its records.
READERS: Final[dict[str, Callable[[Path, Reading], Iterator[Annotated]]]] = {
    "label-studio": read_label_studio,
    "doccano": read_doccano,
    "prodigy": read_prodigy,
}
#: Format -> what a record is called in messages.
UNITS: Final = {"label-studio": "task", "doccano": "line", "prodigy": "line"}
#: Key of `Reading.skipped` -> message.
REASONS: Final = {
    "without_annotation": "record(s) without annotation are left out",
    "skipped": "record(s) that the annotator skipped are left out",
    "rejected": "rejected record(s) are left out",
    "ignored": "ignored record(s) are left out",
    "annotators_disagree": "record(s) have different annotations; the ground truth or the last one counts",
    "relations": "relation(s) are ignored",
    "spans_within_words": "span(s) begin or end within a word; the whole word counts",
    "spans_overlapping": "span(s) overlap a longer one and are left out",
    "spans_without_word": "span(s) without a word are left out",
    "rows_malformed": "row(s) are not well formed and are left out",
    "files_not_text": "file(s) are no text and are left out",
    "tags_repaired": "span(s) begin with the letter of another scheme, which is corrected",
    "rows_repeat_header": "row(s) repeat the header and are left out",
}


def read_annotated(file: Opening, *, form: str) -> Rows:
    """The records of an export that have all columns that are asked for; others are left out and counted.

    A column is one of the texts', or a control: its name, or `label` if there is only one. The value of a control is a
    label, with `layout.nested` a list of labels, or a number.

    Raises:
        DataError: as the readers; a column occurs in no record; a text has several labels and `layout.nested` is not
            set.
    """
    path, reading, asked, unit = file.path, file.reading, file.columns or (), UNITS[form]

    def rows() -> Iterator[tuple[int, Row]]:
        seen: set[str] = set()
        missing: Annotated | None = None
        for record in READERS[form](path, reading):
            where = f"{path}, {unit} {record.number}"
            reading.skipped.update(record.ignored)
            if file.layout.tagged:
                spans = control_of(record.spans, asked[1], where, "tags")
                if spans is None:
                    reading.skipped["without_annotation"] += 1
                else:
                    tagged = _tagged(record, spans, where, reading.skipped, text=asked[0])
                    yield (
                        record.number,
                        {**dict.fromkeys(asked), **record.data, **dict(zip(asked, tagged, strict=False))},
                    )
                continue
            row = {name: value for name in asked if (value := _value(record, name, file.layout, where)) is not None}
            seen |= row.keys()
            if any(name not in row and (name == LABEL or name not in record.data) for name in asked):
                missing = missing or record
                reading.skipped["without_annotation"] += 1
                continue
            yield record.number, {**record.data, **row}
        if missing is not None and (absent := [name for name in asked if name not in seen and name != LABEL]):
            names = [*missing.chosen, *map(str, missing.data)]
            raise DataError(
                f"{path}, {unit} {missing.number}: no column or control {absent[0]!r}{nearest(absent[0], names)}; name "
                "it in params.yaml"
            )

    return file.rows([], rows(), fixed=False)


def open_annotated(path: Path, tool: str) -> Rows | None:
    """The records of an export with all columns; None of rows that a table holds as well."""
    file = Opening(path)
    reading = file.reading
    records = list(READERS[tool](path, reading))
    tagged = any(any(record.spans.values()) for record in records)
    if not tagged and tool == "doccano" and not any(isinstance(record.data.get("cats"), dict) for record in records):
        return None
    several = any(isinstance(value, list) and len(value) > 1 for each in records for value in each.chosen.values())
    kind = "tagging" if tagged else "multilabel" if several else "classification"
    rows = []
    for record in records:
        reading.skipped.update(record.ignored)
        row: Row = {**record.data, **({} if tagged else record.chosen)}
        if tagged:
            where = f"{path}, {UNITS[tool]} {record.number}"
            spans = control_of(record.spans, None, where, "tags") or ()
            row["words"], row["tags"] = _tagged(record, spans, where, Counter(), text="text")
        rows.append((record.number, row))
    names = list(dict.fromkeys(name for _, row in rows for name in row))
    described = f"an export of {tool}"
    return file.rows(names, iter(rows), fixed=False, described=described, form=tool, kind=kind)


def _tagged(
    record: Annotated, spans: Iterable[CharSpan], where: str, skipped: Counter[str], *, text: str
) -> tuple[list[str], list[str]]:
    """The words of a record's column `text`, and their tags by spans."""
    if text not in record.data:
        raise DataError(f"{where}: no column {text!r}{nearest(text, list(record.data))}; name it with words")
    given = as_text(record.data[text], where) or ""
    # Tokens of spaCy may be white space, such as line breaks.
    bounds = [(start, end) for start, end in record.tokens or words_of(given) if given[start:end].strip()]
    tags, misfits = covered(bounds, ((span.start, span.end, span.label) for span in spans))
    skipped.update(misfits)
    return [given[start:end] for start, end in bounds], tags


def _value(record: Annotated, name: str, layout: Layout, where: str) -> Any:
    """The annotation of a control; None if a column has this name, or there is no annotation."""
    if name not in record.chosen and name != LABEL:
        return record.data.get(name)
    value = control_of(record.chosen, name, where, "label")
    if not isinstance(value, list) or layout.nested:
        return value
    if len(value) > 1:
        raise DataError(
            f"{where}: has {len(value)} labels ({', '.join(value)}); set kind: multilabel, or leave one of them"
        )
    return value[0] if value else None


@dataclass(frozen=True)
class Form:
    """One form: its writer, and the suffix of its files; without suffix it is a folder."""

    write: Callable[..., None]
    suffix: str


FORMS: Final = {
    "label-studio": Form(write_label_studio, ".json"),
    "doccano": Form(write_doccano, ".jsonl"),
    "prodigy": Form(write_prodigy, ".jsonl"),
    "datasets": Form(write_hub, ""),
}


def form_named(name: str, output: Path) -> Form:
    if name not in FORMS:
        raise ConfigError(f"unknown format {name!r}{nearest(name, FORMS)}")
    form = FORMS[name]
    if output.suffix != form.suffix:
        expected = (
            f"a file {output.stem}{form.suffix}" if form.suffix else f"a folder, such as {output.with_suffix('')}"
        )
        raise ConfigError(f"{output}: predictions for {name} are {expected}")
    return form
