"""Words in sentences of a corpus, and an encoder's vectors of them and of texts.

A sentence is a list of words as they are written between spaces, with the marks beside them (in Thai, as its dictionary
separates them). Shape suffixes: M words of all sentences or vectors of all rows, D width.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

import numpy as np
import regex
from numpy.typing import NDArray

from components.core.errors import ConfigError, DataError
from components.data.formats.corpus import read_documents, shards
from components.data.formats.words import words_of
from components.data.segmenters import SEGMENTERS, Segmentation
from components.data.tasks.data import Split
from components.learners.task_models.kinds import find_task
from components.learners.task_models.model import TaskModel
from components.learners.task_models.predictor import Predictor
from components.models.encoder import Encoder
from components.settings.finetune import FinetuneSettings
from components.settings.training import Training
from components.tokenization.store import measure
from components.tokenization.tokenize import sentence_starts

#: Minimum and maximum number of words of a sentence; longer ones are usually lists or tables.
LEAST_WORDS, MOST_WORDS = 5, 60
#: How sentences are read; the other settings of fine-tuning do not apply.
READING = FinetuneSettings(training=Training(rate=1.0, batch_size=1), max_length=256)
_MARKS = regex.compile(r"^[^\p{L}\p{M}\p{N}]+|[^\p{L}\p{M}\p{N}]+$")
_LETTERS = regex.compile(r"[\p{L}\p{M}]*\p{L}[\p{L}\p{M}]*")

Floats = NDArray[np.floating]
Sentence = list[str]
Item = TypeVar("Item")


def plain(word: str) -> str:
    """A word without the marks beside it, case-folded; empty for marks alone."""
    return str(_MARKS.sub("", word)).casefold()


def of_letters(word: str) -> bool:
    """Whether a word consists of letters and combining marks, which are common in Thai or Hindi."""
    return _LETTERS.fullmatch(word) is not None


def sentences_of(text: str, segmentation: Segmentation) -> Iterator[Sentence]:
    """The sentences of a document with an allowed number of words, in order."""
    thai = segmentation.choose(text) is SEGMENTERS["thai"]
    for start, end in pairwise([*sentence_starts(text, thai=thai), len(text)]):
        part = text[start:end]
        words = [part[slice(*span)] for span in words_of(part, segmentation, marks="joined")]
        if LEAST_WORDS <= sum(map(bool, map(plain, words))) <= MOST_WORDS:
            yield words


def sample(corpus: Path, segmentation: Segmentation, *, count: int) -> list[Sentence]:
    """At most `count` sentences of different documents, evenly spread over the corpus."""
    # Twice as many documents, because some have no such sentence.
    documents = evenly(range(sum(measure(shard).documents for shard in shards(corpus))), 2 * count)
    chosen, texts = set(documents), enumerate(read_documents(corpus))
    firsts = (next(sentences_of(text, segmentation), []) for number, text in texts if number in chosen)
    if not (sampled := [*filter(None, firsts)]):
        raise DataError(f"{corpus}: contains no sentence of {LEAST_WORDS} to {MOST_WORDS} words")
    return evenly(sampled, count)


def search(corpus: Path, segmentation: Segmentation, word: str, *, count: int) -> list[tuple[Sentence, int]]:
    """At most `count` sentences that contain `word`, with its index, evenly spread over the sentences of the corpus."""
    word = word.casefold()
    # Segmentation into sentences and words is much slower than a substring search.
    texts = (text for text in read_documents(corpus) if word in text.casefold())
    parsed = ((of, [*map(plain, of)]) for text in texts for of in sentences_of(text, segmentation))
    return evenly([(of, words.index(word)) for of, words in parsed if word in words], count)


def evenly(items: Sequence[Item], count: int) -> list[Item]:
    """At most `count` items, evenly spaced, in order."""
    count = min(count, len(items))
    return [items[number * len(items) // count] for number in range(count)]


def layer_vectors(encoder: Encoder, split: Split, *, kind: str, settings: FinetuneSettings) -> list[Floats]:
    """(M, D_l) float32 features of the embedding and of each layer, lowest first, in the order of the rows. Of texts,
    the mean of the hidden states, over the sequences of a row; words have their `unit_states`."""
    task, read = find_task(kind), settings.model_copy(update={"method": "features", "layers": "all", "pooling": "mean"})
    model = TaskModel(encoder.model, task=task, settings=read, labels=["no", "yes"]).eval()
    rows = [row.vectors for row in Predictor(model).read(model.encode(split.fields, encoder.tokenizer))]
    joined = np.concatenate([np.concatenate(row) if model.of_units else np.mean(row, 0, keepdims=True) for row in rows])
    if len(joined) != sum(map(len, split.targets)):
        raise ConfigError(
            f"{kind}: an input is longer than finetune.<family>.max_length; raise the limit for this study"
        )
    widths = list(model.features.widths)
    return np.split(joined, np.cumsum(widths * (joined.shape[1] // sum(widths)))[:-1], axis=1)


def word_vectors(encoder: Encoder, sentences: Sequence[Sentence]) -> tuple[list[Floats], NDArray[np.int64]]:
    """(M, D_l) vectors of all words in the embedding and each layer (`unit_states`), and the number of the first word
    of each sentence. Sentences beyond the model's positions are read in windows."""
    targets = [np.zeros(len(words)) for words in sentences]
    split = Split([*map(tuple, sentences)], targets, [None] * len(targets))
    return layer_vectors(encoder, split, kind="tagging", settings=READING), np.cumsum([0, *map(len, targets)])[:-1]
