"""The stage `promote`: compare challenger and champion on the same test rows and move the alias.

DVC never caches this stage, because it acts on the registry. It is idempotent: a decision with the same models, test
split and rule as an earlier one is read from the ledger.

decision.json holds `schema`, `tracking`, `recovered` (one sentence per change that was interrupted, or made by hand)
and `decisions`: task -> `components.registry.decide.Decision`.
"""

import json
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter
from scipy import sparse

from components.core import threads
from components.core.artifacts import digest_text, read_json, read_manifest, write_atomic
from components.core.errors import ArtifactError, ConfigError, HeadstartError, RegistryError, TransientError, nearest
from components.core.processors import processor_name
from components.data.scoring import Scoring
from components.data.tasks.data import Fields, Split, spaced
from components.data.tasks.examples import TaskFacts, read_facts, read_split
from components.data.tasks.kinds import scoring_for
from components.data.tasks.results import KIND, read_averages
from components.learners.prediction import Classifier, predict_rows
from components.registry.champion import load_version
from components.registry.decide import Decision, Latency, Scored, TestRows, decide, sketch_of, use_of
from components.registry.explain import Evaluated, because_of, read_leakage, results_of
from components.registry.ledger import Ledger, OvertakenError, State, move, observe, taint_in_words
from components.registry.register import REGISTERED, WORDS
from components.registry.tracking import Registry, Version, connect
from components.settings.registry import PromotionRule, RegistrySettings
from components.settings.section import BASELINES, MOST_FREQUENT, Section

DECISION = "decision.json"
SCHEMA = 1
#: How often a decision is made again because the alias was moved meanwhile.
ATTEMPTS = 3
#: In mode `superiority`: maximum loss of a challenger against a champion that has learned from removed documents.
TAINTED_MARGIN = 0.02
#: Version of the statistical method. Decisions of another version are made again.
METHOD = 4
#: In place of the name of a system: the baseline with the highest score on test. Choosing it on test favours the
#: baselines.
BEST_BASELINE: Final = "the best baseline"


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
        entries = [listing["challengers"][task], *listing.get("candidates", {}).get(task, [])]
        challenger, *candidates = (registry.get(entry["name"], entry["version"]) for entry in entries)
        for attempt in range(1, ATTEMPTS + 1):
            state, champion, sentences = observe(ledger, challenger.name)
            recovered += sentences
            print("".join(f"{sentence}\n" for sentence in sentences), end="", flush=True)
            contest = Contest(job.rule, ledger, task, job.out, examples, state, champion, challenger, candidates)
            chosen, decision = contest.decided()
            if decision.verdict != "promote":
                break
            try:
                state = move(ledger, state, action="promote", after=chosen, reasons=decision.reasons)
                break
            except OvertakenError as error:
                if attempt == ATTEMPTS:
                    raise
                print(f"{task}: {error.what}; deciding again", flush=True)
        decisions[task] = asdict(contest.told(decision, chosen, state))
    content = {"schema": SCHEMA, "tracking": registry.address, "recovered": recovered, "decisions": decisions}
    path = job.out / "registry" / DECISION
    write_atomic(path, json.dumps(content, indent=1) + "\n")
    return path


def _check_slices(job: PromoteJob) -> None:
    if job.rule.slices:
        names = {name for examples in job.examples.values() for name in read_split(examples, "test").slices if name}
        for name in job.rule.slices:
            if name not in names:
                raise ConfigError(f"promote.slices: no test row is in a slice {name!r}{nearest(name, names)}")


@dataclass(frozen=True)
class Contest:
    """A task's decision and its circumstances.

    Attributes:
        examples: output directory of the stage `examples`.
        candidates: one version per class of cost, the cheapest first.
    """

    rule: PromotionRule
    ledger: Ledger
    task: str
    out: Path
    examples: Path
    state: State
    champion: Version | None
    challenger: Version
    candidates: Sequence[Version]

    @cached_property
    def evaluated(self) -> Evaluated:
        systems = [version.system for version in self.candidates]
        return Evaluated.read(self.out / "evaluation" / self.task, self.challenger.system, systems)

    def refusal(self, version: Version) -> str:
        """The reason to refuse a candidate regardless of its score; empty if there is none."""
        refused = read_leakage(self.out, self.task, version.system).get("refused", "")
        leaked = f"{version.label}: {refused}; remove the copies, or take new test rows" if refused else ""
        return self.state.refusal(self.ledger.registry, version) or leaked

    def decided(self) -> tuple[Version, Decision]:
        """The decision, if possible from the ledger, and its version: the challenger, or a first champion in its
        place."""
        candidate, champion, contest, further = self.challenger, self.champion, self, list[str]()
        barrier = self.refusal(candidate)
        taint = self.state.tainted.get(champion.digest) if champion is not None else None
        if taint is not None and self.rule.mode == "superiority":
            changes = {"mode": "non_inferiority", "margin": TAINTED_MARGIN}
            contest = replace(self, rule=self.rule.model_copy(update=changes))
            further = [f"the champion is tainted, so a loss below {TAINTED_MARGIN:g} is accepted"]

        def made() -> Decision:
            uses = [entry["decision"] for entry in self.state.decisions if not entry["decision"].get("first")]
            decision = contest.judge(candidate, earlier=uses, vetoed=bool(barrier))
            reasons = [barrier] if barrier and decision.verdict == "reject" else decision.reasons
            warnings = decision.warnings
            if champion is not None and taint is not None and decision.verdict != "promote":
                warnings += (f"the champion, version {champion.number}, {taint_in_words(taint)}",)
            recipe = self.evaluated.recipe_difference(candidate.system, decision.rival)
            return replace(decision, reasons=(*reasons, *further), warnings=warnings, recipe=recipe)

        decision = contest.recorded(candidate, made, again=bool(barrier))
        if champion is None and decision.verdict != "promote":
            first = self.first_champion(decision)
            if not isinstance(first, list):
                return first
            decision = replace(decision, reasons=(*decision.reasons, *first))
        return candidate, decision

    def recorded(
        self, candidate: Version, made: Callable[[], Decision], *, first: bool = False, again: bool = False
    ) -> Decision:
        """The last decision in the ledger with the same inputs, otherwise, and with `again`, a new one, which is
        written to the ledger and a tag of the candidate. `first` as of `Decision`."""
        inputs: dict[str, Any] = {
            "method": METHOD,
            "candidate": [candidate.number, candidate.digest],
            "champion": self.champion and [self.champion.number, self.champion.digest],
            # With the clusters, which are no part of the digest of the split.
            "test": read_manifest(self.examples).files["test.parquet"],
            "rule": self.rule.model_dump(),
        } | ({"first": True} if first else {})
        key = digest_text(json.dumps(inputs, sort_keys=True))
        stored = [entry["decision"] for entry in self.state.decisions if entry["key"] == key]
        earlier = Decision.of(stored[-1]) if stored else None
        # A verdict without a comparison (too slow, unreadable files) is not final; the decision is made again.
        if earlier is not None and earlier.gain is not None and not again:
            return earlier
        decision = made()
        if decision.verdict == "unchanged" or (earlier is not None and earlier.reasons == decision.reasons):
            return decision
        facts = {"key": key, "decision": asdict(decision)}
        self.ledger.append("decision", model=self.state.model, facts=facts)
        text = "; ".join([decision.verdict, *decision.reasons])
        self.ledger.registry.set_tag(candidate, "decision", text)
        return decision

    def told(self, decision: Decision, chosen: Version, state: State) -> Decision:
        """The decision with what is served after it, and the sentence about it, which is printed."""
        served, after = None, None
        if (last := state.last) is not None:
            after = last["after"]
            if (version := self.ledger.registry.find_number(chosen.name, after)) is not None:
                here = any(each.number == version.number for each in self.candidates)
                served = {"version": version.number, "system": version.system, "evaluated": here}
        story = self.evaluated.story(decision, chosen.system or self.challenger.system, served)
        recipe = [decision.recipe] if decision.recipe else []
        for line in [decision.verdict, story, *decision.reasons, *recipe, *decision.warnings]:
            print(f"{self.task}: {line}", flush=True)
        return replace(decision, story=story, alias_after=after, served=served)

    def first_champion(self, decision: Decision) -> tuple[Version, Decision] | list[str]:
        """The candidate that is served because no model is shown to be better.

        The challenger has the best score of selection. If its score on test is also higher than the best baseline's, it
        is tried first, then the others from the cheapest on. Otherwise all are tried from the cheapest on. A candidate
        is passed over if

        - it is barred (rolled back, tainted, leaked, or slower than the limit),
        - it is cheaper than the challenger, and the challenger is shown to be better than it,
        - it has an encoder, and is shown to be worse than the best baseline or cannot be compared with it, or
        - it is not shown to be better than the constant prediction.

        The comparisons with the constant prediction have an error budget of their own, because they replace no
        champion. The j-th comparison on the test rows has the error `rule.error_of(j)` (`use_of`). The probability
        that a model no better than chance becomes the first champion is therefore at most 1 - confidence.

        Returns:
            The version with its decision; otherwise a sentence for every candidate that was passed over.
        """
        challenger, candidates = self.challenger, list(self.candidates)
        made = [entry["decision"] for entry in self.state.decisions if entry["decision"].get("first")]
        ahead = not _of_words(challenger) and decision.may_be_as_good and (decision.gain or 0) > 0
        cheaper = candidates[: candidates.index(challenger)] if challenger in candidates else candidates
        passed: list[str] = []
        for version in sorted(candidates, key=lambda version: ahead and version != challenger):
            is_challenger, named = version == challenger, f"{version.label} ({version.system})"
            reason, of_words, judged = self.refusal(version), _of_words(version), decision
            # The decision on the challenger answers the question already if its opponent is this system.
            if not reason and version in cheaper and decision.rival != version.system:
                better = self.judge(challenger, rival=version.system)
                if better.verdict == "promote":
                    best = f"{challenger.label} ({challenger.system})"
                    reason = f"{best} is better than {named}: {better.reasons[0]}"
            if not reason:
                judged = decision if is_challenger or of_words else self.judge(version)
                # A words model as challenger was compared with the constant prediction.
                if is_challenger if of_words else not judged.may_be_as_good:
                    reason = f"{named} is not the first champion: {judged.reasons[0]}"
            if reason:
                # The decision has the reasons of the challenger.
                passed += [] if is_challenger else [reason]
                continue

            def compared(version: Version = version, named: str = named) -> Decision:
                """With the constant prediction."""
                chance = replace(self.judge(version, rival=None, earlier=made), first=True)
                if chance.verdict != "promote":
                    return chance
                because = because_of(decision, version, challenger, ahead=ahead)
                return replace(chance, reasons=(f"{named} is the first champion because {because}", *chance.reasons))

            chance = self.recorded(version, compared, first=True)
            if chance.verdict == "promote":
                return version, chance
            passed.append(f"{named} is not the first champion: {chance.reasons[0]}")
            made.append(asdict(chance))
        return passed

    def judge(
        self,
        candidate: Version,
        *,
        earlier: Sequence[Mapping[str, Any]] = (),
        vetoed: bool = False,
        rival: str | None = BEST_BASELINE,
    ) -> Decision:
        """Score a candidate and the champion with the same code on the same rows, in one process, and decide.

        Args:
            vetoed: whether the candidate is refused. Nothing is read if the verdict does not depend on predictions.
            rival: system that the candidate is compared with if there is no champion; None: the constant prediction.
        """
        registry, rule, champion = self.ledger.registry, self.rule, self.champion
        settled = vetoed or (champion is not None and champion.digest == candidate.digest)
        facts = read_facts(self.examples)
        split = Split([], [], []) if settled else read_split(self.examples, "test")
        models, problems = self._loaded(() if settled else filter(None, (candidate, champion)))
        timed = rule.latency_ms is not None or rule.mode == "latency"
        rows, statistics = scored_rows(facts, split, models)
        metric = rule.metric or rows.scoring.main

        def scored(version: Version) -> Scored:
            label = version.label
            latency = latency_of(registry, version, models[label], split.fields) if timed and label in models else None
            problem = problems.get(label, "")
            return Scored(label, version.digest, statistics.get(label), latency, problem, system=version.system)

        def other_system(rival: str | None) -> Scored | None:
            if settled or rival is None:
                return None
            finetuned = self.out / "finetuned" / self.task
            return rival_of(finetuned, facts, split, rows.scoring, metric=metric, system=candidate.system, rival=rival)

        ours, served = scored(candidate), scored(champion) if champion else None
        if (usual := other_system(MOST_FREQUENT)) and usual.statistics is not None:
            # The constant prediction of the table of scores, which was learned on train.
            rows = replace(rows, stand_in=usual.statistics)
        baseline = None if champion else other_system(rival)
        other = served or baseline
        against = rows.scoring.constant_name if other is None else other.digest or other.name
        identity = (candidate.digest, against, metric, rule.mode if champion else "superiority")
        sketch = sketch_of(split.fields)
        use = use_of(earlier, digest=rows.digest, sketch=sketch, comparison=identity)
        decision = decide(
            replace(ours, rolled_back=vetoed), served, rule, rows=rows, test_uses=use.number, budget=use.budget,
            baseline=baseline,
        )  # fmt: skip
        return replace(
            decision,
            candidate=_described(candidate, ours),
            champion=_described(champion, served) if champion and served else None,
            test={"digest": rows.digest, "rows": len(split) if not settled else None, "sketch": sketch},
            warnings=tuple(self.evaluated.warnings(candidate.system)),
        )

    def _loaded(self, versions: Iterable[Version]) -> tuple[dict[str, Classifier], dict[str, str]]:
        """Label of a version -> its model, or the error of loading it."""
        models, problems = dict[str, Classifier](), dict[str, str]()
        for version in versions:
            try:
                models[version.label] = load_version(self.ledger.registry, version)
            except TransientError:  # says nothing about the version
                raise
            except HeadstartError as error:
                problems[version.label] = str(error)
        return models, problems


def _described(version: Version, scored: Scored) -> dict[str, Any]:
    return version.identity | {"latency_ms": None if scored.latency is None else asdict(scored.latency)}


def _of_words(version: Version) -> bool:
    return version.tags.get("family") == WORDS


def scored_rows(
    facts: TaskFacts, split: Split, models: Mapping[str, Classifier]
) -> tuple[TestRows, dict[str, sparse.csr_array]]:
    """The test split as an input of `decide`, and each model's (N, K) statistics. A predicted label that the split
    lacks counts as wrong."""
    unknown = sorted({label for model in models.values() for label in model.labels} - set(facts.labels))
    scoring = scoring_for(facts.kind, [*facts.labels, *unknown])
    statistics = {
        name: scoring.statistics(split.fields, split.targets, scoring.renamed(model.answer(split.fields), model.labels))
        for name, model in models.items()
    }
    stand_in = sparse.csr_array((0, scoring.width))
    if len(split):
        stand_in = scoring.statistics(split.fields, split.targets, scoring.constant(split.targets))
    return TestRows(facts.digests["test"], scoring, stand_in, split.slices, split.clusters), statistics


def rival_of(
    finetuned: Path, facts: TaskFacts, split: Split, scoring: Scoring, *, metric: str, system: str, rival: str
) -> Scored | None:
    """What a candidate is compared with while there is no champion: another system of the run, by the answers of its
    stored model. None without results, or if the candidate is a baseline and the rival the best baseline. Statistics
    are None if the results cannot be read.

    Args:
        finetuned: folder of the task's results, `<family>-<start>` and `baselines`.
    """
    best, scored = rival == BEST_BASELINE, list[tuple[float, Scored]]()
    directory = finetuned / BASELINES if best else results_of(finetuned, rival)
    if best and (not directory.is_dir() or results_of(finetuned, system) == directory):
        return None
    try:
        if read_manifest(directory, kind=KIND).facts.get("examples", {}).get("test") != facts.digests["test"]:
            raise ArtifactError(f"{directory}: made from another version of the test rows; run its stage again")
        averages = read_averages(directory, averages=scoring.averages)
        for name in averages if best else averages.keys() & {rival}:
            answers = averages[name].answers
            if len(answers) != len(split):
                what = f"{len(answers)} predictions for {len(split)} test rows; run its stage again"
                raise ArtifactError(f"{directory}: {what}")
            statistics = scoring.statistics(split.fields, split.targets, scoring.renamed(answers, facts.labels))
            score = float(scoring.scores(statistics.sum(0))[metric])
            shown = "baseline " * (directory.name == BASELINES) + name
            scored.append((score, Scored(shown, "", statistics, system=name)))
    except ArtifactError as error:
        return Scored(rival, "", None, problem=str(error))
    return max(scored, key=lambda each: each[0])[1] if scored else None


TAG = "latency"
#: Number of rows of a pass, one text at a time, and number of passes after the first one, which is not counted. The
#: variation between passes is the error of a comparison.
LATENCY_ROWS = 8
ROUNDS = 5
#: Measurements (one per machine) that a tag holds.
MOST_CONDITIONS = 10


def latency_of(registry: Registry, version: Version, classifier: Classifier, rows: Sequence[Fields]) -> Latency | None:
    """The latency under the present conditions, None without rows. It is measured once per artifact and machine: a
    candidate cannot be measured again until it is below the limit."""
    chosen = [rows[index] for index in spaced(len(rows), LATENCY_ROWS)]
    conditions = f"{len(chosen)} rows, {processor_name() or 'unknown processor'}"
    stored: dict[str, Any] = {}
    with suppress(ValueError, KeyError, TypeError):  # of a damaged tag
        # Also what was measured since the version was read.
        stored = dict(json.loads(registry.get(version.name, version.number).tags.get(TAG, "{}")))
        return TypeAdapter(Latency).validate_python({**stored[conditions], "conditions": conditions})
    if not chosen:
        return None
    measured = measure_latency(classifier, chosen)
    stored[conditions] = {"median": measured.median, "rounds": measured.rounds}
    registry.set_tag(version, TAG, json.dumps(dict(list(stored.items())[-MOST_CONDITIONS:])))
    return replace(measured, conditions=conditions)


def measure_latency(classifier: Classifier, rows: Sequence[Fields]) -> Latency:
    """Processor time of single rows: the median of `ROUNDS` passes over all, on one thread, so that neither other
    programs nor the number of processors count."""
    passes = []
    with threads.limited(1):
        for _ in range(1 + ROUNDS):
            began = time.process_time()
            for row in rows:
                predict_rows(classifier, [row], batch_size=1)
            passes.append(1000 * (time.process_time() - began) / len(rows))
    rounds = tuple(round(milliseconds, 4) for milliseconds in passes[1:])
    return Latency(round(statistics.median(rounds), 4), rounds)
