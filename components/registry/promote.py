"""The stage `promote`: compare challenger and champion on the same test rows and move the alias.

DVC never caches this stage, because it acts on the registry. It is idempotent: a decision with the same models, test
split and rule as an earlier one is read from the ledger.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from pathlib import Path
from typing import Any

from components.artifacts import read_json, read_manifest, write_atomic
from components.errors import ConfigError, RegistryError, nearest
from components.registry.champion import model_name
from components.registry.judging import judge
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
from components.registry.runs import evaluation_warnings
from components.registry.stage import REGISTERED
from components.settings.promote import PromotionRule
from components.settings.registry import RegistrySettings
from components.settings.section import Section
from components.tasks.examples import read_split
from components.tracking import Registry, Version, connect

DECISION = "decision.json"
SCHEMA = 1
#: Version of the statistical method. Decisions of another version are made again.
METHOD = 2


class PromoteJob(Section):
    """Inputs of the stage.

    Attributes:
        registry: `params.registry`.
        rule: `params.promote`.
        examples: task -> output directory of the stage `examples`. Each task has its own champion.
        out: `params.run.out`; `registry/registered.json` is read, `registry/decision.json` is written.
        ledger: path of the ledger.
    """

    registry: RegistrySettings
    rule: PromotionRule
    examples: dict[str, Path]
    out: Path
    ledger: Path = Path(".headstart/ledger.jsonl")


def promote(job: PromoteJob) -> Path:
    """Decide on every task's challenger, move the alias `champion` if the verdict is promote, write decision.json.

    The file holds `schema`, `tracking`, `recovered` (one sentence per interrupted change that was completed first) and
    `decisions`: task -> the fields of `components.registry.promotion.Decision`, and {candidate, champion, test,
    warnings, alias_before, alias_after, last_change}, where candidate and champion are {name, version, digest,
    latency_ms: {p50, p99, rounds, conditions}}.

    Returns:
        The path of decision.json.

    Raises:
        ArtifactError: the stage `register` has not run.
        ConfigError: `promote.slices` names an unknown slice.
        RegistryError: the registry cannot be reached, or another process moved the alias.
    """
    _check_slices(job)
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
    key = _key(job, candidate, champion, job.examples[task])
    earlier = ledger.decision(key, registry.address)
    # A verdict without a comparison (too slow, unreadable files) is not final; the decision is made again.
    if earlier is not None and earlier["gain"] is not None:
        decision = earlier
    else:
        decision = judge(
            job.rule,
            registry,
            candidate,
            champion,
            examples=job.examples[task],
            finetuned=job.out / "finetuned" / task,
            challenger=challenger,
            earlier=_decisions(ledger, candidate.name, registry.address),
            vetoed=ROLLED_BACK in candidate.tags,
        )
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


def _decisions(ledger: Ledger, model: str, uri: str) -> list[dict[str, Any]]:
    """All decisions on a model, oldest first."""
    return [
        line["decision"]
        for line in ledger.lines()
        if line["event"] == "decision" and (line["model"], line["uri"]) == (model, uri)
    ]


def _check_slices(job: PromoteJob) -> None:
    """Check the names in `promote.slices`: each has to be a slice of the test rows of some task.

    Raises:
        ConfigError: one is not.
    """
    if job.rule.slices:
        known = {name for examples in job.examples.values() for name in read_split(examples, "test").slices if name}
        for name in job.rule.slices:
            if name not in known:
                raise ConfigError(f"promote.slices: no test row is in a slice {name!r}{nearest(name, known)}")


def _key(job: PromoteJob, candidate: Version, champion: Version | None, examples: Path) -> str:
    inputs = {
        "method": METHOD,
        "candidate": [candidate.number, candidate.digest, candidate.tags.get(ROLLED_BACK)],
        "champion": [champion.number, champion.digest] if champion is not None else None,
        # With the clusters, which are no part of the digest of the split.
        "test": read_manifest(examples).files["test.parquet"],
        "rule": job.rule.model_dump(),
    }
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()
