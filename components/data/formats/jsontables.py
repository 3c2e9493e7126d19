"""JSON lines and JSON documents as rows, and SQuAD, versions 1.1 and 2.0 (Rajpurkar et al. 2016, 2018): questions about
paragraphs, answered by spans."""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import orjson

from components.core.errors import DataError, nearest
from components.data.formats.delimited import USUAL, is_header
from components.data.formats.layouts import lists_in, pair_row, rows_of, tagged
from components.data.formats.lines import Reading, loads, whole
from components.data.formats.tables import SHOWN, Numbered, Row, Rows, problem


def read_jsonl(file: Rows) -> Numbered:
    """One JSON object per line; empty lines are skipped.

    Raises:
        DataError: no line can be read, if all columns are asked for.
    """
    file.loads, file.fixed = f"[json.loads(line) for line in open({str(file.path)!r})]", False
    empty, what = True, "is empty"
    for number, line in file.lines():
        if not line or line.isspace():
            continue
        if file.columns is not None and (plain := _plain(line, file.columns)) is not None:
            yield number, plain
            continue
        try:
            row, replaced = parse_object(line, file.at(number))
        except DataError as error:
            file.rejected(error, line[:SHOWN])
            what = "no line can be read as a row"
            continue
        if file.columns is not None and replaced:
            file.reading.bad_bytes += replaced
            file.reading.bad_lines += 1
        empty = False
        yield number, row
    if empty and file.columns is None:
        raise DataError(f"{file.path}: {what}")


def _plain(line: str, columns: Sequence[str]) -> Row | None:
    """The object of a line in which the columns are text, as in most corpora."""
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    return row if row.__class__ is dict and all(row.get(name).__class__ is str for name in columns) else None


def parse_object(line: str, where: str) -> tuple[Row, int]:
    """The JSON object of a line, and the number of lone surrogates replaced by U+FFFD.

    Raises:
        DataError: the line is not a JSON object.
    """
    with problem(where, ValueError, what="not valid JSON ({})", do="every line must be one object"):
        row, replaced = loads(line)
    row = tagged(pair_row(row))
    if not isinstance(row, dict):
        raise DataError("is no JSON object with named values", where=where)
    return row, replaced


def read_json(file: Rows) -> Numbered:
    """The rows of one JSON document: a list of objects, or of lists whose values are the columns "0", "1", ... A member
    that other objects have may be missing: it is null.

    `layout.member` is the path to the list within the document: `train` in `{"train": [["text", "label"]]}`.

    Raises:
        DataError: the file is not JSON, the member does not exist, or a row is neither object nor list.
    """
    layout, rows = file.layout, parse_json(file.path, file.reading)
    for key in filter(None, layout.member.split(".")):
        if not isinstance(rows, dict) or key not in rows:
            members = nearest(key, rows) if isinstance(rows, dict) else f"; there is a {type(rows).__name__}"
            raise DataError(f"{file.path}: no member {key!r}{members}; name it in params.yaml as FILE#MEMBER")
        rows = rows[key]
    file.where, file.fixed = f"{file.path}{'#' * bool(layout.member)}{layout.member}", False
    rows, inside, said = rows_of(rows)
    file.described = f"layout: {said}" * bool(said)
    keys = filter(None, [*layout.member.split("."), *inside.split(".")])
    file.loads = f"json.load(open({str(file.path)!r}))" + "".join(f"[{name!r}]" for name in keys)
    if not isinstance(rows, list):
        lists = list(dict(lists_in(rows)))
        hint = f"name one of its members ({', '.join(lists[:9])}) as FILE#MEMBER" if lists else "save it as jsonl"
        raise DataError(f"{file.where}: is no list of rows; {hint}")
    if _begins_with_header(rows) if layout.header is None else layout.header:
        rows = [dict(zip(rows[0], row, strict=False)) for row in rows[1:]]
    for number, row in enumerate(rows, 1):
        if not isinstance(row, dict | list):
            what = f"is a {type(row).__name__}, neither an object nor a list of values"
            raise DataError(what, where=file.at(number))
    shared = dict.fromkeys(name for row in rows if isinstance(row, dict) for name in row)
    named = [shared | row if isinstance(row, dict) else dict(zip(map(str, count()), row, strict=False)) for row in rows]
    file.names = list(dict.fromkeys(name for row in named for name in row))
    yield from enumerate(named, 1)


def _begins_with_header(rows: Sequence[Any]) -> bool:
    """Whether the first of lists of texts has usual names, and is unlike the others."""
    texts = all(isinstance(row, list) and all(isinstance(cell, str) for cell in row) for row in rows)
    return (
        texts
        and len(rows) > 1
        and bool(USUAL & {cell.casefold() for cell in rows[0]})
        and is_header(rows[0], rows[1:1000])
    )


def parse_json(path: Path, reading: Reading) -> Any:
    with problem(path, ValueError, what="not valid JSON ({})"):
        value, replaced = loads(whole(path, reading))
    reading.bad_bytes += replaced
    return value


def member(value: Any, key: str, kind: Any, where: object = "", do: str = "") -> Any:
    """A member of an object.

    Raises:
        DataError: it is missing, or of another type than `kind`.
    """
    if not isinstance(value, dict) or not isinstance(value.get(key), kind):
        names = {str: "text", list: "a list", int: "a number", dict: "an object"}
        raise DataError(f"no {key!r} ({names.get(kind, 'text or a number')})", where=where, do=do)
    return value[key]


def is_squad(path: Path) -> bool:
    content = parse_json(path, Reading())
    data = content.get("data") if isinstance(content, dict) else None
    return isinstance(data, list) and bool(data) and isinstance(data[0], dict) and "paragraphs" in data[0]


def read_squad(file: Rows) -> Numbered:
    """The questions of a file in order; one that is marked `is_impossible` has no answers.

    Raises:
        DataError: the file is not JSON or does not have SQuAD's structure.
    """
    yield from enumerate(_questions(file), 1)


def _questions(file: Rows) -> Iterator[Row]:
    get = partial(member, do="SQuAD files have data, paragraphs, context, qas, answers")
    for at, article in enumerate(get(parse_json(file.path, file.reading), "data", list, file.path)):
        title = article.get("title") if isinstance(article, dict) else None
        for number, paragraph in enumerate(get(article, "paragraphs", list, f"{file.path}, data[{at}]")):
            place = f"{file.path}, data[{at}].paragraphs[{number}]"
            context = get(paragraph, "context", str, place)
            for index, entry in enumerate(get(paragraph, "qas", list, place)):
                row = {"id": str(get(entry, "id", str | int, f"{place}.qas[{index}]")), "title": title}
                where = f"{file.path}, question {row['id']}"
                row |= {"question": get(entry, "question", str, where), "context": context}
                yield row | {"answers": [] if entry.get("is_impossible") else get(entry, "answers", list, where)}
