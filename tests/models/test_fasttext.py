"""fastText: hashes and n-grams as in the published code, and vectors of unseen words."""

from functools import reduce

import pytest
import torch

from components.core.errors import ConfigError
from components.models.encoder import build_model
from components.models.fasttext import FNV_OFFSET, FastText, FastTextConfig, fnv1a_update, ngram_buckets
from components.tokenization.special import FIRST_ORDINARY, UNK
from components.tokenization.word import WordTokenizer
from tests.tokenizers import make_tokenizer


def fnv1a(text: str) -> int:
    return reduce(fnv1a_update, text.encode(), FNV_OFFSET)


WORDS = ["where", "there", "a", "œuvre", "here", "abc", "abd"]
BUCKETS = 40


def tokenizer(words: list[str], kind: str = "word") -> WordTokenizer:
    return make_tokenizer(kind, words, strip=False)


@pytest.fixture
def model() -> FastText:
    torch.manual_seed(0)
    settings = {"width": 4, "buckets": BUCKETS}
    model = build_model("fasttext", vocabulary=FIRST_ORDINARY + len(WORDS), settings=settings)
    model.bind(tokenizer(WORDS))
    return model


@pytest.mark.parametrize(
    ("text", "value"), [("", 0x811C9DC5), ("a", 0xE40C292C), ("foobar", 0xBF9CF968), ("chongo was here!\n", 0xD49930D5)]
)
def test_fnv_1a_of_the_authors_test_suite(text, value):
    assert fnv1a(text) == value


def test_bytes_beyond_ascii_are_sign_extended():
    # uint32_t(int8_t(0xC3)) is 0xFFFFFFC3, as in fastText's Dictionary::hash.
    value = 2166136261
    for byte in (0xFFFFFFC3, 0xFFFFFFA9):
        value = ((value ^ byte) * 16777619) % 2**32
    assert fnv1a("é") == value


@pytest.mark.parametrize(
    ("word", "shortest", "longest", "grams"),
    [
        # Bojanowski et al. 2017, section 3.2.
        ("where", 3, 3, ["<wh", "whe", "her", "ere", "re>"]),
        # A single mark is not an n-gram.
        ("ab", 1, 2, ["<a", "a", "ab", "b", "b>"]),
        ("นกบ", 3, 6, ["<นก", "<นกบ", "<นกบ>", "นกบ", "นกบ>", "กบ>"]),
        ("x", 3, 6, ["<x>"]),
    ],
)
def test_buckets_are_the_hashes_of_the_ngrams(word, shortest, longest, grams):
    config = FastTextConfig(vocabulary=9, shortest=shortest, longest=longest, buckets=2_000_000)
    assert ngram_buckets(word, config) == [fnv1a(gram) % 2_000_000 for gram in grams]


def by_hand(model: FastText, word: str) -> torch.Tensor:
    rows = [model.gram[bucket] for bucket in ngram_buckets(word, model.config)]
    if word in WORDS:
        rows.append(model.word[FIRST_ORDINARY + WORDS.index(word)])
    return torch.stack(rows).mean(0)


def test_a_word_is_the_mean_of_its_row_and_its_ngrams(model):
    tokens = torch.tensor([[8, 5, 6], [7, 5, 0]])
    (hidden,) = model.hidden_states(tokens, torch.tensor([3, 2]))
    for row, text in enumerate((["œuvre", "where", "there"], ["a", "where"])):
        for position, word in enumerate(text):
            torch.testing.assert_close(hidden[row, position], by_hand(model, word))
    # Special pieces have no n-grams.
    torch.testing.assert_close(hidden[1, 2], model.word[0])
    for word, row in zip(WORDS, model.vectors()[FIRST_ORDINARY:], strict=True):
        torch.testing.assert_close(model.vector(word), row)


def test_unseen_words_of_a_text_are_spelt_by_the_tokenizer(model):
    opened = tokenizer(WORDS, "open_word")
    model.bind(opened)
    words = ["here", "somewhere", "there", "somewhere", "nowhere"]
    (ids,) = opened.encode_batch([" ".join(words).upper()])
    assert max(ids) >= opened.vocab_size
    tokens = torch.from_numpy(ids.astype("int64"))[None]
    (hidden,) = model.hidden_states(tokens, torch.tensor([5]))
    for position, word in enumerate(words):
        torch.testing.assert_close(hidden[0, position], by_hand(model, word))
    model.zero_grad()
    hidden[0, 4].sum().backward()
    assert set(model.gram.grad.sum(1).nonzero().flatten().tolist()) == set(ngram_buckets("nowhere", model.config))


def test_a_word_too_short_for_an_ngram_is_unknown():
    model = build_model("fasttext", vocabulary=6, settings={"width": 4, "buckets": 9, "shortest": 5})
    model.bind(tokenizer(["word"]))
    assert torch.equal(model.vector("xy"), model.word[UNK])


def test_on_a_gpu_words_are_composed_position_by_position(model):
    tokens = torch.tensor([5, 9, 5, 0, 7, 11])
    torch.testing.assert_close(model._known(tokens), model.embed(tokens))


def test_ngrams_follow_a_change_of_vocabulary(model):
    before = {word: model.vector(word) for word in WORDS}
    words = ["here", "bridge", "where"]
    rows = torch.tensor([*range(FIRST_ORDINARY), FIRST_ORDINARY + 4, -1, FIRST_ORDINARY])
    mean = model.word.mean(0).detach()
    model.remap_vocabulary(rows)
    torch.testing.assert_close(model.vectors()[FIRST_ORDINARY + 1], mean)
    model.bind(tokenizer(words))
    for word in ("here", "where"):
        torch.testing.assert_close(model.vector(word), before[word])
    grams = [model.gram[bucket] for bucket in ngram_buckets("bridge", model.config)]
    torch.testing.assert_close(model.vector("bridge"), torch.stack([mean, *grams]).mean(0).detach())


def test_shortest_above_longest_is_an_error():
    with pytest.raises(ConfigError, match="shortest 6 is greater than longest 3"):
        build_model("fasttext", vocabulary=9, settings={"shortest": 6, "longest": 3})
