"""The stage `promote`: compare challenger and champion on the same test rows and move the alias.

DVC never caches this stage, because it acts on the registry. It is idempotent: a decision with the same models, test
split and rule as an earlier one is read from the ledger.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from components.artifacts import read_json, write_atomic
from components.errors import ConfigError, RegistryError, nearest
from components.registry.alias_changes import OvertakenError, move, observe
from components.registry.barred import why_barred, why_leaked
from components.registry.first import Contest, first_champion
from components.registry.judging import judge
from components.registry.ledger import Ledger
from components.registry.ledger_entries import State, taint_in_words
from components.registry.records import decision_key, find_decision, record_decision
from components.registry.runs import evaluation_warnings, recipe_difference
from components.registry.stage import REGISTERED
from components.registry.story import story
from components.settings.promote import PromotionRule
from components.settings.registry import RegistrySettings
from components.settings.section import Section
from components.tasks.examples import read_split
from components.tracking import Registry, Version, connect

DECISION = "decision.json"
SCHEMA = 1
#: How often a decision is made again because the alias was moved meanwhile.
ATTEMPTS = 3


class PromoteJob(Section):
    """Inputs of the stage.

    Attributes:
        registry: `params.registry`.
        rule: `params.promote`.
        examples: task -> output directory of the stage `examples`. Each task has its own champion.
        out: `params.run.out`; `registry/registered.json` is read, `registry/decision.json` is written.
    """

    registry: RegistrySettings
    rule: PromotionRule
    examples: dict[str, Path]
    out: Path


def promote(job: PromoteJob) -> Path:
    """Decide on every task's challenger, move the alias if the verdict is promote, write decision.json.

    The alias is `champion` in production, otherwise `best` (`registry.production`). A champion that a person has chosen
    is respected (`State.held_by`). If a person moves the alias while the decision is made, it is made again. Without a
    champion, a candidate may be promoted although the challenger is not (`components.registry.first`): the decision is
    then the one on that candidate, with `first`: true.

    The file holds `schema`, `tracking`, `recovered` (one sentence per change that was interrupted, or made by hand) and
    `decisions`: task -> the fields of `components.registry.promotion.Decision`, and {candidate, champion, test,
    warnings, recipe (`recipe_difference`), story, alias_before, alias_after, served, last_change}, where candidate and
    champion are {name, version, digest, latency_ms: {p50, p99, rounds, conditions}}, `served` is {version, system} or
    null, and `story` says in one sentence which model is served and why (`components.registry.story`).

    Returns:
        The path of decision.json.

    Raises:
        ArtifactError: the stage `register` has not run.
        ConfigError: `promote.slices` names an unknown slice.
        RegistryError: the registry cannot be reached, the champion was deleted, or the alias is moved again and again.
    """
    _check_slices(job)
    listing = read_json(job.out / "registry" / REGISTERED, made_by="the stage register")
    registry = connect(job.registry)
    ledger = Ledger(registry)
    recovered: list[str] = []
    decisions = {task: _decide(job, registry, ledger, task, listing, recovered) for task in job.examples}
    path = job.out / "registry" / DECISION
    content = {"schema": SCHEMA, "tracking": registry.address, "recovered": recovered, "decisions": decisions}
    write_atomic(path, json.dumps(content, indent=1) + "\n")
    return path


def _decide(
    job: PromoteJob,
    registry: Registry,
    ledger: Ledger,
    task: str,
    listing: dict[str, Any],
    recovered: list[str],
) -> dict[str, Any]:
    if task not in listing["challengers"]:
        raise RegistryError(f"no challenger of task {task!r} is registered; run the stage register again")
    challenger, entries = listing["challengers"][task], listing.get("candidates", {}).get(task, [])
    candidate = registry.get(challenger["name"], challenger["version"])
    for attempt in range(1, ATTEMPTS + 1):
        state, champion, sentences = observe(registry, ledger, model=candidate.name, alias=job.registry.alias)
        recovered += sentences
        for sentence in sentences:
            print(sentence, flush=True)
        decision = _decision(job, registry, ledger, state, candidate, champion, task, challenger, entries)
        before = after = champion.number if champion is not None else None
        chosen = candidate
        if champion is None and decision["verdict"] != "promote":
            contest = Contest(job.rule, task, job.examples[task], job.out, registry, ledger, state)
            found = first_champion(contest, challenger, decision, entries)
            if isinstance(found, list):
                decision = decision | {"reasons": [*decision["reasons"], *found]}
            else:
                chosen, decision = found
        if decision["verdict"] == "promote":
            try:
                state = move(registry, ledger, state, action="promote", after=chosen, reasons=decision["reasons"])
            except OvertakenError as error:
                if attempt == ATTEMPTS:
                    raise
                print(f"{task}: {error.args[0].partition('; run this again')[0]}; deciding again", flush=True)
                continue
            after = state.last.after if state.last is not None else None
        break
    last = state.last
    change = (
        {"time": last.entry.time.isoformat(), "action": last.action, "reasons": list(last.reasons)} if last else None
    )
    served = registry.find_number(candidate.name, after) if after is not None else None
    described = {"version": served.number, "system": served.tags.get("system", "")} if served is not None else None
    about = decision | {"system": chosen.tags.get("system", challenger["system"])}
    evaluated = read_json(job.out / "evaluation" / task / "evaluation.json", made_by="evaluate", missing_ok=True)
    decision["story"] = story(about, described, evaluation=evaluated, candidates=entries)
    recipe = [decision["recipe"]] if decision.get("recipe") else []
    for line in [decision["verdict"], decision["story"], *decision["reasons"], *recipe, *decision["warnings"]]:
        print(f"{task}: {line}", flush=True)
    return decision | {"alias_before": before, "alias_after": after, "served": described, "last_change": change}


def _decision(
    job: PromoteJob,
    registry: Registry,
    ledger: Ledger,
    state: State,
    candidate: Version,
    champion: Version | None,
    task: str,
    challenger: Mapping[str, Any],
    entries: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """The decision, from the ledger if it was made before with the same inputs; otherwise it is recorded."""
    barred = why_barred(registry, state, candidate) or why_leaked(job.out, task, candidate, challenger["system"])
    rule = _rule(job.rule, state, champion)
    key = decision_key(rule, candidate, champion, job.examples[task])
    earlier = find_decision(state, key)
    # A verdict without a comparison (too slow, unreadable files) is not final; the decision is made again.
    if earlier is not None and earlier["gain"] is not None and not barred:
        return earlier
    decision = judge(
        rule,
        registry,
        candidate,
        champion,
        examples=job.examples[task],
        finetuned=job.out / "finetuned" / task,
        challenger=challenger,
        earlier=[made for entry in state.decisions if not (made := entry.facts["decision"]).get("first")],
        vetoed=bool(barred),
    )
    if barred and decision["verdict"] == "reject":
        decision["reasons"] = [barred]
    evaluation, system = job.out / "evaluation" / task, challenger["system"]
    decision["warnings"] = evaluation_warnings(evaluation, system, entries)
    other = champion.tags.get("system", "") if champion is not None else decision["against"].removeprefix("baseline ")
    decision["recipe"] = recipe_difference(evaluation, system, other)
    if champion is not None and (taint := state.tainted.get(champion.digest)) is not None:
        if rule is not job.rule:
            decision["reasons"] += [f"the champion is tainted, so a loss below {rule.margin:g} is accepted"]
        if decision["verdict"] != "promote":
            decision["warnings"] += [f"the champion, version {champion.number}, {taint_in_words(taint)}"]
    if decision["verdict"] != "unchanged" and (earlier is None or earlier["reasons"] != decision["reasons"]):
        record_decision(registry, ledger, state, candidate, decision, key=key)
    return decision


def _rule(rule: PromotionRule, state: State, champion: Version | None) -> PromotionRule:
    """The rule, or in mode `superiority` with a tainted champion the same rule in mode `non_inferiority`."""
    tainted = champion is not None and champion.digest in state.tainted
    if not tainted or rule.tainted_margin is None or rule.mode != "superiority":
        return rule
    return rule.model_copy(update={"mode": "non_inferiority", "margin": rule.tainted_margin})


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
