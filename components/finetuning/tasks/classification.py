"""Text classification: one label a text.

A text goes in as the family's special pieces ask ([CLS] text [SEP] for BERT); the head reads the pooled hidden states.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from components.config import FinetuneSettings, TaskSource
from components.errors import DataError
from components.finetuning.heads import ClassificationHead
from components.finetuning.tasks.base import Encoded, Examples, Fields, Labels, Split, Task, most_pieces
from components.finetuning.tasks.checks import split_off_dev, without_overlap
from components.finetuning.windows import pooling_of_windows, window_size, windows
from components.ingestion.readers import LabelledRow, read_labelled
from components.models.base import LanguageModel
from components.tokenization import Tokenizer
from components.tokenization.special import UNK


def read(name: str, source: TaskSource) -> Examples:
    """Read the three files of a classification task and check them.

    Raises:
        DataError: a file is missing or damaged, a text or label is empty (file and line), there is one class only, a
            label of dev or test does not occur in train (file and line), the splits share texts and
            `data.tasks.<name>.overlap` is `refuse`.
    """
    folder = Path(source.path)
    key = f"data.tasks.{name}"
    rows = {
        split: list(read_labelled(folder / file, source))
        for split, file in (("train", source.train), ("dev", source.dev), ("test", source.test))
        if file is not None
    }
    names = sorted({row.label for row in rows["train"]})
    if len(names) < 2:
        raise DataError(
            f"{folder / source.train}: holds one class only ({names[0]!r}); a classifier needs two or more, "
            f"check {key}.label"
        )
    number = {label: index for index, label in enumerate(names)}
    for split, file in (("dev", source.dev), ("test", source.test)):
        for row in rows.get(split, []):
            if row.label not in number:
                raise DataError(
                    f"{folder / str(file)}, line {row.line}: label {row.label!r} does not occur in {source.train}; "
                    f"correct it, or add examples of it to {source.train}"
                )
    splits = {split: _split(found, number) for split, found in rows.items()}
    counts: dict[str, int] = {}
    if "dev" not in splits:
        splits["train"], splits["dev"] = split_off_dev(splits["train"], share=source.dev_share, key=key)
    splits["train"], splits["dev"] = without_overlap(
        splits["train"], splits["dev"], splits["test"], rule=source.overlap, counts=counts, where=folder, key=key
    )
    missing = sorted(set(names) - {names[label] for label in splits["train"].labels})
    if missing:
        raise DataError(
            f"{folder / source.train}: no example of {missing[0]!r} is left after setting apart what stands in dev or "
            f"test; add some, or set {key}.overlap to report"
        )
    if source.dev_rows is not None and len(splits["dev"]) > source.dev_rows:
        counts["dev_rows_unused"] = len(splits["dev"]) - source.dev_rows
        chosen = np.random.default_rng(0).permutation(len(splits["dev"]))[: source.dev_rows]
        splits["dev"] = splits["dev"].take(np.sort(chosen))
    return Examples(names, splits["train"], splits["dev"], splits["test"], counts)


def encode(
    rows: Sequence[Fields], tokenizer: Tokenizer, encoder: LanguageModel, settings: FinetuneSettings
) -> list[Encoded]:
    """One sequence a text, cut so that with the special pieces there are at most as many as may be read; or its
    windows."""
    texts = [text for (text,) in rows]
    if (size := window_size(settings, encoder)) is not None:
        found = cut_texts(texts, tokenizer, most=settings.max_length - len(encoder.special_tokens([])))
        return [Encoded.of_texts(windows(pieces, size=size, encoder=encoder)) for pieces in found]
    return [
        Encoded.of_texts([pieces]) for pieces in encode_texts(texts, tokenizer, encoder, most_pieces(settings, encoder))
    ]


def encode_texts(
    texts: Sequence[str], tokenizer: Tokenizer, encoder: LanguageModel, most: int
) -> list[NDArray[np.int64]]:
    """Piece ids of each text, cut so that with the special pieces there are at most `most`."""
    found = cut_texts(texts, tokenizer, most=most - len(encoder.special_tokens([])))
    return [np.asarray(encoder.special_tokens(pieces), dtype=np.int64) for pieces in found]


def cut_texts(texts: Sequence[str], tokenizer: Tokenizer, *, most: int) -> list[list[int]]:
    """The first pieces of each text, at most `most` and at least one."""
    return [
        # A text of which no piece is left (control characters, say) is one unknown piece: a model cannot read nothing.
        [int(piece) for piece in pieces[: max(1, most)]] or [UNK]
        for pieces in tokenizer.encode_batch(texts)
    ]


def head(settings: FinetuneSettings, features: int, labels: Sequence[str]) -> ClassificationHead:
    """The head of `finetune.<family>`: normalisation, dropout, one or two linear layers."""
    return ClassificationHead.of(settings, features, len(labels))


def strata(split: Split) -> Labels:
    """A budget is a number of rows of each class."""
    return split.labels


def _split(rows: list[LabelledRow], number: dict[str, int]) -> Split:
    return Split(
        [(row.text,) for row in rows],
        [np.asarray([number[row.label]], dtype=np.float64) for row in rows],
        [row.slice for row in rows],
        [row.id if row.id is not None else str(row.line) for row in rows],
        [row.line for row in rows],
    )


TASK = Task(
    kind="classification", reads="text", read=read, encode=encode, head=head, strata=strata, combine=pooling_of_windows
)
