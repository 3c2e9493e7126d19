"""Score challenger and champion with the same code on the same rows, in one process, and decide."""

import json
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from scipy import sparse

from components.core import threads
from components.core.artifacts import read_manifest
from components.core.errors import ArtifactError, HeadstartError, TransientError
from components.core.processors import processor_name
from components.data.scoring import Scoring
from components.data.scoring.base import title
from components.data.tasks.data import Fields, Split, spaced
from components.data.tasks.examples import TaskFacts, read_facts, read_split
from components.data.tasks.kinds import scoring_for
from components.data.tasks.results import KIND, read_averages
from components.learners.prediction import Classifier, predict_rows
from components.registry.champion import load_version
from components.registry.ledger import Ledger, State
from components.registry.promotion import Latency, Scored, TestRows, decide
from components.registry.runs import read_leakage, results_of
from components.registry.tracking import Registry, Version
from components.registry.uses import sketch_of, use_of
from components.settings.registry import PromotionRule
from components.settings.section import BASELINES, MOST_FREQUENT

#: In place of the name of a system: the baseline with the highest score on test. Choosing it on test favours the
#: baselines.
BEST_BASELINE: Final = "the best baseline"
#: Beginning of the part of a version's description that a decision writes.
DECIDED = "Decision:"


@dataclass(frozen=True)
class Contest:
    """The circumstances of a task's decision.

    Attributes:
        examples: output directory of the stage `examples`.
        candidates: entries of registered.json, one per class of cost, the cheapest first.
    """

    rule: PromotionRule
    ledger: Ledger
    task: str
    out: Path
    examples: Path
    state: State
    challenger: Mapping[str, Any]
    candidates: Sequence[Mapping[str, Any]]

    @property
    def finetuned(self) -> Path:
        """Folder of the task's results, `<family>-<start>` and `baselines`."""
        return self.out / "finetuned" / self.task

    @property
    def evaluation(self) -> Path:
        """Output directory of the stage `evaluate`."""
        return self.out / "evaluation" / self.task

    def version(self, entry: Mapping[str, Any]) -> Version:
        return self.ledger.registry.get(entry["name"], entry["version"])

    def refusal(self, version: Version, system: str) -> str:
        """The reason to refuse a candidate regardless of its score; empty if there is none."""
        refused = read_leakage(self.out, self.task, system).get("refused", "")
        leaked = f"{version.label}: {refused}; remove the copies, or take new test rows" if refused else ""
        return self.state.refusal(self.ledger.registry, version) or leaked

    def earlier(self, key: str) -> dict[str, Any] | None:
        """The last recorded decision with this key, or None."""
        made = [entry["decision"] for entry in self.state.decisions if entry["key"] == key]
        return made[-1] if made else None

    def record(self, candidate: Version, decision: dict[str, Any], *, key: str) -> None:
        """Write a decision to the ledger, and to the tag and the description of the candidate."""
        registry, facts = self.ledger.registry, {"key": key, "decision": decision}
        self.ledger.append("decision", model=self.state.model, alias=self.state.alias, facts=facts)
        registry.set_tag(candidate, "decision", "; ".join([decision["verdict"], *decision["reasons"]]))
        text, _, _ = registry.description(candidate).partition(f"{DECIDED} ")
        gain = ""
        if decision.get("gain") is not None:
            interval = "" if decision.get("low") is None else f" [{decision['low']:+.4f}, {decision['high']:+.4f}]"
            gain = f"Gain over {decision['against']}: {decision['gain']:+.4f}{interval} ({title(decision['metric'])}). "
        made = f"{DECIDED} {decision['verdict']}. {gain}{'; '.join(decision['reasons'])}"
        registry.describe(candidate, f"{text.rstrip()}\n\n{made}".strip())


def judge(
    contest: Contest,
    candidate: Version,
    champion: Version | None,
    *,
    system: str,
    earlier: Sequence[Mapping[str, Any]] = (),
    vetoed: bool = False,
    rival: str | None = BEST_BASELINE,
) -> dict[str, Any]:
    """The decision on a candidate, as in decision.json.

    Args:
        vetoed: whether the candidate is refused. Nothing is read if the verdict does not depend on predictions.
        rival: system that the candidate is compared with if there is no champion; None: the constant prediction.
    """
    registry, rule = contest.ledger.registry, contest.rule
    settled = vetoed or (champion is not None and champion.digest == candidate.digest)
    facts = read_facts(contest.examples)
    split = Split([], [], []) if settled else read_split(contest.examples, "test")
    versions = {version.label: version for version in (candidate, champion) if version is not None}
    models, problems = _load(registry, {} if settled else versions)
    timed = models if rule.latency_ms is not None or rule.mode == "latency" else {}
    latencies = {label: latency_of(registry, versions[label], each, split.fields) for label, each in timed.items()}
    rows, statistics = scored_rows(facts, split, models)
    scored = {
        label: Scored(
            name=label,
            digest=version.digest,
            statistics=statistics.get(label),
            latency=latencies.get(label),
            problem=problems.get(label, ""),
            rolled_back=vetoed and version is candidate,
        )
        for label, version in versions.items()
    }
    if not settled:
        usual = rival_of(
            contest.finetuned, facts=facts, split=split, scoring=rows.scoring, metric=rows.scoring.main, system=system,
            rival=MOST_FREQUENT,
        )  # fmt: skip
        if usual is not None and usual.statistics is not None:
            # The constant prediction of the table of scores, which was learned on train.
            rows = replace(rows, stand_in=usual.statistics)
    served = scored[champion.label] if champion is not None else None
    metric, baseline = rule.metric or rows.scoring.main, None
    if not settled and champion is None and rival is not None:
        baseline = rival_of(
            contest.finetuned, facts=facts, split=split, scoring=rows.scoring, metric=metric, system=system, rival=rival
        )
    other = served or baseline
    against = rows.scoring.constant_name if other is None else other.digest or other.name
    identity = (candidate.digest, against, metric, rule.mode if champion is not None else "superiority")
    sketch = sketch_of(split.fields)
    use = use_of(earlier, digest=rows.digest, sketch=sketch, comparison=identity)
    decision = decide(
        scored[candidate.label], served, rule, rows=rows, test_uses=use.number, budget=use.budget, baseline=baseline
    )

    def described(version: Version) -> dict[str, Any]:
        latency = latencies.get(version.label)
        identity = {"name": version.name, "version": version.number, "digest": version.digest}
        return identity | {"latency_ms": None if latency is None else asdict(latency)}

    return asdict(decision) | {
        "reasons": list(decision.reasons),
        "candidate": described(candidate),
        "champion": described(champion) if champion is not None else None,
        "test": {"digest": rows.digest, "rows": len(split) if not settled else None, "sketch": sketch},
    }


def _load(registry: Registry, versions: Mapping[str, Version]) -> tuple[dict[str, Classifier], dict[str, str]]:
    """The models by label, and for versions that cannot be loaded the reason."""
    models: dict[str, Classifier] = {}
    problems: dict[str, str] = {}
    for label, version in versions.items():
        try:
            models[label] = load_version(registry, version)
        except TransientError:  # says nothing about the version
            raise
        except HeadstartError as error:
            problems[label] = str(error)
    return models, problems


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
    slices = split.slices if any(name is not None for name in split.slices) else None
    stand_in = sparse.csr_array((0, scoring.width))
    if len(split):
        stand_in = scoring.statistics(split.fields, split.targets, scoring.constant(split.targets))
    groups = None if (clusters := split.clusters) is None else [str(number) for number in clusters]
    return TestRows(facts.digests["test"], scoring, stand_in, slices, groups), statistics


def rival_of(
    finetuned: Path, *, facts: TaskFacts, split: Split, scoring: Scoring, metric: str, system: str, rival: str
) -> Scored | None:
    """What a candidate is compared with while there is no champion: another system of the run, by the answers of its
    stored model. None without results, or if the candidate is a baseline and the rival the best baseline. Statistics
    are None if the results cannot be read."""
    named = None if rival == BEST_BASELINE else rival
    directory = finetuned / BASELINES if named is None else results_of(finetuned, named)
    if named is None and (not directory.is_dir() or results_of(finetuned, system) == directory):
        return None
    test = facts.digests["test"]
    try:
        if read_manifest(directory, kind=KIND).facts.get("examples", {}).get("test") != test:
            raise ArtifactError(f"{directory}: made from another version of the test rows; run its stage again")
        scores: dict[str, tuple[float, sparse.csr_array]] = {}
        for name, average in read_averages(directory, averages=scoring.averages).items():
            if named not in (None, name):
                continue
            if len(average.answers) != len(split):
                raise ArtifactError(
                    f"{directory}: {len(average.answers)} predictions for {len(split)} test rows; run its stage again"
                )
            answers = scoring.renamed(average.answers, facts.labels)
            statistics = scoring.statistics(split.fields, split.targets, answers)
            scores[name] = float(scoring.scores(statistics.sum(0))[metric]), statistics
    except ArtifactError as error:
        return Scored(rival, "", None, problem=str(error))
    if not scores:
        return None
    best = max(scores, key=lambda name: scores[name][0])
    return Scored(f"baseline {best}" if directory.name == BASELINES else best, "", scores[best][1])


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
    conditions = f"{len(chosen)} rows, {processor_name(Path('/proc/cpuinfo')) or 'unknown processor'}"
    try:
        stored = dict(json.loads(version.tags.get(TAG, "{}")))
        if (values := stored.get(conditions)) is not None:
            return Latency(values["median"], tuple(values["rounds"]), conditions)
    except (ValueError, KeyError, TypeError):
        stored = {}
    if not chosen:
        return None
    measured = measure_latency(classifier, chosen, conditions=conditions)
    stored[conditions] = {"median": measured.median, "rounds": measured.rounds}
    registry.set_tag(version, TAG, json.dumps(dict(list(stored.items())[-MOST_CONDITIONS:])))
    return measured


def measure_latency(classifier: Classifier, rows: Sequence[Fields], *, conditions: str = "") -> Latency:
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
    return Latency(round(statistics.median(rounds), 4), rounds, conditions)
