"""Recipes of pretraining at equal processor time: held-out perplexity, probing, and the score after fine-tuning.

    python benchmarks/recipes.py aws-type --recipe adamw --recipe muon training.optimizer=muon --record recipes

A recipe is a name and changes of the settings, which are those of one block of params.yaml:

    training.KEY=VALUE    of pretraining and adaptation
    pretrain.KEY=VALUE    of `pretrain.<block>`, as in pretrain.training.rate=0.01 or pretrain.model.layers=3
    adapt.KEY=VALUE       of `adapt.<block>`
    block=NAME            another block
    general=SECONDS       processor seconds on the general text (0: none); the rest of the time is for the domain's text

Corpora, tokenizers and examples are the outputs of an earlier run of the pipeline. Every recipe has the same processor
time, with one thread: `--general` seconds on the general text, then `--domain` seconds on the domain's. Its speed is
measured first, as with `training.seconds`, but in processor time, which other processes on the machine hardly affect.

Probing is a logistic regression on frozen features (layers and pooling of `finetune.<block>`), scored by
cross-validation within each sample of labels; the penalty is the best of `head_penalties`. Dev and test are not read.
With `--finetune`, the stage `finetune` follows; its score is that of its own selection, on dev or by cross-validation
(`data.tasks.<task>.selection`).
"""

from __future__ import annotations

import argparse
import copy
import csv
import json
import math
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from components.training import threads

threads.prepare()

import numpy as np  # noqa: E402 (after the thread settings)
import torch  # noqa: E402
import yaml  # noqa: E402
from components.evaluation.intervals import interval  # noqa: E402
from numpy.typing import NDArray  # noqa: E402
from sklearn.linear_model import LogisticRegression  # noqa: E402
from sklearn.metrics import f1_score  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402

from components.errors import ConfigError, nearest  # noqa: E402
from components.finetuning.features import extract  # noqa: E402
from components.finetuning.stage import FinetuneJob, finetune  # noqa: E402
from components.models.encoder import load_encoder  # noqa: E402
from components.pipeline import jobs  # noqa: E402
from components.pretraining import language_model  # noqa: E402
from components.pretraining.adapt import AdaptJob, adapt  # noqa: E402
from components.pretraining.pretrain import PretrainJob, pretrain  # noqa: E402
from components.reporting.recording import add_record_option, record  # noqa: E402
from components.reporting.results import Column, Plot  # noqa: E402
from components.settings.cluster import ClusterSettings  # noqa: E402
from components.settings.loading import resolve  # noqa: E402
from components.settings.params import Params  # noqa: E402
from components.task_models.kinds import find_task  # noqa: E402
from components.task_models.model import TaskModel  # noqa: E402
from components.tasks.budgets import sample_rows  # noqa: E402
from components.tasks.examples import read_facts, read_split, strata_of  # noqa: E402
from components.tasks.folds import folds_of  # noqa: E402
from components.tasks.results import best_score  # noqa: E402

#: Part of a phase's time -> column of the curve.
POINTS = (10, 25, 50, 75, 100)
#: Pieces over which each point of the curve is measured.
PIECES = 8192
FOLDS = 5
CONFIDENCE = 0.95
#: Keys of a recipe that are no settings.
BLOCK, GENERAL = "block", "general"
#: First part of all other keys.
SECTIONS = ("pretrain", "adapt", "training")


@dataclass(frozen=True)
class Recipe:
    """A name, a block of params.yaml with its changes, and processor seconds on each corpus."""

    name: str
    block: str
    params: Params
    general: float
    domain: float


@dataclass(frozen=True)
class Phase:
    """Training on one corpus.

    Attributes:
        steps, tokens, seconds: of training, in processor time without the held-out measurements.
        curve: (step, seconds, perplexity per word) on held-out text; empty for a family without a likelihood.
        metrics: metrics.json of the stage.
    """

    steps: int
    tokens: int
    seconds: float
    curve: list[tuple[int, float, float]]
    metrics: Mapping[str, float]

    @classmethod
    def read(cls, encoder: Path) -> Phase:
        """From an encoder directory."""
        metrics = json.loads((encoder / "metrics.json").read_text())
        with (encoder / "curve.csv").open() as file:
            rows = [row for row in csv.DictReader(file) if row["heldout"]]
        curve = []
        if "perplexity_per_word" in metrics:
            pieces_per_word = math.log(metrics["perplexity_per_word"]) / metrics["loss"]
            curve = [
                (int(row["step"]), float(row["seconds"]), math.exp(float(row["heldout"]) * pieces_per_word))
                for row in rows
            ]
        return cls(metrics["steps"], metrics["tokens"], metrics["seconds"], curve, metrics)

    def reaching(self, perplexity: float) -> tuple[int, float] | None:
        """Step and seconds at which the curve first reaches a perplexity, interpolated in its logarithm."""
        before = None
        for step, seconds, value in self.curve:
            if value <= perplexity:
                if before is None:
                    return step, seconds
                share = (math.log(before[2]) - math.log(perplexity)) / (math.log(before[2]) - math.log(value))
                return round(before[0] + share * (step - before[0])), before[1] + share * (seconds - before[1])
            before = (step, seconds, value)
        return None


def read_recipe(words: Sequence[str], arguments: argparse.Namespace) -> Recipe:
    """The recipe of one option `--recipe NAME KEY=VALUE ...`.

    Raises:
        ConfigError: a word is no KEY=VALUE, or a setting does not exist or has an invalid value.
    """
    name, *changes = words
    raw = copy.deepcopy(resolve(arguments.params)[1].raw)
    plain = dict(change.partition("=")[::2] for change in changes)
    if wrong := [change for change in changes if "=" not in change]:
        raise ConfigError(f"--recipe {name}: {wrong[0]!r} is not KEY=VALUE")
    block = plain.pop(BLOCK, arguments.block or raw["run"]["families"][0])
    for section in ("pretrain", "adapt", "finetune"):
        if block not in raw.get(section, {}):
            raise ConfigError(f"--recipe {name}: no block {section}.{block} in {arguments.params}")
    general = float(plain.pop(GENERAL, arguments.general))
    for key, value in plain.items():
        section, *path = key.split(".")
        if section not in SECTIONS or (not path and section != "training"):
            raise ConfigError(f"--recipe {name}: unknown key {key!r}{nearest(section, SECTIONS)}")
        for target in ("pretrain", "adapt") if section == "training" else (section,):
            _set(raw[target][block], ["training", *path] if section == "training" else path, yaml.safe_load(value))
    total = arguments.general + arguments.domain
    if not 0 <= general <= total:
        raise ConfigError(f"--recipe {name}: general: {general:g} is more than the {total:g} seconds of a recipe")
    return Recipe(name, block, Params.model_validate(raw), general, total - general)


def _set(block: dict[str, Any], path: Sequence[str], value: object) -> None:
    *above, last = path
    for name in above:
        block = block.setdefault(name, {})
    block[last] = value


def train(recipe: Recipe, root: Path) -> tuple[Phase | None, Phase | None, Path]:
    """Train on the general text, then on the domain's; the phases, and the directory of the last encoder."""
    cluster = ClusterSettings(launcher="local", workers=1, storage=str(root / "checkpoints"))
    changes = {"checkpoint_seconds": 1e9, "tokens": None}
    first: Phase | None = None
    encoder = root / "pretrained"
    pretraining = dict(jobs.pretrain(recipe.params)[recipe.block])
    adapting = dict(jobs.adapt(recipe.params)[recipe.block])
    with (
        patch.object(language_model, "time", SimpleNamespace(perf_counter=time.process_time)),
        patch.object(language_model, "CURVE_PIECES", PIECES),
    ):
        if recipe.general:
            settings = pretraining["training"].model_copy(update=changes | {"seconds": recipe.general})
            pretrain(PretrainJob(**pretraining | {"training": settings, "output": encoder, "cluster": cluster}))
            first = Phase.read(encoder)
        if not recipe.domain:
            return first, None, encoder
        settings = adapting["training"].model_copy(update=changes | {"seconds": recipe.domain})
        if recipe.general:
            job = AdaptJob(
                **adapting
                | {"training": settings, "pretrained": encoder, "output": root / "adapted", "cluster": cluster}
            )
            encoder = adapt(job)
        else:
            # The text of the domain alone.
            texts = {name: adapting[name] for name in ("tokens", "tokenizer")}
            pretrain(PretrainJob(**pretraining | texts | {"training": settings, "output": encoder, "cluster": cluster}))
    return first, Phase.read(encoder), encoder


def probe(recipe: Recipe, encoder: Path, examples: Path, budget: int, seeds: Sequence[int]) -> list[float]:
    """Macro F1 of logistic regression on frozen features by cross-validation within each sample of labels.

    Raises:
        ConfigError: the task has no single label per text.
    """
    facts = read_facts(examples)
    if facts.kind != "classification":
        raise ConfigError(f"{examples}: probing needs a task of kind classification, found {facts.kind}")
    strata = strata_of(read_split(examples, "train"), facts.kind)
    samples = [sample_rows(strata, budget, seed=seed)[0] for seed in seeds]
    rows = np.unique(np.concatenate(samples))
    settings = recipe.params.finetune[recipe.block]
    loaded = load_encoder(encoder)
    model = TaskModel(loaded.model, task=find_task(facts.kind), settings=settings, labels=facts.labels).eval()
    texts = read_split(examples, "train", rows=rows).fields
    features = extract(model, find_task(facts.kind).encode(texts, loaded.tokenizer, loaded.model, settings)).matrix()
    scores = []
    for seed, sample in zip(seeds, samples, strict=True):
        x, y = features[torch.from_numpy(np.searchsorted(rows, sample))].numpy(), strata[sample]
        folds = folds_of(y, FOLDS, seed=seed)
        scores.append(max(_cross_validated(x, y, folds, penalty) for penalty in settings.head_penalties))
    return scores


def _cross_validated(x: NDArray[np.float32], y: NDArray[np.int64], folds: NDArray[np.int64], penalty: float) -> float:
    """Macro F1 of the out-of-fold predictions."""
    predicted = np.empty_like(y)
    for fold in np.unique(folds):
        inside, outside = folds != fold, folds == fold
        norm = StandardScaler().fit(x[inside])
        head = LogisticRegression(C=1 / penalty, max_iter=200).fit(norm.transform(x[inside]), y[inside])
        predicted[outside] = head.predict(norm.transform(x[outside]))
    return float(f1_score(y, predicted, average="macro"))


def tuned(recipe: Recipe, task: str, encoder: Path, root: Path) -> dict[int, float]:
    """Label budget -> mean score of selection of the fine-tuned models."""
    job = FinetuneJob(
        task=task,
        family=recipe.block,
        start="adapted",
        examples=jobs.out(recipe.params, "examples", task),
        encoder=encoder,
        output=root / "finetuned",
        settings=recipe.params.finetune[recipe.block],
        cluster=ClusterSettings(launcher="local", workers=1, storage=str(root / "checkpoints")),
    )
    records = json.loads((finetune(job) / "runs.json").read_text())
    found: dict[int, list[float]] = {}
    for run in records:
        found.setdefault(run["budget"], []).append(best_score(run))
    return {budget: float(np.mean(scores)) for budget, scores in found.items()}


def with_interval(values: Sequence[float]) -> float | tuple[float, float, float]:
    """The mean with its interval over the samples of labels; without one for a single sample."""
    found = interval(np.asarray(values), confidence=CONFIDENCE)
    return (found.mean, found.low, found.high) if len(values) > 1 else found.mean


def main() -> None:
    """Train every recipe; print and record one row for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", help="block of data.tasks, for probing and fine-tuning")
    parser.add_argument("--recipe", nargs="+", action="append", required=True, metavar=("NAME", "KEY=VALUE"))
    parser.add_argument("--params", type=Path, default=Path("params.yaml"), help="settings of the earlier run")
    parser.add_argument("--block", help="default: the first of run.families")
    parser.add_argument("--general", type=float, default=10, help="processor seconds on the general text")
    parser.add_argument("--domain", type=float, default=40, help="processor seconds on the domain's text")
    parser.add_argument("--budgets", type=int, nargs="+", default=[5, 20], help="labels per class, for probing")
    parser.add_argument("--seeds", type=int, default=5, help="samples of labels")
    parser.add_argument("--finetune", action="store_true", help="also fine-tune, with the task's budgets and seeds")
    add_record_option(parser)
    arguments = parser.parse_args()
    threads.own(1)
    recipes = [read_recipe(words, arguments) for words in arguments.recipe]
    values: dict[str, dict[str, float | tuple[float, float, float]]] = {}
    curves: dict[str, dict[str, float]] = {}
    goal = None
    for recipe in recipes:
        with tempfile.TemporaryDirectory() as folder:
            general, domain, encoder = train(recipe, Path(folder))
            last = domain or general
            assert last is not None
            found: dict[str, float | tuple[float, float, float]] = {
                "tokens": (general.tokens if general else 0) + (domain.tokens if domain else 0),
                "steps": last.steps,
            }
            if last.curve:
                found["perplexity"] = last.metrics["perplexity_per_word"]
                if goal is None:
                    goal = last.curve[-1][2]
                elif reached := last.reaching(goal):
                    found |= {"equal_steps": reached[0], "equal_seconds": reached[1]}
                curves[recipe.name] = {str(point): _at(last, point / 100) for point in POINTS}
            if "general_after_perplexity_per_word" in last.metrics:
                found["general"] = last.metrics["general_after_perplexity_per_word"]
            examples = jobs.out(recipe.params, "examples", arguments.task)
            for budget in arguments.budgets:
                scores = probe(recipe, encoder, examples, budget, range(arguments.seeds))
                found[f"probe_{budget}"] = with_interval(scores)
            if arguments.finetune:
                tuned_scores = tuned(recipe, arguments.task, encoder, Path(folder))
                found |= {f"tuned_{budget}": score for budget, score in tuned_scores.items()}
        values[recipe.name] = found
        shown = {name: value[0] if isinstance(value, tuple) else value for name, value in found.items()}
        print(recipe.name, {name: round(value, 4) for name, value in shown.items()}, flush=True)
        # After each recipe, so that an interrupted benchmark keeps the rows that it has measured.
        report(arguments, values, curves)


def _at(phase: Phase, share: float) -> float:
    """The perplexity of the curve's point that is nearest to a part of the time."""
    return min(phase.curve, key=lambda point: abs(point[1] - share * phase.seconds))[2]


def report(
    arguments: argparse.Namespace,
    values: Mapping[str, Mapping[str, float | tuple[float, float, float]]],
    curves: Mapping[str, Mapping[str, float]],
) -> None:
    """Record the table and, as NAME-curve, the curves."""
    first = next(iter(values))
    titles = {
        "tokens": ("tokens", ",.0f"),
        "steps": ("steps on the last text", ",.0f"),
        "perplexity": ("perplexity per word", ".1f"),
        "equal_steps": (f"steps to the last perplexity of {first}", ",.0f"),
        "equal_seconds": (f"seconds to the last perplexity of {first}", ".1f"),
        "general": ("perplexity on general text", ",.0f"),
        **{f"probe_{budget}": (f"probing, {budget} labels per class", ".3f") for budget in arguments.budgets},
    }
    tuned_columns = sorted({name for row in values.values() for name in row if name.startswith("tuned_")})
    titles |= {name: (f"fine-tuned, {name.partition('_')[2]} labels per class", ".3f") for name in tuned_columns}
    shown = {name for row in values.values() for name in row}
    seconds = f"{arguments.general:g} processor seconds on general text and {arguments.domain:g} on the domain's"
    record(
        arguments.record,
        title=f"Recipes of pretraining, {seconds}; macro F1 on {arguments.task} by cross-validation within the labels",
        row_title="recipe",
        columns=[
            Column(name=name, title=title, format=spec) for name, (title, spec) in titles.items() if name in shown
        ],
        values=values,
        seeds=list(range(arguments.seeds)),
        selection="none",
        confidence=CONFIDENCE if arguments.seeds > 1 else None,
        notes="One thread. Perplexity of masked models is that of masked pieces. One seed of pretraining.",
    )
    if curves:
        record(
            arguments.record and f"{arguments.record}-curve",
            title=f"Perplexity per word on held-out text, {seconds}",
            row_title="recipe",
            columns=[Column(name=str(point), title=f"{point}% of the time", format=".1f") for point in POINTS],
            values=curves,
            selection="none",
            notes="One thread. Perplexity of masked models is that of masked pieces.",
            figure=Plot(x="processor time on the last text, %", y="perplexity per word", rows=list(curves)),
        )


if __name__ == "__main__":
    main()
