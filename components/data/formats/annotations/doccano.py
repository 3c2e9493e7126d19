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
    member,
)
from components.data.formats.lines import Reading
from components.data.formats.tables import json_objects

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
            spans = [_entity(entity, where) for entity in entities]
            annotated.spans[LABEL] = checked_spans(spans, member(data, "text", str, where), where)
            annotated.ignored = {"relations": len(row.get("relations") or ())}
            yield annotated
            continue
        name = next((name for name in _LABELS if name in row), None)
        if name is None:
            raise DataError(f"{where}: has neither {LABEL!r} nor 'entities'; export as JSONL")
        labels = row[name] if isinstance(row[name], list) else [row[name]]
        if isinstance(row[name], dict):
            # `cats` of spaCy: label -> probability.
            labels = [label for label, share in row[name].items() if isinstance(share, int | float) and share >= 0.5]
        if any(isinstance(label, list | dict) for label in labels):
            spans = [_triple(label, where) for label in labels]
            annotated.spans[LABEL] = checked_spans(spans, member(data, "text", str, where), where)
        elif labels:
            annotated.chosen[LABEL] = [str(label) for label in labels]
        else:
            # An empty list is a text without labels, or one that nobody has labelled yet.
            annotated.chosen[LABEL], annotated.spans[LABEL] = [], []
        yield annotated


def _entity(entity: Any, where: str) -> CharSpan:
    start, end = (member(entity, name, int, where) for name in ("start_offset", "end_offset"))
    return CharSpan(start, end, str(member(entity, "label", (str, int), where)))


def _triple(label: Any, where: str) -> CharSpan:
    if isinstance(label, dict):
        return _entity(label, where)
    if not (isinstance(label, list) and len(label) == 3 and all(isinstance(offset, int) for offset in label[:2])):
        raise DataError(f"{where}: the label {json.dumps(label)[:60]} is not [start, end, label]; export as JSONL")
    return CharSpan(label[0], label[1], str(label[2]))


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
