"""A text that a person tries: answers of the champion and of another version, reasons, similar labelled rows."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from components.core.artifacts import read_manifest
from components.core.errors import DataError, HeadstartError
from components.data.formats.words import words_of
from components.data.tasks.budgets import sample_rows
from components.data.tasks.data import Answer, Fields
from components.data.tasks.examples import TaskFacts, read_split, strata_of
from components.data.tasks.kinds import find_kind, scoring_for
from components.data.tasks.task_io import TaskIO
from components.learners.abstention import share_at
from components.learners.domain import Domain
from components.learners.loading import load_model
from components.learners.prediction import Classifier, not_read
from components.learners.words.features import Counted
from components.pages.project import Champion, Project
from components.registry.champion import fetched
from components.registry.tracking import Version

#: Number of similar rows, of labels that are shown at once, of words and of examples that are named, and maximum number
#: of characters of a text and of an example.
NEAREST, SHOWN, NAMED, EXAMPLES, LONGEST, SHORT = 5, 10, 5, 3, 20_000, 300
#: Number of loaded models that are kept.
KEPT = 3


#: A labelled row that is similar to the text, as the page shows it: text, label, similarity, and whether the model has
#: learned from it (None: unknown).
Neighbour = dict[str, Any]
#: The answer of one version: version, role, system, formatted, shares ((label, probability), the largest first; empty
#: for kinds without probabilities), explanation, share_wrong (of held-out answers at least as confident), outside
#: (whether the text is unlike the training texts) and problem.
Prediction = dict[str, Any]


def examples(directory: Path, io: TaskIO) -> list[dict[str, str]]:
    """Texts of the user to try, as the fields of the form: of test, each with another answer as far as there are
    some."""
    split = read_split(directory, "test")
    chosen: dict[str, Fields] = {}
    for fields, target in zip(split.fields, split.targets, strict=True):
        if sum(map(len, fields)) <= SHORT:
            chosen.setdefault(str(target), fields)
        if len(chosen) == EXAMPLES:
            break
    return [form_of(fields, io) for fields in chosen.values()]


def form_of(fields: Fields, io: TaskIO) -> dict[str, str]:
    """The parts of an input as the fields of the form; a list takes the last parts."""
    return {
        name: io.separator.join(fields[position:]) if kind == "texts" else fields[position]
        for position, (name, kind) in enumerate(io.inputs.items())
    }


def input_of(form: Mapping[str, str], io: TaskIO) -> dict[str, str | list[str]]:
    """The inverse of `form_of`: values of the columns."""
    return {
        name: [part.strip() for part in form[name].split(io.separator) if part.strip()]
        if kind == "texts"
        else form[name]
        for name, kind in io.inputs.items()
    }


class Models:
    """The loaded versions, of which the last used ones are kept. Predictions run one after another."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._loaded: dict[str, tuple[Classifier, Mapping[str, Any], Domain | None]] = {}
        self._lock = threading.Lock()

    def predict(self, version: Version, fields: Fields, *, role: str) -> Prediction:
        """The answer of a version, with its reasons."""
        of_version = {"version": version, "role": role, "system": Champion(version).system}
        with self._lock:
            try:
                if what := not_read(fields):
                    raise DataError(what)
                classifier, facts, domain = self._load(version)
                (answer,) = classifier.answer([fields])
                io = find_kind(classifier.kind).io
                formatted = io.format(fields, answer, classifier.labels)
                explanation = explain(classifier, fields, answer)
                outside = domain is not None and domain.excludes(fields)
            except HeadstartError as error:
                return of_version | {"problem": str(error)}
        shares = sorted(formatted.get("probabilities", {}).items(), key=lambda item: -item[1])
        return of_version | {
            "formatted": formatted,
            "shares": shares,
            "explanation": explanation,
            "share_wrong": share_at(facts, formatted.get("confidence", 0.0)),
            "outside": outside,
            "problem": "",
        }

    def _load(self, version: Version) -> tuple[Classifier, Mapping[str, Any], Domain | None]:
        label = version.label
        if label not in self._loaded:
            while len(self._loaded) >= KEPT:
                del self._loaded[next(iter(self._loaded))]
            with fetched(self._project.registry(), version) as bundle:
                loaded = load_model(bundle, what=label)
                self._loaded[label] = loaded, read_manifest(bundle).facts, Domain.read(bundle)
        # The last used one is the last that is given up.
        used = self._loaded[label] = self._loaded.pop(label)
        return used


class Similar:
    """Finds the labelled rows of a task that share the rarest words with a text."""

    def __init__(self) -> None:
        self._fitted: dict[Path, tuple[str, Any, Any, Any]] = {}
        self._lock = threading.Lock()

    def find(
        self, examples: Path, facts: TaskFacts, text: str, *, budget: int, seeds: Sequence[int]
    ) -> list[Neighbour]:
        digest = facts.digests["train"]
        with self._lock:
            cached = self._fitted.get(examples)
            if cached is None or cached[0] != digest:
                split = read_split(examples, "train")
                texts = ["\n".join(parts) for parts in split.fields]
                vectorizer = Counted(texts).fit(texts)
                self._fitted[examples] = (digest, split, vectorizer, vectorizer.matrix(texts))
            _, split, vectorizer, matrix = self._fitted[examples]
        if not vectorizer.terms:  # no row has a word
            return []
        cosines = np.asarray((matrix @ vectorizer.matrix([text]).T).todense()).ravel()
        scoring = scoring_for(facts.kind, facts.labels)
        best = np.argsort(-cosines, kind="stable")[:NEAREST]
        learned = _learned(split, facts, budget=budget, seeds=seeds)
        return [
            {
                "text": find_kind(facts.kind).io.separator.join(split.fields[row]),
                "label": scoring.in_words(split.fields[row], split.targets[row]),
                "similarity": float(cosines[row]),
                "learned": None if learned is None else int(row) in learned,
            }
            for row in best
            if cosines[row] > 0
        ]


def _learned(split: Any, facts: TaskFacts, *, budget: int, seeds: Sequence[int]) -> set[int] | None:
    if budget < 0:
        return set(range(len(split)))
    if not seeds:
        return None
    strata = strata_of(split, facts.kind)
    return {int(row) for seed in seeds for row in sample_rows(strata, budget, seed=seed)[0]}


#: Maximum number of predictions for one explanation; of longer texts, neighbouring words are removed together.
MOST: Final = 160


#: A part of the text with its weight: positive if it supports the prediction; None between words.
Piece = tuple[str, float | None]


def explain(classifier: Classifier, fields: Fields, answer: Answer) -> dict[str, Any] | None:
    """The weights of the words for an answer, by occlusion (Zeiler and Fergus 2014; Li, Monroe and Jurafsky 2016): the
    change of the predicted label's probability, or of the predicted number, without the word. None for kinds with other
    answers, and for a text of one word.

    Returns:
        `parts`: the pieces of each part of the input, which joined are the text; `largest`: the largest absolute
        weight; `decided`: the words with the largest weights, and these.
    """
    units = [words_of(text, marks="joined") for text in fields]
    size = -(-sum(map(len, units)) // MOST)
    removed = [
        (part, group)
        for part, spans in enumerate(units)
        for start in range(0, len(spans), max(size, 1))
        if len(group := spans[start : start + size]) < len(spans)
    ]
    if not {"probabilities", "value"} & find_kind(classifier.kind).io.outputs.keys() or not removed:
        return None
    index = int(answer.argmax()) if len(answer) > 1 else 0
    answers = classifier.answer([_without(fields, part, group) for part, group in removed])
    weights: list[dict[tuple[int, int], float]] = [{} for _ in fields]
    for (part, group), changed in zip(removed, answers, strict=True):
        weights[part] |= dict.fromkeys(group, float(answer[index] - changed[index]))
    parts = [*map(_pieces, fields, weights)]
    weighted = [(text, weight) for part in parts for text, weight in part if weight is not None]
    named = sorted(dict(weighted).items(), key=lambda item: -abs(item[1]))[:NAMED]
    largest = max((abs(weight) for _, weight in weighted), default=0)
    return {"parts": parts, "largest": largest, "decided": [of for of in named if round(of[1], 2)]}


def _without(fields: Fields, part: int, spans: Sequence[tuple[int, int]]) -> Fields:
    text = fields[part]
    # The space after the word goes with it.
    return (*fields[:part], text[: spans[0][0]] + text[spans[-1][1] :].lstrip(), *fields[part + 1 :])


def _pieces(text: str, weights: dict[tuple[int, int], float]) -> list[Piece]:
    pieces, position = list[Piece](), 0
    for (start, end), weight in sorted(weights.items()):
        pieces += [(text[position:start], None), (text[start:end], weight)]
        position = end
    return [*pieces, (text[position:], None)]
