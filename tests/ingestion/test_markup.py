"""Tags, comments and hidden elements; the work is linear in the length of the text."""

import pytest

from components.data.ingestion.cleaning import strip_tags


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
def test_strip_tags(text, expected):
    assert strip_tags(text) == expected


UNITS = ["<!--", "<script>", "<script ", "<style><!--", '<a b="', '<a b=\'" c="', "<a b=' c=\" e=' d=\"", "<p  "]


@pytest.mark.parametrize("unit", UNITS)
def test_half_a_megabyte_of_unclosed_markup(unit):
    text = "</s" + unit * (500_000 // len(unit))
    assert strip_tags(text) == text
    assert "</s" in strip_tags(text, any_tag=True)
