"""WordPiece: words are split into an initial piece and continuations, marked `##` (Schuster and Nakajima 2012)."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from tokenizers import Tokenizer as Backend
from tokenizers import models, pre_tokenizers, trainers

from components.core.errors import DataError
from components.data.segmenters import Segmentation
from components.settings.tokenizer import SubwordSettings, WordPieceSettings, WordSettings
from components.tokenization.bert import BertWordsTokenizer, backend, count_words, marks_are_letters
from components.tokenization.special import SPECIAL_PIECES

#: Longer words become UNK, as in BERT.
LONGEST_WORD: Final = 100
#: Size of the alphabet, the most frequent characters, as a share of the vocabulary (1000 of 8000, the usual limit), but
#: at least LEAST_ALPHABET; words with rarer characters become UNK.
ALPHABET_SHARE: Final = 1 / 8
LEAST_ALPHABET: Final = 256
#: Maximum number of repetitions of a word in one training text.
REPEATS: Final = 500


class WordPieceTokenizer(BertWordsTokenizer):
    """Greedy longest-match-first segmentation of each word, from left to right; UNK if it fails."""

    kind = "wordpiece"

    def _model(self, vocabulary: dict[str, int]) -> models.Model:
        return models.WordPiece(
            vocabulary, unk_token="[UNK]", max_input_chars_per_word=LONGEST_WORD, continuing_subword_prefix="##"
        )

    def continues(self, id_: int) -> bool:
        return self.pieces[id_].startswith("##") and len(self.pieces[id_]) > 2

    def surface(self, id_: int) -> str:
        return self.pieces[id_][2:] if self.continues(id_) else self.pieces[id_]


def train_wordpiece(
    texts: Sequence[str], *, settings: WordPieceSettings, segmentation: Segmentation
) -> WordPieceTokenizer:
    """Learn a vocabulary by merging the most frequent pairs of pieces, from every word as often as it occurs.

    The library assigns ids to continuing characters in the order of a hash table, which breaks ties at random; passing
    the alphabet and the continuing characters makes training deterministic.

    Raises DataError: too few pieces, or the vocabulary is smaller than special pieces and alphabet."""
    strip_accents = settings.lowercase and not marks_are_letters(texts)
    cutter = backend(models.WordPiece(unk_token="[UNK]"), lowercase=settings.lowercase, strip_accents=strip_accents)
    words = count_words(texts, cutter)
    alphabet, continuing = frequent_characters(words, limit=max(LEAST_ALPHABET, int(settings.size * ALPHABET_SHARE)))
    learner = Backend(models.WordPiece(unk_token="[UNK]"))
    learner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    learner.train_from_iterator(
        repeated(words),
        trainers.WordPieceTrainer(
            vocab_size=settings.size,
            min_frequency=settings.min_frequency,
            special_tokens=[*SPECIAL_PIECES, *("##" + character for character in continuing)],
            initial_alphabet=alphabet,
            limit_alphabet=len(alphabet),
            continuing_subword_prefix="##",
            show_progress=False,
        ),
    )
    vocabulary = learner.get_vocab()
    pieces = sorted(vocabulary, key=vocabulary.__getitem__)
    check_size(len(pieces), settings, kind="wordpiece")
    return WordPieceTokenizer(
        pieces, segmentation=segmentation, lowercase=settings.lowercase, strip_accents=strip_accents
    )


def repeated(words: Counter[str]) -> Iterator[str]:
    """Texts in which each word occurs as often as counted, at most REPEATS times per text."""
    for word, count in words.items():
        for start in range(0, count, REPEATS):
            yield " ".join([word] * min(REPEATS, count - start))


def frequent_characters(words: Counter[str], *, limit: int) -> tuple[list[str], list[str]]:
    """The `limit` most frequent characters, sorted, and which of them occur after the first one of a word."""
    counts: Counter[str] = Counter()
    inside: set[str] = set()
    for word, count in words.items():
        for character in word:
            counts[character] += count
        inside.update(word[1:])
    alphabet = sorted(sorted(counts, key=lambda character: (-counts[character], character))[:limit])
    return alphabet, [character for character in alphabet if character in inside]


def check_size(given: int, settings: SubwordSettings | WordSettings, *, kind: str) -> None:
    """Verify the size of a learned vocabulary. If no size was set, a smaller one is reported, and accepted.

    Raises:
        DataError: there are fewer pieces than requested (too little text) or more (the alphabet is larger).
    """
    asked, key = settings.size, f"tokenizer.{kind}.vocabulary"
    if given < asked and settings.vocabulary is None:
        print(f"{key}: {given:,} pieces, which is all that the corpus yields; the default is {asked:,}", flush=True)
    elif given < asked:
        remedy = "lower min_frequency, " if isinstance(settings, WordPieceSettings | WordSettings) else ""
        raise DataError(
            f"{key}: {asked} pieces requested, but the corpus yields {given}; set it to {given} or less, {remedy}or "
            "add text"
        )
    if given > asked:
        raise DataError(
            f"{key}: {asked} pieces are too few, because special pieces and alphabet have {given}; set it to a few "
            "hundred at least"
        )
