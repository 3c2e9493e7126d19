"""What each technique of fine-tuning is worth: without pretraining, without adaptation, and with one technique of the
settings switched off at a time (Howard and Ruder 2018, section 5, tables 5 to 7). The score is that of the last step,
so that a head on frozen features, which is the first point of a curve, does not stand in for a run that is worse."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, cast

import numpy as np
import typer

from components.data.scoring import title
from components.data.scoring.intervals import CONFIDENCE, interval
from components.evaluation.aggregates import format_budget
from components.learners.finetuning.execution import clear, train_all
from components.learners.finetuning.fit import FinetuneJob
from components.learners.finetuning.stage import fit_maker, own_ways
from components.settings.finetune import FinetuneSettings
from components.settings.section import Start
from components.studies.frame import Budget, EncoderName, Measured, Outputs, Row, Sheet, Task, bounds, spread
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


def without(technique: str, settings: FinetuneSettings) -> FinetuneSettings:
    """The settings without a technique; the same settings if they do not use it."""
    changes = dict(TECHNIQUES[technique])
    if "chunks_learned" in changes and not settings.chunk:
        return settings
    if training := changes.pop("training", None):
        changes["training"] = settings.training.model_copy(update=training)
    return settings.model_copy(update=changes)


def measure(
    outputs: Outputs,
    *,
    task: Task = "",
    encoder: EncoderName = "",
    budget: Budget = 0,
    seeds: Annotated[int, typer.Option(help="Samples of the labels.", min=2)] = 3,
) -> Measured:
    """Fine-tune with all techniques, and without each of them, on the same labels."""
    name = outputs.task(task)
    data = Labelled.of(outputs, name)
    labels = data.budget(budget)
    block, start = outputs.chosen(encoder)[0]
    settings, vocabulary = outputs.finetuning(block), outputs.encoder(block, start).tokenizer.fingerprint()
    variants = {WHOLE: (start, settings)}
    present = [other for other in EARLIER if other != start and outputs.exists("encoder", block, other)]
    # With another vocabulary, a row would have two differences.
    same = [other for other in present if outputs.encoder(block, other).tokenizer.fingerprint() == vocabulary]
    variants |= {EARLIER[other]: (other, settings) for other in same}
    changed = {technique: without(technique, settings) for technique in TECHNIQUES}
    variants |= {technique: (start, of) for technique, of in changed.items() if of != settings}
    scores = {
        variant: np.asarray(_scores(outputs, data, name, block, variant, of, labels=labels, seeds=seeds))
        for variant, of in variants.items()
    }
    whole = interval(scores[WHOLE], confidence=CONFIDENCE, within=(0, 1))
    rows: list[Row] = [{"fine-tuning": WHOLE, "score": whole, "change": None}]
    rows += [
        {
            "fine-tuning": f"without {variant}",
            "score": float(of.mean()),
            "change": interval(of - scores[WHOLE], confidence=CONFIDENCE),
        }
        for variant, of in scores.items()
        if variant != WHOLE
    ]
    about = f"{name}, {block}-{start}"
    lead = [f"{about}: with all techniques the score is {bounds(whole)}."]
    changes = ((row["fine-tuning"], row["change"]) for row in rows[1:])
    lead += [f"{about}: {of} the score changes by {bounds(by, '+.3f')}." for of, by in changes if by.clear]
    where = "on dev" if data.facts.selection == "dev" else "by cross-validation within the labels"
    text = (
        f"{title(data.scoring.main)} {where} at {format_budget(labels, data.scoring)}; mean over {seeds} samples of "
        "the labels with its interval; changes are paired by sample. Each row switches one technique off (Howard and "
        "Ruder 2018, section 5) and has the score of its last step."
    )
    drawing = spread(
        rows, f"{about}: change of the score without a technique.", by="fine-tuning", value="change", reference=0.0
    )
    return Measured([Sheet(rows, about, {"change": "+.3f"})], lead, [text], [drawing])


def _scores(
    outputs: Outputs,
    data: Labelled,
    task: str,
    block: str,
    variant: str,
    of: tuple[str, FinetuneSettings],
    *,
    labels: int,
    seeds: int,
) -> list[float]:
    """The score of the last step of every seed; `of`: start and settings of the variant."""
    (start, settings), cluster = of, outputs.params.cluster
    job = FinetuneJob(
        task=task,
        family=block,
        start=cast(Start, start),
        examples=outputs.examples(task),
        encoder=outputs.encoder_directory(block, start),
        output=outputs.out,
        settings=settings,
        cluster=cluster,
    )
    trainings = {
        way: [(fit_maker(job, changed)(labels, seed),) for seed in range(seeds)]
        for way, changed in own_ways(job).items()
    }
    records = [trained.record for (trained,) in train_all(trainings, title=variant, cluster=cluster)]
    clear([fits for of_way in trainings.values() for fits in of_way], cluster=cluster)
    return [float(record["curve"][-1][record["score"]]) for record in records]
