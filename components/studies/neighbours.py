"""Nearest neighbours of words in a table of word vectors or in the embedding layer of another family, with a map: the
plane of the first two principal components.

Shape suffixes: V vocabulary, D width, N plotted pieces.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np
import torch
import typer
from torch import Tensor

from components.core.errors import ConfigError, DataError, nearest
from components.data.scoring.intervals import CONFIDENCE, interval
from components.data.tasks.examples import read_facts, read_split
from components.models.base import LanguageModel
from components.models.encoder import Encoder
from components.models.static import StaticVectors
from components.reporting import figures
from components.reporting.figures import Cloud
from components.reporting.findings import Drawing
from components.serving.generation import nearest_words
from components.settings.tasks import has
from components.studies.frame import EncoderName, Measured, Outputs, Row, Sheet
from components.studies.words import of_letters, planar
from components.tokenization import Tokenizer
from components.tokenization.special import FIRST_ORDINARY, UNK

#: Pieces per batch for families that compute their vectors from characters.
ROWS = 1024


@torch.inference_mode()
def table(model: LanguageModel) -> Tensor:
    """(V, D) float32 vectors of all pieces. Families without a table compute them from the pieces' characters."""
    if isinstance(model, StaticVectors):
        return model.vectors()
    weight = model.piece_embedding()
    if weight is not None:
        return weight.detach().float().cpu()
    framed = model.special_tokens([-1])
    position = framed.index(-1)
    parts = []
    for ids in torch.arange(model.config.vocabulary).split(ROWS):
        tokens = torch.tensor([framed]).repeat(len(ids), 1)
        tokens[:, position] = ids
        hidden = model.hidden_states(tokens, torch.full((len(ids),), len(framed)))
        parts.append(hidden[0][:, position].float())
    return torch.cat(parts)


def readable(tokenizer: Tokenizer) -> list[str]:
    """The surface forms of the pieces, all different. Pieces that continue a word keep their mark."""
    names = list(tokenizer.pieces)
    taken = set(names)
    for id_ in range(FIRST_ORDINARY, tokenizer.vocab_size):
        surface = tokenizer.surface(id_)
        if not tokenizer.continues(id_) and surface not in taken:
            taken.add(surface)
            names[id_] = surface
    return names


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
#: Number of frequent words in the background of the map.
BACKGROUND = 150
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
    """Neighbours of words in one or several tables, and a map of each. By default, character models are skipped."""
    asked = [word.strip() for word in words.split(",") if word.strip()]
    rows, shares, drawings = list[Row](), list[Row](), list[Drawing]()
    for name, loaded in outputs.encoders(encoder).items():
        if loaded.tokenizer.kind == "char":
            if encoder:
                raise ConfigError(f"{name}: is a character model, which has no table of words; choose another encoder")
            continue
        table_VD, written = table(loaded.model), readable(loaded.tokenizer)

        def near(
            word: str, loaded: Encoder = loaded, table_VD: Tensor = table_VD, written: Sequence[str] = written
        ) -> list[tuple[str, float]]:
            query_D, names = vector(loaded, table_VD, word)
            return nearest_words(table_VD, written, query_D, count=count, without=names)

        groups = {word: near(word) for word in asked or frequent_words(loaded.tokenizer, count=CHOSEN, skip=SKIPPED)}
        rows += [
            {"encoder": name, "word": word, "nearest": ", ".join(f"{of} {cosine:.2f}" for of, cosine in entries)}
            for word, entries in groups.items()
        ]
        caption = f"{name}: words and their neighbours (two principal components); grey: frequent words."
        drawings.append(Drawing(figures.scatter(_map(loaded, table_VD, written, groups)), caption))
        if tags:
            tagged = parts_of_speech(outputs, tags)
            frequent = [word for word in frequent_words(loaded.tokenizer, count=SCORED, skip=0) if word in tagged]
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
    return Measured(sheets, [text], figures=drawings)


def parts_of_speech(outputs: Outputs, task: str) -> dict[str, str]:
    """Word of the train split of a tagging task -> its most frequent tag."""
    directory = outputs.of("examples", outputs.task(task))
    facts, train = read_facts(directory), read_split(directory, "train")
    if not has(facts.kind, "words"):
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


def _map(
    encoder: Encoder, table_VD: Tensor, written: Sequence[str], near: Mapping[str, Sequence[tuple[str, float]]]
) -> dict[str, Cloud]:
    id_of = {name: id_ for id_, name in enumerate(written)}
    groups = {word: [of for of, _ in entries] for word, entries in near.items()}
    shown = {*groups, *(name for names in groups.values() for name in names)}
    others = frequent_words(encoder.tokenizer, count=BACKGROUND, skip=0)
    behind = [word for word in others if word not in shown and word in id_of]
    vectors = [table_VD[[id_of[name] for name in behind]]]
    for word, names in groups.items():
        vectors += [vector(encoder, table_VD, word)[0][None], table_VD[[id_of[name] for name in names]]]
    positions_N2 = planar(torch.nn.functional.normalize(torch.cat(vectors), dim=1).numpy())
    drawn = {"frequent words": behind} | {word: [word, *names] for word, names in groups.items()}
    parts = np.split(positions_N2, np.cumsum([*map(len, drawn.values())])[:-1])
    return {
        group: Cloud(
            part_N2[:, 0].tolist(), part_N2[:, 1].tolist(), [] if group not in groups else names, group not in groups
        )
        for (group, names), part_N2 in zip(drawn.items(), parts, strict=True)
        if names
    }
