"""The stage `promote`: compare challenger and champion on the same test rows and move the alias.

DVC never caches this stage, because it acts on the registry. It is idempotent: a decision with the same models, test
split and rule as an earlier one is read from the ledger.
"""

from __future__ import annotations

import hashlib
import json
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from components.artifacts import read_json, write_atomic
from components.errors import HeadstartError, RegistryError
from components.inference.prediction import Classifier, predict_rows
from components.registry.champion import load_version, model_name
from components.registry.ledger import (
    CHAMPION,
    ROLLED_BACK,
    Ledger,
    champions,
    locked,
    move_champion,
    recover,
    roll_back,
)
from components.registry.promotion import Scored, TestRows, decide
from components.registry.runs import evaluation_warnings
from components.registry.stage import REGISTERED
from components.settings.promote import PromotionRule
from components.settings.registry import RegistrySettings
from components.settings.section import Section
from components.tasks.data import Fields, Split
from components.tasks.examples import TaskFacts, read_facts, read_split
from components.tasks.kinds import scoring_for
from components.tracking import Registry, Version, connect

DECISION = "decision.json"
SCHEMA = 1
#: Number of rows whose latency is measured, after WARM_UP rows that are not counted.
LATENCY_ROWS = 100
WARM_UP = 5


class PromoteJob(Section):
    """Inputs of the stage.

    Attributes:
        registry: `params.registry`.
        rule: `params.promote`.
        examples: task -> output directory of the stage `examples`. Each task has its own champion.
        out: `params.run.out`; `registry/registered.json` is read, `registry/decision.json` is written.
        seed: seed of the bootstrap.
        ledger: path of the ledger.
    """

    registry: RegistrySettings
    rule: PromotionRule
    examples: dict[str, Path]
    out: Path
    seed: int = 0
    ledger: Path = Path(".headstart/ledger.jsonl")


def promote(job: PromoteJob) -> Path:
    """Decide on every task's challenger, move the alias `champion` if the verdict is promote, write decision.json.

    The file holds `schema`, `tracking`, `recovered` (one sentence per interrupted change that was completed first) and
    `decisions`: task -> {verdict, metric, reasons, against, candidate, champion, candidate_score, champion_score, gain,
    low, high, labels_needed, slices, test, warnings, alias_before, alias_after, last_change}, where candidate and
    champion are {name, version, digest, latency_ms: {p50, p99}}.

    Returns:
        The path of decision.json.

    Raises:
        ArtifactError: the stage `register` has not run.
        RegistryError: the registry cannot be reached, or another process moved the alias.
    """
    listing = read_json(job.out / "registry" / REGISTERED, made_by="the stage register")
    registry, ledger = connect(job.registry), Ledger(job.ledger)
    with locked(ledger):
        recovered = recover(registry, ledger)
    for sentence in recovered:
        print(sentence, flush=True)
    decisions = {task: _decide(job, registry, ledger, task, listing) for task in job.examples}
    path = job.out / "registry" / DECISION
    content = {"schema": SCHEMA, "tracking": registry.address, "recovered": recovered, "decisions": decisions}
    write_atomic(path, json.dumps(content, indent=1) + "\n")
    return path


def rollback(settings: RegistrySettings, task: str, *, ledger: Path = Path(".headstart/ledger.jsonl")) -> str:
    """Restore the previous champion of a task.

    Returns:
        A sentence for the user.

    Raises:
        RegistryError: there is no champion, or no previous one.
    """
    rolled_back, restored = roll_back(connect(settings), Ledger(ledger), model=model_name(settings, task))
    return f"{restored.name}@{CHAMPION}: version {restored.number} restored, version {rolled_back.number} rolled back"


def _decide(job: PromoteJob, registry: Registry, ledger: Ledger, task: str, listing: dict[str, Any]) -> dict[str, Any]:
    if task not in listing["challengers"]:
        raise RegistryError(f"no challenger of task {task!r} is registered; run the stage register again")
    challenger = listing["challengers"][task]
    candidate = registry.get(challenger["name"], challenger["version"])
    champion = registry.alias(candidate.name, CHAMPION)
    key = _key(job, candidate, champion, read_facts(job.examples[task]).digests["test"])
    earlier = ledger.decision(key, registry.address)
    # A verdict without a comparison (too slow, unreadable files) is not final; the decision is made again.
    if earlier is not None and earlier["gain"] is not None:
        decision = earlier
    else:
        decision = _judge(job, registry, candidate, champion, job.examples[task])
        decision["warnings"] = evaluation_warnings(job.out / "evaluation" / task, challenger["system"])
        if decision["verdict"] != "unchanged" and (earlier is None or earlier["reasons"] != decision["reasons"]):
            ledger.append(
                "decision", id=uuid.uuid4().hex, uri=registry.address, model=candidate.name, key=key, decision=decision
            )
            registry.set_tag(candidate, "decision", "; ".join([decision["verdict"], *decision["reasons"]]))
    before = champion.number if champion is not None else None
    after = before
    if decision["verdict"] == "promote":
        with locked(ledger):
            move_champion(
                registry,
                ledger,
                model=candidate.name,
                action="promote",
                before=before,
                after=candidate.number,
                history=[*champions(registry, candidate.name), candidate.number],
                reasons=decision["reasons"],
            )
        after = candidate.number
    for reason in [decision["verdict"], *decision["reasons"], *decision["warnings"]]:
        print(f"{task}: {reason}", flush=True)
    change = ledger.last_change(candidate.name, after, registry.address) if after is not None else None
    return decision | {"alias_before": before, "alias_after": after, "last_change": change}


def _key(job: PromoteJob, candidate: Version, champion: Version | None, test: str) -> str:
    inputs = {
        "candidate": [candidate.number, candidate.digest, candidate.tags.get(ROLLED_BACK)],
        "champion": [champion.number, champion.digest] if champion is not None else None,
        "test": test,
        "rule": job.rule.model_dump(),
        "seed": job.seed,
    }
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()


def _judge(
    job: PromoteJob, registry: Registry, candidate: Version, champion: Version | None, examples: Path
) -> dict[str, Any]:
    """Score both versions with the same code on the same rows, in one process, and decide. If the verdict does not
    depend on predictions, no rows are read and no models loaded."""
    settled = ROLLED_BACK in candidate.tags or (champion is not None and champion.digest == candidate.digest)
    facts = read_facts(examples)
    split = Split([], [], []) if settled else read_split(examples, "test")
    models: dict[str, Classifier] = {}
    problems: dict[str, str] = {}
    versions = {version.label: version for version in (candidate, champion) if version is not None}
    for label, version in versions.items() if not settled else ():
        try:
            models[label] = load_version(registry, version)
        except HeadstartError as error:
            problems[label] = str(error)
    latencies = measure_latency(models, split.fields, rounds=LATENCY_ROWS)
    rows, statistics = scored_rows(facts, split, models)

    def scored(version: Version) -> Scored:
        model = models.get(version.label)
        return Scored(
            name=version.label,
            digest=version.digest,
            test_digest=rows.digest,
            statistics=statistics.get(version.label),
            latency_ms=latencies[version.label]["p50"] if model is not None else None,
            problem=problems.get(version.label, ""),
            rolled_back=ROLLED_BACK in version.tags,
        )

    verdict = decide(
        scored(candidate),
        scored(champion) if champion is not None else None,
        job.rule,
        rows=rows,
        seed=job.seed,
    )
    described = {
        label: {
            "name": version.name,
            "version": version.number,
            "digest": version.digest,
            "latency_ms": latencies.get(label),
        }
        for label, version in versions.items()
    }
    return {
        **asdict(verdict),
        "reasons": list(verdict.reasons),  # JSON has no tuples
        "candidate": described[candidate.label],
        "champion": described[champion.label] if champion is not None else None,
        "test": {"digest": rows.digest, "rows": len(split) if not settled else None},
    }


def scored_rows(
    facts: TaskFacts, split: Split, models: Mapping[str, Classifier]
) -> tuple[TestRows, dict[str, sparse.csr_array]]:
    """The test split as an input of `decide`, and each model's (N, K) statistics.

    Versions may have different label sets; a predicted label that the test split lacks counts as wrong.
    """
    unknown = sorted({label for model in models.values() for label in model.labels} - set(facts.labels))
    scoring = scoring_for(facts.kind, [*facts.labels, *unknown])
    statistics = {
        name: scoring.statistics(split.fields, split.targets, scoring.renamed(model.answer(split.fields), model.labels))
        for name, model in models.items()
    }
    slices = split.slices if any(name is not None for name in split.slices) else None
    stand_in = sparse.csr_array((0, scoring.width))
    if len(split):
        stand_in = scoring.statistics(split.fields, split.targets, scoring.constant(split.targets))
    return TestRows(facts.digests["test"], scoring, stand_in, slices), statistics


def measure_latency(
    classifiers: Mapping[str, Classifier], rows: Sequence[Fields], *, rounds: int
) -> dict[str, dict[str, float]]:
    """Latency of single rows. The classifiers alternate, so that load on the machine affects all alike.

    Args:
        classifiers: name -> model.
        rows: inputs, of which evenly spaced ones are timed.
        rounds: maximum number of timed rows.

    Returns:
        name -> {"p50", "p99"} in milliseconds.
    """
    chosen = [rows[int(index)] for index in np.linspace(0, len(rows) - 1, min(rounds, len(rows)))] if rows else []
    seconds: dict[str, list[float]] = {name: [] for name in classifiers}
    for turn, row in enumerate([*chosen[:WARM_UP], *chosen]):
        for name, classifier in classifiers.items():
            started = time.perf_counter()
            predict_rows(classifier, [row], batch_size=1)
            if turn >= len(chosen[:WARM_UP]):
                seconds[name].append(time.perf_counter() - started)
    return {
        name: {f"p{share}": round(float(np.percentile(values, share)) * 1000, 3) for share in (50, 99)}
        for name, values in seconds.items()
        if values
    }
