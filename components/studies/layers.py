"""Which layer of the frozen encoder gives the best features: the six rows of Devlin et al. 2019, table 7, and ELMo's
scalar mix (Peters et al. 2018, equation 1)."""

from dataclasses import replace
from typing import Any, Final

import numpy as np

from components.core.errors import ConfigError
from components.data.scoring.base import Floats
from components.data.scoring.intervals import sizes_of
from components.data.tasks.results import best_score
from components.evaluation.aggregates import Scores, measured
from components.learners.finetuning.execution import Trained
from components.learners.task_models.kinds import find_task
from components.learners.task_models.model import TaskModel
from components.studies.frame import Measured, Outputs, Row, Sheet
from components.studies.labelled import Labelled, beside

CHOICES: Final = ("first", "second_to_last", "last", "sum", "sum_last_four", "concat_last_four", "mix")
#: How the features are learned.
SETTINGS: Final[dict[str, Any]] = {"words": "none", "label_names": "none", "pooling": "mean"}


def measure(outputs: Outputs, *, task: str = "", encoder: str = "", budget: int = 0, seeds: int = 3) -> Measured:
    """Metric of every choice of layers, and its difference to the last layer, for one or several encoders."""
    data, rows = Labelled.of(outputs, task, budget), list[Row]()
    scoring, dev, on_dev = data.scoring, data.dev, data.facts.selection == "dev"

    def score(run: Trained) -> Floats:
        if not on_dev:
            return np.asarray([best_score(run.record)])
        matrix = scoring.statistics(dev.fields, dev.targets, run.answers["dev"])
        return measured([matrix], dev.clusters, scoring.scores)[scoring.main][0]

    for block, start in outputs.chosen(encoder):
        model, scores = outputs.encoder(block, start).model, dict[str, Scores]()
        for choice in CHOICES:
            settings = outputs.finetuning(block).by("features", **SETTINGS, layers=choice)
            try:
                TaskModel(model, task=find_task(data.facts.kind), settings=settings, labels=data.facts.labels)
            except ConfigError:
                continue
            of = data.learned(data.job(outputs, block, start, settings), seeds, score, title=choice)
            scores[choice] = replace(of, sizes=sizes_of(dev.clusters, len(dev)) if on_dev else None)
        name = {"encoder": f"{block}-{start}"}
        rows += [name | row for row in beside(scores, "last", "layers", "minus the last layer")]
    text = f"{data.described}; means over samples of the labels."
    return Measured([Sheet(rows, data.facts.task, value="score", by=("encoder", "layers"))], [text])
