"""Training noise: the variance of a recipe's test score between runs.

`promote` scores the runs of all seeds of the challenger on test and stores the scores with the registered version, in
the tag `seed_scores`. The variance of a recipe is pooled over all versions that were trained with it, so it becomes
more precise with every retraining.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from components.artifacts import read_manifest
from components.errors import ArtifactError
from components.registry.comparison import TrainingNoise, Variance
from components.scoring import Scoring
from components.tasks.budgets import ALL, budget_name
from components.tasks.data import Split
from components.tasks.examples import TaskFacts
from components.tasks.results import KIND, RunKey, best_score, read_answers
from components.tracking import Version

#: Tag of a version.
SEED_SCORES = "seed_scores"


@dataclass(frozen=True)
class SeedScores:
    """Test scores of the runs of one system.

    Attributes:
        recipe: system and label budget, such as `ulmfit-adapted, budget 20`.
        metric: name of the metric.
        test: digest of the test split.
        scores: one per seed.
    """

    recipe: str
    metric: str
    test: str
    scores: tuple[float, ...]

    def dump(self) -> str:
        """The value of the tag."""
        return json.dumps(asdict(self) | {"scores": [round(score, 6) for score in self.scores]})


def parse_scores(version: Version) -> SeedScores | None:
    """The scores that are stored with a version; None if there are none."""
    try:
        raw = json.loads(version.tags.get(SEED_SCORES, ""))
        return SeedScores(raw["recipe"], raw["metric"], raw["test"], tuple(map(float, raw["scores"])))
    except (ValueError, KeyError, TypeError):
        return None


def recipe_name(system: str, budget: int) -> str:
    """Identity of a recipe."""
    return f"{system}, budget {budget_name(budget)}"


def read_test_scores(
    directory: Path,
    *,
    facts: TaskFacts,
    split: Split,
    scoring: Scoring,
    metric: str,
    budget: int,
    system: str | None = None,
) -> dict[RunKey, float]:
    """Test scores of the runs at one label budget in an output directory of `finetune` or `baseline`.

    Args:
        directory: the output directory.
        facts: of the task.
        split: the test split.
        scoring: of the task; its labels may be more than the task's.
        metric: name of the metric.
        budget: label budget (-1: all labels); the largest one of the runs if they lack it.
        system: name of the system; None: all.

    Returns:
        (system, budget, seed) -> score.

    Raises:
        ArtifactError: the directory is incomplete, or belongs to another version of the test split.
    """
    if read_manifest(directory, kind=KIND).facts.get("examples", {}).get("test") != facts.digests["test"]:
        raise ArtifactError(f"{directory}: made from another version of the test rows; run its stage again")
    found = read_answers(directory, "test")
    budgets = {size for _, size, _ in found}
    if budget not in budgets and budgets:
        budget = max(budgets, key=lambda size: (size == ALL, size))
    scores = {}
    for key, answers in found.items():
        if key[1] != budget or system not in (None, key[0]):
            continue
        if len(answers) != len(split):
            raise ArtifactError(f"{directory}: {len(answers)} predictions for {len(split)} test rows; run it again")
        renamed = scoring.renamed(answers, facts.labels)
        scores[key] = scoring.score(split.fields, split.targets, renamed)[metric]
    return scores


def best_seed(directory: Path, *, system: str, budget: int) -> int:
    """The seed with the highest dev score of a system at a label budget: that of its classifier.

    Raises:
        ArtifactError: runs.json is missing or damaged, or lacks the system.
    """
    path = directory / "runs.json"
    try:
        records = json.loads(path.read_text(encoding="utf-8"))
        found = {
            int(record["seed"]): best_score(record)
            for record in records
            if (record["system"], record["budget"]) == (system, budget)
        }
        return max(found, key=lambda seed: found[seed])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ArtifactError(f"{path}: cannot be read ({error!r}); run its stage again") from error


def noise_of(recipe: str, metric: str, versions: Sequence[Version]) -> TrainingNoise | None:
    """The pooled variance of a recipe's score between runs.

    Versions with several seeds contribute the variance between their seeds. Versions with one seed contribute the
    variance between versions on the same test split, which includes the changes of the data.

    Args:
        recipe: identity of the recipe.
        metric: name of the metric.
        versions: all versions of the model.

    Returns:
        None if there are no two runs to compare.
    """
    found = [scores for version in versions if (scores := parse_scores(version)) is not None]
    found = [scores for scores in found if (scores.recipe, scores.metric) == (recipe, metric)]
    samples = [scores.scores for scores in found if len(scores.scores) > 1]
    count = len(samples)
    for test in dict.fromkeys(scores.test for scores in found):
        alone = tuple(scores.scores[0] for scores in found if scores.test == test and len(scores.scores) == 1)
        if len(alone) > 1:
            samples.append(alone)
            count += len(alone)
    if not samples:
        return None
    source = f"{sum(map(len, samples))} runs of {count} version{'s' if count > 1 else ''} ({recipe})"
    return TrainingNoise(pooled(samples), source, recipe)


def pooled(samples: Sequence[Sequence[float]]) -> Variance:
    """The common variance of samples with different means; each has at least two values."""
    freedom = sum(len(sample) - 1 for sample in samples)
    return Variance(sum(float(np.var(sample, ddof=1)) * (len(sample) - 1) for sample in samples) / freedom, freedom)
