"""Headstart's side of `benchmarks/few_labels.py`.

A cell is learned in a process of its own by the stages of the pipeline, called as functions: examples, baseline
(words; with `method: auto`) and finetune, with one core. The settings are those of a generated params.yaml,
WORK/headstart/SYSTEM/SET/params.yaml, with which `headstart retrain` gives the same models; a cell has one of its
budgets and seeds. Models and ways to learn have their default settings, but the heads of the imported encoder read no
TF-IDF. The system is chosen by cross-validation within the labels (`selection: budget`): the one with the highest
score, but an imported encoder is used unless words are better by more than one standard error.

`headstart` and `headstart-contrastive` start from the imported encoder. `headstart-own` pretrains on general text, once
for all sets of a language, and adapts to the set's unlabelled text, once per set.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from benchmarks.comparison.sets import SETS, Key, Prepared
from components.data.tasks.budgets import ALL
from components.settings.params import Params

#: The system of words models alone.
WORDS = "headstart-words"
#: System -> way to learn (`finetune.<name>.method`).
HEADSTART = {"headstart": "auto", "headstart-contrastive": "contrastive", "headstart-frozen": "features"}
HEADSTART |= {"headstart-own": "auto", WORDS: "auto"}
ROOT = Path(__file__).resolve().parents[2]
#: Stages of general text and the item of each; sets with the same general text share their outputs.
GENERAL = {"ingest": "general", "tokenizer": "general-wordpiece", "tokenize": "general-wordpiece", "pretrain": "ulmfit"}


def settings_of(system: str, name: str, prepared: Prepared, *, data: Path, encoder: Path) -> dict[str, Any]:
    """The content of params.yaml for one system and set, in a folder of its own."""
    chosen = SETS[name]
    kind = chosen.source.get("kind", "classification")
    task: dict[str, Any] = {
        "path": str(prepared.folder.absolute()),
        "kind": kind,
        "train": "train.jsonl",
        "dev": "dev.jsonl" if chosen.source["dev"] else None,
        "test": "test.jsonl",
        "label": "label",
        "language": chosen.source.get("language", "en"),
        "budgets": list(chosen.budgets),
        "seeds": [0, 1, 2, 3, 4],
        "selection": "budget",
        "overlap": "report",
        "dev_rows": None,
        "baselines": "auto" if system == WORDS else "all",
    }
    task |= {"first": "first", "second": "second"} if kind == "pair" else {"text": "text"}
    imported = system != "headstart-own"
    family, pretrain = ("minilm", {"source": str(encoder)}) if imported else ("ulmfit", {})
    finetune: dict[str, Any] = {"method": HEADSTART[system], "max_length": chosen.max_length}
    if imported:
        # Words models are separate candidates.
        finetune["words"] = "none"
    return {
        "run": {
            "out": "artifacts",
            "families": [family],
            "tasks": [name],
            "starts": ["pretrained"] if imported else ["adapted"],
            "seed": 0,
        },
        "cluster": {"launcher": "local"},
        "data": {
            "general": {"path": str(data / chosen.general), "text": "text"},
            "domain": {"path": str(prepared.folder.absolute() / "unlabelled.jsonl"), "text": "text"},
            "tasks": {name: task},
        },
        "ingest": {"strip_markup": True, "near_duplicates": None, "heldout": 0.01},
        "pretrain": {family: pretrain},
        "finetune": {family: finetune},
    }


def learn(key: Key, prepared: Prepared, arguments: argparse.Namespace) -> dict[str, Any]:
    """Learn and predict one cell; the keys of `peers.answer`, or `error`."""
    folder = (arguments.work / "headstart" / key.system / key.set).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    data, encoder = arguments.data.absolute(), arguments.encoder.absolute()
    params = settings_of(key.system, key.set, prepared, data=data, encoder=encoder)
    (folder / "params.yaml").write_text(yaml.safe_dump(params, sort_keys=False), encoding="utf-8")
    result = folder / f"{key.budget}-{key.draw}.json"
    result.unlink(missing_ok=True)
    log = arguments.work / "logs" / f"{key.system}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    budget, rows = str(key.budget), ""
    if prepared.shares is not None:
        # The product samples each class alike; so it has a folder with these rows alone, and learns from all.
        budget, rows = str(ALL), str(folder / f"rows-{key.budget}-{key.draw}")
        prepared.write_rows(key.budget, key.draw, Path(rows))
    command = [sys.executable, "-m", "benchmarks.comparison.headstart", "params.yaml", budget, str(key.draw)]
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    environment = os.environ | threads | {"PYTHONPATH": str(ROOT)}
    began = time.perf_counter()
    with log.open("a") as file:
        process = subprocess.Popen(
            [*command, result, key.system, rows], stdout=file, stderr=file, env=environment, cwd=folder
        )
        _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode or not result.is_file():
        return {"error": f"exit status {process.returncode}; messages are in {log}"}
    answer: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
    shared = answer["details"]["shared_seconds"]
    return answer | {
        # Test is predicted by the same stages; its seconds are part of these.
        "learn_seconds": used.ru_utime + used.ru_stime - answer["import_seconds"] - shared,
        "learn_wall": time.perf_counter() - began,
        "predict_seconds": 0.0,
        "predict_wall": 0.0,
        "megabytes": used.ru_maxrss / 1024,
    }


def take_general_model(params: Params, shared: Path) -> None:
    """Make the model of the general text in the folder `shared` if it is not there, and link it and its inputs.

    Args:
        params: of the set; the outputs of its stages are relative to the working directory.
        shared: relative to the working directory; the same for all sets with this general text.
    """
    from components.pipeline.stages import STAGES

    jobs = [(stage, STAGES[stage].items(params)[item]) for stage, item in GENERAL.items()]
    shared.mkdir(exist_ok=True)
    with contextlib.chdir(shared):
        for stage, arguments in jobs:
            _run_once(stage, arguments)
    for _, arguments in jobs:
        output = Path(arguments["output"])
        if not output.exists():
            output.parent.mkdir(parents=True, exist_ok=True)
            output.symlink_to((shared / output).resolve())


def _run_once(stage: str, arguments: Mapping[str, Any]) -> None:
    """Run an item of a stage unless its output is complete."""
    from components.pipeline.stages import STAGES

    if not (Path(arguments["output"]) / "manifest.json").is_file():
        STAGES[stage].run(arguments)


def processor_seconds() -> float:
    """User and system seconds of this process and its ended children."""
    parts = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(part.ru_utime + part.ru_stime for part in parts)


def _cell(path: Path, budget: int, draw: int, result: Path, system: str, rows_of: str) -> None:
    """Run the stages of one cell and write its answer; the process has one core."""
    # The stages are imported here, so that their seconds are known.
    from components.data.tasks.budgets import sample_rows
    from components.data.tasks.examples import read_facts, read_split
    from components.data.tasks.kinds import scoring_for
    from components.data.tasks.results import OUT_OF_FOLD, best_score, read_answers
    from components.interchange.importing import import_encoder
    from components.learners.select import choose
    from components.pipeline.jobs import out
    from components.pipeline.stages import STAGES
    from components.settings.loading import load_params

    imports = processor_seconds()
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[draw % len(os.sched_getaffinity(0))]})
    params = load_params(path)
    (name,) = params.run.tasks
    (family,) = params.run.families
    (start,) = params.run.starts
    shared = processor_seconds()
    encoder = out(params, "encoder", family, start)
    if system == WORDS:
        pass  # It has no encoder.
    elif params.pretrain[family].source is not None:
        if not (encoder / "manifest.json").is_file():
            import_encoder(Path(str(params.pretrain[family].source)), output=encoder)
    else:
        assert params.data.general is not None
        take_general_model(params, Path("..") / Path(params.data.general.path).name)
        for stage in (*GENERAL, "adapt"):
            for arguments in STAGES[stage].items(params).values():
                _run_once(stage, arguments)
    shared = processor_seconds() - shared
    # One budget and seed, in a folder of its own: no features are shared with other cells.
    chosen_rows: dict[str, Any] = {"budgets": ["all" if budget == ALL else budget], "seeds": [draw]}
    chosen_rows |= {"path": rows_of} if rows_of else {}
    source = params.data.tasks[name].model_copy(update=chosen_rows)
    cell = out(params, "cells", Path(rows_of).name if rows_of else f"{budget}-{draw}")
    cluster = params.cluster.model_copy(
        update={"storage": str(cell / "checkpoints"), "features": str(cell / "features")}
    )
    values = []
    items = {"examples": name, "baseline": name, "finetune": f"{name}-{family}-{start}"}
    if params.finetune[family].method != "auto":
        del items["baseline"]
    if system == WORDS:
        del items["finetune"]
    for stage, item in items.items():
        arguments = dict(STAGES[stage].items(params)[item])
        arguments |= {"output": cell / stage}
        arguments |= {"source": source} if stage == "examples" else {"examples": cell / "examples"}
        arguments |= {"cluster": cluster} if "cluster" in arguments else {}
        # The cells have no text without labels.
        arguments |= {key: None for key in ("unlabelled", "words", "baselines") if key in arguments}
        STAGES[stage].run(arguments)
        if stage != "examples":
            # Systems without predictions of held-out rows were not selected within the labels, and are no candidates.
            compared = read_answers(cell / stage, OUT_OF_FOLD)
            records = json.loads((cell / stage / "runs.json").read_text(encoding="utf-8"))
            values += [
                (stage, record, compared[record["system"], budget, draw])
                for record in records
                if (record["system"], budget, draw) in compared
            ]
    train, facts = read_split(cell / "examples", "train"), read_facts(cell / "examples")
    rows = train.take(sample_rows(train.labels, budget, seed=draw)[0])
    published = params.pretrain[family].source is not None
    values.sort(key=lambda entry: not (published and entry[0] == "finetune"))
    scoring = scoring_for(facts.kind, facts.labels)
    by_fold, _ = choose(scoring, rows, {number: answers for number, (*_, answers) in enumerate(values)})
    stage, chosen, _ = values[by_fold[None]]
    answers = read_answers(cell / stage, "test")[chosen["system"], budget, draw]
    details = {
        "chosen": chosen["system"],
        "score": best_score(chosen),
        "scores": {record["system"]: round(best_score(record), 4) for _, record, _ in values},
        "record": {key: value for key, value in chosen.items() if key not in ("curve", "short")},
        "shared_seconds": shared,
    }
    answer = {"predicted": np.stack(answers).argmax(1).tolist(), "details": details, "import_seconds": imports}
    result.write_text(json.dumps(answer), encoding="utf-8")


if __name__ == "__main__":
    _cell(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]), *sys.argv[5:7])
