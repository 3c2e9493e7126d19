"""Encoding of pre-split texts for every kind of vocabulary."""

import pytest

from components.data.segmenters import Segmentation
from components.settings.tokenizer import TokenizerSettings
from components.tokenization import KINDS, Tokenizer
from components.tokenization.train import fit
from components.tokenization.words import encode_words

TEXTS = ["The parameter is optional.", "the API's name, the ID", "a list of the names", "ผมกินข้าวที่บ้าน"] * 3
SMALL = TokenizerSettings.model_validate(
    {
        "wordpiece": {"vocabulary": 90},
        "word": {"vocabulary": 16, "min_frequency": 3},
        "bpe": {"vocabulary": 300},
        "unigram": {"vocabulary": 45},
    }
)
THAI = ["ผม", "กิน", "ข้าว", "API", "ที่", "บ้าน"]


def fitted(kind: str, segmenter: str = "none") -> Tokenizer:
    segmentation = Segmentation(segmenter)
    texts = [segmentation.spaced(text) for text in TEXTS] if kind != "bpe" else TEXTS
    return fit(texts, kind=kind, settings=SMALL, segmentation=segmentation)


@pytest.mark.parametrize("kind", KINDS)
def test_every_word_has_pieces_and_shares_none(kind):
    tokenizer = fitted(kind, "thai")
    given = ["The", "\x00", "API's", "name", "\u200b", "don't", *THAI, "👩‍👩‍👧", "1 000"]
    (actual,) = encode_words(tokenizer, [given])
    assert len(actual.spans) == len(given)
    before = -1
    for first, last in actual.spans.tolist():
        assert before < first <= last < len(actual.ids)
        before = last


@pytest.mark.parametrize("kind", ["char", "bpe"])
def test_thai_words_are_adjacent_as_in_running_text(kind):
    tokenizer = fitted(kind, "thai")
    (actual,) = encode_words(tokenizer, [THAI])
    lead = " " if kind == "bpe" else ""
    assert tokenizer.decode(actual.ids.tolist()) == f"{lead}ผมกินข้าว API ที่บ้าน"
    running = tokenizer.encode_batch([f"{lead}ผมกินข้าว API ที่บ้าน"])[0]
    assert actual.ids.tolist() == running.tolist()


@pytest.mark.parametrize("kind", ["wordpiece", "word", "unigram", "open_word"])
def test_thai_words_are_encoded_as_in_segmented_text(kind):
    tokenizer = fitted(kind, "thai")
    text = "".join(THAI)
    given = tokenizer.segmentation.spaced(text).split(" ")
    assert len(given) > 3
    (actual,) = encode_words(tokenizer, [given])
    assert actual.ids.tolist() == tokenizer.encode_batch([text])[0].tolist()
