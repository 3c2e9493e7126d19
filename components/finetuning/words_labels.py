"""What students learn of a teacher that is mixed with words (`components.finetuning.words`), or is a words model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from components.finetuning.frozen import LABELS
from components.finetuning.specs import RunSpec
from components.finetuning.words import JointRegression, WordsRows, untrained_member
from components.task_models.heads import TextHead
from components.task_models.words_part import mean
from components.tasks.data import Answer, Fields, Split
from components.tasks.selection import Fitted


def with_words(
    spec: RunSpec, record: Mapping[str, Any], texts: Sequence[Fields], answers: Sequence[Answer]
) -> list[Answer]:
    """The predictions of a run, mixed with words as its record says; the words model has learned from the same rows.

    Args:
        spec: of a run that labels texts.
        record: of the teacher's run.
        texts: N texts.
        answers: of the encoder, N.
    """
    chosen = record.get("words", {"how": "none"})
    if chosen["how"] == "none" or not chosen.get("weight", 1):
        return list(answers)
    work = WordsRows(spec)
    with threadpool_limits(1, user_api="blas"):
        if chosen["how"] == "mean":
            words = np.stack(_fitted(work, chosen, _learned(work, spec)).answers(texts))
            return list(mean(np.stack(answers), words, chosen["weight"]))
        return list(_joint(work, chosen, record["penalty"], record.get("head_norm"), texts))


def _learned(work: WordsRows, spec: RunSpec) -> NDArray[np.int64]:
    """Indices of the rows that the run has learned from, among those of its budget."""
    if spec.fold is None:
        return np.arange(len(work.data.train))
    assert work.data.folds is not None  # a fold is one of a cross-validation
    return np.flatnonzero(work.data.folds != spec.fold)


def _fitted(work: WordsRows, chosen: Mapping[str, Any], learned: NDArray[np.int64]) -> Fitted:
    """The words model with the chosen penalty, fitted on some of the rows."""
    system, data = work.systems[chosen["system"]], work.data
    candidates = system(data.training(data.train))
    (number, *_) = [
        number
        for number, candidate in enumerate(candidates)
        if all(chosen.get(name) == value for name, value in candidate.details.items())
    ]
    return system(data.training(data.train.take(learned)))[number].model


def _joint(
    work: WordsRows, chosen: Mapping[str, Any], penalty: float, norm: Any, texts: Sequence[Fields]
) -> NDArray[np.float32]:
    member = untrained_member(replace(work.spec, fold=None, folds=0))
    head = member.model.head
    assert isinstance(head, TextHead)  # as the teacher's run has found
    if norm is not None:
        head.set_norm(norm)
    learned = _learned(work, work.spec)
    train, features = (member.data.head_inputs(name).matrix() for name in ("train", LABELS))
    fit = JointRegression(work, work.systems[chosen["system"]], head, train[learned], learned, penalty=penalty)
    rows = Split(list(texts), [], [])
    return fit(chosen["strength"]).probabilities(fit.matrix(features, rows, chosen["strength"])).astype(np.float32)
