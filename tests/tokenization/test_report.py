"""The vocabulary report on texts small enough to count by hand."""

from typing import Any

import pytest

from components.tokenization import Tokenizer
from components.tokenization.train import count_words, report_on_words, script_of


def report_of(tokenizer: Tokenizer, texts: list[str]) -> dict[str, Any]:
    return report_on_words(tokenizer, count_words(map(tokenizer.segmentation.spaced, texts)))


def test_report_of_word_pieces(make):
    tokenizer = make("wordpiece", ["run", "##ning", "##s", "ตัด", "5"], strip=False, segmenter="thai")
    report = report_of(tokenizer, ["running runs zz", "5 ตัดตัด", ""])
    assert report == {
        "kind": "wordpiece",
        "vocabulary": 10,
        "alphabet": 10,  # r u n i g s 5 and the three characters of the Thai word
        "non_initial_share": 0.4,
        "words": 6,
        "pieces_per_word": pytest.approx(8 / 6),
        "characters_per_piece": pytest.approx((7 + 4 + 2 + 1 + 3 + 3) / 8),
        "unknown_rate": pytest.approx(1 / 8),
        "scripts": {
            "latin": {
                "words": 3,
                "share_of_words": 0.5,
                "pieces_per_word": pytest.approx(5 / 3),
                "unknown_rate": pytest.approx(1 / 5),
                "vocabulary": 3,
            },
            "thai": {
                "words": 2,
                "share_of_words": pytest.approx(1 / 3),
                "pieces_per_word": 1.0,
                "unknown_rate": 0.0,
                "vocabulary": 1,
            },
            "none": {
                "words": 1,
                "share_of_words": pytest.approx(1 / 6),
                "pieces_per_word": 1.0,
                "unknown_rate": 0.0,
                "vocabulary": 1,
            },
        },
    }


@pytest.mark.parametrize(
    ("word", "script"),
    [
        ("(Abc", "latin"),
        ("ก", "thai"),
        ("漢字", "cjk"),
        ("12", "none"),
        ("µm", "greek"),
        ("Ａ", "latin"),
        ("жук", "cyrillic"),
    ],
)
def test_scripts(word, script):
    assert script_of(word) == script


def test_report_of_characters(make):
    report = report_of(make("char", ["a", "#", " "]), ["a #a ##b"])
    assert report["pieces_per_word"] == 2.0
    assert report["unknown_rate"] == pytest.approx(1 / 6)
    assert report["non_initial_share"] == 0.0
    assert report["alphabet"] == 3
