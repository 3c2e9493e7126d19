"""Words beside the encoder (`finetune.<name>.words: auto`): a mean of the probabilities, or one logistic regression on
features of the frozen encoder beside the TF-IDF weights, with a scale because the penalty that suits features
suppresses them. What is chosen is chosen on the rows of the run's other choices, and scored without the row's fold.

Shapes: N rows, F features of the encoder, V of the words, C labels."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from threadpoolctl import threadpool_limits
from torch import Tensor

from components.core.artifacts import json_of
from components.core.clock import OutOfTimeError, check_time, clock
from components.data.tasks.calibration import labels_of
from components.data.tasks.data import Answer, Split
from components.data.tasks.examples import read_facts
from components.data.tasks.results import read_answers
from components.data.unlabelled_texts import read_unlabelled
from components.learners.base import Rows
from components.learners.finetuning.member import Member
from components.learners.finetuning.specs import RunSpec, load_initial_encoder
from components.learners.select import choose_of
from components.learners.task_models.heads import TextHead
from components.learners.task_models.words_part import WordsPart, mean
from components.learners.words.classifier import WordsModel
from components.learners.words.fits import fit_exclusive, fit_independent
from components.learners.words.linear import LinearModel
from components.learners.words.systems import LATENT_FOLDER, READINGS, Reading, probable_systems

#: Candidates for the weight of the words in a mean, beside 0.
WEIGHTS: Final = tuple(number / 10 for number in range(1, 11))
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
        record: entries of the run's record: `words`, and `selected`, or on dev `curve` with the scores at `chosen`.
        part: what is served beside the encoder; None if the encoder alone is better.
        weights: of the model, under `model.`, if they differ from the run's: the head of a joint regression.
    """

    answers: dict[str, list[Answer]]
    record: dict[str, Any]
    part: WordsPart | None = None
    weights: dict[str, Tensor] = field(default_factory=dict)


#: Answers to the rows that choices are made on, and a function that makes the combined run with the answers to them.
Combination = tuple[Sequence[Answer], Callable[[list[Answer]], Mixed]]


def with_words(spec: RunSpec, answers: Mapping[str, list[Answer]], record: Mapping[str, Any]) -> Mixed:
    """Combine a run with words, if `words` is `auto`. Candidates are no words, the weights of a mean, and the strengths
    of a joint regression, the simplest first. A kind without probabilities of labels has no words.

    Args:
        spec: of the finished run.
        answers: split -> its answers: `test`, and `dev` or `oof`.
        record: of the run.
    """
    work = None if spec.settings.words == "none" or spec.baselines is None else WordsRows(spec)
    if work is None or not work.systems:
        return Mixed(dict(answers), {})
    try:
        return _combined(work, answers, record)
    except OutOfTimeError:
        clock().left_out.append("words beside the encoder")
        return Mixed(dict(answers), {})


def _combined(work: WordsRows, answers: Mapping[str, list[Answer]], record: Mapping[str, Any]) -> Mixed:
    name = work.rows.judged[0]
    with threadpool_limits(1, user_api="blas"):
        words = work.best_words()
        ways: list[Combination] = [(answers[name], lambda _: Mixed(dict(answers), {"words": {"how": "none"}}))]
        ways += [_mean(weight, work, words, answers) for weight in WEIGHTS]
        ways += _joint(work, words.system, record=record)
        choice = choose_of(work.rows, [of_judged for of_judged, _ in ways])
        mixed = ways[choice.index][1](choice.answers)
    if name == "dev" and mixed.part is None:
        return mixed
    scores = work.rows.score(choice.answers)
    chosen = at_chosen(record, scores) if name == "dev" else {"selected": scores}
    return replace(mixed, answers={**mixed.answers, name: choice.answers}, record={**mixed.record, **chosen})


@dataclass(frozen=True)
class Words:
    """The words model of a run that the stage `baseline` has learned.

    Attributes:
        system: its name.
        answers: split -> its answers; out of fold, by the models that were chosen without the row's fold.
        record: of its run.
    """

    system: str
    answers: Mapping[str, Sequence[Answer]]
    record: Mapping[str, Any]


class WordsRows:
    def __init__(self, spec: RunSpec) -> None:
        self.spec, self.facts = spec, read_facts(spec.examples)
        self.rows = Rows.of(
            spec.examples,
            spec.budget,
            spec.seed,
            further=[] if spec.words is None else read_unlabelled(spec.words),
            fitted=spec.baselines and spec.baselines / LATENT_FOLDER,
        )
        facts = self.facts
        self.systems = probable_systems(facts.kind, language=facts.language, which=facts.baselines)

    def best_words(self) -> Words:
        """The chosen words model of the stage `baseline` for the same rows."""
        spec, judged = self.spec, self.rows.judged[0]
        assert spec.baselines is not None
        records = json_of(spec.baselines / "runs.json")
        run = (spec.budget, spec.seed)
        of_run = {each["system"]: each for each in records if (each["budget"], each["seed"]) == run}
        names = [name for name in self.systems if name in of_run]
        answers = {split: read_answers(spec.baselines, split) for split in (judged, "test")}
        keys = [(name, *run) for name in names]
        choice = choose_of(self.rows, [answers[judged][key] for key in keys])
        test = answers["test"][keys[choice.index]]
        name = names[choice.index]
        return Words(name, {judged: choice.answers, "test": test}, of_run[name])

    def fitted(self, words: Words) -> tuple[WordsModel, dict[str, Any]]:
        """The model itself, fitted with what was chosen, and the choices."""
        candidates = self.systems[words.system](self.rows)
        chosen = next(each for each in candidates if each.details.items() <= words.record.items())
        assert isinstance(chosen.model, WordsModel)
        temperature = words.record["temperature"]
        return chosen.model.tempered(temperature), {**chosen.details, "temperature": temperature}


def at_chosen(record: Mapping[str, Any], scores: Mapping[str, float]) -> dict[str, Any]:
    """Entries of a run's record: `curve`, with these scores at the chosen point, and `chosen`, the index of that point.
    Without the index, a point with higher scores would count as the chosen one."""
    curve = [dict(point) for point in record["curve"]]
    best = max(range(len(curve)), key=lambda index: curve[index][record["score"]])
    chosen = record.get("chosen", best)
    curve[chosen] |= scores
    return {"curve": curve, "chosen": chosen}


def _mean(weight: float, work: WordsRows, words: Words, answers: Mapping[str, list[Answer]]) -> Combination:
    judged = work.rows.judged[0]

    def mixed(split: str) -> list[Answer]:
        return list(mean(np.stack(answers[split]), np.stack(words.answers[split]), weight))

    def make(of_judged: list[Answer]) -> Mixed:
        model, details = work.fitted(words)
        described = {"how": "mean", "weight": weight, "system": words.system, **details}
        part = WordsPart("mean", model, weight)
        return Mixed({judged: of_judged, "test": mixed("test")}, {"words": described}, part)

    return mixed(judged), make


def _joint(work: WordsRows, system: str, *, record: Mapping[str, Any]) -> list[Combination]:
    member = Member(work.spec, *load_initial_encoder(work.spec))
    head, penalty = member.model.head, record.get("penalty")
    if not isinstance(head, TextHead) or not head.is_linear or member.model.features.mix is not None or penalty is None:
        return []
    if "head_norm" in record:
        head.set_norm(record["head_norm"])
    name, judged = work.rows.judged
    train = member.rows.head_inputs("train").matrix()
    fit = partial(JointRegression, READINGS[system], head, train, penalty=penalty)
    # The models learn from all rows and predict dev, or from each fold's rows.
    parts = [work.rows.without(fold) for fold in work.rows.fold_numbers] or [work.rows]
    of_parts: list[list[Any]] = []
    for part in parts:
        check_time()
        regression, rows = fit(part), judged if part.held is None else part.held_out
        features = member.rows.head_inputs("dev").matrix() if part.held is None else train[part.held]
        matrices = ((strength, regression.matrix(features, rows, strength)) for strength in STRENGTHS)
        of_parts.append([list(regression(strength).probabilities(matrix)) for strength, matrix in matrices])
    joined = work.rows.joined
    pooled = [of_part[0] if work.rows.folds is None else joined(of_part) for of_part in zip(*of_parts, strict=True)]
    regression = fit(work.rows)
    if not len(regression(STRENGTHS[0]).classes):
        return []

    def make(of_judged: list[Answer], strength: float) -> Mixed:
        linear = regression(strength)
        weight, bias = of_head(linear, features=train.shape[1])
        model = WordsModel(
            regression.words, of_words(linear, features=train.shape[1], scale=regression.scale(strength))
        )
        with torch.no_grad():
            head.fit_norm(train)
            head.output.weight.copy_(torch.from_numpy(weight))
            head.output.bias.copy_(torch.from_numpy(bias))
        member.model.eval()
        part = WordsPart("joint", model)
        test = part.combined(work.rows.test.fields, member.test_answers(trained=False))
        described = {"how": "joint", "strength": strength, "system": system, "vocabulary": regression.words.vocabulary}
        return Mixed(
            {name: of_judged, "test": test},
            {"words": described, "best_step": 0, "best_epoch": 0.0},
            part,
            member.weights(without="encoder."),
        )

    return [
        (list(answers), partial(make, strength=strength)) for answers, strength in zip(pooled, STRENGTHS, strict=True)
    ]


class JointRegression:
    """A joint regression; `vectors`: (N, F) of all rows of the run; `penalty`: on the encoder's features (1 / C)."""

    def __init__(self, read: Reading, head: TextHead, vectors: Tensor, rows: Rows, *, penalty: float) -> None:
        self.words, self._exclusive = read(rows)[0], labels_of(rows.scoring) == "exclusive"
        self._rows, self._vectors = rows.labelled, vectors[rows.kept]
        self._penalty, self._labels = penalty, len(rows.labels)
        with torch.no_grad():
            head.fit_norm(self._vectors)
        self._norm = copy.deepcopy(head.norm).cpu().eval()

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
