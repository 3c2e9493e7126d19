"""Stage `baseline`: systems without a language model.

Every system of `components.baselines` is trained on the same rows as the fine-tuned systems, and writes the same output
format.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from components.artifacts import writing
from components.baselines import Baseline, Data, baselines_of
from components.measurements import Curve
from components.progress import Progress
from components.settings.names import BASELINE
from components.settings.section import Section
from components.tasks.budgets import budget_name, sample_rows
from components.tasks.examples import read_facts, read_split, strata_of
from components.tasks.kinds import scoring_for
from components.tasks.results import KIND, RunResult, write_results


class BaselineJob(Section):
    """Inputs of the stage; `examples` is the output directory of that stage."""

    examples: Path
    output: Path


def baseline(job: BaselineJob) -> Path:
    """Train the baselines at every budget and seed; write the files of `components.tasks.results`.

    Raises:
        ArtifactError: the examples are incomplete.
    """
    facts = read_facts(job.examples)
    train = read_split(job.examples, "train")
    strata = strata_of(train, facts.kind)
    scoring = scoring_for(facts.kind, facts.labels)
    splits = {name: read_split(job.examples, name) for name in ("dev", "test")}
    systems = baselines_of(facts.kind, language=facts.language, which=facts.baselines)
    total = len(facts.budgets) * len(facts.seeds) * len(systems)

    def results() -> Iterator[RunResult]:
        with Progress(f"baseline {facts.task}", total=total, unit="run") as bar:
            for budget in facts.budgets:
                for seed in facts.seeds:
                    rows, short = sample_rows(strata, budget, seed=seed)
                    data = Data(train.take(rows), splits["dev"], splits["test"], train.fields, facts.labels, scoring)
                    record = {
                        "budget": budget,
                        "seed": seed,
                        "rows": len(rows),
                        "short": {str(stratum): count for stratum, count in short.items()},
                    }
                    for name, system in systems.items():
                        result = _run(name, system, data, record)
                        score = result.record["curve"][-1][scoring.main]
                        Curve(f"{name} {budget_name(budget)} labels seed {seed}").add(
                            0, **{f"dev_{scoring.main}": score}, seconds=result.record["seconds"]
                        )
                        yield result
                        bar.advance(1)

    with writing(job.output, kind=KIND) as draft:
        records = write_results(draft.path, results(), splits=splits, labels=facts.labels)
        draft.facts |= {"task": facts.task, "system": "baselines", "examples": facts.digests, "runs": len(records)}
    return job.output


def _run(name: str, system: Baseline, data: Data, record: dict[str, Any]) -> RunResult:
    began = time.perf_counter()
    # Matrix products of this size take less time than starting a second thread.
    with threadpool_limits(1, user_api="blas"):
        predictions = system(data)
    curve = [{"step": 0, "epoch": 0.0, "train_loss": None, **data.dev_scores(predictions.answers["dev"])}]
    record = {
        **record,
        **predictions.details,
        "score": data.scoring.main,
        "curve": curve,
        "best_step": 0,
        "best_epoch": 0.0,
        "steps": 0,
        "tokens": 0,
        "seconds": round(time.perf_counter() - began, 3),
    }
    return RunResult(name, BASELINE, "none", record, predictions.answers)
