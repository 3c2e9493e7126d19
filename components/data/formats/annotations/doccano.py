"""doccano: exports as JSONL, and the JSONL that it imports.

https://doccano.github.io/doccano/tutorial. Classification: `label` is a list of labels; sequence labelling: a list of
[start, end, label]. With relations, the export has `entities` and `relations` instead.
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from components.core.errors import DataError
from components.data.formats.annotations.records import (
    LABEL,
    Annotated,
    CharSpan,
    PredictedRow,
    checked_spans,
    columns_of,
)
from components.data.formats.jsontables import json_objects
from components.data.formats.layouts import chosen_cats, spans_in
from components.data.formats.lines import Reading

#: Members that hold the labels; `label`, in older exports `labels` and `annotations`.
_LABELS = (LABEL, "labels", "cats", "annotations")


def read_doccano(path: Path, reading: Reading) -> Iterator[Annotated]:
    """Iterate over the labelled texts; those without labels are counted. Relations are ignored.

    Raises:
        DataError: a line is not a record of doccano (file and line).
    """
    for number, row in json_objects(path, reading):
        where = f"{path}, line {number}"
        data = columns_of(row)
        text = row.get("text", row.get("data"))
        data.setdefault("text", text)
        annotated = Annotated(number, data)
        if isinstance(entities := row.get("entities"), list):
            annotated.spans[LABEL] = _spans(entities, data["text"], where)
            annotated.ignored = {"relations": len(row.get("relations") or ())}
            yield annotated
            continue
        name = next((name for name in _LABELS if name in row), None)
        if name is None:
            raise DataError(f"{where}: has neither {LABEL!r} nor 'entities'; export as JSONL")
        labels = row[name] if isinstance(row[name], list) else [row[name]]
        if isinstance(row[name], dict):
            labels = chosen_cats(row[name])
        if any(isinstance(label, list | dict) for label in labels):
            annotated.spans[LABEL] = _spans(labels, data["text"], where)
        elif labels:
            annotated.chosen[LABEL] = [str(label) for label in labels]
        else:
            # An empty list is a text without labels, or one that nobody has labelled yet.
            annotated.chosen[LABEL], annotated.spans[LABEL] = [], []
        yield annotated


def _spans(entries: Iterable[Any], text: Any, where: str) -> list[CharSpan]:
    if not isinstance(text, str):
        raise DataError(f"{where}: no text ('text'), whose spans are listed")
    spans = []
    for entry in entries:
        if not (given := spans_in(entry)):
            raise DataError(f"{where}: the label {json.dumps(entry)[:60]} is not [start, end, label]; export as JSONL")
        spans += [CharSpan(*span) for span in given]
    return checked_spans(spans, text, where)


def write_doccano(path: Path, rows: Iterable[PredictedRow], *, model: str) -> None:
    """Write the JSONL that doccano imports, with labels or spans; `score` becomes a part of the record's meta data."""
    with path.open("w", encoding="utf-8") as file:
        for row in rows:
            label: list[Any] = list(row.labels or ())
            if row.spans is not None:
                label = [[span.start, span.end, span.label] for span in row.spans]
            data = {name: value for name, value in row.row.items() if name not in (*_LABELS, "entities", "relations")}
            data |= {"text": row.text, LABEL: label, "model": model}
            data |= {} if row.score is None else {"score": row.score}
            file.write(json.dumps(data, ensure_ascii=False, default=str) + "\n")
