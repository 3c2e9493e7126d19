"""The stage `promote`: compare challenger and champion on the same test rows and move the alias.

DVC never caches this stage, because it acts on the registry. It is idempotent: a decision with the same models, test
split and rule as an earlier one is read from the ledger.

decision.json holds `schema`, `tracking`, `recovered` (one sentence per change that was interrupted, or made by hand)
and `decisions`: task -> the fields of `components.registry.promotion.Decision`, and {candidate, champion, test,
warnings, recipe (`recipe_difference`), story, alias_before, alias_after, served, last_change}. candidate and champion
are {name, version, digest, latency_ms: {median, rounds, conditions} or null}, `test` is {digest, rows, sketch}
(`components.registry.uses`), `served` is {version, system, evaluated (whether it is a model of the run)} or null, and
`story` says in one sentence which model is the current one and why. `first`: the decision is about a candidate that is
promoted because no model is shown to be better.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from components.core.artifacts import read_json, read_manifest, write_atomic
from components.core.errors import ConfigError, RegistryError, nearest
from components.data.tasks.examples import read_split
from components.registry.aliases import move, observe
from components.registry.judging import Contest, judge
from components.registry.ledger import Ledger, OvertakenError, State, taint_in_words
from components.registry.runs import evaluation_warnings, figures, recipe_difference, results_of, story
from components.registry.stage import REGISTERED
from components.registry.tracking import Version, connect
from components.settings.registry import PromotionRule, RegistrySettings
from components.settings.section import BASELINES, Section

DECISION = "decision.json"
SCHEMA = 1
#: How often a decision is made again because the alias was moved meanwhile.
ATTEMPTS = 3
#: In mode `superiority`: maximum loss of a challenger against a champion that has learned from removed documents.
TAINTED_MARGIN = 0.02
#: Version of the statistical method. Decisions of another version are made again.
METHOD = 4


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


def promote(job: PromoteJob) -> Path:
    """Decide on every task's challenger, move the alias if the verdict is promote, write decision.json.

    The alias is `champion` in production, otherwise `best` (`registry.production`). A champion that a person has chosen
    is respected (`State.held_by`). If a person moves the alias while the decision is made, it is made again. Without a
    champion, a candidate may be promoted although the challenger is not (`first_champion`).

    Raises:
        RegistryError: the champion was deleted, or the alias is moved again and again.
    """
    _check_slices(job)
    listing = read_json(job.out / "registry" / REGISTERED, made_by="the stage register")
    ledger = Ledger(connect(job.registry))
    registry, recovered, decisions = ledger.registry, list[str](), {}
    for task, examples in job.examples.items():
        if task not in listing["challengers"]:
            raise RegistryError(f"no challenger of task {task!r} is registered; run the stage register again")
        challenger, entries = listing["challengers"][task], listing.get("candidates", {}).get(task, [])
        candidate = registry.get(challenger["name"], challenger["version"])
        for attempt in range(1, ATTEMPTS + 1):
            state, champion, sentences = observe(registry, ledger, model=candidate.name, alias=job.registry.alias)
            recovered += sentences
            for sentence in sentences:
                print(sentence, flush=True)
            contest = Contest(job.rule, ledger, task, job.out, examples, state, challenger, entries)
            chosen, decision = _decided(contest, candidate, champion)
            if decision["verdict"] != "promote":
                break
            try:
                state = move(registry, ledger, state, action="promote", after=chosen, reasons=decision["reasons"])
                break
            except OvertakenError as error:
                if attempt == ATTEMPTS:
                    raise
                print(f"{task}: {error.args[0].partition('; run this again')[0]}; deciding again", flush=True)
        decisions[task] = _described(contest, decision, chosen, champion, state)
    content = {"schema": SCHEMA, "tracking": registry.address, "recovered": recovered, "decisions": decisions}
    path = job.out / "registry" / DECISION
    write_atomic(path, json.dumps(content, indent=1) + "\n")
    return path


def _described(
    contest: Contest, decision: dict[str, Any], chosen: Version, champion: Version | None, state: State
) -> dict[str, Any]:
    last, served = state.last, None
    after = last["after"] if last is not None else None
    if after is not None and (version := contest.ledger.registry.find_number(chosen.name, after)) is not None:
        here = any(str(entry["version"]) == version.number for entry in contest.candidates)
        served = {"version": version.number, "system": version.tags.get("system", ""), "evaluated": here}
    evaluation = read_json(contest.evaluation / "evaluation.json", made_by="evaluate", missing_ok=True)
    about = {**decision, "system": chosen.tags.get("system", contest.challenger["system"])}
    decision["story"] = story(about, served, evaluation=evaluation, candidates=contest.candidates)
    recipe = [decision["recipe"]] if decision.get("recipe") else []
    for line in [decision["verdict"], decision["story"], *decision["reasons"], *recipe, *decision["warnings"]]:
        print(f"{contest.task}: {line}", flush=True)
    change = (
        {"time": last.time.isoformat(), "action": last["action"], "reasons": list(last["reasons"])} if last else None
    )
    before = champion.number if champion is not None else None
    return decision | {"alias_before": before, "alias_after": after, "served": served, "last_change": change}


def _decided(contest: Contest, candidate: Version, champion: Version | None) -> tuple[Version, dict[str, Any]]:
    """The decision, if possible from the ledger, and its version: the challenger, or a first champion in its place."""
    rule, state, system = contest.rule, contest.state, contest.challenger["system"]
    barrier = contest.refusal(candidate, system)
    tainted = champion is not None and champion.digest in state.tainted
    if tainted and rule.mode == "superiority":
        rule = rule.model_copy(update={"mode": "non_inferiority", "margin": TAINTED_MARGIN})
    key = decision_key(rule, candidate, champion, contest.examples)
    earlier = contest.earlier(key)
    # A verdict without a comparison (too slow, unreadable files) is not final; the decision is made again.
    if earlier is not None and earlier["gain"] is not None and not barrier:
        decision = earlier
    else:
        uses = [entry["decision"] for entry in state.decisions if not entry["decision"].get("first")]
        changed = replace(contest, rule=rule)
        decision = judge(changed, candidate, champion, system=system, earlier=uses, vetoed=bool(barrier))
        if barrier and decision["verdict"] == "reject":
            decision["reasons"] = [barrier]
        decision["warnings"] = evaluation_warnings(contest.evaluation, system, contest.candidates)
        against = decision["against"].removeprefix("baseline ")
        other = champion.tags.get("system", "") if champion is not None else against
        decision["recipe"] = recipe_difference(contest.evaluation, system, other)
        if champion is not None and tainted:
            if rule is not contest.rule:
                decision["reasons"] += [f"the champion is tainted, so a loss below {rule.margin:g} is accepted"]
            if decision["verdict"] != "promote":
                taint = taint_in_words(state.tainted[champion.digest])
                decision["warnings"] += [f"the champion, version {champion.number}, {taint}"]
        if decision["verdict"] != "unchanged" and (earlier is None or earlier["reasons"] != decision["reasons"]):
            contest.record(candidate, decision, key=key)
    if champion is None and decision["verdict"] != "promote":
        first = first_champion(contest, decision)
        if not isinstance(first, list):
            return first
        decision = decision | {"reasons": [*decision["reasons"], *first]}
    return candidate, decision


def decision_key(
    rule: PromotionRule, candidate: Version, champion: Version | None, examples: Path, *, first: bool = False
) -> str:
    """Digest of the inputs of a decision. `first`: whether the candidate is compared with chance because no model is
    shown to be better."""
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


def _check_slices(job: PromoteJob) -> None:
    if job.rule.slices:
        names = {name for examples in job.examples.values() for name in read_split(examples, "test").slices if name}
        for name in job.rule.slices:
            if name not in names:
                raise ConfigError(f"promote.slices: no test row is in a slice {name!r}{nearest(name, names)}")


def first_champion(contest: Contest, decision: Mapping[str, Any]) -> tuple[Version, dict[str, Any]] | list[str]:
    """The candidate that is served because no model is shown to be better.

    The challenger has the best score of selection. If its score on test is also higher than the best baseline's, it is
    tried first, then the others from the cheapest on. Otherwise all are tried from the cheapest on. A candidate is
    passed over if

    - it is barred (rolled back, tainted, leaked, or slower than the limit),
    - it is cheaper than the challenger, and the challenger is shown to be better than it,
    - it has an encoder, and is shown to be worse than the best baseline or cannot be compared with it, or
    - it is not shown to be better than the constant prediction.

    The comparisons with the constant prediction have an error budget of their own, because they replace no champion.
    The j-th comparison on the test rows has the error `rule.error_of(j)` (`uses.use_of`). The probability that a model
    no better than chance becomes the first champion is therefore at most 1 - confidence.

    Returns:
        The version with its decision; otherwise a sentence for every candidate that was passed over.
    """
    systems = [entry["system"] for entry in contest.candidates]
    system = contest.challenger["system"]
    rank = systems.index(system) if system in systems else len(systems)
    made = [entry["decision"] for entry in contest.state.decisions]
    passed: list[str] = []
    order = [*range(len(systems))]
    if rank < len(systems) and _is_ahead(contest, decision):
        order = [rank, *(number for number in order if number != rank)]
    for number in order:
        entry = contest.candidates[number]
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
    named, system, challenger = _named(version, entry), entry["system"], contest.challenger
    if reason := contest.refusal(version, system):
        return reason
    words = results_of(contest.finetuned, system).name == BASELINES
    if system == challenger["system"]:
        # A words model as challenger was compared with the constant prediction.
        may = not words and _may_be_as_good(decision)
        return "" if may else f"{named} is not the first champion: {decision['reasons'][0]}"
    # The decision on the challenger answers the question already if its opponent is this system.
    if cheaper and decision["against"] != f"baseline {system}":
        best = contest.version(challenger)
        better = judge(contest, best, None, system=challenger["system"], rival=system)
        if better["verdict"] == "promote":
            return f"{_named(best, challenger)} is better than {named}: {better['reasons'][0]}"
    if not words and not _may_be_as_good(made := judge(contest, version, None, system=entry["system"])):
        return f"{named} is not the first champion: {made['reasons'][0]}"
    return ""


def _is_ahead(contest: Contest, decision: Mapping[str, Any]) -> bool:
    """Whether the challenger, which is not shown to be better than the best baseline, is ahead of it on test."""
    words = results_of(contest.finetuned, contest.challenger["system"]).name == BASELINES
    return not words and _may_be_as_good(decision) and decision["gain"] > 0


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
    key = decision_key(contest.rule, version, None, contest.examples, first=True)
    earlier = contest.earlier(key)
    if earlier is not None and earlier["gain"] is not None:
        return earlier
    uses = [other for other in made if other.get("first")]
    chance = judge(contest, version, None, system=entry["system"], rival=None, earlier=uses)
    warnings = evaluation_warnings(contest.evaluation, entry["system"], contest.candidates)
    chance |= {"first": True, "warnings": warnings}
    if chance["verdict"] == "promote":
        chance["reasons"] = [_because(contest, version, entry, decision), *chance["reasons"]]
    if earlier is None or earlier["reasons"] != chance["reasons"]:
        contest.record(version, chance, key=key)
    return chance


def _named(version: Version, entry: Mapping[str, Any]) -> str:
    return f"{version.label} ({entry['system']})"


def _because(contest: Contest, version: Version, entry: Mapping[str, Any], decision: Mapping[str, Any]) -> str:
    challenger = contest.challenger
    is_challenger = entry["system"] == challenger["system"]
    other = "it" if is_challenger else f"{challenger['name']}/{challenger['version']} ({challenger['system']})"
    shown = f"{other} is not shown to be better than {decision['against']}"
    if decision["gain"] is not None:
        shown = f"{other} is not shown to be better: {figures(decision)}"
    if decision["verdict"] == "reject":
        shown = f"{other} is rejected: {decision['reasons'][0]}"
    if is_challenger and _is_ahead(contest, decision):
        return f"{_named(version, entry)} is the first champion because it is ahead in selection and on test: {shown}"
    return f"{_named(version, entry)} is the first champion because nothing better is shown: {shown}"
