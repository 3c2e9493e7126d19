"""Score challenger and champion with the same code on the same rows, in one process, and decide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from scipy import sparse

from components.errors import HeadstartError, TransientError
from components.inference.prediction import Classifier
from components.registry.baseline import BEST_BASELINE, rival_of
from components.registry.champion import load_version
from components.registry.latency import latency_of
from components.registry.promotion import Decision, decide
from components.registry.scored import Latency, Scored, TestRows
from components.settings.promote import PromotionRule
from components.tasks.data import Split
from components.tasks.examples import TaskFacts, read_facts, read_split
from components.tasks.kinds import scoring_for
from components.tracking import Registry, Version


def judge(
    rule: PromotionRule,
    registry: Registry,
    candidate: Version,
    champion: Version | None,
    *,
    examples: Path,
    finetuned: Path,
    challenger: Mapping[str, Any],
    earlier: Sequence[Mapping[str, Any]] = (),
    vetoed: bool = False,
    rival: str | None = BEST_BASELINE,
) -> dict[str, Any]:
    """The decision on a challenger, as in decision.json.

    Args:
        rule: `params.promote`.
        registry: of both versions; latencies are stored with them.
        candidate: the challenger.
        champion: the version that is served, or None.
        examples: output directory of the stage `examples`.
        finetuned: folder of the task's results, `<family>-<start>` and `baselines`.
        challenger: entry of registered.json: `system` of the challenger.
        earlier: decisions on this model so far, oldest first.
        vetoed: whether the challenger was rolled back. No rows are read and no models loaded if the verdict does not
            depend on predictions.
        rival: system that the candidate is compared with if there is no champion; None: the constant prediction.

    Raises:
        RegistryUnavailableError: the registry does not answer.
    """
    settled = vetoed or (champion is not None and champion.digest == candidate.digest)
    facts = read_facts(examples)
    split = Split([], [], []) if settled else read_split(examples, "test")
    versions = {version.label: version for version in (candidate, champion) if version is not None}
    models, problems = _load(registry, {} if settled else versions)
    latencies = {label: latency_of(registry, versions[label], model, split.fields) for label, model in models.items()}
    rows, statistics = scored_rows(facts, split, models)
    metric = rule.metric or rows.scoring.main
    baseline = None
    if not settled and champion is None and rival is not None:
        baseline = rival_of(
            finetuned,
            facts=facts,
            split=split,
            scoring=rows.scoring,
            metric=metric,
            system=challenger["system"],
            rival=rival,
        )

    def scored(version: Version) -> Scored:
        return Scored(
            name=version.label,
            digest=version.digest,
            test_digest=rows.digest,
            statistics=statistics.get(version.label),
            latency=latencies.get(version.label),
            problem=problems.get(version.label, ""),
            rolled_back=vetoed and version is candidate,
        )

    other = scored(champion) if champion is not None else baseline
    identity = (
        candidate.digest,
        (other.digest or other.name) if other is not None else rows.scoring.constant_name,
        metric,
        rule.mode if champion is not None else "superiority",
    )
    decision = decide(
        scored(candidate),
        scored(champion) if champion is not None else None,
        rule,
        rows=rows,
        test_uses=test_uses(earlier, test=rows.digest, comparison=identity),
        baseline=baseline,
    )
    return _as_json(
        decision, candidate, champion, latencies, rows=len(split) if not settled else None, test=rows.digest
    )


def _load(registry: Registry, versions: Mapping[str, Version]) -> tuple[dict[str, Classifier], dict[str, str]]:
    """The models by label, and for versions that cannot be loaded the reason.

    Raises:
        TransientError: of the registry; it says nothing about a version.
    """
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
    *,
    rows: int | None,
    test: str,
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
        "test": {"digest": test, "rows": rows},
    }


def test_uses(earlier: Sequence[Mapping[str, Any]], *, test: str, comparison: tuple[str, str, str, str]) -> int:
    """Which distinct comparison on a version of the test rows this is, from 1.

    A comparison is identified by (digest of the candidate, digest of the champion or name of the baseline, metric,
    mode). A repeated one has the number of its first occurrence: nothing new is learned from the test rows.

    Args:
        earlier: decisions on this model so far, oldest first.
        test: digest of the test split.
        comparison: the present comparison.
    """
    seen: dict[tuple[str, str, str, str], int] = {}
    for decision in earlier:
        if decision.get("gain") is not None and (decision.get("test") or {}).get("digest") == test:
            champion = decision.get("champion") or {}
            found = (
                str((decision.get("candidate") or {}).get("digest")),
                str(champion.get("digest") or decision.get("against")),
                str(decision.get("metric")),
                str(decision.get("mode", "superiority")),
            )
            seen.setdefault(found, len(seen) + 1)
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
