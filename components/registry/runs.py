"""Dev scores of a fine-tuned system, and warnings from its evaluation."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from components.artifacts import read_json
from components.errors import ArtifactError, ConfigError, nearest
from components.registry.story import why_not
from components.settings.names import BASELINE, FROZEN, WITH
from components.tasks.budgets import ALL
from components.tasks.results import best_point


@dataclass(frozen=True)
class DevScore:
    """Mean over seeds of a metric at the largest label budget (-1: all labels), each run at its best evaluation, on dev
    or by cross-validation (`data.tasks.<name>.selection`)."""

    budget: int
    metric: str
    score: float


#: Folder of the results of all systems without a language model, next to those of the stage `finetune`.
BASELINES = "baselines"


def results_of(finetuned: Path, system: str) -> Path:
    """The folder of a system's results among those of its task. A system with a frozen encoder is in that of the
    fine-tuned system, systems without a language model share one."""
    directory = finetuned / system.removesuffix(FROZEN)
    return directory if directory.is_dir() else finetuned / BASELINES


def read_dev_score(path: Path, *, system: str, metric: str | None = None) -> DevScore:
    """The score of selection of a system in a `runs.json`.

    Args:
        path: path of the file.
        system: name of the system.
        metric: name of the metric; None: the metric that selected the weights.

    Raises:
        ArtifactError: the file is missing, damaged or empty.
        ConfigError: the runs have no such metric.
    """
    try:
        runs = [run for run in json.loads(path.read_text(encoding="utf-8")) if run["system"] == system]
        largest = max((run["budget"] for run in runs), key=lambda budget: (budget == ALL, budget))
        best = [best_point(run) for run in runs if run["budget"] == largest]
        name = metric or str(runs[0]["score"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ArtifactError(f"{path}: cannot be read ({error!r}); run the stage finetune again") from error
    if unknown := [point for point in best if name not in point]:
        raise ConfigError(f"promote.metric: {name!r} is not a metric of {path}{nearest(name, unknown[0])}")
    return DevScore(int(largest), name, sum(float(point[name]) for point in best) / len(best))


def artifact_of(evaluation: Mapping[str, Any], system: str) -> dict[str, Any]:
    """The scores of the stored model of a system, as in evaluation.json; empty if it was not evaluated."""
    systems = [one for one in evaluation.get("systems", []) if one["system"] == system]
    return dict(systems[0].get("artifact", {})) if systems else {}


def evaluation_warnings(evaluation: Path, system: str, candidates: Sequence[Mapping[str, Any]] = ()) -> list[str]:
    """Warnings about a system from its evaluation on test: a better baseline, and negative transfer.

    Args:
        evaluation: output directory of the stage `evaluate`.
        system: `<family>-<start>`.
        candidates: as of `components.registry.story.why_not`.

    Returns:
        Sentences about the largest label budget: one if the stored model of the best baseline has a higher score, with
        the reason why it is not the challenger; one for all rows, each
        class and each slice on which the system is significantly worse than its family from scratch
        (`components.evaluation.transfer`). Empty without an evaluation.

    Raises:
        ArtifactError: the evaluation is damaged.
    """
    path = evaluation / "evaluation.json"
    if not path.is_file():
        return []
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        known = {found["system"]: found for found in content["systems"]}
        if system not in known:
            return []
        family, start = known[system]["family"], known[system]["start"]
        parts = content["transfer"][family][-1]["parts"] if family in content["transfer"] else []
        return _beaten_by_baseline(content, system, candidates) + [
            _sentence(part, part["starts"][start])
            for part in parts
            if start in part["starts"] and part["starts"][start]["hurts"]
        ]
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise ArtifactError(f"{path}: damaged ({error!r}); run the stage evaluate again") from error


def recipe_difference(evaluation: Path, system: str, other: str) -> str:
    """Whether the recipe of a system is better than another one, as a sentence: the mean difference over the seeds of
    the last evaluation at its largest label budget, with an interval that covers training too. The gate asks another
    question, whether this artifact is better than the one that is served.

    Args:
        evaluation: output directory of the stage `evaluate`.
        system: of the candidate.
        other: of the champion, or the baseline.

    Returns:
        Empty if the two are one recipe, or were not compared.
    """
    content = read_json(evaluation / "evaluation.json", made_by="the stage evaluate", missing_ok=True)
    recipes = content.get("recipes", {})
    if (difference := recipes.get(system, {}).get(other)) is not None:
        mean, low, high = (difference[name] for name in ("mean", "low", "high"))
    elif (difference := recipes.get(other, {}).get(system)) is not None:
        mean, low, high = (-difference[name] for name in ("mean", "high", "low"))
    else:
        return ""
    seeds = len(content["seeds"])
    return (
        f"as recipes, {system} minus {other}: {content['titles'][content['main']]} {mean:+.4f} "
        f"[{low:+.4f}, {high:+.4f}], mean over {seeds} seed{'s' if seeds > 1 else ''}"
    )


def read_leakage(out: Path, task: str, system: str) -> dict[str, Any]:
    """What the stage `leakage` has found for a system: {sources, unknown, exact, near, refused}; empty if it has not
    run.

    Raises:
        ArtifactError: its output is damaged.
    """
    system = system.removesuffix(FROZEN)
    _, together, group = system.partition(WITH)
    path = out / "leakage" / f"{task}{together}{group}" / "leakage.json"
    systems = read_json(path, made_by="the stage leakage", missing_ok=True).get("systems", {})
    # All systems without a language model have seen the same rows.
    return dict(systems.get(system) or systems.get(BASELINES, {}))


def _beaten_by_baseline(content: dict[str, Any], system: str, candidates: Sequence[Mapping[str, Any]]) -> list[str]:
    scores = {
        one["system"]: one["artifact"]["scores"][content["main"]]
        for one in content["systems"]
        if "artifact" in one and (one["family"] == BASELINE or one["system"] == system)
    }
    best = max(scores, key=lambda name: scores[name]["mean"], default=system)
    if system not in scores or scores[best]["mean"] <= scores[system]["mean"]:
        return []
    return [
        f"a baseline does better on test: {best} {_interval(scores[best])} against {_interval(scores[system])} of "
        f"{system}; {why_not(content, best, candidates)}"
    ]


def _interval(score: dict[str, float]) -> str:
    return f"{score['mean']:.3f} [{score['low']:.3f}, {score['high']:.3f}]"


def _sentence(part: dict[str, Any], found: dict[str, Any]) -> str:
    what = "all rows" if part["part"] == "all" else f"{part['part']} {part['name']!r} ({part['rows']} rows)"
    difference = found["difference"]
    return (
        f"transfer hurts on {what}: {found['score']['mean']:.3f} against {part['scratch']['mean']:.3f} from scratch, "
        f"difference {difference['mean']:+.3f} [{difference['low']:+.3f}, {difference['high']:+.3f}]"
    )
