"""Exports of annotation tools as tables, whose columns are texts, and controls with labels; forms of predictions."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
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
from components.settings.formats import FORMATS

#: Format -> reader of its records.
READERS: Final[dict[str, Callable[[Path, Reading], Iterator[Annotated]]]] = {
    "label-studio": read_label_studio,
    "doccano": read_doccano,
    "prodigy": read_prodigy,
}
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
    """The records of an export. A column is one of the texts', or a control: its name, or `label` if there is only one.
    The value of a control is a label, with `layout.nested` a list of labels, or a number. Spans of characters are the
    tags of the words of a text.

    If columns are asked for, records without one of them are left out and counted; with `layout.tagged` the columns are
    of the text and of the control of its spans. Otherwise rows have all columns, and of spans `words` and `tags`.

    Raises:
        DataError: as the readers; a column occurs in no record; a text has several labels and `layout.nested` is not
            set.
    """
    path, reading, asked, unit = file.path, file.reading, file.columns, FORMATS[form].unit
    records = list(READERS[form](path, reading))
    tagged = file.layout.tagged if asked else any(any(record.spans.values()) for record in records)
    text, control = asked[:2] if asked and tagged else ("text", None)
    rows: dict[int, Row] = {}
    seen: set[str] = set()
    missing: Annotated | None = None
    for record in records:
        where = f"{path}, {unit} {record.number}"
        reading.skipped.update(record.ignored)
        values: Row = dict(record.chosen)
        if tagged:
            spans = control_of(record.spans, control, where, "tags")
            counts = reading.skipped if asked else Counter[str]()
            both = _tagged(record, spans or (), where, counts, text=text) if spans is not None or not asked else ()
            values = dict(zip(asked or ("words", "tags"), both, strict=False))
        elif asked:
            values = {name: value for name in asked if (value := _value(record, name, file.layout, where)) is not None}
            seen |= values.keys()
        wanted = (asked[1:2] if tagged else asked) if asked else ()
        if any(name not in values and (tagged or name == LABEL or name not in record.data) for name in wanted):
            missing = missing or record
            reading.skipped["without_annotation"] += 1
        else:
            rows[record.number] = dict.fromkeys(asked or ()) | dict(record.data) | values
    absent = [name for name in asked or () if not tagged and name not in seen and name != LABEL]
    if missing is not None and absent:
        near = nearest(absent[0], [*missing.chosen, *map(str, missing.data)])
        where = f"{path}, {unit} {missing.number}"
        raise DataError(f"{where}: no column or control {absent[0]!r}{near}; name it in params.yaml")
    several = any(isinstance(value, list) and len(value) > 1 for each in records for value in each.chosen.values())
    kind = "tagging" if tagged else "multilabel" if several else "classification"
    names = list(dict.fromkeys(name for row in rows.values() for name in row))
    described = f"an export of {form}"
    return file.rows(names, iter(rows.items()), fixed=False, described=described, kind=kind)


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


#: Format -> writer of predictions.
WRITERS: Final[dict[str, Callable[..., None]]] = {
    "label-studio": write_label_studio,
    "doccano": write_doccano,
    "prodigy": write_prodigy,
    "datasets": write_hub,
}


def check_written(form: str, output: Path) -> None:
    """Check that predictions in a format can have this name.

    Raises:
        ConfigError: there is no such format, or its files are called otherwise.
    """
    if form not in WRITERS:
        raise ConfigError(f"unknown format {form!r}{nearest(form, WRITERS)}")
    suffix = str(FORMATS[form].written)
    if output.suffix != suffix:
        expected = f"a file {output.stem}{suffix}" if suffix else f"a folder, such as {output.with_suffix('')}"
        raise ConfigError(f"{output}: predictions for {form} are {expected}")
