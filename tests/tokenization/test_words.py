"""Encoding of pre-split texts for every kind of vocabulary."""

import pytest

from components.tokenization import KINDS, Tokenizer
from components.tokenization.special import UNK
from components.tokenization.words import WordPieces, encode_words
from tests.tokenizers import learn


def pieces(tokenizer: Tokenizer, actual: WordPieces) -> list[str]:
    return [tokenizer.spelling(int(id_)) for id_ in actual.ids]


def words(tokenizer: Tokenizer, actual: WordPieces) -> list[list[str]]:
    spelled = pieces(tokenizer, actual)
    return [spelled[first : last + 1] for first, last in actual.spans.tolist()]


TEXTS = ["The parameter is optional.", "the API's name, the ID", "a list of the names", "ผมกินข้าวที่บ้าน"] * 3
SMALL: dict[str, dict[str, int]] = {
    "wordpiece": {"vocabulary": 90},
    "word": {"vocabulary": 16, "min_frequency": 3},
    "bpe": {"vocabulary": 300},
    "unigram": {"vocabulary": 45},
}
THAI = ["ผม", "กินข้าว", "API", "ที่", "บ้าน"]


def fitted(kind: str, segmenter: str = "none") -> Tokenizer:
    return learn(TEXTS, kind, segmenter=segmenter, **SMALL.get(kind, {}))


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


def test_wordpiece_encodes_each_word_separately(make):
    tokenizer = make("wordpiece", ["new", "##er", "york", "-", "."])
    (actual,) = encode_words(tokenizer, [["Newer", "New-York", "x", "."]])
    assert words(tokenizer, actual) == [["new", "##er"], ["new", "-", "york"], ["[UNK]"], ["."]]
    assert actual.spans.tolist() == [[0, 1], [2, 4], [5, 5], [6, 6]]


def test_a_space_between_words_is_a_piece_of_characters(make):
    tokenizer = make("char", ["a", "b", " "])
    actual, empty = encode_words(tokenizer, [["ab", "b", "a c"], []])
    assert actual.ids.tolist() == [5, 6, 7, 6, 7, 5, 7, UNK]
    assert actual.spans.tolist() == [[0, 1], [3, 3], [5, 7]]
    assert empty.ids.tolist() == [] and empty.spans.shape == (0, 2)


def test_byte_pairs_include_the_leading_space():
    tokenizer = fitted("bpe")
    (actual,) = encode_words(tokenizer, [["the", "name", ",", "the"]])
    assert ["".join(word) for word in words(tokenizer, actual)] == ["Ġthe", "Ġname", "Ġ,", "Ġthe"]
    assert tokenizer.decode(actual.ids.tolist()) == " the name , the"
    # In running text the same word has the same pieces.
    running = tokenizer.encode_batch(["a name"])[0].tolist()
    assert (
        running[-len(actual.ids[slice(*actual.spans[1])]) - 1 :]
        == actual.ids[actual.spans[1, 0] : actual.spans[1, 1] + 1].tolist()
    )
