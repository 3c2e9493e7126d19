"""Words of a text in many languages."""

import random
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from components.data.formats.words import (
    PREFIXES,
    TagError,
    convert,
    decode,
    encode,
    inventory,
    scheme_of,
    words,
    words_of,
)
from components.data.segmenters import Segmentation

ENGLISH = "It\u2019s 2 o'clock_now, Zoë! na\u00efve A/B 3.5\u20ac x\u00b2 \u2013 \U0001f600 #tag @me don't"


def test_english_words_are_runs_of_letters_digits_and_underscores():
    golden = ["It", "s", "2", "o", "clock_now", "Zoë", "naïve", "A", "B", "3", "5", "x²", "tag", "me", "don", "t"]
    assert words(ENGLISH) == golden == re.findall(r"\w+", ENGLISH)
    plain = "a_b, c-d 1.5 (E)"
    assert words(plain) == ["a_b", "c", "d", "1", "5", "E"]
    assert [plain[a:b] for a, b in words_of(plain)] == ["a_b", ",", "c", "-", "d", "1", ".", "5", "(", "E", ")"]
    assert [plain[a:b] for a, b in words_of(plain, marks="joined")] == plain.split()


@pytest.mark.parametrize(
    ("text", "expected"), yaml.safe_load(Path(__file__).with_name("words.yaml").read_text(encoding="utf-8")).items()
)
def test_marks_belong_to_words_and_scripts_without_spaces_are_split(text, expected):
    assert words(text) == expected
    assert [text[start:end] for start, end in words_of(text, Segmentation("none"), marks="none")] == expected


def test_words_end_at_cuts():
    segmenter = SimpleNamespace(cuts=lambda text: iter([1, 2, 4, 6, 7]))
    segmentation = SimpleNamespace(choose=lambda text: segmenter)
    words = words_of("abc de, fg", segmentation, marks="none")
    assert words == [(0, 1), (1, 2), (2, 3), (4, 6), (8, 10)]


CASES = {
    "bio": "B-x I-x B-x O B-y I-y B-x",
    "iob1": "I-x I-x B-x O I-y I-y I-x",
    "iobes": "B-x E-x S-x O B-y E-y S-x",
}
SPANS = [(0, 2, "x"), (2, 3, "x"), (4, 6, "y"), (6, 7, "x")]


def conlleval(tags: list[str]) -> list[tuple[int, int, str]]:
    """Chunks as CoNLL's evaluation script finds them, word by word, whatever the scheme (Tjong Kim Sang 2000)."""
    actual, start = [], 0
    before, kind_before = "O", ""
    for index, tag in enumerate([*tags, "O"]):
        prefix, _, kind = tag.partition("-")
        ends = before in "ES" or (before in "BI" and (prefix in "BSO" or kind != kind_before))
        begins = prefix in "BS" or (before in "ESO" and prefix in "EI") or (prefix != "O" and kind != kind_before)
        if ends:
            actual.append((start, index, kind_before))
        if begins:
            start = index
        before, kind_before = prefix, kind
    return actual


@pytest.mark.parametrize("scheme", CASES)
def test_spans_of_a_sentence(scheme):
    tags = CASES[scheme].split()
    assert decode(tags, scheme) == SPANS
    assert encode(SPANS, 7, scheme) == tags
    for other, text in CASES.items():
        assert convert(tags, scheme, other) == text.split()


@pytest.mark.parametrize("scheme", CASES)
def test_random_spans_round_trip_and_agree_with_conlleval(scheme):
    draw = random.Random(5)
    for _ in range(300):
        spans, place = [], 0
        while place < 12:
            length = draw.randint(1, 3)
            if draw.random() < 0.6 and place + length <= 12:
                spans.append((place, place + length, draw.choice("xy")))
                place += length
            else:
                place += 1
        tags = encode(spans, 12, scheme)
        assert decode(tags, scheme) == spans
        assert conlleval(tags) == spans


@pytest.mark.parametrize(
    ("scheme", "text", "index", "message"),
    [
        ("bio", "O I-x", 1, "tag 'I-x' after 'O' continues no span of its type; correct it, or set the file's"),
        ("bio", "I-x", 0, "tag 'I-x' at the start continues no span of its type"),
        ("bio", "B-y I-x", 1, "tag 'I-x' after 'B-y' continues no span of its type"),
        ("bio", "B-x E-x", 1, r"tag 'E-x' is not a tag of scheme bio \(B-TYPE, I-TYPE, O\); set scheme: none if tags"),
        ("bio", "NOUN", 0, "tag 'NOUN' is not a tag of scheme bio"),
        ("bio", "B-", 0, "tag 'B-' is not a tag of scheme bio"),
        ("iob1", "O B-x", 1, r"tag 'B-x' follows no span of its type; .* the file's scheme \(bio, iobes\)"),
        ("iob1", "I-y B-x", 1, "tag 'B-x' follows no span of its type"),
        (
            "iobes",
            "B-x O",
            1,
            "tag 'O' after 'B-x', which does not end its span; correct it, or set the file's scheme",
        ),
        ("iobes", "B-x S-x", 1, "tag 'S-x' after 'B-x', which does not end its span"),
        ("iobes", "S-x E-x", 1, "tag 'E-x' after 'S-x' continues no span of its type"),
        ("iobes", "S-y B-x I-x", 2, "tag 'I-x' at the end does not end its span"),
    ],
)
def test_tags_that_violate_the_scheme(scheme, text, index, message):
    with pytest.raises(TagError, match=message) as caught:
        decode(text.split(), scheme)
    assert caught.value.index == index


def test_inventory_of_tags():
    assert inventory(["y", "x-1"], "bio") == ["B-x-1", "B-y", "I-x-1", "I-y", "O"]
    assert len(inventory(["a", "b"], "iobes")) == 9
    assert decode(["B-x-1", "I-x-1"], "bio") == [(0, 2, "x-1")]
    assert decode([], "iobes") == []
    assert set(PREFIXES) == set(CASES)


@pytest.mark.parametrize(
    ("sentences", "scheme"),
    [
        (["O B-x I-x O", "B-y"], "bio"),
        (["I-x I-x O I-y", "I-x B-x O"], "iob1"),
        (["O I-x O", "O"], "iob1"),
        (["B-x I-x", "B-x O B-y", "O I-x"], "bio"),
        (["O S-x", "B-y E-y"], "iobes"),
        (["NOUN VERB"], "none"),
        (["O O"], "none"),
        (["B-x", "B-"], "none"),
    ],
)
def test_the_scheme_of_a_file_is_what_most_of_its_spans_begin_with(sentences, scheme):
    assert scheme_of([tags.split() for tags in sentences]) == scheme
