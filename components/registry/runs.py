"""Dev scores of a fine-tuned system, and warnings from its evaluation."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from components.artifacts import read_json
from components.errors import ArtifactError, ConfigError, nearest
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


def read_own_scores(
    path: Path, evaluation: Path, system: str, *, run: tuple[Any, Any], metric: str | None = None
) -> dict[str, float]:
    """Scores of a single run of a system.

    Args:
        path: runs.json of the system.
        evaluation: output directory of the stage `evaluate`; without it there are no test scores.
        system: name of the system.
        run: (budget, seed).
        metric: of the dev score; None: the metric that selected the weights.

    Returns:
        `dev.METRIC`, and `test.METRIC` for each metric of the task.

    Raises:
        ArtifactError: a file is damaged.
    """
    found: dict[str, float] = {}
    try:
        for record in json.loads(path.read_text(encoding="utf-8")):
            if (record["system"], record["budget"], record["seed"]) == (system, *run):
                name = metric or str(record["score"])
                found[f"dev.{name}"] = float(best_point(record)[name])
        evaluated = read_json(evaluation / "evaluation.json", made_by="the stage evaluate", missing_ok=True)
        for cell in (cell for entry in evaluated.get("systems", []) if entry["system"] == system
                     for cell in entry["budgets"]):  # fmt: skip
            if cell["budget"] == run[0] and run[1] in cell["seeds"]:
                index = cell["seeds"].index(run[1])
                found |= {f"test.{name}": float(score["seeds"][index]) for name, score in cell["scores"].items()}
    except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
        raise ArtifactError(
            f"{path} or {evaluation}: damaged ({error!r}); run the stages finetune and evaluate again"
        ) from error
    return found


def evaluation_warnings(evaluation: Path, system: str) -> list[str]:
    """Warnings about a system from its evaluation on test: a better baseline, and negative transfer.

    Args:
        evaluation: output directory of the stage `evaluate`.
        system: `<family>-<start>`.

    Returns:
        Sentences about the largest label budget: one if the best baseline has a higher mean; one for all rows, each
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
        return _beaten_by_baseline(content, known[system]) + [
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


def _beaten_by_baseline(content: dict[str, Any], system: dict[str, Any]) -> list[str]:
    main, (last, own) = content["main"], _last_score(system, content["main"])
    rivals = {found["system"]: _last_score(found, main) for found in content["systems"] if found["family"] == BASELINE}
    scores = {name: score for name, (budget, score) in rivals.items() if budget == last}
    best = max(scores, key=lambda name: scores[name]["mean"], default=None)
    if best is None or scores[best]["mean"] <= own["mean"]:
        return []
    return [f"a baseline does better: {best} {_interval(scores[best])} against {_interval(own)} with the most labels"]


def _last_score(system: dict[str, Any], main: str) -> tuple[int, dict[str, float]]:
    """The largest label budget and its score."""
    cell = system["budgets"][-1]
    return cell["budget"], cell["scores"][main]


def _interval(score: dict[str, float]) -> str:
    return f"{score['mean']:.3f} [{score['low']:.3f}, {score['high']:.3f}]"


def _sentence(part: dict[str, Any], found: dict[str, Any]) -> str:
    what = "all rows" if part["part"] == "all" else f"{part['part']} {part['name']!r} ({part['rows']} rows)"
    difference = found["difference"]
    return (
        f"transfer hurts on {what}: {found['score']['mean']:.3f} against {part['scratch']['mean']:.3f} from scratch, "
        f"difference {difference['mean']:+.3f} [{difference['low']:+.3f}, {difference['high']:+.3f}]"
    )
