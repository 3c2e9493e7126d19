"""Word segmentation of languages without spaces."""

import re

import pytest

from components.data import segmenters
from components.data.segmenters import SEGMENTERS, Segmentation, Segmenter, insert_spaces


def test_thai_text_is_segmented_and_other_text_unchanged():
    spaced, inserted = Segmentation("thai").spaced_with_insertions("aws(s3)การตัดคำ ภาษาไทย\n5ครับ")
    assert spaced == "aws(s3) การ ตัด คำ ภาษาไทย\n5 ครับ"
    assert [spaced[position] for position in inserted] == [" "] * 4
    kept = [character for position, character in enumerate(spaced) if position not in inserted]
    assert "".join(kept) == "aws(s3)การตัดคำ ภาษาไทย\n5ครับ"


def test_auto_depends_on_the_share_of_thai_characters():
    auto = Segmentation("auto")
    mostly_english = (
        "the word การตัดคำ stands in a long text that is written in English and has but few Thai letters in it"
    )
    assert auto.choose("plain ASCII") is None
    assert auto.choose("naïve café") is None
    assert auto.choose("") is None
    assert auto.choose(mostly_english) is None
    assert auto.choose("การตัดคำ aws") is SEGMENTERS["thai"]
    assert auto.spaced(mostly_english) == mostly_english
    assert Segmentation("thai").spaced(mostly_english) == mostly_english.replace("การตัดคำ", "การ ตัด คำ")
    assert Segmentation("none").spaced("การตัดคำ") == "การตัดคำ"


def test_unknown_name_lists_the_known_ones():
    with pytest.raises(ValueError, match="unknown segmenter 'lao'; known: auto, none, thai"):
        Segmentation("lao")


def test_a_very_long_run_is_split_at_a_fixed_length(monkeypatch):
    monkeypatch.setattr(segmenters, "LONGEST_RUN", 4)
    whole = Segmenter(script=re.compile("[a-z]+"), split=lambda run: [run])
    assert insert_spaces("abcdefghij klm", whole)[0] == "abcd efgh ij klm"
