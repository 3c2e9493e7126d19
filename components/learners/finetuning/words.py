"""Words beside the encoder (`finetune.<name>.words: auto`): a mean of the probabilities of both. The weight is chosen
on the rows of the training's other choices, and scored without the row's fold."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from components.data.tasks.data import Answer
from components.data.tasks.results import read_answers
from components.learners.base import Rows
from components.learners.finetuning.fit import Fit
from components.learners.select import choose_of
from components.learners.task_models.words_part import WordsPart, mean
from components.learners.words.systems import BESIDE, probable_systems

#: Candidates for the weight of the words, the simplest first.
WEIGHTS: Final = tuple(number / 10 for number in range(11))
#: Split -> answers.
Answers = dict[str, list[Answer]]


def with_words(fit: Fit, rows: Rows, own: Answers) -> tuple[Answers, WordsPart | None, dict[str, Any]]:
    """Combine the answers of a finished training with the words model of the stage `baseline` for the same rows that is
    chosen, if `words` is `auto`. A kind without probabilities of labels has no words.

    Returns:
        The answers to the judged rows and to test; the words model, None without words; entries of the record.
    """
    facts, baselines = fit.facts, fit.job.baselines
    systems = probable_systems(facts.kind, language=facts.language, which=facts.baselines)
    if fit.settings.words == "none" or baselines is None or not systems:
        return own, None, {}
    judged = rows.judged[0]
    stored = {split: read_answers(baselines, split) for split in (judged, "test")}
    keys = [key for name in systems if (key := (name, fit.budget, fit.seed)) in stored[judged]]
    words = choose_of(rows, [stored[judged][key] for key in keys])
    system, *_ = chosen = keys[words.index]
    of_words = {judged: words.answers, "test": stored["test"][chosen]}

    def mixed(split: str, weight: float) -> list[Answer]:
        return list(mean(np.stack(own[split]), np.stack(of_words[split]), weight)) if weight else own[split]

    choice = choose_of(rows, [mixed(judged, weight) for weight in WEIGHTS])
    weight = WEIGHTS[choice.index]
    answers = {judged: choice.answers, "test": mixed("test", weight)}
    if not weight:
        return answers, None, {"words": {"how": "none"}}
    described = {"how": "mean", "weight": weight}
    part = WordsPart.read(baselines / BESIDE / f"{fit.budget}.{fit.seed}", described, labels=facts.labels)
    return answers, part, {"words": described | {"system": system}}
