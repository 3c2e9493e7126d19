"""How transferable are the features of each layer? (Yosinski, Clune, Bengio and Lipson 2014, figure 2)

The first n layer groups are copied from an encoder, the groups above are initialised randomly, and the network is
trained on the task:

    BnB, BnB+    copied from B, the encoder of the task's domain (`adapted`); frozen, or trained (+)
    AnB, AnB+    copied from A, the encoder of general text (`pretrained`); frozen, or trained (+)

At n = 0 all four are the same network trained from scratch. A decrease of BnB is due to co-adapted layers that were
separated. A further decrease of AnB is due to layers that are specific to general text. If AnB+ stays above n = 0,
transfer helps nevertheless. The head reads the last layer, so the random layers cannot be bypassed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer

from components.cluster import map_parallel
from components.errors import ConfigError
from components.evaluation.compare import format_budget
from components.evaluation.intervals import Interval, interval
from components.finetuning.features import extract
from components.models.base import LanguageModel
from components.models.encoder import Encoder, build_model, load_encoder
from components.progress import Progress
from components.reporting import figures
from components.reporting.chapters import Chapter, Drawing, Table
from components.reporting.figures import Line
from components.reporting.findings import Findings
from components.scoring import title
from components.settings.finetune import FinetuneSettings
from components.studies import curves
from components.studies.base import Study
from components.studies.outputs import Outputs
from components.task_models.kinds import find_task
from components.task_models.model import TaskModel, answers
from components.task_models.sampler import ExampleSampler
from components.tasks.budgets import ALL, sample_rows
from components.tasks.examples import read_facts, read_split, strata_of
from components.tasks.kinds import scoring_for
from components.training.groups import decayed
from components.training.loop import TrainingState, train
from components.training.rng import counter_seed

#: Series -> (start of the copied layers, whether they are trained).
SERIES = {
    "BnB": ("adapted", False),
    "BnB+": ("adapted", True),
    "AnB": ("pretrained", False),
    "AnB+": ("pretrained", True),
}
#: Largest default budget in labels per class: larger ones take longer and leave less to gain.
MOST = 20
#: Evaluations on dev during training; the best counts, as in fine-tuning.
EVALUATIONS = 5


@dataclass(frozen=True)
class Network:
    """One network to train, as plain values that can be sent to another process.

    Attributes:
        examples: output directory of the stage `examples`.
        encoder: directory of the encoder of the copied layer groups.
        settings: of fine-tuning.
        copied: n, the number of copied layer groups.
        learning: whether the copied groups are trained.
        budget: labels per class.
        seed: of the labels and of the random layers.
        epochs: length of the training.
    """

    examples: Path
    encoder: Path
    settings: FinetuneSettings
    copied: int
    learning: bool
    budget: int
    seed: int
    epochs: float


def run(
    outputs: Outputs,
    *,
    task: Annotated[str, typer.Option(help="Task; the first of run.tasks by default.")] = "",
    encoder: Annotated[str, typer.Option(help="Block of pretrain; the first of run.families by default.")] = "",
    budget: Annotated[int, typer.Option(help="Labels per class; 0: the largest budget up to 20.", min=0)] = 0,
    epochs: Annotated[float, typer.Option(help="Epochs of training per network.", min=0.01)] = 10.0,
    seeds: Annotated[int, typer.Option(help="Number of seeds of the task to use.", min=1)] = 3,
) -> Findings:
    """Dev metric of BnB, BnB+, AnB and AnB+ for every n.

    Raises:
        ConfigError: unknown task or block.
        ArtifactError: a required stage has not run.
        TrainingError: a loss is not finite.
    """
    name = outputs.task(task)
    block = encoder or outputs.params.run.families[0]
    if block not in outputs.params.pretrain:
        block, _ = outputs.split_name(block)
    examples = outputs.examples(name)
    facts = read_facts(examples)
    sources = {start: outputs.encoder_directory(block, start) for start in ("adapted", "pretrained")}
    groups = len(load_encoder(sources["adapted"]).model.layer_groups())
    if len(load_encoder(sources["pretrained"]).model.layer_groups()) != groups:
        raise ConfigError(
            f"{block}: the pretrained and the adapted encoder have different layers; run the stage adapt again"
        )
    numbers = [found for found in facts.budgets if found != ALL and found <= MOST]
    labels = budget or max(numbers, default=facts.budgets[0])
    chosen = facts.seeds[:seeds]
    cells = [("scratch", 0, seed) for seed in chosen]
    cells += [(series, cut, seed) for series in SERIES for cut in range(1, groups + 1) for seed in chosen]
    networks = [
        Network(
            examples=examples.absolute(),
            encoder=sources[SERIES.get(series, ("adapted", True))[0]].absolute(),
            settings=outputs.finetuning(block),
            copied=cut,
            learning=SERIES.get(series, ("adapted", True))[1],
            budget=labels,
            seed=seed,
            epochs=epochs,
        )
        for series, cut, seed in cells
    ]
    scores: dict[tuple[str, int], dict[int, float]] = {}
    with Progress(f"study transferability {block}", total=len(networks), unit="network") as bar:
        for index, score in map_parallel(learn, networks, settings=outputs.params.cluster):
            series, cut, seed = cells[index]
            scores.setdefault((series, cut), {})[seed] = score
            bar.advance(1)
    scoring = scoring_for(facts.kind, facts.labels)
    found = {key: [of_seed[seed] for seed in chosen] for key, of_seed in scores.items()}
    confidence = outputs.params.evaluate.confidence
    chapter = _chapter(
        f"{name}, {block}", found, groups, title(scoring.main), format_budget(labels, scoring), confidence
    )
    by_series = {
        series: {str(cut): found["scratch" if cut == 0 else series, cut] for cut in range(groups + 1)}
        for series in SERIES
    }
    return Findings(
        chapter,
        {
            "task": name,
            "encoder": block,
            "score": scoring.main,
            "labels": labels,
            "seeds": chosen,
            "epochs": epochs,
            "groups": groups,
            "scores": by_series,
        },
    )


def learn(network: Network) -> float:
    """The best dev metric of one network; deterministic.

    All trained layers have the same learning rate from the first step: discriminative rates and gradual unfreezing
    would favour the copied layers.

    Raises:
        ArtifactError: encoder or examples are damaged.
        ConfigError: the settings do not suit the encoder.
        TrainingError: a loss is not finite.
    """
    facts = read_facts(network.examples)
    task = find_task(facts.kind)
    rate = network.settings.scratch.rate or network.settings.training.rate
    training = network.settings.training.model_copy(update={"rate": rate})
    # No auxiliary objective: it would train the random layers for another task.
    settings = network.settings.model_copy(update={"layers": "last", "lm_weight": 0.0, "training": training})
    loaded = load_encoder(network.encoder)
    encoder = partly_copied(loaded, network.copied, seed=network.seed)
    encoder.set_dropout(settings.dropout)
    torch.manual_seed(counter_seed(network.seed, "head"))
    model = TaskModel(encoder, task=task, settings=settings, labels=facts.labels).eval()
    train_split = read_split(network.examples, "train")
    rows, _ = sample_rows(strata_of(train_split, facts.kind), network.budget, seed=network.seed)
    splits = {"train": train_split.take(rows), "dev": read_split(network.examples, "dev")}
    encoded = {name: task.encode(split.fields, loaded.tokenizer, encoder, settings) for name, split in splits.items()}
    model.head.prepare(splits["train"].targets)
    model.head.fit_norm(extract(model, encoded["train"]).vectors)
    layers = encoder.layer_groups()
    learning = [*(layers if network.learning else layers[network.copied :]), model.own_parameters()]
    parameters = [parameter for group in learning for parameter in group]
    state = TrainingState.fresh(model, decayed(parameters), settings=training)
    sampler = ExampleSampler(
        encoded["train"],
        splits["train"].targets,
        batch_size=training.batch_size,
        seed=counter_seed(network.seed, "batches"),
    )
    epoch = -(-len(rows) // training.batch_size)
    steps = max(settings.min_steps, math.ceil(network.epochs * epoch))
    scored_at = {round(steps * (number + 1) / EVALUATIONS) for number in range(EVALUATIONS)}
    scoring = scoring_for(facts.kind, facts.labels)
    best = -math.inf
    for report in train(
        state, sampler, settings=training, total_steps=steps, seed=counter_seed(network.seed, "finetune")
    ):
        if report.step in scored_at:
            if state.average is not None:
                state.average.swap()
            dev = splits["dev"]
            found = scoring.score(dev.fields, dev.targets, answers(model, encoded["dev"]))
            best = max(best, found[scoring.main])
            if state.average is not None:
                state.average.swap()
    return best


def partly_copied(loaded: Encoder, copied: int, *, seed: int) -> LanguageModel:
    """An encoder of the same size whose lowest `copied` layer groups have the weights of `loaded`. The others are
    initialised randomly; the initialisation depends on the seed, not on `copied`."""
    torch.manual_seed(counter_seed(seed, "encoder"))
    sizes = loaded.model.config.model_dump(mode="json", exclude={"vocabulary"})
    fresh = build_model(loaded.family, vocabulary=loaded.model.config.vocabulary, settings=sizes)
    fresh.bind(loaded.tokenizer)
    with torch.no_grad():
        for ours, theirs in zip(fresh.layer_groups()[:copied], loaded.model.layer_groups()[:copied], strict=True):
            for parameter, source in zip(ours, theirs, strict=True):
                parameter.copy_(source)
    return fresh


def _chapter(
    name: str,
    found: dict[tuple[str, int], list[float]],
    groups: int,
    score: str,
    budget: str,
    confidence: float,
) -> Chapter:
    intervals = {key: interval(np.asarray(values), confidence=confidence) for key, values in found.items()}

    def series_of(series: str) -> list[Interval]:
        return [intervals["scratch", 0], *(intervals[series, cut] for cut in range(1, groups + 1))]

    chapter = Chapter("How transferable are the layers?")
    scratch = intervals["scratch", 0].mean
    best = max(SERIES, key=lambda series: max(value.mean for value in series_of(series)))
    cut = int(np.argmax([value.mean for value in series_of(best)]))
    last = {series: intervals[series, groups].mean for series in SERIES}
    chapter.lead.append(
        f"{name}: {best} with {cut} of {groups} copied layer groups is best ({series_of(best)[cut].mean:.3f}); "
        f"training from scratch reaches {scratch:.3f}."
    )
    chapter.lead.append(
        f"{name}: with all layers copied, general ones reach {last['AnB']:.3f} frozen and {last['AnB+']:.3f} trained, "
        f"those of the domain {last['BnB']:.3f} and {last['BnB+']:.3f}."
    )
    chapter.text.append(
        f"{score} on dev at {budget}, mean over {len(next(iter(found.values())))} seeds with its interval. The "
        "lowest n layer groups are copied (1: the embedding), those above are initialised randomly; +: the copied ones "
        "are trained, too. A and B have their own vocabularies (Yosinski et al. 2014)."
    )
    rows = [
        [str(cut), *(curves.interval(series_of(series)[cut].as_dict()) for series in SERIES)]
        for cut in range(groups + 1)
    ]
    chapter.tables.append(Table(["n", *SERIES], rows, f"{name} ({score} on dev)"))
    cuts: Sequence[int] = range(groups + 1)
    lines = {
        series: Line(
            list(cuts),
            [value.mean for value in series_of(series)],
            [value.low for value in series_of(series)],
            [value.high for value in series_of(series)],
            dashed=not SERIES[series][1],
        )
        for series in SERIES
    }
    svg = figures.lines(lines, x_label="n, copied layer groups", y_label=f"{score} on dev", ticks=True)
    chapter.figures.append(Drawing(svg, f"{name}; dashed: copied layers are frozen; bands are the intervals."))
    return chapter


STUDY = Study("transferability", "How many layers can be copied from another encoder?", run)
