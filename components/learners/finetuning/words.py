"""Words beside the encoder (`finetune.<name>.words: auto`): a mean of the probabilities of both. The weight is chosen
on the rows of the training's other choices, and scored without the row's fold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
from threadpoolctl import threadpool_limits

from components.core.artifacts import json_of
from components.core.clock import OutOfTimeError, clock
from components.data.tasks.results import read_answers
from components.data.unlabelled_texts import read_unlabelled
from components.learners.base import Candidate, Rows
from components.learners.finetuning.execution import Trained
from components.learners.select import choose_of
from components.learners.task_models.words_part import WordsPart, mean
from components.learners.words.classifier import WordsModel
from components.learners.words.systems import LATENT_FOLDER, probable_systems

#: Candidates for the weight of the words, the simplest first.
WEIGHTS: Final = tuple(number / 10 for number in range(11))


def with_words(trained: Trained) -> Trained:
    """Combine a finished training with the words model of the stage `baseline` for the same rows that is chosen, if
    `words` is `auto`. A kind without probabilities of labels has no words."""
    fit, facts = trained.fit, trained.fit.facts
    systems = probable_systems(facts.kind, language=facts.language, which=facts.baselines)
    if fit.settings.words == "none" or fit.job.baselines is None or not systems:
        return trained
    baselines, (budget, seed) = fit.job.baselines, (fit.budget, fit.seed)
    rows = Rows.of(
        fit.job.examples,
        budget,
        seed,
        further=[] if fit.job.words is None else read_unlabelled(fit.job.words),
        fitted=baselines / LATENT_FOLDER,
    )
    judged, own = rows.judged[0], trained.answers
    try:
        with threadpool_limits(1, user_api="blas"):
            records = {
                each["system"]: each
                for each in json_of(baselines / "runs.json")
                if (each["budget"], each["seed"]) == (budget, seed)
            }
            names = [name for name in systems if name in records]
            stored = {split: read_answers(baselines, split) for split in (judged, "test")}
            words = choose_of(rows, [stored[judged][name, budget, seed] for name in names])
            system = names[words.index]
            of_words = {judged: words.answers, "test": stored["test"][system, budget, seed]}

            def mixed(split: str, weight: float) -> list[Any]:
                return list(mean(np.stack(own[split]), np.stack(of_words[split]), weight)) if weight else own[split]

            choice = choose_of(rows, [mixed(judged, weight) for weight in WEIGHTS])
            weight, part = WEIGHTS[choice.index], None
            described: dict[str, Any] = {"how": "none"}
            if weight:
                model, details = _fitted(systems[system](rows), records[system])
                part = WordsPart("mean", model, weight)
                described = {"how": "mean", "weight": weight, "system": system, **details}
    except OutOfTimeError:
        clock().left_out.append("words beside the encoder")
        return trained
    record = trained.record | {"words": described}
    if part is not None or judged != "dev":
        scores = rows.score(choice.answers)
        record |= at_chosen(record, scores) if judged == "dev" else {"selected": scores}
        own = {**own, judged: choice.answers, "test": mixed("test", weight)}
    return replace(trained, answers=own, record=record, part=part)


def _fitted(candidates: Any, record: Mapping[str, Any]) -> tuple[WordsModel, dict[str, Any]]:
    """The words model of a record, and what was chosen."""
    chosen: Candidate = next(each for each in candidates if each.details.items() <= record.items())
    assert isinstance(chosen.model, WordsModel)
    return chosen.model.tempered(record["temperature"]), {**chosen.details, "temperature": record["temperature"]}


def at_chosen(record: Mapping[str, Any], scores: Mapping[str, float]) -> dict[str, Any]:
    """Entries of a run's record: `curve`, with these scores at the chosen point, and `chosen`, the index of that point.
    Without the index, a point with higher scores would count as the chosen one."""
    curve = [dict(point) for point in record["curve"]]
    best = max(range(len(curve)), key=lambda index: curve[index][record["score"]])
    chosen = record.get("chosen", best)
    curve[chosen] |= scores
    return {"curve": curve, "chosen": chosen}
