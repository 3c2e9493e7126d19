"""The stage `tokenizer`: learn a vocabulary from a sample of a corpus, count its pieces, report how well it fits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal

import numpy as np
import pyarrow.parquet as pq

from components.artifacts import read_manifest, write_atomic, writing
from components.config import Section, TokenizerSettings
from components.errors import DataError
from components.ingestion import corpus
from components.tokenization.base import Tokenizer
from components.tokenization.report import vocabulary_report
from components.tokenization.segmenters import Segmentation
from components.tokenization.special import END

KIND: Final = "tokenizer"
#: `auto` becomes `none` where fewer texts of the sample than this share are in a script without spaces: the
#: vocabulary could do nothing with their words.
SEGMENTED_SHARE: Final = 0.001


class TokenizerJob(Section):
    """What the stage reads and writes.

    Attributes:
        corpus: directory of the ingest stage; its train split is read.
        output: directory of the tokenizer.
    """

    corpus: Path
    output: Path
    kind: Literal["wordpiece", "word", "char"]
    settings: TokenizerSettings


def train_tokenizer(job: TokenizerJob) -> Path:
    """Learn the vocabulary of `job.kind` from `job.corpus`; returns `job.output`.

    Raises:
        ArtifactError: the corpus is incomplete or damaged.
        DataError: the corpus is empty or gives fewer pieces than the settings ask for.
    """
    source = read_manifest(job.corpus)
    texts = list(sample(job.corpus, megabytes=job.settings.sample_megabytes))
    if not texts:
        raise DataError(f"{job.corpus}: the train split holds no documents; give ingest more text")
    tokenizer = fit(texts, kind=job.kind, settings=job.settings)
    report = vocabulary_report(tokenizer, texts)
    metrics = {name: value for name, value in report.items() if isinstance(value, int | float)} | {
        "sample_documents": len(texts),
        "sample_characters": sum(map(len, texts)),
    }
    with writing(job.output, kind=KIND) as draft:
        tokenizer.save(draft.path)
        for name, content in (("report.json", report), ("metrics.json", metrics)):
            write_atomic(draft.path / name, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
        draft.facts |= {"fingerprint": tokenizer.fingerprint(), "corpus": source.digest, **metrics}
    return job.output


def fit(texts: list[str], *, kind: str, settings: TokenizerSettings) -> Tokenizer:
    """A tokenizer with the counts of its pieces, learned from `texts`.

    Raises:
        DataError: the texts give fewer pieces than the settings ask for.
    """
    segmentation = Segmentation(settings.segmenter)
    if segmentation.name == "auto":
        cut = sum(segmentation.choose(text) is not None for text in texts)
        if cut < SEGMENTED_SHARE * len(texts):
            segmentation = Segmentation("none")
    tokenizer: Tokenizer
    if kind == "char":
        from components.tokenization.char import train_char

        spaced = texts
        tokenizer = train_char(texts, settings=settings.char, segmentation=segmentation)
    else:
        from components.tokenization.bert import marks_are_letters
        from components.tokenization.word import train_word
        from components.tokenization.wordpiece import train_wordpiece

        spaced = [segmentation.spaced(text) for text in texts]
        if kind == "word":
            strip = settings.word.lowercase and not marks_are_letters(texts)
            tokenizer = train_word(spaced, settings=settings.word, segmentation=segmentation, strip_accents=strip)
        else:
            strip = settings.wordpiece.lowercase and not marks_are_letters(texts)
            tokenizer = train_wordpiece(
                spaced, settings=settings.wordpiece, segmentation=segmentation, strip_accents=strip
            )
    ids, _ = tokenizer.encode_ragged(spaced)
    tokenizer.frequencies = np.bincount(ids, minlength=tokenizer.vocab_size).astype(np.int64)
    tokenizer.frequencies[END] = len(texts)
    return tokenizer


def sample(directory: Path, *, megabytes: float) -> Iterator[str]:
    """Documents of the train split, about `megabytes` of text at most, spread evenly over it; always the same ones."""
    paths = corpus.shards(directory, "train")
    size = sum(
        group.column(_text_column(group)).total_uncompressed_size for path in paths for group in _row_groups(path)
    )
    share = min(1.0, megabytes * 1e6 / max(1, size))
    for number, text in enumerate(corpus.read_documents(directory, split="train")):
        # Document n is taken when n * share passes a whole number: evenly, without a random choice.
        if int((number + 1) * share) > int(number * share):
            yield text


def _row_groups(path: Path) -> list[pq.RowGroupMetaData]:
    metadata = pq.ParquetFile(path).metadata
    return [metadata.row_group(number) for number in range(metadata.num_row_groups)]


def _text_column(group: pq.RowGroupMetaData) -> int:
    return next(number for number in range(group.num_columns) if group.column(number).path_in_schema == "text")
