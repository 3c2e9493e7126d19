"""The stage `tokenizer`: learn a vocabulary from a sample of a corpus, count its pieces, and measure how it fits."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from components.artifacts import read_manifest, write_atomic, writing
from components.errors import DataError
from components.formats import corpus
from components.settings.names import TokenizerKind
from components.settings.section import Section
from components.settings.tokenizer import SubwordSettings, TokenizerSettings
from components.tokenization.base import KINDS, Tokenizer
from components.tokenization.bpe import train_bpe
from components.tokenization.char import train_char
from components.tokenization.measure import measure
from components.tokenization.open_word import train_open_word
from components.tokenization.published import published_tokenizer
from components.tokenization.report import count_words, report_on_words
from components.tokenization.segmenters import Segmentation
from components.tokenization.special import END
from components.tokenization.unigram import train_unigram
from components.tokenization.word import train_word
from components.tokenization.wordpiece import train_wordpiece

KIND: Final = "tokenizer"
#: The numbers that say how a vocabulary fits a text.
FIT: Final = ("pieces_per_word", "unknown_rate")
#: `auto` becomes `none` if a smaller share of the sample's texts is in a script without spaces: the vocabulary would
#: have too few of their words.
SEGMENTED_SHARE: Final = 0.001


class TokenizerJob(Section):
    """Inputs and output of the stage.

    Attributes:
        corpus: output directory of the stage `ingest`; its train split is read.
        pairs: a corpus of pairs, both sides of which are also read; the pieces of the targets are counted, and from
            their counts a translation model initialises its output bias. None: no pairs.
        output: directory of the tokenizer.
        kind: of the tokenizer.
        settings: of all kinds.
    """

    corpus: Path
    pairs: Path | None = None
    output: Path
    kind: TokenizerKind
    settings: TokenizerSettings


def train_tokenizer(job: TokenizerJob) -> Path:
    """Learn the vocabulary of `job.kind` from `job.corpus`, or import a published one; returns `job.output`.

    Raises:
        ArtifactError: the corpus is incomplete or damaged, or a published vocabulary has another kind or digest.
        DataError: the corpus is empty or yields fewer pieces than requested.
    """
    source = read_manifest(job.corpus, kind=corpus.KIND)
    settings = job.settings
    texts = list(sample(job.corpus, megabytes=settings.sample_megabytes))
    if not texts:
        raise DataError(f"{job.corpus}: the train split has no documents; add raw text")
    targets: list[str] = []
    if job.pairs is not None:
        pairs = list(sample_rows(corpus.shards(job.pairs, "train"), megabytes=settings.sample_megabytes))
        texts += [side for pair in pairs for side in pair]
        targets = [target for _, target in pairs]
    segmentation = choose_segmentation(settings.segmenter, texts)
    cls = KINDS[job.kind]

    def cut(texts: list[str]) -> list[str]:
        # A character vocabulary must not contain inserted separators.
        return [segmentation.spaced(text, cls.separator) for text in texts] if cls.segmented else texts

    published = getattr(settings, job.kind, None)
    if isinstance(published, SubwordSettings) and published.source is not None:
        tokenizer = published_tokenizer(Path(published.source), kind=job.kind, digest=published.digest)
        segmentation = tokenizer.segmentation
        count_pieces(tokenizer, cut(texts))
    else:
        tokenizer = fit(cut(texts), kind=job.kind, settings=settings, segmentation=segmentation)
    if targets:
        count_pieces(tokenizer, cut(targets))
    report = report_on_words(tokenizer, count_words(map(segmentation.spaced, texts)))
    metrics: dict[str, Any] = {name: value for name, value in report.items() if isinstance(value, int | float)} | {
        "sample_documents": len(texts),
        "sample_characters": sum(map(len, texts)),
    }
    with writing(job.output, kind=KIND) as draft:
        tokenizer.save(draft.path)
        for name, content in (("report.json", report), ("metrics.json", metrics)):
            write_atomic(draft.path / name, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
        draft.facts |= {"fingerprint": tokenizer.fingerprint(), "corpus": source.digest, **metrics}
    return job.output


def choose_segmentation(name: str, texts: list[str]) -> Segmentation:
    """The segmentation of a vocabulary: `auto` becomes `none` if too few of `texts` need it."""
    segmentation = Segmentation(name)
    if name == "auto" and sum(segmentation.choose(text) is not None for text in texts) < SEGMENTED_SHARE * len(texts):
        return Segmentation("none")
    return segmentation


def fit(texts: list[str], *, kind: str, settings: TokenizerSettings, segmentation: Segmentation) -> Tokenizer:
    """Learn a tokenizer and its frequencies from `texts`, which are segmented unless the kind ignores segmentation.

    Raises:
        DataError: the texts yield fewer pieces than requested.
    """
    trainers: dict[str, tuple[Callable[..., Tokenizer], Section]] = {
        "wordpiece": (train_wordpiece, settings.wordpiece),
        "word": (train_word, settings.word),
        "open_word": (train_open_word, settings.word),
        "bpe": (train_bpe, settings.bpe),
        "unigram": (train_unigram, settings.unigram),
        "char": (train_char, settings.char),
    }
    train, block = trainers[kind]
    tokenizer = train(texts, settings=block, segmentation=segmentation)
    count_pieces(tokenizer, texts)
    return tokenizer


def count_pieces(tokenizer: Tokenizer, texts: list[str]) -> None:
    """Set the frequencies of a tokenizer to the counts of its pieces in `texts`, with one END per text."""
    ids, _ = tokenizer.encode_ragged(texts)
    tokenizer.frequencies = np.bincount(ids, minlength=tokenizer.vocab_size).astype(np.int64)
    tokenizer.frequencies[END] = len(texts)


def sample(directory: Path, *, megabytes: float) -> Iterator[str]:
    """The texts of `sample_rows` in the train split of a corpus."""
    return (text for text, *_ in sample_rows(corpus.shards(directory, "train"), megabytes=megabytes))


def sample_rows(shards: Sequence[Path], *, megabytes: float) -> Iterator[tuple[str, ...]]:
    """A deterministic sample of rows, (text,) or (text, target), evenly spaced, of about `megabytes` at most."""
    share = min(1.0, megabytes * 1e6 / max(1, sum(measure(shard).text_bytes for shard in shards)))
    for number, row in enumerate(row for shard in shards for row in corpus.read_rows(shard)):
        if int((number + 1) * share) > int(number * share):
            yield row
