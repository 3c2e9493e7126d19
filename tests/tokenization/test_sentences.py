"""Sentence splitting."""

import pytest

from components.tokenization.tokenize import sentence_starts


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("", [""]),
        ("One.", ["One."]),
        ("One. Two! Three? ", ["One. ", "Two! ", "Three? "]),
        ("See e.g. the docs. (Or not.) 3 more.", ["See e.g. the docs. ", "(Or not.) ", "3 more."]),
        ("Version 1.5 is out... maybe.", ["Version 1.5 is out... maybe."]),
        (
            "Title\nA line that is\nwrapped. Next\n\nparagraph",
            ["Title\n", "A line that is\nwrapped. ", "Next\n\n", "paragraph"],
        ),
        ('He said "No." Then left.', ['He said "No." ', "Then left."]),
        ("他来了。我走了。", ["他来了。", "我走了。"]),
        ("\n\n  Indented. Text", ["\n\n  ", "Indented. ", "Text"]),
    ],
)
def test_sentences(text, sentences):
    starts = sentence_starts(text)
    assert [text[start:end] for start, end in zip(starts, [*starts[1:], len(text)], strict=True)] == sentences


def test_thai_clauses_end_at_spaces_between_thai_characters():
    text = "วันที่ 5 มกราคม ฝนตก aws ดี\nจบ"
    starts = sentence_starts(text, thai=True)
    assert [text[start:end] for start, end in zip(starts, [*starts[1:], len(text)], strict=True)] == [
        "วันที่ 5 มกราคม ",
        "ฝนตก aws ดี\n",
        "จบ",
    ]
    assert sentence_starts("ฝน ตก") == [0]
