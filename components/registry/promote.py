"""The stage `promote`: compare challenger and champion on the same test rows and move the alias.

DVC never caches this stage, because it acts on the registry. It is idempotent: a decision with the same models, test
split and rule as an earlier one is read from the ledger.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from components.core.artifacts import read_json, read_manifest, write_atomic
from components.core.errors import ConfigError, RegistryError, nearest
from components.data.tasks.examples import read_split
from components.registry.aliases import move, observe
from components.registry.judging import Comparison, judge
from components.registry.ledger import Ledger, OvertakenError, State, taint_in_words
from components.registry.runs import (
    BASELINES,
    evaluation_warnings,
    figures,
    read_leakage,
    recipe_difference,
    results_of,
    story,
)
from components.registry.stage import REGISTERED
from components.registry.tracking import Version, connect
from components.settings.promote import PromotionRule
from components.settings.registry import RegistrySettings
from components.settings.section import Section

DECISION = "decision.json"
SCHEMA = 1
#: Beginning of the part of a version's description that the stage writes.
DECIDED = "Decision:"
#: How often a decision is made again because the alias was moved meanwhile.
ATTEMPTS = 3
#: In mode `superiority`: maximum loss of a challenger against a champion that has learned from removed documents.
TAINTED_MARGIN = 0.02
#: Version of the statistical method. Decisions of another version are made again.
METHOD = 3


class PromoteJob(Section):
    """Inputs of the stage.

    Attributes:
        examples: task -> output directory of the stage `examples`. Each task has its own champion.
        out: `params.run.out`; `registry/registered.json` is read, `registry/decision.json` is written.
    """

    registry: RegistrySettings
    rule: PromotionRule
    examples: dict[str, Path]
    out: Path


@dataclass(frozen=True)
class Contest:
    """The circumstances of a task's decision.

    Attributes:
        candidates: entries of registered.json, one per class of cost, the cheapest first.
    """

    by: Comparison
    task: str
    out: Path
    ledger: Ledger
    state: State
    challenger: Mapping[str, Any]
    candidates: Sequence[Mapping[str, Any]]

    @property
    def evaluation(self) -> Path:
        """Output directory of the stage `evaluate`."""
        return self.out / "evaluation" / self.task

    def version(self, entry: Mapping[str, Any]) -> Version:
        """The version of an entry of registered.json."""
        return self.by.registry.get(entry["name"], entry["version"])

    def refusal(self, version: Version, system: str) -> str:
        """The reason to refuse a candidate regardless of its score; empty if there is none."""
        refused = read_leakage(self.out, self.task, system).get("refused", "")
        leaked = f"{version.label}: {refused}; remove the copies, or take new test rows" if refused else ""
        return self.state.refusal(self.by.registry, version) or leaked

    def judged(self, version: Version, entry: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
        """The decision on a candidate without a champion."""
        return judge(self.by, version, None, system=entry["system"], **changes)

    def earlier(self, key: str) -> dict[str, Any] | None:
        """The last recorded decision with this key, or None."""
        made = [entry["decision"] for entry in self.state.decisions if entry["key"] == key]
        return made[-1] if made else None

    def record(self, candidate: Version, decision: dict[str, Any], *, key: str) -> None:
        """Write a decision to the ledger, and to the tag and the description of the candidate."""
        facts = {"key": key, "decision": decision}
        self.ledger.append("decision", model=self.state.model, alias=self.state.alias, facts=facts)
        self.by.registry.set_tag(candidate, "decision", "; ".join([decision["verdict"], *decision["reasons"]]))
        text, _, _ = self.by.registry.description(candidate).partition(f"{DECIDED} ")
        gain = ""
        if decision.get("gain") is not None:
            interval = "" if decision.get("low") is None else f" [{decision['low']:+.4f}, {decision['high']:+.4f}]"
            gain = f"Gain over {decision['against']}: {decision['gain']:+.4f}{interval} ({decision['metric']}). "
        made = f"{DECIDED} {decision['verdict']}. {gain}{'; '.join(decision['reasons'])}"
        self.by.registry.describe(candidate, f"{text.rstrip()}\n\n{made}".strip())


def promote(job: PromoteJob) -> Path:
    """Decide on every task's challenger, move the alias if the verdict is promote, write decision.json.

    The alias is `champion` in production, otherwise `best` (`registry.production`). A champion that a person has chosen
    is respected (`State.held_by`). If a person moves the alias while the decision is made, it is made again. Without a
    champion, a candidate may be promoted although the challenger is not (`first_champion`): the decision is then about
    that candidate, with `first`: true.

    The file holds `schema`, `tracking`, `recovered` (one sentence per change that was interrupted, or made by hand) and
    `decisions`: task -> the fields of `components.registry.promotion.Decision`, and {candidate, champion, test,
    warnings, recipe (`recipe_difference`), story, alias_before, alias_after, served, last_change}, where candidate and
    champion are {name, version, digest, latency_ms: {p50, p99, rounds, conditions}}, `served` is {version, system} or
    null, and `story` says in one sentence which model is served and why (`components.registry.runs.story`).
    """
    _check_slices(job)
    listing = read_json(job.out / "registry" / REGISTERED, made_by="the stage register")
    ledger = Ledger(connect(job.registry))
    recovered: list[str] = []
    decisions = {task: _decide(job, ledger, task, listing, recovered) for task in job.examples}
    path = job.out / "registry" / DECISION
    content = {
        "schema": SCHEMA,
        "tracking": ledger.registry.address,
        "recovered": recovered,
        "decisions": decisions,
    }
    write_atomic(path, json.dumps(content, indent=1) + "\n")
    return path


def _decide(
    job: PromoteJob, ledger: Ledger, task: str, listing: dict[str, Any], recovered: list[str]
) -> dict[str, Any]:
    if task not in listing["challengers"]:
        raise RegistryError(f"no challenger of task {task!r} is registered; run the stage register again")
    registry, challenger = ledger.registry, listing["challengers"][task]
    by = Comparison(job.rule, registry, job.examples[task], job.out / "finetuned" / task)
    candidate = registry.get(challenger["name"], challenger["version"])
    for attempt in range(1, ATTEMPTS + 1):
        state, champion, sentences = observe(registry, ledger, model=candidate.name, alias=job.registry.alias)
        recovered += sentences
        for sentence in sentences:
            print(sentence, flush=True)
        entries = listing.get("candidates", {}).get(task, [])
        contest = Contest(by, task, job.out, ledger, state, challenger, entries)
        chosen, decision = candidate, _decision(contest, candidate, champion)
        if champion is None and decision["verdict"] != "promote":
            first = first_champion(contest, decision)
            if isinstance(first, list):
                decision = decision | {"reasons": [*decision["reasons"], *first]}
            else:
                chosen, decision = first
        if decision["verdict"] != "promote":
            break
        try:
            state = move(registry, ledger, state, action="promote", after=chosen, reasons=decision["reasons"])
            break
        except OvertakenError as error:
            if attempt == ATTEMPTS:
                raise
            print(f"{task}: {error.args[0].partition('; run this again')[0]}; deciding again", flush=True)
    before, last = champion.number if champion is not None else None, state.last
    after = last["after"] if last is not None else None
    served = registry.find_number(candidate.name, after) if after is not None else None
    described = {"version": served.number, "system": served.tags.get("system", "")} if served is not None else None
    decision["story"] = _story(contest, decision, chosen, described)
    recipe = [decision["recipe"]] if decision.get("recipe") else []
    for line in [decision["verdict"], decision["story"], *decision["reasons"], *recipe, *decision["warnings"]]:
        print(f"{task}: {line}", flush=True)
    change = (
        {"time": last.time.isoformat(), "action": last["action"], "reasons": list(last["reasons"])} if last else None
    )
    return decision | {"alias_before": before, "alias_after": after, "served": described, "last_change": change}


def _story(contest: Contest, decision: Mapping[str, Any], chosen: Version, served: Mapping[str, Any] | None) -> str:
    evaluation = read_json(contest.evaluation / "evaluation.json", made_by="evaluate", missing_ok=True)
    about = {**decision, "system": chosen.tags.get("system", contest.challenger["system"])}
    return story(about, served, evaluation=evaluation, candidates=contest.candidates)


def _decision(contest: Contest, candidate: Version, champion: Version | None) -> dict[str, Any]:
    """The decision, from the ledger if it was made before with the same inputs; otherwise it is recorded."""
    by, state, system = contest.by, contest.state, contest.challenger["system"]
    barrier = contest.refusal(candidate, system)
    rule = _rule(by.rule, state, champion)
    key = decision_key(rule, candidate, champion, by.examples)
    earlier = contest.earlier(key)
    # A verdict without a comparison (too slow, unreadable files) is not final; the decision is made again.
    if earlier is not None and earlier["gain"] is not None and not barrier:
        return earlier
    made = [entry["decision"] for entry in state.decisions]
    decision = judge(
        replace(by, rule=rule),
        candidate,
        champion,
        system=system,
        earlier=[other for other in made if not other.get("first")],
        vetoed=bool(barrier),
    )
    if barrier and decision["verdict"] == "reject":
        decision["reasons"] = [barrier]
    decision["warnings"] = evaluation_warnings(contest.evaluation, system, contest.candidates)
    other = champion.tags.get("system", "") if champion is not None else decision["against"].removeprefix("baseline ")
    decision["recipe"] = recipe_difference(contest.evaluation, system, other)
    if champion is not None and (taint := state.tainted.get(champion.digest)) is not None:
        if rule is not by.rule:
            decision["reasons"] += [f"the champion is tainted, so a loss below {rule.margin:g} is accepted"]
        if decision["verdict"] != "promote":
            decision["warnings"] += [f"the champion, version {champion.number}, {taint_in_words(taint)}"]
    if decision["verdict"] != "unchanged" and (earlier is None or earlier["reasons"] != decision["reasons"]):
        contest.record(candidate, decision, key=key)
    return decision


def decision_key(
    rule: PromotionRule, candidate: Version, champion: Version | None, examples: Path, *, first: bool = False
) -> str:
    """Digest of the inputs of a decision.

    Args:
        first: whether the candidate is compared with chance because no model is shown to be better.
    """
    inputs: dict[str, Any] = {
        "method": METHOD,
        "candidate": [candidate.number, candidate.digest],
        "champion": [champion.number, champion.digest] if champion is not None else None,
        # With the clusters, which are no part of the digest of the split.
        "test": read_manifest(examples).files["test.parquet"],
        "rule": rule.model_dump(),
    }
    if first:
        inputs["first"] = True
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()


def _rule(rule: PromotionRule, state: State, champion: Version | None) -> PromotionRule:
    """The rule, or in mode `superiority` with a tainted champion the same rule in mode `non_inferiority`."""
    tainted = champion is not None and champion.digest in state.tainted
    if not tainted or rule.mode != "superiority":
        return rule
    return rule.model_copy(update={"mode": "non_inferiority", "margin": TAINTED_MARGIN})


def _check_slices(job: PromoteJob) -> None:
    """Check that each name in `promote.slices` is a slice of the test rows of some task."""
    if job.rule.slices:
        names = {name for examples in job.examples.values() for name in read_split(examples, "test").slices if name}
        for name in job.rule.slices:
            if name not in names:
                raise ConfigError(f"promote.slices: no test row is in a slice {name!r}{nearest(name, names)}")


def first_champion(contest: Contest, decision: Mapping[str, Any]) -> tuple[Version, dict[str, Any]] | list[str]:
    """The candidate that is served because no model is shown to be better.

    The candidates are tried from the cheapest on. One is passed over if

    - it is barred (rolled back, tainted, leaked, or slower than the limit),
    - it is cheaper than the challenger, and the challenger is shown to be better than it,
    - it has an encoder, and is shown to be worse than the best baseline or cannot be compared with it, or
    - it is not shown to be better than the constant prediction.

    The comparisons with the constant prediction have an error budget of their own, because they replace no champion.
    The j-th comparison on one version of the test rows has the error `rule.error_of(j)`. The probability that a model
    no better than chance becomes the first champion is therefore at most 1 - confidence.

    Returns:
        The version with its decision; otherwise a sentence for every candidate that was passed over.
    """
    systems = [entry["system"] for entry in contest.candidates]
    system = contest.challenger["system"]
    rank = systems.index(system) if system in systems else len(systems)
    made = [entry["decision"] for entry in contest.state.decisions]
    passed: list[str] = []
    for number, entry in enumerate(contest.candidates):
        version = contest.version(entry)
        if reason := _passed_over(contest, version, entry, decision, cheaper=number < rank):
            # The decision has the reasons of the challenger.
            passed += [reason] if number != rank else []
            continue
        chance = _compared_with_chance(contest, version, entry, decision, made)
        if chance["verdict"] == "promote":
            return version, chance
        passed.append(f"{_named(version, entry)} is not the first champion: {chance['reasons'][0]}")
        made.append(chance)
    return passed


def _passed_over(
    contest: Contest, version: Version, entry: Mapping[str, Any], decision: Mapping[str, Any], *, cheaper: bool
) -> str:
    """Why a candidate is passed over before it is compared with chance, or empty."""
    named, system, challenger = _named(version, entry), entry["system"], contest.challenger
    if reason := contest.refusal(version, system):
        return reason
    words = results_of(contest.by.finetuned, system).name == BASELINES
    if system == challenger["system"]:
        # A words model as challenger was compared with the constant prediction.
        may = not words and _may_be_as_good(decision)
        return "" if may else f"{named} is not the first champion: {decision['reasons'][0]}"
    # The decision on the challenger answers the question already if its opponent is this system.
    if cheaper and decision["against"] != f"baseline {system}":
        best = contest.version(challenger)
        better = contest.judged(best, challenger, rival=system)
        if better["verdict"] == "promote":
            return f"{_named(best, challenger)} is better than {named}: {better['reasons'][0]}"
    if not words and not _may_be_as_good(made := contest.judged(version, entry)):
        return f"{named} is not the first champion: {made['reasons'][0]}"
    return ""


def _may_be_as_good(decision: Mapping[str, Any]) -> bool:
    # The candidate was compared with the best baseline, and is not shown to be worse.
    return decision["verdict"] != "reject" and decision["gain"] is not None


def _compared_with_chance(
    contest: Contest,
    version: Version,
    entry: Mapping[str, Any],
    decision: Mapping[str, Any],
    made: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """The decision against the constant prediction; read from the ledger, or recorded in it."""
    key = decision_key(contest.by.rule, version, None, contest.by.examples, first=True)
    earlier = contest.earlier(key)
    if earlier is not None and earlier["gain"] is not None:
        return earlier
    chance = contest.judged(version, entry, rival=None, earlier=[other for other in made if other.get("first")])
    warnings = evaluation_warnings(contest.evaluation, entry["system"], contest.candidates)
    chance |= {"first": True, "warnings": warnings}
    if chance["verdict"] == "promote":
        chance["reasons"] = [_because(version, entry, contest.challenger, decision), *chance["reasons"]]
    if earlier is None or earlier["reasons"] != chance["reasons"]:
        contest.record(version, chance, key=key)
    return chance


def _named(version: Version, entry: Mapping[str, Any]) -> str:
    return f"{version.label} ({entry['system']})"


def _because(
    version: Version, entry: Mapping[str, Any], challenger: Mapping[str, Any], decision: Mapping[str, Any]
) -> str:
    """The reason of the choice."""
    is_challenger = entry["system"] == challenger["system"]
    other = "it" if is_challenger else f"{challenger['name']}/{challenger['version']} ({challenger['system']})"
    shown = f"{other} is not shown to be better than {decision['against']}"
    if decision["gain"] is not None:
        shown = f"{other} is not shown to be better: {figures(decision)}"
    if decision["verdict"] == "reject":
        shown = f"{other} is rejected: {decision['reasons'][0]}"
    return f"{_named(version, entry)} is the first champion because nothing better is shown: {shown}"
