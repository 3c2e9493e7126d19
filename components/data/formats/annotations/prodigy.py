"""Prodigy: JSONL of annotated tasks, and tasks to correct.

https://prodi.gy/docs/api-interfaces. A task has an `answer`: only accepted ones are read, except that a rejected task
with two options decides for the other one. `spans` are spans of characters, `accept` lists the chosen options, `label`
is the label of a binary decision.
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
from components.data.formats.jsontables import json_objects
from components.data.formats.lines import Reading

_ANSWERS = ("accept", "reject", "ignore")


def read_prodigy(path: Path, reading: Reading) -> Iterator[Annotated]:
    """Iterate over the accepted tasks; rejected and ignored ones are counted. If all tasks ask for the same label, some
    are accepted and some rejected, the answers are the labels.

    Raises:
        DataError: a line is not a task of Prodigy (file and line).
    """
    is_binary = _asks_for_one_label(path)
    for number, row in json_objects(path, reading):
        where = f"{path}, line {number}"
        answer = row.get("answer", "accept")
        if answer not in _ANSWERS:
            raise DataError(f"{where}: the answer is {answer!r}, expected one of {', '.join(_ANSWERS)}")
        annotated = Annotated(number, columns_of(row))
        if is_binary and answer != "ignore":
            annotated.chosen[LABEL] = [answer]
            yield annotated
            continue
        if answer != "accept":
            reading.skipped["rejected" if answer == "reject" else "ignored"] += 1
            continue
        text = member(row, "text", str, where)
        if (tokens := row.get("tokens")) is not None:
            annotated.tokens = [
                (member(token, "start", int, where), member(token, "end", int, where)) for token in tokens
            ]
        if "spans" in row:
            spans = [
                CharSpan(
                    member(span, "start", int, where),
                    member(span, "end", int, where),
                    str(span.get("label", LABEL)),
                    span["text"] if isinstance(span.get("text"), str) else None,
                )
                for span in row["spans"] or ()
            ]
            annotated.spans[LABEL] = checked_spans(spans, text, where)
        elif tokens is not None and "options" not in row and LABEL not in row:
            annotated.spans[LABEL] = []
        if "options" in row or "accept" in row:
            annotated.chosen[LABEL] = [_name(option, row) for option in member(row, "accept", list, where)]
        elif isinstance(row.get(LABEL), str):
            annotated.chosen[LABEL] = [row[LABEL]]
        if not annotated.chosen and not annotated.spans:
            reading.skipped["without_annotation"] += 1
            continue
        annotated.ignored = {"relations": len(row.get("relations") or ())}
        yield annotated


def _asks_for_one_label(path: Path) -> bool:
    """Whether the answers of a file, yes and no, are about one label."""
    labels: set[object] = set()
    answers: set[object] = set()
    for _, row in json_objects(path, Reading()):
        if not isinstance(row.get(LABEL), str) or "options" in row or "spans" in row:
            return False
        labels.add(row[LABEL])
        answers.add(row.get("answer"))
        if len(labels) > 1:
            return False
    return answers >= {"accept", "reject"}


def _name(option: Any, row: dict[str, Any]) -> str:
    """A chosen option, which is named by its id. Ids that are numbers stand for the text of the option."""
    if isinstance(option, int):
        named = {item.get("id"): item.get("text") for item in row.get("options") or () if isinstance(item, dict)}
        return str(named.get(option) or option)
    return str(option)


def write_prodigy(path: Path, rows: Iterable[PredictedRow], *, model: str) -> None:
    """Write tasks for `ner.manual` (spans) or `choice` (labels) whose answer is preset; without `answer`, which a
    person gives.
    """
    reserved = ("answer", "accept", "options", "spans", "tokens", "_input_hash", "_task_hash")
    with path.open("w", encoding="utf-8") as file:
        for row in rows:
            task: dict[str, Any] = {name: value for name, value in row.row.items() if name not in reserved}
            task["text"] = row.text
            meta = task.get("meta")
            task["meta"] = (meta if isinstance(meta, dict) else {}) | {"model": model}
            if row.score is not None:
                task["meta"]["score"] = round(row.score, 4)
            if row.spans is None:
                task["options"] = [{"id": label, "text": label} for label in row.shares or row.labels or ()]
                task["accept"] = row.labels
            else:
                task["tokens"] = [
                    {
                        "text": row.text[start:end],
                        "start": start,
                        "end": end,
                        "id": index,
                        "ws": row.text[end : end + 1].isspace(),
                    }
                    for index, (start, end) in enumerate(row.tokens)
                ]
                task["spans"] = [_span(span, row) for span in row.spans]
            file.write(json.dumps(task, ensure_ascii=False, default=str) + "\n")


def _span(span: CharSpan, row: PredictedRow) -> dict[str, Any]:
    inside = [index for index, (start, end) in enumerate(row.tokens) if span.start <= start and end <= span.end]
    annotated: dict[str, Any] = {"start": span.start, "end": span.end, "label": span.label}
    return annotated | ({"token_start": inside[0], "token_end": inside[-1]} if inside else {})
