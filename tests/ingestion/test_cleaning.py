import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.data.formats.textkey import text_key
from components.data.ingestion.cleaning import clean, plain_text, strip_tags


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("  plain  text ", "plain text"),
        ("a\r\nb\rc\n\n\n\n\nd", "a\nb\nc\n\nd"),
        ("tab\tand\u00a0hard\u2003space", "tab and hard space"),
        ("  indented\n    more  \n", "indented\nmore"),
        ("e\u0301 becomes é", "é becomes é"),
        ("nul\x00 bell\x07 soft\u00adhyphen zero\u200bwidth \ufeffmark", "nul bell softhyphen zerowidth mark"),
        ("joiner می\u200cخواهم", "joiner می\u200cخواهم"),
        ("para\u2029graph\x0cpage\x85next", "para\ngraph\npage\nnext"),
        ("it was <br /><br />great &amp; <b>bold</b>", "it was\n\ngreat & bold"),
        ("<script>alert(1)</script>text<!-- note -->", "text"),
        (
            "keep <unk> and a < b > c and List<String> and <b and c>",
            "keep <unk> and a < b > c and List<String> and <b and c>",
        ),
        ('<a href="x.html" class=y>link</a><hr/>end', "link\nend"),
        ("\x00 \n\t", ""),
    ],
)
def test_clean(raw, expected):
    assert clean(raw) == expected


@given(st.text())
def test_cleaning_is_idempotent(text):
    once = clean(text, strip_markup=False)
    assert clean(once, strip_markup=False) == once
    assert "\0" not in once
    assert "\n\n\n" not in once
    assert "  " not in once


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        ("<p>One paragraph.</p>", "One paragraph."),
        ("<p>The <code> <a>Name</a> </code> of it .</p> <p>More</p>", "The Name of it.\nMore"),
        ("<p>A</p> <note> <ul> <li> <p>B</p> </li> <li>C <i>D</i></li> </ul> </note>", "A\nB\nC D"),
        ("<p>use <code>&lt;name&gt;</code> &amp; .NET</p>", "use <name> & .NET"),
        ("<p/>", ""),
        ("<replaceable>x</replaceable>", "x"),
    ],
)
def test_plain_text_of_documentation(html, expected):
    assert plain_text(html) == expected


def test_unknown_tags_are_text_unless_any_tag_is_set():
    assert strip_tags("<foo>x</foo>") == "<foo>x</foo>"
    assert strip_tags("<foo>x</foo>", any_tag=True) == "x"


def test_text_key_ignores_case_punctuation_and_spaces():
    assert text_key("The  ARN, of `it`.") == text_key("the arn of it") == "the arn of it"
    assert text_key("Straße_1") == text_key("STRASSE 1")
    # Thai: the two words differ only in a vowel, which is a combining mark.
    assert text_key("ที่ กิน") != text_key("ที่ กัน")
    assert text_key(" :-) ") == ":-)" != text_key(":-(")
    assert text_key("❤️") == text_key("❤") != text_key("💔")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("caf\u00e9 na\u00efve", "cafe\u0301 nai\u0308ve"),
        ("word", "wo\u200brd\ufeff"),
        ("hyphen", "hy\u00adphen"),
        ("right", "\u202eright\u202c\u200f"),
        ("क्ष", "क्\u200dष"),
        ("میخواهم", "می\u200cخواهم"),
        ("👩‍💻", "👩\u200d💻\ufe0f"),
        ("e\u0301t", "e\u200d\u0301t"),
    ],
)
def test_text_key_ignores_unicode_forms_and_invisible_characters(one, other):
    assert text_key(one) == text_key(other)
