"""Exports of annotation tools as tables, whose columns are texts, and controls with labels; predictions in the same
forms. Label Studio (https://labelstud.io/guide/export, .../predictions): JSON or JSON-MIN; a control of the labelling
interface is named by `from_name`. doccano (https://doccano.github.io/doccano/tutorial): JSONL. Prodigy
(https://prodi.gy/docs/api-interfaces): JSONL of tasks with an `answer`."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final
from xml.sax.saxutils import quoteattr

from components.core.errors import DataError, nearest
from components.data.formats.jsontables import member, parse_json, read_jsonl
from components.data.formats.layouts import chosen_cats, spans_in
from components.data.formats.tables import Numbered, Row, Rows, as_text, problem
from components.data.formats.words import covered, words_of

#: Control of tools that have only one set of labels, and the object that the controls of a written file refer to.
LABEL, TEXT = "label", "text"
#: Type of a result of Label Studio -> its member of `value`.
_CHOSEN: Final = {"choices": "choices", "taxonomy": "taxonomy", "pairwise": "selected"}
#: Members of a record of doccano that hold the labels.
_LABELS: Final = (LABEL, "labels", "cats", "annotations")
_ANSWERS: Final = ("accept", "reject", "ignore")
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


@dataclass(frozen=True, order=True)
class CharSpan:
    """Characters [start, end) of a text, their type, and these characters, if the tool has stored them."""

    start: int
    end: int
    label: str
    stored: str | None = field(default=None, compare=False)


@dataclass
class Annotated:
    """One record of an export.

    Attributes:
        data: its columns, the text among them.
        chosen: control -> chosen labels, or a number.
        spans: control -> spans of characters.
        objects: control -> column of its text; TEXT if it is missing.
        tokens: (start, end) of the words in the text, if the tool has split it; else None.
    """

    data: Mapping[str, Any]
    chosen: dict[str, list[str] | float] = field(default_factory=dict)
    spans: dict[str, list[CharSpan]] = field(default_factory=dict)
    objects: dict[str, str] = field(default_factory=dict)
    tokens: list[tuple[int, int]] | None = None


@dataclass(frozen=True)
class PredictedRow:
    """A text with its prediction, as a tool shows it before a person decides. `tokens`: (start, end) of the words that
    were tagged."""

    row: Mapping[str, Any]
    text: str
    labels: list[str] | None = None
    spans: list[CharSpan] | None = None
    score: float | None = None
    shares: Mapping[str, float] = field(default_factory=dict)
    tokens: Sequence[tuple[int, int]] = ()


def read_annotated(file: Rows) -> Numbered:
    """The records of an export. A column is one of the texts', or a control: its name, or `label` if there is only one.
    The value of a control is a label, with `layout.nested` a list of labels, or a number. Spans of characters are the
    tags of the words of a text.

    If columns are asked for, records without one of them are left out and counted; with `layout.tagged` the columns are
    of the text and of the control of its spans. Otherwise rows have all columns, and of spans `words` and `tags`.

    Raises:
        DataError: a record is not the tool's (line or task), a column occurs in no record, or a text has several labels
            and `layout.nested` is not set.
    """
    asked, skipped, records = file.columns, file.reading.skipped, _records(file)
    tagged = file.layout.tagged if asked else any(any(record.spans.values()) for record in records.values())
    several = any(
        isinstance(value, list) and len(value) > 1 for record in records.values() for value in record.chosen.values()
    )
    file.kind = "tagging" if tagged else "multilabel" if several else "classification"
    file.described, file.fixed = f"an export of {file.form}", asked is not None
    rows: dict[int, Row] = {}
    for number, record in records.items():
        with problem(file.at(number)):
            if tagged:
                text, control = asked[:2] if asked else (TEXT, None)
                spans = _control(record.spans, control, "tags")
                lacks = spans is None and asked is not None
                tags = () if lacks else _tagged(record, text, spans or (), skipped if asked else Counter())
                values: Row = dict(zip(asked or ("words", "tags"), tags, strict=False))
            else:
                values = {name: _value(record, name, file.layout.nested) for name in asked or ()} or {**record.chosen}
                lacks = any(values[name] is None and (name == LABEL or name not in record.data) for name in asked or ())
        if lacks:
            skipped["without_annotation"] += 1
        else:
            rows[number] = dict.fromkeys(asked or ()) | dict(record.data) | values
    names = dict.fromkeys(name for row in rows.values() for name in row)
    if asked and records:
        present = dict.fromkeys(name for each in records.values() for name in (*each.data, *each.chosen))
        # A control without an annotation in any record is no column.
        if absent := [name for name in asked if not tagged and name not in present and name != LABEL]:
            what = f"no column or control {absent[0]!r}{nearest(absent[0], map(str, present))}"
            raise DataError(what, where=file.at(next(iter(records))), key="params.yaml", do="name it in {key}")
        names = present | dict.fromkeys([LABEL, *asked])
    file.names = [*names]
    yield from rows.items()


def _records(file: Rows) -> dict[int, Annotated]:
    """Number -> record; those that are left out are counted."""
    records, skipped, tool = {}, file.reading.skipped, _TOOLS[file.form]
    if file.form == "label-studio":
        tasks = parse_json(file.path, file.reading)
        if not isinstance(tasks, list):
            raise DataError(f"is a {type(tasks).__name__}, not a list of tasks; export as JSON", where=file.path)
        objects = [*enumerate(tasks, 1)]
    else:
        objects = [*read_jsonl(Rows(file.path, reading=file.reading))]
    if file.form == "prodigy":
        tool = partial(_prodigy, is_binary=_asks_for_one_label([row for _, row in objects]))
    for number, row in objects:
        with problem(file.at(number)):
            if isinstance(record := tool(row, skipped), str):
                skipped[record] += 1
                continue
            if relations := row.get("relations"):
                skipped["relations"] += len(relations)
            for control, spans in record.spans.items():
                text = record.data.get(record.objects.get(control, TEXT), record.data.get(TEXT))
                record.spans[control] = _checked(spans, text) if isinstance(text, str) else spans
            records[number] = record
    return records


def _label_studio(task: Any, skipped: Counter[str]) -> Annotated | str:
    """A task. Of several annotations the ground truth counts, otherwise the one that was changed last."""
    if not isinstance(task, dict):
        raise DataError(f"is a {type(task).__name__}, not an object")
    if "data" not in task:
        return _minimal(task)
    data = {"id": task.get("id")} | member(task, "data", dict)
    given = task.get("annotations", task.get("completions")) or []
    if not isinstance(given, list) or not all(isinstance(item, dict) for item in given):
        raise DataError("'annotations' is not a list of objects; export as JSON")
    kept = [item for item in given if not item.get("was_cancelled")]
    if not kept:
        return "skipped" if given else "without_annotation"
    results = [
        [[each.get(part) for part in ("type", "from_name", "value")] for each in member(item, "result", list)]
        for item in kept
    ]
    if any(each != results[0] for each in results):
        skipped["annotators_disagree"] += 1
    record = Annotated(data)
    best = max(kept, key=lambda item: (bool(item.get("ground_truth")), str(item.get("updated_at", ""))))
    for result in best["result"]:
        kind, control = member(result, "type", str), str(result.get("from_name", LABEL))
        if kind == "relation":
            skipped["relations"] += 1
            continue
        value = member(result, "value", dict)
        if kind in ("rating", "number"):
            record.chosen[control] = _number(member(value, kind, int | float | str), kind)
        elif kind in _CHOSEN:
            content = member(value, _CHOSEN[kind], list | str)
            # A choice of a taxonomy is the path to it.
            record.chosen[control] = [
                " / ".join(map(str, item)) if isinstance(item, list) else str(item)
                for item in (content if isinstance(content, list) else [content])
            ]
        elif kind in ("labels", "hypertextlabels"):
            record.spans.setdefault(control, []).append(_labelled_span(value, kind))
            record.objects[control] = str(result.get("to_name", TEXT))
    return record


def _minimal(task: Row) -> Annotated:
    """A task of JSON-MIN: columns of the data, and one member for each control."""
    record = Annotated(task)
    for name, value in task.items():
        if isinstance(value, list) and value and all(isinstance(item, dict) and "start" in item for item in value):
            record.spans[name] = [_labelled_span(item, "labels") for item in value if "labels" in item]
        elif isinstance(value, dict) and isinstance(value.get("choices"), list):
            record.chosen[name] = [str(label) for label in value["choices"]]
        elif isinstance(value, str) and name not in (TEXT, "created_at", "updated_at"):
            record.chosen[name] = [value]
    return record


def _doccano(row: Row, skipped: Counter[str]) -> Annotated | str:
    """A record: `label` is a list of labels, or of [start, end, label]. With relations it has `entities` instead. An
    empty list is a text without labels, or one that nobody has labelled yet."""
    record = Annotated({"text": row.get("data")} | _with_meta(row))
    entities = row.get("entities")
    name = "entities" if isinstance(entities, list) else next((name for name in _LABELS if name in row), None)
    if name is None:
        raise DataError(f"has neither {LABEL!r} nor 'entities'; export as JSONL")
    labels = chosen_cats(row[name]) if isinstance(row[name], dict) else row[name]
    labels = labels if isinstance(labels, list) else [labels]
    are_spans = name == "entities" or any(isinstance(label, list | dict) for label in labels)
    if are_spans and not isinstance(record.data[TEXT], str):
        raise DataError(f"no text ({TEXT!r}), whose spans are listed")
    if are_spans or not labels:
        record.spans[LABEL] = _spans(labels)
    if not labels or LABEL not in record.spans:
        record.chosen[LABEL] = [str(label) for label in labels]
    return record


def _prodigy(row: Row, skipped: Counter[str], *, is_binary: bool = False) -> Annotated | str:
    """A task that is accepted: `spans` are spans of characters, `accept` lists the chosen options, `label` is the label
    of a binary decision. `is_binary`: the answers are the labels."""
    if (answer := row.get("answer", "accept")) not in _ANSWERS:
        raise DataError(f"the answer is {answer!r}, expected one of {', '.join(_ANSWERS)}")
    record = Annotated(_with_meta(row))
    if is_binary and answer != "ignore":
        record.chosen[LABEL] = [answer]
        return record
    if answer != "accept":
        return "rejected" if answer == "reject" else "ignored"
    member(row, TEXT, str)
    if (tokens := row.get("tokens")) is not None:
        record.tokens = [(member(token, "start", int), member(token, "end", int)) for token in tokens]
    if "spans" in row or (tokens is not None and "options" not in row and LABEL not in row):
        record.spans[LABEL] = [_char_span(span) for span in row.get("spans") or ()]
    if "options" in row or "accept" in row:
        # Ids that are numbers stand for the text of the option.
        options = {item.get("id"): item.get("text") for item in row.get("options") or () if isinstance(item, dict)}
        accepted = member(row, "accept", list)
        record.chosen[LABEL] = [str((isinstance(each, int) and options.get(each)) or each) for each in accepted]
    elif isinstance(row.get(LABEL), str):
        record.chosen[LABEL] = [row[LABEL]]
    return record if record.chosen or record.spans else "without_annotation"


def _asks_for_one_label(rows: Sequence[Row]) -> bool:
    """Whether the answers of tasks, yes and no, are about one label."""
    if not all(isinstance(row.get(LABEL), str) and not {"options", "spans"} & row.keys() for row in rows):
        return False
    return len({row[LABEL] for row in rows}) == 1 and {row.get("answer") for row in rows} >= {"accept", "reject"}


_TOOLS: Final[dict[str, Callable[[Any, Counter[str]], Annotated | str]]] = {
    "label-studio": _label_studio,
    "doccano": _doccano,
    "prodigy": _prodigy,
}


def _with_meta(row: Row) -> Row:
    """The columns of a record; the members of its `meta` are columns, too."""
    return (row["meta"] if isinstance(row.get("meta"), dict) else {}) | row


def _spans(entries: Iterable[Any]) -> list[CharSpan]:
    """The spans of doccano, in all its layouts."""
    spans = []
    for entry in entries:
        if not (given := spans_in(entry)):
            raise DataError(f"the label {json.dumps(entry)[:60]} is not [start, end, label]", do="export as JSONL")
        spans += [CharSpan(*span) for span in given]
    return spans


def _number(value: float | str, kind: str) -> float:
    try:
        return float(value)
    except ValueError as error:
        raise DataError(f"{kind!r} is {value!r:.40}, not a number; correct it") from error


def _labelled_span(value: Row, kind: str) -> CharSpan:
    """A span of Label Studio, whose labels are in the member `kind`."""
    if not (labels := member(value, kind, list)):
        raise DataError("a span has no label", do="label it or remove it")
    # Offsets of spans of HTML count the characters of a node.
    if isinstance(value.get("start"), str) or isinstance(value.get("end"), str):
        raise DataError("spans of HTML are named by paths, not by characters", do="annotate plain text")
    return _char_span(value, labels[0])


def _char_span(value: Any, label: object = None) -> CharSpan:
    start, end = (member(value, name, int) for name in ("start", "end"))
    stored, label = value.get("text"), value.get(LABEL, LABEL) if label is None else label
    return CharSpan(start, end, "" if label is None else str(label), stored if isinstance(stored, str) else None)


def _checked(spans: Iterable[CharSpan], text: str) -> list[CharSpan]:
    """Spans in order of their start. Offsets that count in UTF-16, as browsers do, are converted if the stored
    characters show it.

    Raises:
        DataError: a span is empty, without a label or not within the text, or covers other characters than those
            stored.
    """
    ordered = sorted(set(spans))
    if any(not _is_stored(span, text) for span in ordered):
        converted = sorted(_of_utf16(span, text) for span in ordered)
        ordered = converted if all(_is_stored(span, text) for span in converted) else ordered
    for span in ordered:
        what = f"the span {span.start} to {span.end} ({span.label!r})"
        if not 0 <= span.start < span.end <= len(text):
            raise DataError(f"{what} does not lie within the text of {len(text)} characters; correct it")
        if not span.label.strip():
            raise DataError(f"{what} has no label", do="label it or remove it")
        if not _is_stored(span, text):
            raise DataError(
                f"{what} is {text[span.start : span.end]!r:.60}, but {span.stored!r:.60} was annotated; the text has "
                "changed, annotate it again"
            )
    return ordered


def _is_stored(span: CharSpan, text: str) -> bool:
    return span.stored is None or text[span.start : span.end].split() == span.stored.replace("\\n", "\n").split()


def _of_utf16(span: CharSpan, text: str) -> CharSpan:
    units = text.encode("utf-16-le", "surrogatepass")
    start, end = (len(units[: 2 * place].decode("utf-16-le", "ignore")) for place in (span.start, span.end))
    return replace(span, start=start, end=end)


def _control(annotations: Mapping[str, Any], name: str | None, key: str) -> Any:
    if name is not None and (name != LABEL or name in annotations):
        return annotations.get(name)
    if len(annotations) > 1:
        raise DataError(f"has annotations of {', '.join(sorted(annotations))}; name one of them with {key}")
    return next(iter(annotations.values()), None)


def _tagged(record: Annotated, text: str, spans: Iterable[CharSpan], skipped: Counter[str]) -> tuple[list[str], ...]:
    """The words of a record's column `text`, and their tags by spans."""
    if text not in record.data:
        raise DataError(f"no column {text!r}{nearest(text, list(record.data))}; name it with words")
    given = as_text(record.data[text]) or ""
    # Tokens of spaCy may be white space, such as line breaks.
    bounds = [(start, end) for start, end in record.tokens or words_of(given) if given[start:end].strip()]
    tags, misfits = covered(bounds, ((span.start, span.end, span.label) for span in spans))
    skipped.update(misfits)
    return [given[start:end] for start, end in bounds], tags


def _value(record: Annotated, name: str, nested: bool) -> Any:
    """The annotation of a control; None if a column has this name, or there is no annotation."""
    if name not in record.chosen and name != LABEL:
        return record.data.get(name)
    value = _control(record.chosen, name, "label")
    if not isinstance(value, list) or nested:
        return value
    if len(value) > 1:
        raise DataError(f"has {len(value)} labels ({', '.join(value)}); set kind: multilabel, or leave one of them")
    return value[0] if value else None


def write_annotated(path: Path, rows: Iterable[PredictedRow], *, form: str, model: str) -> None:
    """Write texts with predictions: tasks of Label Studio, whose labelling interface is written next to the file as
    .xml; the JSONL that doccano imports; or tasks for `ner.manual` (spans) or `choice` (labels) of Prodigy, without
    `answer`, which a person gives."""
    labels: dict[str, None] = {}
    spans = several = False
    is_list = form == "label-studio"
    with path.open("w", encoding="utf-8") as file:
        file.write("[" * is_list)
        for number, row in enumerate(rows):
            text = json.dumps(_WRITTEN[form](row, model), ensure_ascii=False, default=str)
            file.write(",\n " * bool(number) + text if is_list else f"{text}\n")
            labels |= dict.fromkeys([*row.shares, *(span.label for span in row.spans or ()), *(row.labels or ())])
            spans, several = spans or row.spans is not None, several or len(row.labels or ()) > 1
        file.write("]\n" * is_list)
    if is_list:
        tag, entry = ("Labels", "Label") if spans else ("Choices", "Choice")
        choice = "" if spans else f' choice="{"multiple" if several else "single"}"'
        entries = "".join(f"    <{entry} value={quoteattr(label)}/>\n" for label in labels)
        head = f'  <Text name="{TEXT}" value="${TEXT}"/>\n  <{tag} name="{LABEL}" toName="{TEXT}"{choice}>\n'
        interface = f"<View>\n{head}{entries}  </{tag}>\n</View>\n"
        path.with_suffix(".xml").write_text(interface, encoding="utf-8")


def _others(row: PredictedRow, *names: str) -> Row:
    """The columns of the input, without those that a tool uses itself, and the text."""
    return {name: value for name, value in row.row.items() if name not in names} | {"text": row.text}


def _task_of_label_studio(row: PredictedRow, model: str) -> Row:
    values: list[Row] = [{"choices": row.labels}] if row.labels else []
    if row.spans is not None:
        values = [
            {"start": each.start, "end": each.end, "text": row.text[each.start : each.end], "labels": [each.label]}
            for each in row.spans
        ]
    common = {"from_name": LABEL, "to_name": TEXT, "type": "choices" if row.spans is None else "labels"}
    results = [{"id": f"p{number}", **common, "value": value} for number, value in enumerate(values)]
    score = {} if row.score is None else {"score": row.score}
    prediction = {"model_version": model, "result": results} | score
    return {"data": _others(row, "annotations", "predictions"), "predictions": [prediction]}


def _record_of_doccano(row: PredictedRow, model: str) -> Row:
    label: list[Any] = list(row.labels or ())
    if row.spans is not None:
        label = [[span.start, span.end, span.label] for span in row.spans]
    score = {} if row.score is None else {"score": row.score}
    return _others(row, *_LABELS, "entities", "relations") | {LABEL: label, "model": model} | score


def _task_of_prodigy(row: PredictedRow, model: str) -> Row:
    task = _others(row, "answer", "accept", "options", "spans", "tokens", "_input_hash", "_task_hash")
    task["meta"] = (meta if isinstance(meta := task.get("meta"), dict) else {}) | {"model": model}
    if row.score is not None:
        task["meta"]["score"] = round(row.score, 4)
    if row.spans is None:
        return task | {
            "options": [{"id": label, "text": label} for label in row.shares or row.labels or ()],
            "accept": row.labels,
        }
    tokens = [
        {"text": row.text[start:end], "start": start, "end": end, "id": at, "ws": row.text[end : end + 1].isspace()}
        for at, (start, end) in enumerate(row.tokens)
    ]
    spans = []
    for span in row.spans:
        inside = [at for at, (start, end) in enumerate(row.tokens) if span.start <= start and end <= span.end]
        places = {"token_start": inside[0], "token_end": inside[-1]} if inside else {}
        spans.append({"start": span.start, "end": span.end, "label": span.label} | places)
    return task | {"tokens": tokens, "spans": spans}


_WRITTEN: Final = {
    "label-studio": _task_of_label_studio,
    "doccano": _record_of_doccano,
    "prodigy": _task_of_prodigy,
}
