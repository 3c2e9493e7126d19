"""Scores on dev of several ways to learn from few labels: same rows, same encoder, one setting changed at a time.

    python benchmarks/learning_ways.py ENCODER --data sst2=FOLDER --data trec=FOLDER
    python benchmarks/learning_ways.py ENCODER --data sst2=FOLDER --ways contrastive "rate 1e-4: {method: contrastive}"

ENCODER is an encoder directory (`headstart import`). A data set is a folder with train.tsv and dev.tsv (text, label; no
header), TREC's TREC.train.all, or SICK's SICK_train.txt and SICK_trial.txt (pairs); labels.json (label -> its meaning),
if there is one, is `label_texts` of the task. Each way is a name of WAYS, or
`NAME: SETTINGS` with settings of `finetune.<name>` in YAML. `best` is the score of the point that is chosen on dev, the
head on the frozen encoder included; `last` that of the last step, which is not chosen. Test rows are never read.

    python benchmarks/learning_ways.py ENCODER --data sick=FOLDER --selection budget --ways frozen "frozen, length"

With `--selection budget`, everything is chosen by cross-validation within the labels. Rows of dev, which then are not
used for a choice, are scored: `score`, and `gain` over the first way on the same draws, with its interval.
"""

from __future__ import annotations

import argparse
import csv
import json
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from components.training import threads

threads.prepare()

from components.finetuning.stage import FinetuneJob, finetune  # noqa: E402
from components.models.encoder import family_of  # noqa: E402
from components.reporting.recording import add_record_option, record  # noqa: E402
from components.reporting.results import Column  # noqa: E402
from components.scoring.intervals import interval  # noqa: E402 (after the thread settings)
from components.settings.cluster import ClusterSettings  # noqa: E402
from components.settings.finetune import FinetuneSettings  # noqa: E402
from components.settings.tasks import TaskSource  # noqa: E402
from components.tasks.examples import ExamplesJob, examples, read_facts, read_split  # noqa: E402
from components.tasks.kinds import scoring_for  # noqa: E402
from components.tasks.results import best_score, read_answers  # noqa: E402
from components.training.rng import counter_rng  # noqa: E402

#: Maximum number of rows of dev, and of train, from which the training rows are sampled.
DEV, POOL = 500, 5000
#: Of the intervals of gains.
CONFIDENCE = 0.95
#: Settings of all ways: few steps, because a measurement takes five draws of each way.
COMMON: dict[str, Any] = {
    "layers": "last",
    "pooling": "mean",
    "head_steps": 100,
    "head_penalties": [0.3, 1, 3, 10, 30, 100],
    "discriminative": 1.2,
    "unfreeze_epochs": 0,
    "max_length": 64,
    "epochs": 5,
    "min_steps": 24,
    "evaluations": 2,
    "training": {"rate": 1e-4, "schedule": "slanted_triangular", "batch_size": 16},
}
#: Name -> what differs from COMMON.
WAYS: dict[str, dict[str, Any]] = {
    "fine-tuning": {},
    "contrastive": {"method": "contrastive"},
    # Each beside the way before it: the head on the frozen encoder, with other normalisations of its input.
    "frozen": {"method": "features"},
    "frozen, block": {"method": "features", "head_norm": "block"},
    "frozen, length": {"method": "features", "head_norm": "length"},
    "frozen, auto": {"method": "features", "head_norm": "auto"},
    # Mosbach et al. 2021: rate 2e-5, linear, a tenth of warm-up, 20 epochs, Adam with bias correction.
    "20 epochs at 2e-5": {"epochs": 20, "min_steps": 48, "training": {"rate": 2e-5, "schedule": "linear"}},
}


#: Texts and label of a row.
Row = tuple[str, ...]


def rows_of(folder: Path, split: str) -> Iterator[Row]:
    """Texts and label of each row of a data set's split, in order."""
    if (sick := folder / ("SICK_trial.txt" if split == "dev" else "SICK_train.txt")).exists():
        with sick.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE):
                yield row["sentence_A"], row["sentence_B"], row["entailment_judgment"]
        return
    if (trec := folder / "TREC.train.all").exists():
        lines = trec.read_text(encoding="latin-1").splitlines()
        order = counter_rng(0, "trec dev").permutation(len(lines))
        for index in order[:DEV] if split == "dev" else np.sort(order[DEV:]):
            label, _, text = lines[index].partition(" ")
            yield text, label
        return
    for line in (folder / f"{split}.tsv").read_text(encoding="utf-8").splitlines():
        text, _, label = line.rpartition("\t")
        yield text, label


def make_examples(
    folder: Path, *, name: str, budgets: list[int], draws: int, dev: int, scratch: Path, selection: str = "dev"
) -> Path:
    """The output directory of the stage `examples` for a data set, with at most `dev` rows of dev.

    The data set's own test rows are never read. The test split of the output holds one row of train per label, whose
    score is not reported; with selection `budget` it holds the rows of dev, which no choice uses then.
    """
    seen: set[Row] = set()
    files: dict[str, list[Row]] = {}
    for split, most in (("dev", dev), ("train", POOL)):
        found = [row for row in dict.fromkeys(rows_of(folder, split)) if row[:-1] not in seen]
        order = counter_rng(0, "rows", split).permutation(len(found))[:most]
        files[split] = [found[index] for index in np.sort(order)]
        seen |= {row[:-1] for row in files[split]}
    files["test"] = files["dev"] if selection == "budget" else list({row[-1]: row for row in files["train"]}.values())
    files["train"] = [row for row in files["train"] if row not in files["test"]]
    source = scratch / f"{name}-data"
    source.mkdir(parents=True)
    columns = ("text", "label") if len(files["train"][0]) == 2 else ("first", "second", "label")
    for split, chosen in files.items():
        lines = [json.dumps(dict(zip(columns, row, strict=True))) for row in chosen]
        (source / f"{split}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    task = TaskSource.model_validate(
        {
            "path": str(source),
            "kind": "classification" if len(columns) == 2 else "pair",
            "budgets": budgets,
            "seeds": list(range(draws)),
            "selection": selection,
            "dev": None if selection == "budget" else "dev.jsonl",
            "overlap": "report",
            "label_texts": json.loads(names.read_text()) if (names := folder / "labels.json").exists() else {},
        }
    )
    return examples(ExamplesJob(task=name, source=task, output=scratch / f"{name}-examples"))


def settings_of(way: str) -> tuple[str, dict[str, Any]]:
    """Name of a way, and its settings that differ from `COMMON`."""
    if way in WAYS:
        return way, WAYS[way]
    ((name, changes),) = yaml.safe_load(way).items()
    return name, changes


def merged(changes: Mapping[str, Any]) -> FinetuneSettings:
    """The settings of a way; the keys of its block `training` are added to those of `COMMON`."""
    training = COMMON["training"] | changes.get("training", {})
    return FinetuneSettings.model_validate(COMMON | changes | {"training": training})


def scores(encoder: Path, task: Path, settings: FinetuneSettings, *, scratch: Path) -> list[dict[str, Any]]:
    """The records of the runs of a way on a data set."""
    folder = Path(tempfile.mkdtemp(dir=scratch))
    cluster = ClusterSettings(launcher="local", storage=str(folder / "store"), features=str(scratch / "features"))
    job = FinetuneJob(
        task=task.name,
        family=family_of(encoder),
        start="pretrained",
        examples=task,
        encoder=encoder,
        output=folder / "out",
        settings=settings,
        cluster=cluster,
    )
    output = finetune(job)
    found: list[dict[str, Any]] = json.loads((output / "runs.json").read_text(encoding="utf-8"))
    facts, split = read_facts(task), read_split(task, "test")
    scoring = scoring_for(facts.kind, facts.labels)
    answers = read_answers(output, "test")
    for one in found:
        own = answers[one["system"], one["budget"], one["seed"]]
        one["scored"] = scoring.score(split.fields, split.targets, own)[scoring.main]
    return found


def summary(records: list[dict[str, Any]], budget: int) -> dict[str, list[float]]:
    """Mean over draws of the score of the frozen encoder, of the best point and of the last; seconds of a run."""
    own = [one for one in records if one["budget"] == budget]
    curves = [[point[one["score"]] for point in one["curve"]] for one in own]
    best = [best_score(one) for one in own]
    return {
        "frozen": [float(np.mean([curve[0] for curve in curves]))],
        "best": [float(np.mean(best))],
        "last": [float(np.mean([curve[-1] for curve in curves]))],
        "seconds": [float(np.mean([one["seconds"] for one in own]))],
    }


def scored(records: list[dict[str, Any]], budget: int) -> dict[int, float]:
    """Draw -> score on the rows that no choice has used (`--selection budget`)."""
    return {one["seed"]: one["scored"] for one in records if one["budget"] == budget}


def compared(own: Mapping[int, float], first: Mapping[int, float], seconds: float) -> dict[str, list[float]]:
    """Mean over draws, and the mean gain over the first way on the same draws, with its interval."""
    gain = interval(np.asarray([own[draw] - first[draw] for draw in own]), confidence=CONFIDENCE)
    return {
        "score": [float(np.mean(list(own.values())))],
        "gain": [gain.mean, gain.low, gain.high],
        "seconds": [seconds],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("encoder", type=Path)
    parser.add_argument("--data", action="append", required=True, metavar="NAME=FOLDER")
    parser.add_argument("--ways", nargs="+", default=list(WAYS))
    parser.add_argument("--budgets", nargs="+", type=int, default=[8])
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--selection", choices=["dev", "budget"], default="dev")
    parser.add_argument("--dev", type=int, default=DEV, help="Maximum number of rows of dev.")
    add_record_option(parser)
    arguments = parser.parse_args()
    threads.own(1)
    found: dict[str, dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        tasks = {}
        for data in arguments.data:
            title, _, folder = data.partition("=")
            tasks[title] = make_examples(
                Path(folder),
                name=title,
                budgets=arguments.budgets,
                draws=arguments.draws,
                dev=arguments.dev,
                selection=arguments.selection,
                scratch=scratch,
            )
        first: dict[tuple[str, int], dict[int, float]] = {}
        for way in arguments.ways:
            label, changes = settings_of(way)
            for title, task in tasks.items():
                records = scores(arguments.encoder.absolute(), task, merged(changes), scratch=scratch)
                for budget in arguments.budgets:
                    row = summary(records, budget)
                    if arguments.selection == "budget":
                        own = scored(records, budget)
                        row = compared(own, first.setdefault((title, budget), own), row["seconds"][0])
                    found[f"{title}, {budget} labels, {label}"] = row
                    shown = " ".join(
                        f"{key} {value[0]:.3f}" + (f" [{value[1]:+.3f}, {value[2]:+.3f}]" if len(value) == 3 else "")
                        for key, value in row.items()
                    )
                    print(f"{title:8}{budget:4} {label:32} {shown}", flush=True)
            # After each way, so that an interrupted measurement is not lost.
            _record(arguments, found)


def _record(arguments: argparse.Namespace, found: Mapping[str, Mapping[str, list[float]]]) -> None:
    if arguments.selection == "budget":
        record(
            arguments.record,
            title=f"Macro F1 on at most {arguments.dev} rows of dev that no choice has used, mean over draws",
            seeds=list(range(arguments.draws)),
            selection="dev",
            confidence=CONFIDENCE,
            row_title="data set, labels per class, way to learn",
            columns=[
                Column(name="score", title="macro F1"),
                Column(name="gain", title="gain over the first way", format="+.3f"),
                Column(name="seconds", title="seconds a run", format=".1f"),
            ],
            values=found,
            notes=f"Gains are paired by draw, with intervals of {CONFIDENCE:.0%}.",
        )
        return
    record(
        arguments.record,
        title=f"Macro F1 on at most {arguments.dev} rows of dev, mean over draws of the training rows",
        seeds=list(range(arguments.draws)),
        selection="dev",
        row_title="data set, labels per class, way to learn",
        columns=[
            Column(name="frozen", title="frozen encoder"),
            Column(name="best", title="best point"),
            Column(name="last", title="last point"),
            Column(name="seconds", title="seconds a run", format=".1f"),
        ],
        values=found,
        notes="The best point is chosen on the same rows, so it is optimistic; the last point is not chosen.",
    )


if __name__ == "__main__":
    main()
