"""Words beside the encoder (`finetune.<name>.words`).

The words model is the one of `components.words.systems` with the best score of selection on the run's rows. `mean`
mixes its probabilities with those of the encoder; `joint` fits one logistic regression on features of the frozen
encoder beside the TF-IDF weights, which have a scale of their own, because the penalty that suits hundreds of
normalised features suppresses TF-IDF weights of norm 1. Weight and scale are chosen on the rows that the run's other
choices are made on: by predictions out of fold of both, or on dev.

Shapes: N rows, F features of the encoder, V of the words, C labels.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from threadpoolctl import threadpool_limits
from torch import Tensor

from components.errors import ConfigError
from components.finetuning.member import Member, make_member
from components.finetuning.specs import RunSpec, load_initial_encoder, rows_of
from components.task_models.heads import TextHead
from components.task_models.words_part import WordsPart, mean
from components.tasks.data import Answer, Split
from components.tasks.examples import read_facts, read_split, strata_of
from components.tasks.folds import folds_of
from components.tasks.kinds import scoring_for
from components.tasks.results import best_score
from components.tasks.selection import Data, Predictions, System, predict
from components.words.classifier import RowFeatures, WordsModel
from components.words.linear import LinearModel, fit_exclusive, fit_independent
from components.words.systems import probable_systems

#: Candidates for the weight of the words in a mean.
WEIGHTS: Final = tuple(number / 10 for number in range(11))
#: Largest weight unless the words alone are better than the encoder by CLEAR standard errors: with few labels, the best
#: of all weights is often a large one by chance.
USUAL: Final = 0.4
CLEAR: Final = 2.0
#: Candidates for the inverse strength of the penalty on the words in a joint regression, the strongest first; the scale
#: of TF-IDF is the root of its product with the penalty of the encoder's features.
STRENGTHS: Final = (0.1, 1.0, 10.0, 100.0)
#: Logit of a label without training rows.
NEVER: Final = -30.0
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Mixed:
    """A run with words.

    Attributes:
        answers: split -> the combined answers.
        record: entries of the run's record: `words`, and `curve` with the scores at the `chosen` point.
        part: what is served beside the encoder; None if the encoder alone is better.
        weights: of the model, under `model.`, if they are not those of the run: the head of a joint regression on the
            frozen encoder.
    """

    answers: dict[str, list[Answer]]
    record: dict[str, Any]
    part: WordsPart | None = None
    weights: dict[str, Tensor] = field(default_factory=dict)


def with_words(spec: RunSpec, answers: Mapping[str, list[Answer]], record: Mapping[str, Any]) -> Mixed:
    """Combine a run with words as its settings ask; with `auto`, the way with the best score of selection, of equal
    ones the first of: none, mean, joint.

    Args:
        spec: of the finished run.
        answers: split -> its answers: `test`, and `dev` or `oof`.
        record: of the run.

    Raises:
        ConfigError: the kind of task has no words model, or the settings have no linear head for a joint regression.
    """
    asked = spec.settings.words
    alone = Mixed(dict(answers), {})
    if asked == "none":
        return alone
    work = WordsRows(spec)
    if not work.systems:
        if asked == "auto":
            return alone
        raise ConfigError(f"finetune: words: {asked} needs probabilities of labels; kind {work.facts.kind} has none")
    with threadpool_limits(1, user_api="blas"):
        system, words = work.best_words()
        found = [alone] if asked == "auto" else []
        if asked in ("mean", "auto"):
            found.append(_mean(work, system, words, answers, record))
        if asked in ("joint", "auto") and (joint := _joint(work, system, asked=asked, record=record)) is not None:
            found.append(joint)
    # `max` returns the first at a tie.
    best = max(found, key=lambda mixed: best_score({**record, **mixed.record}))
    return replace(best, record={"words": {"how": "none"}, **best.record})


class WordsRows:
    """The rows of a run, and its words models."""

    def __init__(self, spec: RunSpec) -> None:
        self.spec, self.facts = spec, read_facts(spec.examples)
        whole = read_split(spec.examples, "train")
        rows = rows_of(replace(spec, fold=None), whole).learned
        folds = None
        if self.facts.selection == "budget":
            strata = strata_of(whole, self.facts.kind)[rows]
            folds = folds_of(strata, min(self.facts.folds, len(rows)), seed=spec.seed)
        # With cross-validation, dev is not read.
        dev = read_split(spec.examples, "dev") if folds is None else whole.take([])
        self.data = Data(
            whole.take(rows),
            dev,
            read_split(spec.examples, "test"),
            whole.fields,
            self.facts.labels,
            scoring_for(self.facts.kind, self.facts.labels),
            folds,
        )
        self.systems = probable_systems(self.facts.kind, language=self.facts.language, which=self.facts.baselines)

    @property
    def main(self) -> str:
        """Name of the primary metric."""
        return self.data.scoring.main

    def best_words(self) -> tuple[str, Predictions]:
        """Name and predictions of the words model with the best score of selection."""
        found = {name: predict(system, self.data) for name, system in self.systems.items()}
        name = max(found, key=lambda name: found[name].scores[self.main])
        return name, found[name]

    def scores(self, answers: Sequence[Answer]) -> dict[str, float]:
        """All metrics on the rows that choices are made on."""
        _, judged = self.data.judged
        return self.data.scoring.score(judged.fields, judged.targets, answers)

    def fitted_apart(self) -> list[tuple[NDArray[np.int64], NDArray[np.int64] | None]]:
        """Indices of rows to learn from, and of training rows to predict; None: dev is predicted."""
        folds = self.data.folds
        if folds is None:
            return [(np.arange(len(self.data.train)), None)]
        return [(np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)) for fold in np.unique(folds)]


def at_chosen(record: Mapping[str, Any], scores: Mapping[str, float]) -> dict[str, Any]:
    """Entries of a run's record: `curve`, with these scores at the chosen point, and `chosen`, the index of that point.
    Without the index, a point with higher scores would count as the chosen one."""
    curve = [dict(point) for point in record["curve"]]
    best = max(range(len(curve)), key=lambda index: curve[index][record["score"]])
    chosen = record.get("chosen", best)
    curve[chosen] |= scores
    return {"curve": curve, "chosen": chosen}


def _mean(
    work: WordsRows, system: str, words: Predictions, answers: Mapping[str, list[Answer]], record: Mapping[str, Any]
) -> Mixed:
    name, judged = work.data.judged
    pairs = np.stack(answers[name]), np.stack(words.answers[name])
    weight, scores = choose_weight(*pairs, split=judged, scores=work.scores, main=work.main)
    mixed = {
        split: list(mean(np.stack(found), np.stack(words.answers[split]), weight)) for split, found in answers.items()
    }
    described = {"how": "mean", "weight": weight, "system": system, **words.details}
    if not weight:
        return Mixed(dict(answers), {"words": described})
    assert isinstance(words.model, WordsModel)
    return Mixed(mixed, {"words": described, **at_chosen(record, scores)}, WordsPart("mean", words.model, weight))


def choose_weight(
    of_encoder: NDArray[np.float32], of_words: NDArray[np.float32], *, split: Split, scores: Any, main: str
) -> tuple[float, dict[str, float]]:
    """The weight of the words with the best primary metric; of equal ones that with the smallest logarithmic loss, and
    then the smallest. Weights above USUAL are candidates only if the words alone are clearly better.

    Args:
        of_encoder, of_words: (N, C) probabilities.
        split: the N rows.
        scores: answers -> all metrics.
        main: name of the primary metric.

    Returns:
        The weight, and all metrics of the mean.
    """
    difference = hits(of_words, split) - hits(of_encoder, split)
    clear = difference.mean() > CLEAR * difference.std() / math.sqrt(len(split))
    found = []
    for weight in (weight for weight in WEIGHTS if clear or weight <= USUAL):
        mixed = mean(of_encoder, of_words, weight)
        every = scores(list(mixed))
        found.append((every[main], -log_loss(mixed, split), -weight, every))
    *_, negative, every = max(found, key=lambda entry: entry[:3])
    return -negative, every


def log_loss(probabilities: NDArray[np.float32], split: Split) -> float:
    """Mean over rows and their labels of -log p, of the absent labels of multi-label rows -log (1 - p)."""
    p = np.clip(probabilities.astype(np.float64), 1e-7, 1 - 1e-7)
    given, exclusive = _given(probabilities, split)
    losses = np.where(given, -np.log(p), 0.0 if exclusive else -np.log(1 - p))
    return float(losses.sum(1).mean())


def hits(probabilities: NDArray[np.float32], split: Split) -> Floats:
    """(N,) whether the most probable label is right; of multi-label rows the share of right decisions."""
    given, exclusive = _given(probabilities, split)
    if exclusive:
        return given[np.arange(len(given)), probabilities.argmax(1)].astype(np.float64)
    return np.asarray(((probabilities >= 0.5) == given).mean(1), dtype=np.float64)


def _given(probabilities: NDArray[np.float32], split: Split) -> tuple[NDArray[np.bool_], bool]:
    """(N, C) whether a row has a label, and whether every row has exactly one."""
    given = np.zeros(probabilities.shape, dtype=bool)
    for row, target in enumerate(split.targets):
        given[row, target[target >= 0].astype(np.int64)] = True
    single = all(len(target) == 1 for target in split.targets)
    return given, single and bool(np.allclose(probabilities.sum(1), 1, atol=1e-3))


def _joint(work: WordsRows, system: str, *, asked: str, record: Mapping[str, Any]) -> Mixed | None:
    """The joint regression; None if `auto` tries one and the head or the labels do not allow it."""
    member = untrained_member(work.spec)
    head, penalty = member.model.head, record.get("penalty")
    if not isinstance(head, TextHead) or not head.is_linear or member.model.features.mix is not None or penalty is None:
        if asked == "auto":
            return None
        raise ConfigError(
            "finetune: words: joint needs a linear head that is solved on features (head_hidden: 0, head_steps above "
            "0, layers other than mix); choose mean"
        )
    if "head_norm" in record:
        head.set_norm(record["head_norm"])
    name, judged = work.data.judged
    train = member.data.head_inputs("train").matrix()
    dev = member.data.head_inputs("dev").matrix() if work.data.folds is None else None
    candidate = work.systems[system]
    pooled = [np.zeros((len(judged), len(work.facts.labels)), dtype=np.float32) for _ in STRENGTHS]
    for learned, held in work.fitted_apart():
        fit = JointRegression(work, candidate, head, train[learned], learned, penalty=penalty)
        rows = judged if held is None else work.data.train.take(held)
        features = dev if held is None else train[held]
        assert features is not None
        place = np.arange(len(judged)) if held is None else held
        for probabilities, strength in zip(pooled, STRENGTHS, strict=True):
            probabilities[place] = fit(strength).probabilities(fit.matrix(features, rows, strength))
    scores = [work.scores(list(probabilities)) for probabilities in pooled]
    best = max(range(len(STRENGTHS)), key=lambda index: scores[index][work.main])
    whole = np.arange(len(work.data.train))
    fit = JointRegression(work, candidate, head, train, whole, penalty=penalty)
    linear = fit(STRENGTHS[best])
    if not len(linear.classes):
        return None
    weight, bias = of_head(linear, features=train.shape[1])
    model = WordsModel(fit.words, of_words(linear, features=train.shape[1], scale=fit.scale(STRENGTHS[best])))
    with torch.no_grad():
        head.fit_norm(train)
        head.output.weight.copy_(torch.from_numpy(weight))
        head.output.bias.copy_(torch.from_numpy(bias))
    member.model.eval()
    part = WordsPart("joint", model)
    test = part.combined(work.data.test.fields, member.test_answers(trained=False))
    described = {"how": "joint", "strength": STRENGTHS[best], "system": system, "vocabulary": fit.words.vocabulary}
    return Mixed(
        {name: list(pooled[best]), "test": test},
        {"words": described, **at_chosen(record, scores[best]), "best_step": 0, "best_epoch": 0.0},
        part,
        member.weights(without="encoder."),
    )


def untrained_member(spec: RunSpec) -> Member:
    """The run before training, for features of the frozen encoder."""
    return make_member(spec, *load_initial_encoder(spec))


class JointRegression:
    """A joint regression on some of the training rows.

    Args:
        work: of the run.
        system: whose vocabulary is used.
        head: whose normalisation is used.
        vectors: (n, F) features of the rows.
        learned: (n,) indices of the rows in those of the run.
        penalty: on the weights of the encoder's features (1 / C).
    """

    def __init__(
        self,
        work: WordsRows,
        system: System,
        head: TextHead,
        vectors: Tensor,
        learned: NDArray[np.int64],
        *,
        penalty: float,
    ) -> None:
        self._rows = work.data.train.take(learned)
        model = system(work.data.training(self._rows))[0].model
        assert isinstance(model, WordsModel)
        assert isinstance(model.linear, LinearModel)
        self.words: RowFeatures = model.features
        self._vectors, self._penalty, self._labels = vectors, penalty, len(work.facts.labels)
        self._exclusive = model.linear.exclusive
        with torch.no_grad():
            head.fit_norm(vectors)
        self._norm = copy.deepcopy(head.norm).eval()

    def scale(self, strength: float) -> float:
        """Factor on the TF-IDF weights, whose penalty becomes 1 / strength."""
        return math.sqrt(strength * self._penalty)

    def matrix(self, vectors: Tensor, rows: Split, strength: float) -> Any:
        """(N, F) features of the encoder and N rows -> (N, F + V)."""
        with torch.no_grad():
            normed = self._norm(vectors).double().numpy()
        tfidf = sparse.csr_matrix(self.words.matrix(rows.fields)) * self.scale(strength)
        return sparse.hstack([sparse.csr_matrix(normed), tfidf], format="csr")

    def __call__(self, strength: float) -> LinearModel:
        """The regression on F + V features."""
        x, c = self.matrix(self._vectors, self._rows, strength), 1 / self._penalty
        if self._exclusive:
            return fit_exclusive(x, self._rows.labels, self._labels, c=c)
        return fit_independent(x, self._rows.targets, self._labels, c=c)


def of_head(linear: LinearModel, *, features: int) -> tuple[Floats, Floats]:
    """Weights (C, F) and biases (C,) of the encoder's part of a regression on F + V features."""
    count = len(linear.usual)
    weights, biases = np.zeros((count, features)), np.where(linear.usual > 0, -NEVER, NEVER)
    biases[linear.classes] = 0.0
    # Of two exclusive labels, the function is about the second.
    about = linear.classes[-len(linear.weights) :]
    weights[about], biases[about] = linear.weights[:, :features], linear.intercepts
    return weights, biases


def of_words(linear: LinearModel, *, features: int, scale: float) -> LinearModel:
    """The part on words of a regression on F + V features, as a model of unscaled TF-IDF weights."""
    return replace(
        linear,
        weights=linear.weights[:, features:] * scale,
        intercepts=np.zeros_like(linear.intercepts),
        usual=np.zeros_like(linear.usual),
    )
