"""Nearest neighbours of words in a table of word vectors or in the embedding layer of another family.

Shape suffixes: V vocabulary, D width.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np
import typer
from torch import Tensor

from components.core.errors import ConfigError, DataError, nearest
from components.data.scoring.intervals import CONFIDENCE, interval
from components.data.tasks.examples import read_facts, read_split
from components.models.base import LanguageModel
from components.models.encoder import Encoder
from components.models.static import StaticVectors
from components.serving.generation import nearest_words
from components.studies.frame import EncoderName, Measured, Outputs, Row, Sheet
from components.studies.words import of_letters
from components.tokenization import Tokenizer
from components.tokenization.special import FIRST_ORDINARY, UNK


def table(model: LanguageModel) -> Tensor | None:
    """(V, D) float32 vectors of all pieces; None for a family that computes them from characters."""
    weight = model.vectors() if isinstance(model, StaticVectors) else model.piece_embedding()
    return None if weight is None else weight.detach().float().cpu()


def frequent_words(tokenizer: Tokenizer, *, count: int, skip: int) -> list[str]:
    """The most frequent words of at least three letters that are a single piece, after skipping `skip` of them."""
    counts = tokenizer.frequencies
    order = np.arange(tokenizer.vocab_size) if counts is None else np.argsort(-counts, kind="stable")
    words: dict[str, None] = {}
    for id_ in order.tolist():
        if id_ < FIRST_ORDINARY or tokenizer.continues(id_):
            continue
        word = tokenizer.surface(id_)
        if len(word) >= 3 and of_letters(word) and piece_of(tokenizer, word) == id_:
            words[word] = None
            if len(words) == skip + count:
                break
    # A small vocabulary may have fewer words to skip.
    return list(words)[-count:]


def piece_of(tokenizer: Tokenizer, word: str) -> int | None:
    """The id of a word that is a single piece; None for other words."""
    (ids,) = tokenizer.encode_batch([f" {word}" if tokenizer.leads_with_space else word])
    return int(ids[0]) if len(ids) == 1 and ids[0] != UNK else None


def vector(encoder: Encoder, table_VD: Tensor, word: str) -> tuple[Tensor, list[str]]:
    """A word's vector, and the names of the word itself, which are excluded from its neighbours."""
    tokenizer, model = encoder.tokenizer, encoder.model
    spelled = word.lower() if getattr(tokenizer, "lowercase", False) else word
    if isinstance(model, StaticVectors):
        return model.vector(spelled), [word, spelled]
    id_ = piece_of(tokenizer, word)
    if id_ is None:
        (ids,) = tokenizer.encode_batch([word])
        parts = " + ".join(tokenizer.pieces[piece] for piece in ids)
        close = nearest(spelled, tokenizer.pieces[FIRST_ORDINARY:])
        hint = close if close.startswith("; did") else ""
        raise DataError(f"{word!r} is not a single piece of the vocabulary but {parts or 'nothing'}{hint}")
    return table_VD[id_], [word, spelled, tokenizer.pieces[id_]]


#: Number of default words, and number of more frequent words that are skipped: those have unspecific neighbours.
CHOSEN, SKIPPED = 6, 150
#: Number of frequent words whose neighbours' parts of speech are compared.
SCORED = 500


def measure(
    outputs: Outputs,
    *,
    encoder: EncoderName = "",
    words: Annotated[str, typer.Option(help="Words, separated by commas; frequent ones by default.")] = "",
    count: Annotated[int, typer.Option(help="Number of neighbours per word.", min=1)] = 8,
    tags: Annotated[str, typer.Option(help="Task of tagging whose parts of speech neighbours are compared by.")] = "",
) -> Measured:
    """Neighbours of words in one or several tables. By default, character models are skipped."""
    asked = [word.strip() for word in words.split(",") if word.strip()]
    rows, shares = list[Row](), list[Row]()
    for name, loaded in outputs.encoders(encoder).items():
        tokenizer, table_VD = loaded.tokenizer, table(loaded.model)
        if tokenizer.kind == "char" or table_VD is None:
            if encoder:
                raise ConfigError(f"{name}: is a character model, which has no table of words; choose another encoder")
            continue
        # Pieces that continue a word keep their mark.
        ordinary = [id_ >= FIRST_ORDINARY and not tokenizer.continues(id_) for id_ in range(tokenizer.vocab_size)]
        written = [tokenizer.surface(id_) if of else tokenizer.pieces[id_] for id_, of in enumerate(ordinary)]

        def near(
            word: str, loaded: Encoder = loaded, table_VD: Tensor = table_VD, written: Sequence[str] = written
        ) -> list[tuple[str, float]]:
            query_D, names = vector(loaded, table_VD, word)
            return nearest_words(table_VD, written, query_D, count=count, without=names)

        groups = {word: near(word) for word in asked or frequent_words(tokenizer, count=CHOSEN, skip=SKIPPED)}
        rows += [
            {"encoder": name, "word": word, "nearest": ", ".join(f"{of} {cosine:.2f}" for of, cosine in entries)}
            for word, entries in groups.items()
        ]
        if tags:
            tagged = parts_of_speech(outputs, tags)
            frequent = [word for word in frequent_words(tokenizer, count=SCORED, skip=0) if word in tagged]
            of_words = {word: [each for each, _ in near(word)] for word in frequent}
            shares.append({"encoder": name} | same_part(of_words, tagged))
    if not rows:
        raise ConfigError("run.families: all are character models, which have no table of words")
    sheets = [Sheet(rows)]
    if shares:
        sheets.append(Sheet(shares, "Neighbours with the same part of speech", value="gain", reference=0.0))
    text = (
        "For families other than word vectors the table is the embedding layer, which does not depend on the context."
    )
    return Measured(sheets, [text])


def parts_of_speech(outputs: Outputs, task: str) -> dict[str, str]:
    """Word of the train split of a tagging task -> its most frequent tag."""
    directory = outputs.of("examples", outputs.task(task))
    facts, train = read_facts(directory), read_split(directory, "train")
    if facts.kind != "tagging":
        raise ConfigError(f"--tags: {task} is no task of tagging")
    counts = defaultdict[str, Counter[str]](Counter)
    for fields, targets in zip(train.fields, train.targets, strict=True):
        for word, tag in zip(fields, targets, strict=True):
            counts[str(word).casefold()][facts.labels[int(tag)]] += 1
    return {word: of.most_common(1)[0][0] for word, of in counts.items()}


def same_part(near: Mapping[str, Sequence[str]], tagged: Mapping[str, str]) -> dict[str, Any]:
    """The share of neighbours with the word's part of speech, that of all neighbours (chance), and the
    gain with its interval over words. Words without a part of speech are left out."""
    parts = {word: [tagged[each.casefold()] for each in of if each.casefold() in tagged] for word, of in near.items()}
    of_all = Counter(part for of in parts.values() for part in of)
    pairs = [
        (np.mean([part == tagged[word] for part in of]), of_all[tagged[word]] / of_all.total())
        for word, of in parts.items()
        if of
    ]
    if len(pairs) < 2:
        raise DataError("--tags: fewer than two frequent words have neighbours with a known part of speech")
    shares, chances = np.asarray(pairs).T
    gain = interval(shares - chances, confidence=CONFIDENCE)
    return {"words": len(pairs), "same part": float(shares.mean()), "chance": float(chances.mean()), "gain": gain}
