"""Distillation (`distil`): an encoder teaches its own word vectors (`static`), which predict many times faster.

    python benchmarks/distillation.py --teacher datasets/minilm --data sst2
    python benchmarks/distillation.py --teacher DIR --data FOLDER --budgets 16 --draws 1 --test dev.tsv \\
        --distil '{temperature: 1, label_weight: 0}'

`--teacher` is an encoder directory, or a published model in any form that `headstart import` reads. `--data` holds
train.tsv and test.tsv with the columns text and label, separated by a tab, without a header. The teacher is a head on
the frozen encoder, unless `--teacher-method` says otherwise; the student is trained. All choices are made by
cross-validation within the label budget; `--rows` texts of the training rows are used without their labels. Prediction
is timed from strings, on one thread; the teacher reads `--teacher-rows` texts only.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from components.training import threads

threads.prepare()

import numpy as np  # noqa: E402 (after the thread settings)
import yaml  # noqa: E402

from benchmarks.static_vectors import rate_of, read_rows, teacher_of, vectors_of  # noqa: E402
from components.finetuning.distil import DistilJob, TeachJob, distil, teach  # noqa: E402
from components.finetuning.stage import FinetuneJob, finetune  # noqa: E402
from components.ingestion.unlabelled import UnlabelledJob, unlabelled  # noqa: E402
from components.reporting.recording import add_record_option, record  # noqa: E402
from components.reporting.results import Column  # noqa: E402
from components.settings.cluster import ClusterSettings  # noqa: E402
from components.settings.derive import StaticSettings  # noqa: E402
from components.settings.distil import DistilSettings  # noqa: E402
from components.settings.finetune import FinetuneSettings  # noqa: E402
from components.settings.tasks import TaskSource  # noqa: E402
from components.settings.unlabelled import UnlabelledSettings  # noqa: E402
from components.task_models.classifier import load_classifier  # noqa: E402
from components.tasks.examples import ExamplesJob, examples, read_split  # noqa: E402
from components.tasks.results import read_answers  # noqa: E402

TEACHER, STUDENT = "encoder-pretrained", "static-pretrained"
#: Settings of both systems; of the student those of a table of vectors, whose rows are seldom updated.
COMMON: dict[str, Any] = {"layers": "last", "pooling": "mean", "max_length": 128}
OF_STUDENT: dict[str, Any] = {
    "epochs": 10,
    "min_steps": 40,
    "evaluations": 4,
    "unfreeze_epochs": 0,
    "discriminative": 1.0,
    "training": {"rate": 0.003, "batch_size": 16, "schedule": "slanted_triangular"},
}


def main() -> None:
    """Train teacher, student, and student with teacher; score them; measure the speed of prediction."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--teacher", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--test", default="test.tsv", help="file with the rows that are scored")
    parser.add_argument("--test-rows", type=int, help="first rows of the test file; by default all")
    parser.add_argument("--budgets", nargs="+", type=int, default=[16, 64])
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--folds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=4000, help="texts without labels")
    parser.add_argument("--teacher-method", choices=("features", "contrastive", "finetune"), default="features")
    parser.add_argument("--distil", default="{}", help="settings of `distil` as YAML")
    parser.add_argument("--student", default="{}", help="settings of `finetune` as YAML")
    parser.add_argument("--teacher-rows", type=int, default=500)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--keep", type=Path, help="folder for encoders and features, reused by the next run")
    add_record_option(parser)
    arguments = parser.parse_args()
    threads.own(1)
    with tempfile.TemporaryDirectory() as temporary:
        found = measure(arguments, arguments.keep or Path(temporary), Path(temporary))
    for name, values in found.items():
        print(f"{name:44}" + "  ".join(f"{key} {np.mean(value):,.3f}" for key, value in values.items()))
    record(
        arguments.record,
        title=f"{arguments.data.name}: word vectors of an encoder that learn its predictions",
        seeds=list(range(arguments.draws)),
        selection="none",
        row_title="labels a class, system",
        columns=[
            Column(name="accuracy", title="accuracy"),
            Column(name="seconds", title="seconds of training", format=".0f"),
            Column(name="rate", title="texts per second, one thread", format=",.0f"),
        ],
        values=found,
        notes=f"Choices by {arguments.folds} folds within the labels; {arguments.rows} texts without labels; the "
        f"teacher is trained with method {arguments.teacher_method}.",
    )


def measure(arguments: argparse.Namespace, kept: Path, scratch: Path) -> dict[str, dict[str, list[float]]]:
    """`labels, system` -> accuracy of each draw, mean seconds of training, texts per second."""
    encoder, task, texts = prepare(arguments, kept, scratch)
    vectors = vectors_of(encoder, read_split(task, "train").texts, kept, settings=StaticSettings(teacher="encoder"))
    cluster = ClusterSettings(launcher="local", storage=str(scratch / "store"), features=str(kept / "features"))

    def job(family: str, directory: Path, settings: dict[str, Any]) -> FinetuneJob:
        return FinetuneJob(
            task="task",
            family=family,
            start="pretrained",
            examples=task,
            encoder=directory,
            output=scratch / "finetuned" / family,
            settings=FinetuneSettings.model_validate(COMMON | settings),
            cluster=cluster,
        )

    learned: dict[str, Any] = {"method": arguments.teacher_method, "training": {"rate": 1e-4, "batch_size": 16}}
    of_student = OF_STUDENT | yaml.safe_load(arguments.student)
    teacher, student = job("encoder", encoder, learned), job("static", vectors, of_student)
    group = {
        "group": "small",
        "distil": DistilSettings(
            teachers=[TEACHER], students=[STUDENT], rows=arguments.rows, **yaml.safe_load(arguments.distil)
        ),
        "texts": texts,
    }
    taught = TeachJob(
        **dict(teacher) | group | {"output": scratch / "taught" / TEACHER, "finetuned": finetune(teacher)}
    )
    teach(taught)
    follower = DistilJob(
        **dict(student)
        | group
        | {"start": "pretrained-from-small", "output": scratch / "finetuned" / "distilled"}
        | {"student": STUDENT, "taught": taught.output.parent}
    )
    found: dict[str, dict[str, list[float]]] = {}
    outputs = {"teacher": teacher.output, "student alone": finetune(student), "student with teacher": distil(follower)}
    for title, output in outputs.items():
        rows = read_split(task, "train").texts[: arguments.teacher_rows if title == "teacher" else None]
        classifier = load_classifier(output / "classifier")
        rate = rate_of(lambda one=classifier, rows=rows: one.predict(rows), len(rows), arguments.repeats)  # type: ignore[misc]
        for budget in arguments.budgets:
            found[f"{budget}, {title}"] = scores(output, task, budget) | {"rate": [rate]}
    return dict(sorted(found.items(), key=lambda item: int(item[0].partition(",")[0])))


def scores(output: Path, task: Path, budget: int) -> dict[str, list[float]]:
    """Accuracy of each draw on test, and mean seconds of a run with its cross-validation."""
    labels = read_split(task, "test").labels
    found = read_answers(output, "test")
    accuracy = [
        float(np.mean(np.stack(answers).argmax(1) == labels)) for (_, own, _), answers in found.items() if own == budget
    ]
    records = [one for one in json.loads((output / "runs.json").read_text()) if one["budget"] == budget]
    ways = [one["way"] for one in records if "way" in one]
    if ways:
        print(f"{budget} labels: ways kept {ways}, points {[one['chosen'] for one in records]}", flush=True)
    return {"accuracy": accuracy, "seconds": [float(np.mean([one["seconds"] for one in records]))]}


def prepare(arguments: argparse.Namespace, kept: Path, scratch: Path) -> tuple[Path, Path, Path]:
    """Directories of the teacher's encoder, the task and the texts without labels."""
    source = scratch / "data"
    source.mkdir(parents=True)
    train = dict.fromkeys(read_rows(arguments.data / "train.tsv"))
    test = [row for row in read_rows(arguments.data / arguments.test) if row not in train][: arguments.test_rows]
    for split, rows in (("train", train), ("test", test)):
        lines = [json.dumps({"text": text, "label": label}) for text, label in rows]
        (source / f"{split}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    settings = TaskSource(
        path=str(source),
        dev=None,
        budgets=arguments.budgets,
        seeds=list(range(arguments.draws)),
        folds=arguments.folds,
        overlap="report",
    )
    task = examples(ExamplesJob(task="task", source=settings, output=scratch / "examples"))
    texts = unlabelled(
        UnlabelledJob(
            task="task",
            key="distil.small",
            examples=task,
            corpus=scratch,
            settings=UnlabelledSettings(rows=arguments.rows),
            output=scratch / "texts",
        )
    )
    return teacher_of(arguments.teacher, kept), task, texts


if __name__ == "__main__":
    main()
