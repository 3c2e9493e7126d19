"""Contrastive training of one encoder on the same rows by Headstart and by SetFit, each in its own interpreter.

    python benchmarks/contrastive_speed.py FOLDER --data sst2=FOLDER --setfit ENVIRONMENT/bin/python

FOLDER is a published model for transformers, such as datasets/minilm; a data set is as in benchmarks/learning_ways.py.
Both sides use the same number of threads, the same batch size in rows (Headstart) or pairs (SetFit, whose default is
16), and the same limit of the length. Only the steps of the encoder are timed, in processor time, so that other work on
the machine matters less; Headstart's first step is a warm-up. `compare` is the function that other benchmarks call.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from components.training import threads

threads.prepare()
sys.path.insert(0, str(Path(__file__).parents[1]))

import torch  # noqa: E402 (after the thread settings)

from benchmarks.learning_ways import make_examples  # noqa: E402
from components.interchange.importing import import_encoder  # noqa: E402
from components.models.encoder import load_encoder  # noqa: E402
from components.reporting.recording import add_record_option, record  # noqa: E402
from components.reporting.results import Column  # noqa: E402
from components.settings.contrastive import pairs_of  # noqa: E402
from components.settings.finetune import FinetuneSettings  # noqa: E402
from components.task_models.contrastive_sampler import ContrastiveSampler  # noqa: E402
from components.task_models.kinds import find_task  # noqa: E402
from components.task_models.model import TaskModel  # noqa: E402
from components.tasks.budgets import sample_rows  # noqa: E402
from components.tasks.data import Split  # noqa: E402
from components.tasks.examples import read_facts, read_split, strata_of  # noqa: E402
from components.training.groups import discriminative  # noqa: E402
from components.training.loop import TrainingState, train  # noqa: E402
from components.training.precision import choose, product_size  # noqa: E402

#: Pieces of a text.
LONGEST = 64


def compare(
    model: Path, encoder: Path, split: Split, labels: Sequence[str], *, setfit: Path, steps: int, count: int
) -> dict[str, dict[str, float]]:
    """Speed of both sides on the same rows: side -> pairs and texts a second of processor time, seconds.

    Args:
        model: folder of the published model, for SetFit.
        encoder: the same model as an encoder directory.
        split: training rows.
        labels: names of the labels.
        setfit: interpreter of an environment with setfit.
        steps: of each side.
        count: threads of each side.
    """
    ours = headstart_speed(encoder, split, labels, steps=steps, count=count)
    theirs = setfit_run(model, split, labels, dev=[], setfit=setfit, steps=steps, count=count)
    return {
        "Headstart": ours,
        "SetFit": {
            "pairs": theirs["pairs"] / theirs["cpu"],
            "texts": 2 * theirs["pairs"] / theirs["cpu"],
            "seconds": theirs["cpu"],
        },
    }


def headstart_speed(encoder: Path, split: Split, labels: Sequence[str], *, steps: int, count: int) -> dict[str, float]:
    """Pairs and texts a second of processor time, and seconds, of contrastive training with the default settings."""
    threads.own(count)
    settings = FinetuneSettings.model_validate(
        {
            "method": "contrastive",
            "layers": "last",
            "pooling": "mean",
            "max_length": LONGEST,
            "unfreeze_epochs": 0,
            "training": {"rate": 5e-5, "batch_size": 16},
        }
    )
    loaded = load_encoder(encoder)
    task = find_task("classification")
    model = TaskModel(loaded.model, task=task, settings=settings, labels=labels).eval()
    sampler = ContrastiveSampler(
        task.encode(split.fields, loaded.tokenizer, loaded.model, settings),
        split.targets,
        rows=settings.contrastive.rows,
        seed=0,
    )
    groups = discriminative(loaded.model.layer_groups(), head=model.own_parameters())
    precision = choose("auto", device=torch.device("cpu"), size=product_size(loaded.model))
    state = TrainingState.fresh(model, groups, settings=settings.training, precision=precision)
    began, seconds = 0.0, 0.0
    for report in train(state, sampler, settings=settings.training, total_steps=1 + steps, seed=0):
        if report.step == 1:
            began = time.process_time()
        seconds = time.process_time() - began
    rows = [len(sampler.rows(step)) for step in range(1, 1 + steps)]
    pairs = sum(map(pairs_of, rows))
    return {"pairs": pairs / seconds, "texts": sum(rows) / seconds, "seconds": seconds}


def setfit_run(
    model: Path,
    split: Split,
    labels: Sequence[str],
    *,
    dev: Sequence[str],
    setfit: Path,
    count: int,
    steps: int = -1,
    seed: int = 0,
) -> dict[str, Any]:
    """Train SetFit with its defaults: answers to the texts of dev, steps, pairs, `seconds` and `cpu` of the encoder.

    Args:
        steps: at most; -1: one epoch over its pairs, SetFit's default.
    """
    with tempfile.TemporaryDirectory() as scratch:
        job = {
            "model": str(model.absolute()),
            "train": [[text, labels[label]] for text, label in zip(split.texts, split.labels.tolist(), strict=True)],
            "dev": list(dev),
            "seed": seed,
            "threads": count,
            "batch_size": 16,
            "max_length": LONGEST,
            "steps": steps,
            "scratch": scratch,
        }
        own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        script = Path(__file__).with_name("setfit_training.py")
        done = subprocess.run(
            [str(setfit), str(script)],
            input=json.dumps(job),
            capture_output=True,
            text=True,
            env=own | {"OMP_NUM_THREADS": str(count), "HF_HUB_OFFLINE": "1"},
            check=False,
        )
    if done.returncode:
        raise SystemExit(f"{setfit} {script} failed:\n{done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--data", action="append", required=True, metavar="NAME=FOLDER")
    parser.add_argument("--setfit", type=Path, required=True)
    parser.add_argument("--budget", type=int, default=8)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--threads", type=int, default=1)
    add_record_option(parser)
    arguments = parser.parse_args()
    values: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        encoder = scratch / "encoder"
        import_encoder(arguments.model, output=encoder)
        for data in arguments.data:
            title, _, folder = data.partition("=")
            examples = make_examples(
                Path(folder), name=title, budgets=[arguments.budget], draws=1, dev=10, scratch=scratch
            )
            facts, train_split = read_facts(examples), read_split(examples, "train")
            rows, _ = sample_rows(strata_of(train_split, facts.kind), arguments.budget, seed=0)
            sides = compare(
                arguments.model,
                encoder,
                train_split.take(rows),
                facts.labels,
                setfit=arguments.setfit,
                steps=arguments.steps,
                count=arguments.threads,
            )
            ours, theirs = sides["Headstart"], sides["SetFit"]
            values[f"{title}, {arguments.budget} labels per class"] = {
                "ours": ours["pairs"],
                "theirs": theirs["pairs"],
                "pairs": ours["pairs"] / theirs["pairs"],
                "texts": ours["texts"] / theirs["texts"],
            }
            print(title, {side: {key: round(value, 2) for key, value in own.items()} for side, own in sides.items()})
    record(
        arguments.record,
        title=f"Contrastive training, pairs per second of processor time, {arguments.steps} steps, "
        f"{arguments.threads} {'thread' if arguments.threads == 1 else 'threads'} each",
        notes="SetFit encodes two texts for each pair, Headstart each text of a step once; Headstart computes in bf16 "
        "where the processor has it, SetFit in float32.",
        row_title="rows",
        columns=[
            Column(name="ours", title="Headstart", format=",.0f"),
            Column(name="theirs", title="SetFit", format=",.0f"),
            Column(name="pairs", title="pairs, ratio", format=".1f"),
            Column(name="texts", title="encoded texts, ratio", format=".2f"),
        ],
        values=values,
    )


if __name__ == "__main__":
    main()
