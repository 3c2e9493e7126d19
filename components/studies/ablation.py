"""What each technique of fine-tuning is worth: without pretraining, without adaptation, and with one technique of the
settings switched off at a time (Howard and Ruder 2018, section 5, tables 5 to 7)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, cast

import numpy as np
import typer

from components.core.artifacts import MANIFEST
from components.data.scoring import title
from components.data.scoring.intervals import CONFIDENCE, interval
from components.data.tasks.kinds import scoring_for
from components.evaluation.aggregates import format_budget
from components.learners.finetuning.execution import clear, train_all
from components.learners.finetuning.runs import GroupSpec
from components.learners.finetuning.stage import FinetuneJob, own_ways, spec_maker
from components.reporting import figures
from components.reporting.findings import Chapter, Drawing, Findings, Table
from components.settings.finetune import FinetuneSettings
from components.settings.section import Start
from components.studies.frame import Budget, EncoderName, Outputs, Task, bounds
from components.studies.frozen import Labelled

WHOLE: Final = "all techniques"


@dataclass(frozen=True)
class Technique:
    """A technique, and the values of `finetune.<name>` and of its section `training` that switch it off.

    Attributes:
        needs: key of `finetune.<name>` without whose value the technique has no effect.
    """

    name: str
    off: Mapping[str, Any] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)
    needs: str = ""

    def without(self, settings: FinetuneSettings) -> FinetuneSettings:
        """The settings without the technique; the same settings if they do not use it."""
        if self.needs and not getattr(settings, self.needs):
            return settings
        training = settings.training.model_copy(update=dict(self.training))
        return settings.model_copy(update={**self.off, "training": training})


TECHNIQUES: Final = (
    Technique("gradual unfreezing", {"unfreeze_epochs": 0.0}),
    Technique("discriminative rates", {"discriminative": 1.0}),
    Technique("schedule of the rate", training={"schedule": "constant"}),
    Technique("dropout", {"dropout": 0.0, "head_dropout": 0.0}),
    Technique("activation regularisation", {"activation_penalty": 0.0}),
    Technique("mean and maximum in pooling", {"pooling": "summary"}),
    Technique("gradients through all chunks", {"chunks_learned": 1}, needs="chunk"),
    Technique("language model as an auxiliary objective", {"lm_weight": 0.0}),
    Technique("head on frozen features first", {"head_steps": 0}),
)
#: Starts that lack a part of the training of the encoder -> what they lack.
EARLIER: Final = {"pretrained": "adaptation to the domain", "scratch": "pretraining and adaptation"}


def run(
    outputs: Outputs,
    *,
    task: Task = "",
    encoder: EncoderName = "",
    budget: Budget = 0,
    seeds: Annotated[int, typer.Option(help="Samples of the labels.", min=2)] = 3,
) -> Findings:
    """Fine-tune with all techniques, and without each of them, on the same labels."""
    name = outputs.task(task)
    data = Labelled.of(outputs, name)
    labels = data.budget(budget)
    block, start = outputs.chosen(encoder)[0]
    settings = outputs.finetuning(block)
    variants = {WHOLE: (start, settings)}
    variants |= {
        without: (other, settings)
        for other, without in EARLIER.items()
        if other != start and (outputs.out / "encoder" / block / other / MANIFEST).is_file()
    }
    variants |= {
        technique.name: (start, changed)
        for technique in TECHNIQUES
        if (changed := technique.without(settings)) != settings
    }
    scores = _scores(outputs, name, block, variants, labels=labels, seeds=seeds)
    scoring = scoring_for(data.facts.kind, data.facts.labels)
    where = "on dev" if data.facts.selection == "dev" else "by cross-validation within the labels"
    how = f"{title(scoring.main)} {where} at {format_budget(labels, scoring)}"
    numbers = {
        "task": name,
        "encoder": f"{block}-{start}",
        "score": scoring.main,
        "labels": labels,
        "scores": {variant: of.tolist() for variant, of in scores.items()},
    }
    return Findings(_chapter(f"{name}, {block}-{start}", scores, how), numbers)


def _scores(
    outputs: Outputs,
    task: str,
    block: str,
    variants: Mapping[str, tuple[str, FinetuneSettings]],
    *,
    labels: int,
    seeds: int,
) -> dict[str, np.ndarray]:
    scores: dict[str, np.ndarray] = {}
    cluster, examples = outputs.params.cluster, outputs.examples(task)
    for variant, (start, settings) in variants.items():
        job = FinetuneJob(
            task=task,
            family=block,
            start=cast(Start, start),
            examples=examples,
            encoder=outputs.encoder_directory(block, start),
            output=outputs.out,
            settings=settings,
            cluster=cluster,
        )
        specs = {}
        for way, changed in own_ways(job).items():
            spec = spec_maker(job, changed)
            specs[way] = [GroupSpec((of,), key=of.key) for of in (spec(labels, seed) for seed in range(seeds))]
        runs = train_all(specs, title=f"without {variant}" if scores else variant, cluster=cluster)
        scores[variant] = np.asarray([of.score for of in runs])
        clear(runs, cluster=cluster)
    return scores


def _chapter(name: str, scores: Mapping[str, np.ndarray], how: str) -> Chapter:
    whole = scores[WHOLE]
    level = interval(whole, confidence=CONFIDENCE, within=(0, 1))
    changes = {of: interval(values - whole, confidence=CONFIDENCE) for of, values in scores.items() if of != WHOLE}
    chapter = Chapter("What each technique of fine-tuning is worth")
    chapter.lead.append(f"{name}: with all techniques the score is {bounds(level)}.")
    chapter.lead += [
        f"{name}: without {of} the score changes by {bounds(change, '+.3f')}."
        for of, change in changes.items()
        if change.clear
    ]
    chapter.text.append(
        f"{how}; mean over {len(whole)} samples of the labels with its interval; changes are paired by sample. Each "
        "row switches one technique off (Howard and Ruder 2018, section 5) and has the score of its best evaluation."
    )
    rows = [[WHOLE, bounds(level), ""]]
    rows += [[f"without {of}", f"{scores[of].mean():.3f}", bounds(change, "+.3f")] for of, change in changes.items()]
    chapter.tables.append(Table(["fine-tuning", "score", "change"], rows, name))
    if changes:
        ranges = {f"without {of}": (change.mean, change.low, change.high) for of, change in changes.items()}
        svg = figures.ranges(ranges, x_label="change of the score", reference=0.0)
        chapter.figures.append(Drawing(svg, f"{name}: change of the score without a technique."))
    return chapter
