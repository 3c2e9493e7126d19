"""The record that all annotation tools share: a text with chosen labels, and spans of characters."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from components.core.errors import DataError, nearest

#: Control of tools that have only one set of labels.
LABEL = "label"


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
        tokens: (start, end) of the words in the text, if the tool has split it; else None.
        ignored: annotations that no task can use -> their number.
    """

    number: int
    data: Mapping[str, Any]
    chosen: dict[str, list[str] | float] = field(default_factory=dict)
    spans: dict[str, list[CharSpan]] = field(default_factory=dict)
    tokens: list[tuple[int, int]] | None = None
    ignored: Mapping[str, int] = field(default_factory=dict)


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


def control_of(annotations: Mapping[str, Any], name: str | None, where: str, what: str) -> Any:
    if name is not None and (name != LABEL or name in annotations):
        return annotations.get(name)
    if len(annotations) > 1:
        raise DataError(f"{where}: has annotations of {', '.join(sorted(annotations))}; name one of them with {what}")
    return next(iter(annotations.values()), None)


def checked_spans(spans: Iterable[CharSpan], text: str, where: str) -> list[CharSpan]:
    """Spans in order of their start. Offsets that count in UTF-16, as browsers do, are converted if the stored
    characters show it.

    Raises:
        DataError: a span is empty, does not lie within the text, or covers other characters than those stored.
    """
    ordered = sorted(set(spans))
    if any(not _is_stored(span, text) for span in ordered):
        converted = sorted(_of_utf16(span, text) for span in ordered)
        ordered = converted if all(_is_stored(span, text) for span in converted) else ordered
    for span in ordered:
        if not 0 <= span.start < span.end <= len(text):
            raise DataError(
                f"{where}: the span {span.start} to {span.end} ({span.label!r}) does not lie within the text of "
                f"{len(text)} characters; correct it"
            )
        if not _is_stored(span, text):
            covers = text[span.start : span.end]
            raise DataError(
                f"{where}: the span {span.start} to {span.end} ({span.label!r}) is {covers!r:.60}, but "
                f"{span.stored!r:.60} was annotated; the text has changed, annotate it again"
            )
    return ordered


def _is_stored(span: CharSpan, text: str) -> bool:
    return span.stored is None or text[span.start : span.end].split() == span.stored.replace("\\n", "\n").split()


def _of_utf16(span: CharSpan, text: str) -> CharSpan:
    units = text.encode("utf-16-le", "surrogatepass")

    def characters(position: int) -> int:
        return len(units[: 2 * position].decode("utf-16-le", "ignore"))

    return replace(span, start=characters(span.start), end=characters(span.end))


def member(value: Any, key: str, kind: type | tuple[type, ...], where: str) -> Any:
    if not isinstance(value, dict):
        raise DataError(f"{where}: is a {type(value).__name__}, not an object")
    if key not in value:
        raise DataError(f"{where}: no member {key!r}{nearest(key, list(value))}")
    if not isinstance(value[key], kind):
        raise DataError(f"{where}: {key!r} is a {type(value[key]).__name__}, which this format does not allow")
    return value[key]


def columns_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of a record; the members of its `meta` are columns, too."""
    meta = row.get("meta")
    return {**(meta if isinstance(meta, dict) else {}), **row}
