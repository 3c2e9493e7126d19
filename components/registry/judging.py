"""Score challenger and champion with the same code on the same rows, in one process, and decide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from scipy import sparse

from components.core.artifacts import read_manifest
from components.core.errors import ArtifactError, HeadstartError, TransientError
from components.data.scoring import Scoring
from components.data.tasks.data import Split
from components.data.tasks.examples import TaskFacts, read_facts, read_split
from components.data.tasks.kinds import scoring_for
from components.data.tasks.results import KIND, read_averages
from components.learners.prediction import Classifier
from components.registry.champion import load_version
from components.registry.latency import latency_of
from components.registry.promotion import Decision, Latency, Scored, TestRows, decide
from components.registry.runs import BASELINES, results_of
from components.registry.tracking import Registry, Version
from components.settings.promote import PromotionRule

#: In place of the name of a system: the baseline with the highest score on test. Choosing it on test favours the
#: baselines.
BEST_BASELINE: Final = "the best baseline"


@dataclass(frozen=True)
class Comparison:
    """What the versions of a task are compared by."""

    rule: PromotionRule
    registry: Registry
    examples: Path
    finetuned: Path


def judge(
    by: Comparison,
    candidate: Version,
    champion: Version | None,
    *,
    system: str,
    earlier: Sequence[Mapping[str, Any]] = (),
    vetoed: bool = False,
    rival: str | None = BEST_BASELINE,
) -> dict[str, Any]:
    """The decision on a challenger, as in decision.json.

    Args:
        vetoed: whether the challenger was rolled back. Nothing is read if the verdict does not depend on predictions.
        rival: system that the candidate is compared with if there is no champion; None: the constant prediction.
    """
    settled = vetoed or (champion is not None and champion.digest == candidate.digest)
    facts = read_facts(by.examples)
    split = Split([], [], []) if settled else read_split(by.examples, "test")
    versions = {version.label: version for version in (candidate, champion) if version is not None}
    models, problems = _load(by.registry, {} if settled else versions)
    latencies = {label: latency_of(by.registry, versions[label], each, split.fields) for label, each in models.items()}
    rows, statistics = scored_rows(facts, split, models)
    scored = {
        label: Scored(
            name=label,
            digest=version.digest,
            test_digest=rows.digest,
            statistics=statistics.get(label),
            latency=latencies.get(label),
            problem=problems.get(label, ""),
            rolled_back=vetoed and version is candidate,
        )
        for label, version in versions.items()
    }
    served = scored[champion.label] if champion is not None else None
    metric, baseline = by.rule.metric or rows.scoring.main, None
    if not settled and champion is None and rival is not None:
        baseline = rival_of(
            by.finetuned, facts=facts, split=split, scoring=rows.scoring, metric=metric, system=system, rival=rival
        )
    other = served or baseline
    identity = (
        candidate.digest,
        (other.digest or other.name) if other is not None else rows.scoring.constant_name,
        metric,
        by.rule.mode if champion is not None else "superiority",
    )
    uses = test_uses(earlier, test=rows.digest, comparison=identity)
    decision = decide(scored[candidate.label], served, by.rule, rows=rows, test_uses=uses, baseline=baseline)
    test = {"digest": rows.digest, "rows": len(split) if not settled else None}
    return _as_json(decision, candidate, champion, latencies, test)


def _load(registry: Registry, versions: Mapping[str, Version]) -> tuple[dict[str, Classifier], dict[str, str]]:
    """The models by label, and for versions that cannot be loaded the reason."""
    models: dict[str, Classifier] = {}
    problems: dict[str, str] = {}
    for label, version in versions.items():
        try:
            models[label] = load_version(registry, version)
        except TransientError:
            raise
        except HeadstartError as error:
            problems[label] = str(error)
    return models, problems


def _as_json(
    decision: Decision,
    candidate: Version,
    champion: Version | None,
    latencies: Mapping[str, Latency | None],
    test: Mapping[str, Any],
) -> dict[str, Any]:
    def described(version: Version) -> dict[str, Any]:
        latency = latencies.get(version.label)
        return {
            "name": version.name,
            "version": version.number,
            "digest": version.digest,
            "latency_ms": None if latency is None else asdict(latency) | {"rounds": list(latency.rounds)},
        }

    return {
        **asdict(decision),
        "reasons": list(decision.reasons),  # JSON has no tuples
        "slices": [asdict(change) for change in decision.slices],
        "candidate": described(candidate),
        "champion": described(champion) if champion is not None else None,
        "test": test,
    }


def test_uses(earlier: Sequence[Mapping[str, Any]], *, test: str, comparison: tuple[str, str, str, str]) -> int:
    """Which distinct comparison on a version of the test rows this is, from 1.

    A comparison is identified by (digest of the candidate, digest of the champion or name of the baseline, metric,
    mode). A repeated one has the number of its first occurrence: nothing new is learned from the test rows.
    """
    seen: dict[tuple[str, str, str, str], int] = {}
    for decision in earlier:
        if decision.get("gain") is not None and (decision.get("test") or {}).get("digest") == test:
            identity = (
                str((decision.get("candidate") or {}).get("digest")),
                str((decision.get("champion") or {}).get("digest") or decision.get("against")),
                str(decision.get("metric")),
                str(decision.get("mode", "superiority")),
            )
            seen.setdefault(identity, len(seen) + 1)
    return seen.get(comparison, len(seen) + 1)


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
    return TestRows(facts.digests["test"], scoring, stand_in, slices, split.groups or None), statistics


def rival_of(
    finetuned: Path, *, facts: TaskFacts, split: Split, scoring: Scoring, metric: str, system: str, rival: str
) -> Scored | None:
    """What a candidate is compared with while there is no champion: another system of the run, by the answers of its
    stored model (`components.data.tasks.results.read_averages`).

    Returns:
        None if there are no results, or if the candidate is a baseline and the rival the best baseline: such a
        candidate is compared with the constant prediction. A `Scored` without statistics if the results cannot be read.
    """
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
        return Scored(rival, "", test, None, problem=str(error))
    if not scores:
        return None
    best = max(scores, key=lambda name: scores[name][0])
    return Scored(f"baseline {best}" if directory.name == BASELINES else best, "", test, scores[best][1])
