"""Tags, comments and hidden elements; the work is linear in the length of the text."""

from __future__ import annotations

import re
from typing import Any

import pytest

from components.ingestion import cleaning as markup
from components.ingestion.cleaning import strip_tags


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a<!-- b --> c<!-- d", "a c<!-- d"),
        ("<!--> a -->b", "b"),
        ("<!-- <!-- --> -->", " -->"),
        ("<a title=\"x < y\">b</a><p class='<i>'>c", "b\nc"),
        ('<a title="<b" c=\'"\'>x</a>', "x"),
        ('<a title="<b" c>x</a>', '<a title="<b" c>x'),
        ("<a title=\"<b title='>\" c='>x", '<a title="x'),
        ("<script>a</script>b<STYLE x>c</style >d", "\nb\nd"),
        ("<script>a<style>b</style>c", "<script>a\nc"),
        ("<script <style>a</style>b", "<script \nb"),
        ("<script>a</style><script>b</script>c", "\nc"),
        ("<scripts>a</script>", "<scripts>a</script>"),
        ("</script>a<script", "</script>a<script"),
        ("a < b <unk> c <b d> e", "a < b <unk> c <b d> e"),
    ],
)
def test_strip_tags(text: str, expected: str) -> None:
    assert strip_tags(text) == expected


class Counter:
    """Counts the characters that searches of unbounded length examine, and the reads of each attribute."""

    def __init__(self) -> None:
        self.characters = 0
        self.attributes: list[int] = []


class CountedText(str):
    counter: Counter

    def find(self, needle: str, start: int = 0, *_: Any) -> int:  # type: ignore[override]
        found = super().find(needle, start)
        self.counter.characters += (found if found >= 0 else len(self)) - start
        return found


class CountedPattern:
    def __init__(self, pattern: re.Pattern[str], counter: Counter) -> None:
        self.pattern, self.counter = pattern, counter

    def search(self, text: str, position: int) -> re.Match[str] | None:
        found = self.pattern.search(text, position)
        self.counter.characters += (found.end() if found else len(text)) - position
        return found

    def match(self, text: str, position: int) -> re.Match[str] | None:
        self.counter.attributes.append(position)
        return self.pattern.match(text, position)


UNITS = ["<!--", "<script>", "<script ", "<style><!--", '<a b="', '<a b=\'" c="', "<a b=' c=\" e=' d=\"", "<p  "]


@pytest.mark.parametrize("tail", ["", ">", "-->", "</script>"])
@pytest.mark.parametrize("unit", UNITS)
def test_the_work_is_linear_in_the_length_of_the_text(monkeypatch: pytest.MonkeyPatch, unit: str, tail: str) -> None:
    counter = Counter()
    attribute = CountedPattern(markup._ATTRIBUTE, counter)
    ends = {name: CountedPattern(pattern, counter) for name, pattern in markup._HIDDEN_END.items()}
    monkeypatch.setattr(markup, "_ATTRIBUTE", attribute)
    monkeypatch.setattr(markup, "_HIDDEN_END", ends)
    text = CountedText("</s" + unit * 500 + tail)
    text.counter = counter
    for tags in (markup._KNOWN_BLOCK, markup._KNOWN_INLINE):
        counter.attributes.clear()
        markup._replace_tags(text, tags, "")
        assert len(counter.attributes) == len(set(counter.attributes))
    markup._remove_hidden(text)
    # One search each for the end of comments, of a start tag and of the two hidden elements.
    assert counter.characters <= 5 * len(text)


@pytest.mark.parametrize("unit", UNITS)
def test_half_a_megabyte_of_unclosed_markup(unit: str) -> None:
    text = "</s" + unit * (500_000 // len(unit))
    assert strip_tags(text) == text
    assert "</s" in strip_tags(text, any_tag=True)
