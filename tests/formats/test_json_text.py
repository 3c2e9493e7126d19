from __future__ import annotations

import pytest

from components.data.formats.json_text import loads


@pytest.mark.parametrize(
    ("text", "value", "replaced"),
    [
        (r'"cut \ud83d"', "cut \ufffd", 1),
        (r'"\uDE00\uD83D"', "\ufffd\ufffd", 2),
        (r'"\ud83d\ude00"', "\U0001f600", 0),
        (r'{"\ud83d": ["\ud83d", {"b": "\ud83dx"}], "n": [1, null, true]}', None, 3),
        (r'"a backslash before ud83d: \\ud83d"', r"a backslash before ud83d: \ud83d", 0),
        ('"plain"', "plain", 0),
    ],
)
def test_lone_surrogates_are_replaced(text: str, value: object, replaced: int) -> None:
    if value is None:
        value = {"\ufffd": ["\ufffd", {"b": "\ufffdx"}], "n": [1, None, True]}
    assert loads(text) == (value, replaced)


@pytest.mark.parametrize("text", ["{", "[" * 100_000])
def test_invalid_json_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match="Expecting|nested too deeply"):
        loads(text)
