"""Nearest neighbours of words in a table of word vectors."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain

import numpy as np

from components.core.errors import ConfigError, DataError
from components.models.encoder import Encoder
from components.models.static import StaticVectors
from components.serving.generation import nearest_words
from components.settings.tasks import has
from components.studies.contextuality import of_letters
from components.studies.frame import Outputs, Parts, Row, Rows, Sheet, over
from components.tokenization import Tokenizer
from components.tokenization.special import FIRST_ORDINARY

#: Number of default words, the least frequent ones of as many whose neighbours' parts of speech are compared.
CHOSEN, SCORED = 6, 500


def frequent_words(tokenizer: Tokenizer) -> list[str]:
    """The most frequent words of at least three letters that are a single piece, at most `SCORED`."""
    counts, words = tokenizer.frequencies, dict[str, None]()
    order = np.arange(tokenizer.vocab_size) if counts is None else np.argsort(-counts, kind="stable")
    for id_ in order[order >= FIRST_ORDINARY].tolist():
        word = tokenizer.surface(id_)
        if len(words) < SCORED and not tokenizer.continues(id_) and len(word) >= 3 and of_letters(word):
            (ids,) = tokenizer.encode_batch([f" {word}" if tokenizer.leads_with_space else word])
            words |= {word: None} if ids.tolist() == [id_] else {}
    return list(words)


def near(encoder: Encoder, words: Sequence[str], *, count: int) -> dict[str, list[tuple[str, float]]]:
    """Word -> its nearest words with their cosines."""
    model, tokenizer = encoder.model, encoder.tokenizer
    assert isinstance(model, StaticVectors)
    # Pieces that continue a word keep their mark.
    written = [
        piece if id_ < FIRST_ORDINARY or tokenizer.continues(id_) else tokenizer.surface(id_)
        for id_, piece in enumerate(tokenizer.pieces)
    ]
    table, spelled = model.vectors(), str.lower if getattr(tokenizer, "lowercase", False) else str
    return {
        word: nearest_words(table, written, model.vector(spelled(word)), count=count, without=(word, spelled(word)))
        for word in words
    }


def measure(outputs: Outputs, *, encoder: str = "", words: str = "", count: int = 8, tags: str = "") -> Parts:
    """Neighbours of words in one or several tables of word vectors."""
    rows, shares, tagged = Rows(), Rows(), parts_of_speech(outputs, tags) if tags else {}
    needs = "no table of word vectors, such as word2vec, fasttext or glove"
    for name, loaded in outputs.encoders(encoder, lambda each: isinstance(each.model, StaticVectors), needs).items():
        frequent = frequent_words(loaded.tokenizer)
        asked = [word for word in map(str.strip, words.split(",")) if word] or frequent[-CHOSEN:]
        for word, of in near(loaded, asked, count=count).items():
            rows.append({"encoder": name, "word": word, "nearest": ", ".join(f"{near} {c:.2f}" for near, c in of)})
        if tagged:
            compared = near(loaded, [word for word in frequent if word in tagged], count=count)
            names = {word: [of for of, _ in entries] for word, entries in compared.items()}
            shares.append({"encoder": name} | same_part(names, tagged))
    yield Sheet(rows)
    yield Sheet(shares, "Neighbours with the same part of speech", value="gain", reference=0.0)


def parts_of_speech(outputs: Outputs, task: str) -> dict[str, str]:
    """Word of the train split of a tagging task -> its most frequent tag."""
    facts, train = outputs.examples(task, "train")
    if not has(facts.kind, "words"):
        raise ConfigError(f"--tags: {task} is no task of tagging")
    words, tags = (chain(*of) for of in (train.fields, train.targets))
    counted = Counter((word.casefold(), facts.labels[int(tag)]) for word, tag in zip(words, tags, strict=True))
    # The most frequent tag of a word is the last one, which counts.
    return dict(pair for pair, _ in reversed(counted.most_common()))


def same_part(near: Mapping[str, Sequence[str]], tagged: Mapping[str, str]) -> Row:
    """The share of neighbours with the word's part of speech, that of all neighbours (chance), and the
    gain with its interval over words. Words without a part of speech are left out."""
    parts = {word: [tagged[each.casefold()] for each in of if each.casefold() in tagged] for word, of in near.items()}
    of_all = Counter(chain(*parts.values()))
    pairs = [
        (of.count(tagged[word]) / len(of), of_all[tagged[word]] / of_all.total()) for word, of in parts.items() if of
    ]
    if len(pairs) < 2:
        raise DataError("--tags: fewer than two frequent words have neighbours with a known part of speech")
    shares, chances = np.asarray(pairs).T
    row = {"words": len(pairs), "same part": float(shares.mean()), "chance": float(chances.mean())}
    return row | {"gain": over(shares - chances)}
