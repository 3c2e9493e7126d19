"""Layouts of JSON documents that common tools write, as lists of rows: the list within the document, texts by class,
spans of characters, and questions with their contexts. What a layout is, is said in words."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeGuard

from components.data.formats.delimited import LABELS, LABELS_TOO, TEXTS, words_in
from components.data.formats.words import covered, words_of

#: Members that list the texts of a class, and those that name it.
_EXAMPLES: Final = ("patterns", "examples", "utterances", "samples", "phrases", "sentences", "queries", "texts")
_CLASS: Final = (*LABELS, *LABELS_TOO, "name", "title", "key", "id")
#: Members of questions.
_CONTEXT: Final = ("context", "passage", "paragraph", "story", "document", "article", "content", "text")
_QUESTION: Final = ("question", "query", "q", "input_text", "question_text")
_ANSWERS: Final = ("answers", "answer", "gold_answers", "correct_answers", "answer_spans", "spans", "a")
_ANSWER: Final = ("text", "answer", "answer_text", "span_text", "value", "span", "content")
_TITLE: Final = ("title", "name")
#: Members of spans.
_SPANS: Final = ("entities", "spans", "annotations", "annotation", "ents", "labels", "label", "ner", "mentions")
_TYPE: Final = ("label", "labels", "type", "entity", "tag", "entity_type", "tag_name", "entity_label", "category")
_START: Final = frozenset(("start", "begin", "from", "offset"))
_END: Final = frozenset(("end", "stop", "to"))
#: Members that are no texts or spans of a row: the answers of multiple choice.
_CHOICES: Final = frozenset(("choices", "options", "endings"))
_TEXT: Final = (*TEXTS, "data", "sent", "raw_text")
_DEEPEST: Final = 8
Row = dict[str, Any]


class Laid(NamedTuple):
    """The rows of a document, objects or lists of values; the path of their list, members joined by dots; and the
    layout in words. Of no known layout the document itself, and nothing."""

    rows: Any
    path: str = ""
    said: str = ""


def rows_of(document: Any) -> Laid:
    """The rows of a JSON document."""
    if asked := list(_questions(document, None, {}, 0)):
        inside = sum(answer in row["context"] for row, texts in asked for answer in texts)
        flat = isinstance(document, list) and all(
            isinstance(row, dict) and {"question", "context", "answers"} <= row.keys() for row in document
        )
        if not flat and inside >= sum(len(texts) for _, texts in asked) / 2:
            return Laid([row for row, _ in asked], said="questions with their contexts and answers, as in SQuAD")
    rows, path = _list_in(document) if isinstance(document, dict) else (document, "")
    if isinstance(rows, dict) and len(rows) > 1 and all(map(_are_texts, rows.values())) and not _are_columns(rows):
        rows = [{"label": name, "text": text} for name, texts in rows.items() for text in texts]
        return Laid(rows, path, "the texts of a class by its name, one row each")
    rows = _rows_of_object(rows) if isinstance(rows, dict) else rows
    if not isinstance(rows, list) or not rows:
        return Laid(rows)
    said = [f"the rows are the list {path}"] if path else []
    if all(map(_is_pair, rows)):
        rows, said = list(map(pair_row, rows)), [*said, "pairs of a text and its annotation"]
    if (members := _texts_by_class(rows)) is not None:
        label, texts = members
        rows = [{label: row[label], "text": text} for row in rows for text in row[texts] if text.strip()]
        said.append(f"the texts of a class in {texts!r}, one row each")
    elif (spans := next(filter(None, map(_span_member, rows)), None)) is not None:
        rows = list(map(tagged, rows))
        said.append(f"the spans in {spans!r} as words and tags")
    return Laid(rows, path, "; ".join(said))


def are_rows(value: Any) -> TypeGuard[list[Any]]:
    return isinstance(value, list) and bool(value) and all(isinstance(row, dict | list) for row in value)


def _rows_of_object(document: dict[str, Any]) -> Any:
    """The rows of a JSON object: `data` with names in `columns` (pandas, orient="split"); rows
    by number (pandas, orient="index") or by id, which becomes the column `id` of rows without one; or columns whose
    values are numbered (pandas by default) or listed. The object itself if it holds no rows."""
    names, data = document.get("columns"), document.get("data")
    if isinstance(names, list) and are_rows(data) and isinstance(data[0], list):
        return [dict(zip(names, row, strict=False)) for row in data]
    columns = list(document.values())
    if len(columns) < 2:
        return document
    if all(isinstance(row, dict) and row for row in columns):
        members = {name for row in columns for name in row}
        if len(columns) > len(members) and not all(map(str.isdigit, members)):
            ids = [{} if key.isdigit() or "id" in members else {"id": key} for key in document]
            return [{**named, **row} for named, row in zip(ids, columns, strict=True)]
    if all(isinstance(column, dict) and column.keys() == columns[0].keys() for column in columns):
        return [{name: column[key] for name, column in document.items()} for key in columns[0]]
    if all(isinstance(column, list) and len(column) == len(columns[0]) > 1 for column in columns):
        return [dict(zip(document, row, strict=True)) for row in zip(*columns, strict=True)]
    return document


def _named(row: Mapping[str, Any], names: Sequence[str], fits: Callable[[Any], bool]) -> str | None:
    """The first member with one of these names whose value fits."""
    lowered = {name.casefold(): name for name in row}
    return next((lowered[name] for name in names if name in lowered and fits(row[lowered[name]])), None)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(text, str) for text in value)


def _list_in(document: dict[str, Any]) -> tuple[Any, str]:
    """The only list of rows with texts and labels within objects, or the only list of rows, and its path; the document
    itself if there is none."""
    paths = dict(lists_in(document))
    labelled = {at: rows for at, rows in paths.items() if all(map(_is_labelled, rows))}
    alone = not any(isinstance(value, list) and not are_rows(value) for value in document.values())
    top = {at: rows for at, rows in paths.items() if at in document and alone}
    for chosen in (labelled, top, paths if len(document) == 1 else {}):
        if len(chosen) == 1:
            ((at, rows),) = chosen.items()
            return rows, at
    return document, ""


def _are_columns(document: Mapping[str, list[str]]) -> bool:
    """Whether lists of texts are columns of a table: equally long, and with usual names or with labels that repeat."""
    if len({len(texts) for texts in document.values()}) > 1:
        return False
    usual = {*TEXTS, *LABELS, *LABELS_TOO} & {name.casefold() for name in document}
    return bool(usual) or any(len(set(texts)) < len(texts) for texts in document.values())


def lists_in(node: Any, path: str = "") -> Iterator[tuple[str, list[Any]]]:
    """(path of members, list of objects or of lists) within objects."""
    for name, value in node.items() if isinstance(node, dict) and path.count(".") < _DEEPEST else ():
        at = f"{path}.{name}" if path else str(name)
        if are_rows(value):
            yield at, value
        else:
            yield from lists_in(value, at)


def _is_labelled(row: Any) -> bool:
    """Whether a row has a text, or several, and a label, or annotations."""
    if not isinstance(row, dict):
        return _is_pair(row)
    text = _named(row, _TEXT, _is_text)
    label = _named(row, (*LABELS, *LABELS_TOO), lambda value: isinstance(value, str | int))
    return (text is not None and (label is not None or _span_member(row) is not None)) or (
        _named(row, (*_EXAMPLES, *_TEXT), _are_texts) is not None
        and _named(row, _CLASS, lambda value: isinstance(value, str)) is not None
    )


def _texts_by_class(rows: Sequence[Any]) -> tuple[str, str] | None:
    """(member of the class, member of the list of its texts), if each row is a class of its own."""
    if len(rows) < 2 or not all(isinstance(row, dict) for row in rows):
        return None
    first = rows[0]
    texts = _named(first, (*_EXAMPLES, *_TEXT), lambda value: isinstance(value, list)) or next(
        (name for name, value in first.items() if _are_texts(value) and name.casefold() not in _CHOICES), None
    )
    label = _named(first, _CLASS, _is_text)
    if texts is None or label is None or texts.casefold() in LABELS or _named(first, _TEXT, _is_text):
        return None
    given = [(row.get(label), row.get(texts)) for row in rows]
    if not all(_is_text(name) and (each == [] or _are_texts(each)) for name, each in given):
        return None
    return (label, texts) if len({name for name, _ in given}) == len(given) else None


def _is_pair(row: Any) -> bool:
    return isinstance(row, list | tuple) and len(row) == 2 and _is_text(row[0]) and isinstance(row[1], dict)


def pair_row(row: Any) -> Any:
    """`[text, annotation]`, as spaCy 2 lists it, as an object; of `cats` the labels. Other rows as they are."""
    if not _is_pair(row):
        return row
    text, given = row
    if isinstance(cats := given.get("cats"), dict) and cats:
        chosen = chosen_cats(cats)
        given = {"label": chosen[0] if len(chosen) == 1 else chosen}
    return {"text": text, **given}


def chosen_cats(cats: Mapping[str, Any]) -> list[str]:
    """The labels of `cats` of spaCy, label -> probability."""
    return [name for name, share in cats.items() if isinstance(share, int | float) and share >= 0.5]


def tagged(row: Any) -> Any:
    """A row with its text's spans of characters as `words` and `tags`, unless it has a label or words, or a span that
    does not lie within the text: a reader that asks for its words refuses it. Other rows as they are."""
    name = _span_member(row)
    if name is None:
        return row
    text = row[_named(row, _TEXT, _is_text)]
    spans = [span for entry in row[name] for span in spans_in(entry)]
    if not all(0 <= start < end <= len(text) for start, end, _ in spans):
        return row
    bounds = words_of(text)
    tags, _ = covered(bounds, spans)
    return {**row, "words": [text[start:end] for start, end in bounds], "tags": tags}


def _span_member(row: Any) -> str | None:
    """The member with spans of characters of a row's text; an empty list of labels is none."""
    if not isinstance(row, dict) or "words" in row or "tags" in row or _named(row, _TEXT, _is_text) is None:
        return None
    if _named(row, LABELS, lambda value: isinstance(value, str | int | float)) is not None:
        return None
    name = _named(row, _SPANS, lambda value: isinstance(value, list) and all(map(spans_in, value)))
    return name if name is not None and (row[name] or name.casefold() not in LABELS) else None


def spans_in(entry: Any) -> list[tuple[int, int, str]]:
    """The spans of an entry: `[0, 4, "PER"]`, or an object with its start, its end and its type; empty if it is
    none."""
    if isinstance(entry, list | tuple):
        fits = len(entry) == 3 and all(type(value) is int for value in entry[:2]) and _is_text(entry[2])
        return [(entry[0], entry[1], entry[2])] if fits else []
    if not isinstance(entry, dict):
        return []
    name = _named(entry, _TYPE, lambda value: _is_text(value) or (_are_texts(value) and len(value) == 1))
    if name is None:
        return []
    label = entry[name] if isinstance(entry[name], str) else entry[name][0]
    # Dataturks lists points, whose end is the last character.
    points = entry.get("points") if isinstance(entry.get("points"), list) else None
    bounds = [(_number(each, _START), _number(each, _END)) for each in (points or [entry])]
    return [
        (start, end + (points is not None), label) for start, end in bounds if start is not None and end is not None
    ]


def _number(entry: Any, words: frozenset[str]) -> int | None:
    """The whole number whose name has one of these words."""
    given = entry if isinstance(entry, dict) else {}
    for name, value in sorted(given.items(), key=lambda item: item[0] not in words):
        if type(value) is int and words & words_in(name):
            return value
    return None


def _questions(node: Any, context: str | None, before: Row, depth: int) -> Iterator[tuple[Row, list[str]]]:
    """(row, texts of its answers) of the questions within a document whose answers are spans of a context."""
    if isinstance(node, list):
        for each in node:
            yield from _questions(each, context, before, depth + 1) if depth < _DEEPEST else ()
    if not isinstance(node, dict) or _CHOICES & {name.casefold() for name in node}:
        return
    asked, answered = _named(node, _QUESTION, _is_text), _named(node, _ANSWERS, lambda value: value is not True)
    inside = _named(node, _CONTEXT if context is None and asked is None else _CONTEXT[:6], _is_text)
    context = context if inside is None else node[inside]
    impossible = node.get("is_impossible") or False in (node.get("answerable"), node.get("has_answer"))
    if asked is not None and context is not None and (answered is not None or impossible):
        if (answers := [] if impossible or answered is None else _answers(node[answered], context)) is not None:
            texts, starts = [text for text, _ in answers], [start for _, start in answers]
            both = {"text": texts, "answer_start": starts}
            yield {**before, **node, "question": node[asked], "context": context, "answers": both}, texts
        return
    asking, given = node.get("questions"), node.get("answers")
    if are_rows(asking) and are_rows(given) and len(asking) == len(given) and isinstance(asking[0], dict):
        # CoQA lists the answers beside the questions.
        pairs = zip(asking, given, strict=True)
        node = {**node, "questions": [{**each, "answers": [answer]} for each, answer in pairs]}
    title = _named(node, _TITLE, _is_text)
    before = before if title is None else {**before, "title": node[title]}
    for value in node.values():
        if isinstance(value, list | dict) and depth < _DEEPEST:
            yield from _questions(value, context, before, depth + 1)


def _answers(value: Any, context: str) -> list[tuple[str, int]] | None:
    """(text, first character) of answers, of which one without a place is at its first occurrence; None if they are
    none."""
    if value is None or value == "":
        return []
    if isinstance(value, dict) and isinstance(texts := value.get("text"), list):
        starts = next((each for each in value.values() if each is not texts and isinstance(each, list)), None)
        places = [None] * len(texts) if starts is None or len(starts) != len(texts) else starts
        value = [{"text": text, "start": place} for text, place in zip(texts, places, strict=True)]
    answers = []
    for entry in value if isinstance(value, list) else [value]:
        name = _named(entry, _ANSWER, _is_text) if isinstance(entry, dict) else None
        start, end = _number(entry, _START), _number(entry, _END)
        text = entry if isinstance(entry, str) else None if name is None else entry[name]
        if text is None and start is not None and end is not None:
            text = context[start:end]
        if not isinstance(text, str) or not text.strip():
            return None
        answers.append((text, context.find(text) if start is None else start))
    return list(dict.fromkeys(answers))
