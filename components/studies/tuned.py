"""Studies that learn a task with changed settings, on the same samples of its labels.

`ablation`: what each technique of fine-tuning is worth, without pretraining, without adaptation, and with one technique
of the settings switched off at a time (Howard and Ruder 2018, section 5, tables 5 to 7). The score is that of the last
step, so that a head on frozen features, which is the first point of a curve, does not stand in for a run that is worse.

`layers`: which layer of the frozen encoder gives the best features: the six rows of Devlin et al. 2019, table 7, and
ELMo's scalar mix (Peters et al. 2018, equation 1).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final, cast

import numpy as np
import typer

from components.core.errors import ConfigError
from components.data.scoring.base import Floats
from components.data.scoring.intervals import sizes_of
from components.data.tasks.results import best_score
from components.evaluation.aggregates import Scores, measured
from components.learners.finetuning.execution import Trained, clear, train_all
from components.learners.finetuning.fit import FinetuneJob
from components.learners.finetuning.stage import fits_of, own_ways
from components.learners.task_models.kinds import find_task
from components.learners.task_models.model import TaskModel
from components.settings.finetune import FinetuneSettings
from components.settings.section import Start
from components.studies.frame import Budget, EncoderName, Measured, Outputs, Row, Sheet, Task
from components.studies.frozen import Labelled

WHOLE: Final = "all techniques"
#: Technique -> the values of `finetune.<name>`, and of its section `training`, that switch it off.
TECHNIQUES: Final[Mapping[str, Mapping[str, Any]]] = {
    "gradual unfreezing": {"unfreeze_epochs": 0.0},
    "discriminative rates": {"discriminative": 1.0},
    "schedule of the rate": {"training": {"schedule": "constant"}},
    "dropout": {"dropout": 0.0, "head_dropout": 0.0},
    "activation regularisation": {"activation_penalty": 0.0},
    "mean and maximum in pooling": {"pooling": "summary"},
    "gradients through all chunks": {"chunks_learned": 1},
    "language model as an auxiliary objective": {"lm_weight": 0.0},
    "head on frozen features first": {"head_steps": 0},
}
#: Starts that lack a part of the training of the encoder -> what they lack.
EARLIER: Final = {"pretrained": "adaptation to the domain", "scratch": "pretraining and adaptation"}
#: Choices of layers.
CHOICES: Final = ("first", "second_to_last", "last", "sum", "sum_last_four", "concat_last_four", "mix")
Seeds = Annotated[int, typer.Option(help="Samples of the labels.", min=2)]


def without(technique: str, settings: FinetuneSettings) -> FinetuneSettings:
    """The settings without a technique; the same settings if they do not use it."""
    changes = dict(TECHNIQUES[technique])
    if "chunks_learned" in changes and not settings.chunk:
        return settings
    if training := changes.pop("training", None):
        changes["training"] = settings.training.model_copy(update=training)
    return settings.model_copy(update=changes)


@dataclass(frozen=True)
class Learning:
    """A task that is learned on each of `seeds` samples of its train rows."""

    outputs: Outputs
    data: Labelled
    seeds: int

    def scores(
        self, name: str, block: str, start: str, settings: FinetuneSettings, score: Callable[[Trained], Floats]
    ) -> Scores:
        """Train with these settings from an encoder; `score` returns (1 + G,) values of a run."""
        cluster, task, scoring = self.outputs.params.cluster, self.data.facts.task, self.data.scoring
        job = FinetuneJob(
            task=task,
            family=block,
            start=cast(Start, start),
            examples=self.outputs.of("examples", task),
            encoder=self.outputs.encoder_directory(block, start),
            output=self.outputs.out,
            settings=settings,
            cluster=cluster,
        )
        trainings = {
            way: [(fit,) for fit in fits_of(job, changed, [(self.data.labels, seed) for seed in range(self.seeds)])]
            for way, changed in own_ways(job).items()
        }
        values = np.stack([score(trained) for (trained,) in train_all(trainings, title=name, cluster=cluster)])
        clear([fits for of_way in trainings.values() for fits in of_way], cluster=cluster)
        return Scores(range(self.seeds), values, within=scoring.ranges[scoring.main])


def last_step(run: Trained) -> Floats:
    return np.asarray([run.record["curve"][-1][run.record["score"]]])


def ablation(
    outputs: Outputs, *, task: Task = "", encoder: EncoderName = "", budget: Budget = 0, seeds: Seeds = 3
) -> Measured:
    """Fine-tune with all techniques, and without each of them, on the same labels."""
    data = Labelled.of(outputs, task, budget)
    learning = Learning(outputs, data, seeds)
    block, start = outputs.chosen(encoder)[0]
    settings, vocabulary = outputs.finetuning(block), outputs.encoder(block, start).tokenizer.fingerprint()
    variants = {WHOLE: (start, settings)}
    present = [other for other in EARLIER if other != start and outputs.exists("encoder", block, other)]
    # With another vocabulary, a row would have two differences.
    same = [other for other in present if outputs.encoder(block, other).tokenizer.fingerprint() == vocabulary]
    variants |= {f"without {EARLIER[other]}": (other, settings) for other in same}
    changed = {technique: without(technique, settings) for technique in TECHNIQUES}
    variants |= {f"without {technique}": (start, of) for technique, of in changed.items() if of != settings}
    scores = {variant: learning.scores(variant, block, *of, last_step) for variant, of in variants.items()}
    rows: list[Row] = [
        {
            "fine-tuning": variant,
            "score": of.interval(),
            "change": None if variant == WHOLE else of.minus(scores[WHOLE]).interval(),
        }
        for variant, of in scores.items()
    ]
    text = (
        f"{data.described}; means over {seeds} samples of the labels with their intervals; changes are paired by "
        "sample. Each row switches one technique off (Howard and Ruder 2018, section 5) and has the score of its last "
        "step."
    )
    return Measured(
        [Sheet(rows, f"{data.facts.task}, {block}-{start}", {"change": "+.3f"}, "change", reference=0.0)], [text]
    )


def layers(
    outputs: Outputs, *, task: Task = "", encoder: EncoderName = "", budget: Budget = 0, seeds: Seeds = 3
) -> Measured:
    """Metric of every choice of layers, and its difference to the last layer, for one or several encoders."""
    data = Labelled.of(outputs, task, budget)
    learning, rows = Learning(outputs, data, seeds), list[Row]()
    on_dev, kind = data.facts.selection == "dev", find_task(data.facts.kind)
    sizes = sizes_of(data.dev.clusters, len(data.dev)) if on_dev else None

    def score(run: Trained) -> Floats:
        if not on_dev:
            return np.asarray([best_score(run.record)])
        matrix = data.scoring.statistics(data.dev.fields, data.dev.targets, run.answers["dev"])
        return measured([matrix], data.dev.clusters, data.scoring.scores)[data.scoring.main][0]

    for block, start in outputs.chosen(encoder):
        model, scores = outputs.encoder(block, start).model, dict[str, Scores]()
        for choice in CHOICES:
            changes = {
                "method": "features",
                "words": "none",
                "label_names": "none",
                "pooling": "mean",
                "layers": choice,
            }
            settings = outputs.finetuning(block).model_copy(update=changes)
            try:
                TaskModel(model, task=kind, settings=settings, labels=data.facts.labels)
            except ConfigError:
                continue
            scores[choice] = replace(learning.scores(choice, block, start, settings, score), sizes=sizes)
        rows += [
            {
                "encoder": f"{block}-{start}",
                "layers": choice.replace("_", " "),
                "score": of.interval(),
                "minus the last layer": None if choice == "last" else of.minus(scores["last"]).interval(),
            }
            for choice, of in scores.items()
        ]
    text = (
        f"{data.described}, frozen encoder and logistic regression; means over samples of the labels. Differences are "
        "paired by sample, and on dev by row. Choices are left out if the layers differ in width and cannot be added, "
        "or are too few."
    )
    return Measured([Sheet(rows, data.facts.task, value="score", by=("encoder", "layers"))], [text])
