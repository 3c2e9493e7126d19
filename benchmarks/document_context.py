"""Tagging with and without the neighbouring sentences of a document (FLERT), scored on dev: same rows, same encoder.

    python benchmarks/document_context.py ENCODER "ewt: {path: FOLDER, train: train.conllu, dev: dev.conllu,
        scheme: none, document: marks}" --contexts 0 64

ENCODER is an encoder directory (`headstart import`). A task is a name and keys of `data.tasks.<name>` in YAML, with the
kind tagging. The score is that of the last step, which is not chosen on dev. Test rows are never read.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from components.training import threads

threads.prepare()

from components.finetuning.stage import FinetuneJob, finetune  # noqa: E402 (after the thread settings)
from components.models.encoder import family_of  # noqa: E402
from components.reporting.recording import add_record_option, record  # noqa: E402
from components.reporting.results import Column  # noqa: E402
from components.settings.cluster import ClusterSettings  # noqa: E402
from components.settings.finetune import FinetuneSettings  # noqa: E402
from components.settings.tasks import TaskSource  # noqa: E402
from components.tasks.examples import ExamplesJob, examples  # noqa: E402
from components.tasks.results import own_points  # noqa: E402

SETTINGS: dict[str, Any] = {
    "layers": "last",
    "head_steps": 50,
    "discriminative": 1.2,
    "unfreeze_epochs": 0,
    "evaluations": 1,
    "training": {"rate": 2e-4, "schedule": "slanted_triangular", "batch_size": 16},
}


def scores(encoder: Path, task: Path, settings: dict[str, Any], *, scratch: Path) -> dict[str, list[float]]:
    """Score at the last step and seconds, by draw."""
    folder = Path(tempfile.mkdtemp(dir=scratch))
    job = FinetuneJob(
        task=task.name,
        family=family_of(encoder),
        start="pretrained",
        examples=task,
        encoder=encoder,
        output=folder / "out",
        settings=FinetuneSettings.model_validate(SETTINGS | settings),
        cluster=ClusterSettings(launcher="local", storage=str(folder / "store"), features=str(scratch / "features")),
    )
    records = json.loads((finetune(job) / "runs.json").read_text(encoding="utf-8"))
    return {
        "score": [own_points(one)[-1][one["score"]] for one in records],
        "seconds": [one["seconds"] for one in records],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("encoder", type=Path)
    parser.add_argument("tasks", nargs="+", metavar="NAME: {KEYS}")
    parser.add_argument("--contexts", nargs="+", type=int, default=[0, 64])
    parser.add_argument("--budget", type=int, default=100, help="Sentences of train.")
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--dev", type=int, default=300, help="Maximum number of sentences of dev.")
    parser.add_argument("--epochs", type=float, default=6)
    add_record_option(parser)
    arguments = parser.parse_args()
    threads.own(1)
    values: dict[str, dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        for text in arguments.tasks:
            ((title, keys),) = yaml.safe_load(text).items()
            source = TaskSource.model_validate(
                {"kind": "tagging", "selection": "dev", "overlap": "report", "test": keys["dev"], "test_rows": 1}
                | {"budgets": [arguments.budget], "seeds": list(range(arguments.draws)), "dev_rows": arguments.dev}
                | keys
            )
            task = examples(ExamplesJob(task=title, source=source, output=scratch / title))
            found: dict[int, dict[str, list[float]]] = {}
            for context in arguments.contexts:
                settings = {"context": context, "epochs": arguments.epochs}
                found[context] = scores(arguments.encoder.absolute(), task, settings, scratch=scratch)
                gains = np.subtract(found[context]["score"], found[arguments.contexts[0]]["score"]).tolist()
                shown = {key: [float(np.mean(numbers))] for key, numbers in found[context].items()}
                values[f"{title}, {context} pieces"] = {
                    **shown,
                    "gain": [float(np.mean(gains))],
                    "least": [min(gains)],
                    "most": [max(gains)],
                }
                numbers = " ".join(f"{one:.4f}" for one in found[context]["score"])
                print(f"{title:8} context {context:3}: {numbers}, {shown['seconds'][0]:.0f} s a run", flush=True)
    record(
        arguments.record,
        title=f"Score on at most {arguments.dev} sentences of dev with {arguments.budget} sentences of train",
        seeds=list(range(arguments.draws)),
        selection="dev",
        row_title="data set, context on each side",
        columns=[
            Column(name="score", title="score"),
            Column(name="gain", title="gain", format="+.3f"),
            Column(name="least", title="smallest gain", format="+.3f"),
            Column(name="most", title="largest gain", format="+.3f"),
            Column(name="seconds", title="seconds a run", format=".0f"),
        ],
        values=values,
        notes="The score of the last step, which is not chosen: accuracy of part-of-speech tags, F1 of spans.",
    )


if __name__ == "__main__":
    main()
