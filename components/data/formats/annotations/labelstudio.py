"""Label Studio: exports as JSON or JSON-MIN, and tasks with predictions.

https://labelstud.io/guide/export, https://labelstud.io/guide/predictions. A control of the labelling interface is
named by `from_name`. Offsets of spans count characters of the text.
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

from components.core.errors import DataError
from components.data.formats.annotations.records import LABEL, Annotated, CharSpan, PredictedRow, checked_spans, member
from components.data.formats.jsontables import parse_json
from components.data.formats.lines import Reading

#: Type of a result -> its member of `value`. The types have the names of the labelling interface's tags.
_CHOSEN = {"choices": "choices", "taxonomy": "taxonomy", "pairwise": "selected", "rating": "rating", "number": "number"}
_SPANS = {"labels": "labels", "hypertextlabels": "hypertextlabels"}
#: Name of the object that the controls of a written file refer to.
TEXT = "text"


def read_label_studio(path: Path, reading: Reading) -> Iterator[Annotated]:
    """Iterate over the annotated tasks of an export; tasks without annotation, and skipped ones, are counted.

    Of several annotations of a task the ground truth counts, otherwise the one that was changed last.

    Raises:
        DataError: the file is not an export, or a task is malformed (file and task).
    """
    tasks = parse_json(path, reading)
    if not isinstance(tasks, list):
        raise DataError(f"{path}: is a {type(tasks).__name__}, not a list of tasks; export as JSON")
    for number, task in enumerate(tasks, 1):
        where = f"{path}, task {number}"
        if not isinstance(task, dict):
            raise DataError(f"{where}: is a {type(task).__name__}, not an object")
        annotated = _full(task, number, where, reading) if "data" in task else _minimal(task, number, where)
        if annotated is not None:
            yield annotated


def _full(task: dict[str, Any], number: int, where: str, reading: Reading) -> Annotated | None:
    data = dict(member(task, "data", dict, where))
    data.setdefault("id", task.get("id"))
    given = task.get("annotations", task.get("completions")) or []
    if not isinstance(given, list) or not all(isinstance(item, dict) for item in given):
        raise DataError(f"{where}: 'annotations' is not a list of objects; export as JSON")
    kept = [item for item in given if not item.get("was_cancelled")]
    if not kept:
        reading.skipped["skipped" if given else "without_annotation"] += 1
        return None
    parts = ("type", "from_name", "value")
    contents = [[[result.get(part) for part in parts] for result in item["result"]] for item in kept]
    if len({json.dumps(content, sort_keys=True) for content in contents}) > 1:
        reading.skipped["annotators_disagree"] += 1
    best = max(kept, key=lambda item: (bool(item.get("ground_truth")), str(item.get("updated_at", ""))))
    annotated = Annotated(number, data)
    relations = 0
    for result in member(best, "result", list, where):
        kind = member(result, "type", str, where)
        if kind == "relation":
            relations += 1
            continue
        control, value = str(result.get("from_name", LABEL)), member(result, "value", dict, where)
        if kind in _CHOSEN:
            annotated.chosen[control] = _chosen(value, kind, where)
        elif kind in _SPANS:
            annotated.spans.setdefault(control, []).append(_span(value, kind, where))
    annotated.ignored = {"relations": relations}
    to = {str(result.get("from_name", LABEL)): str(result.get("to_name", TEXT)) for result in best["result"]}
    for control, spans in annotated.spans.items():
        text = data.get(to.get(control, TEXT), data.get(TEXT))
        if isinstance(text, str):
            annotated.spans[control] = checked_spans(spans, text, where)
    return annotated


def _chosen(value: dict[str, Any], kind: str, where: str) -> list[str] | float:
    content = member(value, _CHOSEN[kind], (list, str, int, float), where)
    if kind in ("rating", "number"):
        return float(content)
    if isinstance(content, str):
        return [content]
    # A choice of a taxonomy is the path to it.
    return [" / ".join(map(str, item)) if isinstance(item, list) else str(item) for item in content]


def _span(value: dict[str, Any], kind: str, where: str) -> CharSpan:
    labels = member(value, _SPANS[kind], list, where)
    if not labels:
        raise DataError(f"{where}: a span has no label; label it or remove it")
    start, end = (member(value, name, (int, str), where) for name in ("start", "end"))
    if isinstance(start, str) or isinstance(end, str):
        raise DataError(f"{where}: spans of HTML are named by paths, not by characters; annotate plain text")
    stored = value.get("text")
    return CharSpan(start, end, str(labels[0]), stored if isinstance(stored, str) else None)


def _minimal(task: dict[str, Any], number: int, where: str) -> Annotated:
    """A task of JSON-MIN: columns of the data, and one member for each control."""
    annotated = Annotated(number, task)
    for name, value in task.items():
        if isinstance(value, list) and value and all(isinstance(item, dict) and "start" in item for item in value):
            spans = [_span(item, "labels", where) for item in value if "labels" in item]
            text = task.get(TEXT)
            annotated.spans[name] = checked_spans(spans, text, where) if isinstance(text, str) else spans
        elif isinstance(value, dict) and isinstance(value.get("choices"), list):
            annotated.chosen[name] = [str(label) for label in value["choices"]]
        elif isinstance(value, str) and name not in (TEXT, "created_at", "updated_at"):
            annotated.chosen[name] = [value]
    return annotated


def write_label_studio(path: Path, rows: Iterable[PredictedRow], *, model: str) -> None:
    """Write tasks with predictions; the labelling interface for them is written next to the file as .xml."""
    labels: dict[str, None] = {}
    spans = several = False
    with path.open("w", encoding="utf-8") as file:
        file.write("[")
        for number, row in enumerate(rows):
            results = _results(row)
            labels |= dict.fromkeys(row.shares)
            labels |= dict.fromkeys(span.label for span in row.spans or ())
            labels |= dict.fromkeys(row.labels or ())
            spans, several = spans or row.spans is not None, several or len(row.labels or ()) > 1
            prediction: dict[str, Any] = {"model_version": model, "result": results}
            if row.score is not None:
                prediction["score"] = row.score
            data = {name: value for name, value in row.row.items() if name not in ("annotations", "predictions")}
            task = {"data": data | {TEXT: row.text}, "predictions": [prediction]}
            file.write(",\n " * bool(number) + json.dumps(task, ensure_ascii=False, default=str))
        file.write("]\n")
    path.with_suffix(".xml").write_text(_interface(list(labels), spans=spans, several=several), encoding="utf-8")


def _results(row: PredictedRow) -> list[dict[str, Any]]:
    common = {"from_name": LABEL, "to_name": TEXT}
    if row.spans is None:
        value: dict[str, Any] = {"choices": row.labels}
        return [{"id": "p0", **common, "type": "choices", "value": value}] if row.labels else []
    return [
        {
            "id": f"p{number}",
            **common,
            "type": "labels",
            "value": {
                "start": span.start,
                "end": span.end,
                "text": row.text[span.start : span.end],
                "labels": [span.label],
            },
        }
        for number, span in enumerate(row.spans)
    ]


def _interface(labels: list[str], *, spans: bool, several: bool) -> str:
    tag, entry = ("Labels", "Label") if spans else ("Choices", "Choice")
    choice = "" if spans else f' choice="{"multiple" if several else "single"}"'
    entries = "".join(f"    <{entry} value={quoteattr(label)}/>\n" for label in labels)
    return (
        f'<View>\n  <Text name="{TEXT}" value="${TEXT}"/>\n  <{tag} name="{LABEL}" toName="{TEXT}"{choice}>\n{entries}'
        f"  </{tag}>\n</View>\n"
    )
