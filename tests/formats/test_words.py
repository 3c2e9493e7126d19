"""Words of a text in many languages."""

import re
import unicodedata

import pytest

from components.data.formats.words import word_bounds, words

ENGLISH = "It\u2019s 2 o'clock_now, Zoë! na\u00efve A/B 3.5\u20ac x\u00b2 \u2013 \U0001f600 #tag @me don't"


def test_english_words_are_runs_of_letters_digits_and_underscores():
    golden = ["It", "s", "2", "o", "clock_now", "Zoë", "naïve", "A", "B", "3", "5", "x²", "tag", "me", "don", "t"]
    assert words(ENGLISH) == golden == re.findall(r"\w+", ENGLISH)
    plain = "a_b, c-d 1.5 (E)"
    assert words(plain) == ["a_b", "c", "d", "1", "5", "E"]
    assert [plain[a:b] for a, b in word_bounds(plain)] == ["a_b", ",", "c", "-", "d", "1", ".", "5", "(", "E", ")"]
    assert [plain[a:b] for a, b in word_bounds(plain, marks="joined")] == plain.split()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("हिन्दी में लिखा है।", ["हिन्दी", "में", "लिखा", "है"]),
        ("كِتَابٌ جَمِيلٌ، نعم", ["كِتَابٌ", "جَمِيلٌ", "نعم"]),
        ("שָׁלוֹם עוֹלָם", ["שָׁלוֹם", "עוֹלָם"]),
        ("தமிழ் மொழி", ["தமிழ்", "மொழி"]),
        ("می\u200cخواهم بروم", ["می\u200cخواهم", "بروم"]),
        ("क्\u200dष है", ["क्\u200dष", "है"]),
        (unicodedata.normalize("NFD", "Zoë naïve"), [unicodedata.normalize("NFD", word) for word in ("Zoë", "naïve")]),
        ("한국어 문장", ["한국어", "문장"]),
        ("中文很好。iPhone手机", ["中", "文", "很", "好", "iPhone", "手", "机"]),
        ("ラーメンを食べる", ["ラーメン", "を", "食", "べ", "る"]),
        ("ខ្ញុំស្រ", ["ខ្ញុំ", "ស្រ"]),
        ("ຂ້ອຍ", ["ຂ້", "ອ", "ຍ"]),
        ("မြန်မာစာ", ["မြ", "န်", "မာ", "စာ"]),
        ("ภาษาไทย ดี", ["ภาษาไทย", "ดี"]),
    ],
)
def test_marks_belong_to_words_and_scripts_without_spaces_are_split(text, expected):
    assert words(text) == expected
    assert [text[start:end] for start, end in word_bounds(text, marks="none")] == expected


def test_words_end_at_cuts():
    assert word_bounds("abc de, fg", [1, 2, 4, 6, 7], marks="none") == [(0, 1), (1, 2), (2, 3), (4, 6), (8, 10)]
