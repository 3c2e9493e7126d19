"""What students learn of a teacher that is mixed with words (`components.finetuning.words`), or is a words model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits
from torch import Tensor

from components.errors import ConfigError, nearest
from components.finetuning.frozen import LABELS
from components.finetuning.packing import pack
from components.finetuning.specs import RunSpec
from components.finetuning.words import JointRegression, WordsRows, untrained_member
from components.task_models.heads import TextHead
from components.task_models.words_part import mean
from components.tasks.budgets import sample_rows
from components.tasks.data import Answer, Fields, Split
from components.tasks.examples import read_facts, read_split, run_folds, strata_of
from components.tasks.kinds import scoring_for
from components.tasks.selection import Data, Fitted, System, predict
from components.unlabelled.texts import read_unlabelled
from components.words.systems import probable_systems


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
            model = _fitted_again(work.systems[chosen["system"]], work.data, chosen, _held(work, spec))
            words = np.stack(model.answers(texts))
            return list(mean(np.stack(answers), words, chosen["weight"]))
        return list(_joint(work, chosen, record["penalty"], record.get("head_norm"), texts))


def labels_by_words(name: str, examples: Path, texts: Path, *, words: Path | None) -> dict[str, Tensor]:
    """The predictions of a words model for every text, by label budget, seed and fold (`soft_labels`).

    Args:
        name: of the words model.
        examples: output directory of the stage `examples`.
        texts: texts without labels.
        words: output directory of the stage `unlabelled`, whose texts the stage `baseline` reads; None: it reads none.

    Raises:
        ConfigError: the kind of task has no such model, or a budget is one row.
    """
    facts, train = read_facts(examples), read_split(examples, "train")
    systems = probable_systems(facts.kind, language=facts.language, which=facts.baselines)
    if name not in systems:
        raise ConfigError(f"kind {facts.kind} has no words model {name!r}{nearest(name, systems)}")
    system, strata = systems[name], strata_of(train, facts.kind)
    fields, further = read_unlabelled(texts), [] if words is None else read_unlabelled(words)
    dev = read_split(examples, "dev") if facts.selection == "dev" else train.take([])
    scoring = scoring_for(facts.kind, facts.labels)
    found: dict[str, Tensor] = {}
    for budget, seed in product(facts.budgets if fields else [], facts.seeds):
        rows, _ = sample_rows(strata, budget, seed=seed)
        folds = run_folds(facts, train, rows, seed=seed) if facts.selection == "budget" else None
        data = Data(train, rows, dev, Split(fields, [], []), facts.labels, scoring, folds, further)
        with threadpool_limits(1, user_api="blas"):
            whole = predict(system, data)
            found |= pack(f"{budget}.{seed}.all", whole.answers["test"])
            for fold in np.unique(folds) if folds is not None else []:
                model = _fitted_again(system, data, whole.details, np.flatnonzero(folds == fold))
                found |= pack(f"{budget}.{seed}.{fold}", model.answers(fields))
    return found


def _held(work: WordsRows, spec: RunSpec) -> NDArray[np.int64] | None:
    """Indices of the rows of the run's fold, among those of its budget; None: the run has no fold."""
    if spec.fold is None:
        return None
    assert work.data.folds is not None  # a fold is one of a cross-validation
    return np.flatnonzero(work.data.folds == spec.fold)


def _fitted_again(system: System, data: Data, chosen: Mapping[str, Any], held: NDArray[np.int64] | None) -> Fitted:
    """A words model with the chosen penalty, fitted without some of the rows.

    Args:
        system: the words model.
        data: all rows of the run.
        chosen: details of the candidate that was chosen on all rows.
        held: indices of the rows that are held out; None: no row is.
    """
    candidates = system(data.training())
    (number, *_) = [
        number
        for number, candidate in enumerate(candidates)
        if all(chosen.get(name) == value for name, value in candidate.details.items())
    ]
    return system(data.training(held))[number].model


def _joint(
    work: WordsRows, chosen: Mapping[str, Any], penalty: float, norm: Any, texts: Sequence[Fields]
) -> NDArray[np.float32]:
    member = untrained_member(replace(work.spec, fold=None, folds=0))
    head = member.model.head
    assert isinstance(head, TextHead)  # as the teacher's run has found
    if norm is not None:
        head.set_norm(norm)
    train, features = (member.data.head_inputs(name).matrix() for name in ("train", LABELS))
    fit = JointRegression(work, work.systems[chosen["system"]], head, train, _held(work, work.spec), penalty=penalty)
    rows = Split(list(texts), [], [])
    return fit(chosen["strength"]).probabilities(fit.matrix(features, rows, chosen["strength"])).astype(np.float32)
