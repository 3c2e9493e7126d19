"""Words beside the encoder (`finetune.<name>.words: auto`): a mean of the probabilities of both. The weight is chosen
on the rows of the training's other choices, and scored without the row's fold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np

from components.data.tasks.results import read_answers
from components.learners.base import Rows
from components.learners.finetuning.execution import Trained
from components.learners.select import choose_of
from components.learners.task_models.words_part import WordsPart, mean
from components.learners.words.systems import BESIDE, probable_systems

#: Candidates for the weight of the words, the simplest first.
WEIGHTS: Final = tuple(number / 10 for number in range(11))


def with_words(trained: Trained) -> Trained:
    """Combine a finished training with the words model of the stage `baseline` for the same rows that is chosen, if
    `words` is `auto`. A kind without probabilities of labels has no words."""
    fit, facts = trained.fit, trained.fit.facts
    systems = probable_systems(facts.kind, language=facts.language, which=facts.baselines)
    if fit.settings.words == "none" or fit.job.baselines is None or not systems:
        return trained
    baselines, rows = fit.job.baselines, Rows.of(fit.job.examples, fit.budget, fit.seed)
    judged, own = rows.judged[0], trained.answers
    stored = {split: read_answers(baselines, split) for split in (judged, "test")}
    keys = [key for name in systems if (key := (name, fit.budget, fit.seed)) in stored[judged]]
    words = choose_of(rows, [stored[judged][key] for key in keys])
    chosen = keys[words.index]
    of_words = {judged: words.answers, "test": stored["test"][chosen]}

    def mixed(split: str, weight: float) -> list[Any]:
        return list(mean(np.stack(own[split]), np.stack(of_words[split]), weight)) if weight else own[split]

    choice = choose_of(rows, [mixed(judged, weight) for weight in WEIGHTS])
    weight, part = WEIGHTS[choice.index], None
    described: dict[str, Any] = {"how": "none"}
    if weight:
        described = {"how": "mean", "weight": weight}
        part = WordsPart.read(baselines / BESIDE / f"{fit.budget}.{fit.seed}", described, labels=facts.labels)
        described["system"] = chosen[0]
    record = trained.record | {"words": described}
    if part is not None or judged != "dev":
        scores = rows.score(choice.answers)
        record |= at_chosen(record, scores) if judged == "dev" else {"selected": scores}
        own = {**own, judged: choice.answers, "test": mixed("test", weight)}
    return replace(trained, answers=own, record=record, part=part)


def at_chosen(record: Mapping[str, Any], scores: Mapping[str, float]) -> dict[str, Any]:
    """Entries of a run's record: `curve`, with these scores at the chosen point, and `chosen`, the index of that point.
    Without the index, a point with higher scores would count as the chosen one."""
    curve = [dict(point) for point in record["curve"]]
    best = max(range(len(curve)), key=lambda index: curve[index][record["score"]])
    chosen = record.get("chosen", best)
    curve[chosen] |= scores
    return {"curve": curve, "chosen": chosen}
