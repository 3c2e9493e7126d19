"""JSON text whose strings are valid Unicode."""

from __future__ import annotations

import json
import re
from typing import Any

import orjson

#: orjson rounds larger integers.
_ROUNDED = 2.0**63
_SURROGATE = re.compile("[\ud800-\udfff]")


def loads(text: str) -> tuple[Any, int]:
    r"""The value of a JSON text, and the number of lone surrogates replaced by U+FFFD.

    A lone surrogate is half of an escaped pair ("\ud83d"), as in truncated emoji; it cannot be encoded as UTF-8.

    Raises:
        ValueError: the text is not valid JSON or nested too deeply.
    """
    try:
        value = orjson.loads(text)
        if value.__class__ is not dict or not any(
            item.__class__ is float and abs(item) >= _ROUNDED for item in value.values()
        ):
            return value, 0
    except orjson.JSONDecodeError:
        pass  # lone surrogates, which are replaced; NaN, which json accepts; its messages name the place
    try:
        value = json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    # json.loads combines pairs, so every code point left in this range is a lone surrogate.
    return _replaced(value) if "\\ud" in text or "\\uD" in text else (value, 0)


def _replaced(value: Any) -> tuple[Any, int]:
    if isinstance(value, str):
        return _SURROGATE.subn("\ufffd", value)
    if isinstance(value, list):
        items = [_replaced(item) for item in value]
        return [item for item, _ in items], sum(count for _, count in items)
    if isinstance(value, dict):
        pairs = [(_replaced(key), _replaced(item)) for key, item in value.items()]
        return {key: item for (key, _), (item, _) in pairs}, sum(first + second for (_, first), (_, second) in pairs)
    return value, 0
