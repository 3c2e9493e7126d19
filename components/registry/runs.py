"""What the stages before have found of a system: scores of selection, evaluation, leakage; and which model is served
and why, in words."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from components.core.artifacts import json_of, read_json
from components.core.errors import ArtifactError, ConfigError, nearest
from components.data.scoring.base import title
from components.data.tasks.budgets import ALL
from components.data.tasks.results import best_point
from components.settings.section import BASELINE, BASELINES
from components.settings.systems import System


class DevScore(NamedTuple):
    """Mean score of selection over the seeds of the largest label budget (-1: all labels), each run at its best."""

    budget: int
    metric: str
    score: float


#: Folders of classifiers in the results of a system; the second is the head on the frozen encoder.
CLASSIFIER, FROZEN_CLASSIFIER = "classifier", "classifier-frozen"


def results_of(finetuned: Path, system: str) -> Path:
    """The folder of a system's results in the results of its task. A system with a frozen encoder shares the folder of
    the fine-tuned system, systems without a language model share one."""
    directory = finetuned / str(System.named(system).tuned)
    return directory if directory.is_dir() else finetuned / BASELINES


def read_dev_score(path: Path, *, system: str, metric: str | None = None) -> DevScore:
    """The score of selection of a system in a `runs.json`."""
    try:
        runs = [run for run in json_of(path) if run["system"] == system]
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
    artifacts = {each["system"]: each.get("artifact", {}) for each in evaluation.get("systems", [])}
    return dict(artifacts.get(system, {}))


def evaluation_warnings(evaluation: Path, system: str, candidates: Sequence[Mapping[str, Any]] = ()) -> list[str]:
    """Warnings about a system from its evaluation on test: a better baseline, and negative transfer.

    Returns:
        Sentences about the largest label budget: one if the stored model of the best baseline has a higher score, with
        the reason why it is not the challenger; one for all rows, each class and each slice on which the system is
        significantly worse than its family from scratch (`components.evaluation.compare`). Empty if not evaluated.
    """
    path = evaluation / "evaluation.json"
    if not path.is_file():
        return []
    try:
        content: dict[str, Any] = json_of(path)
        systems = {each["system"]: each for each in content["systems"]}
        if system not in systems:
            return []
        family, start = systems[system]["family"], systems[system]["start"]
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

    Returns:
        Empty if the two are one recipe, or were not compared.
    """
    content = read_json(evaluation / "evaluation.json", made_by="the stage evaluate", missing_ok=True)
    recipes: dict[str, dict[str, Any]] = next(reversed(content.get("differences", {}).values()), {})
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
    run."""
    value = System.named(system).tuned
    path = out / "leakage" / (f"{task}-with-{value.group}" if value.way == "with" else task) / "leakage.json"
    systems = read_json(path, made_by="the stage leakage", missing_ok=True).get("systems", {})
    # All systems without a language model have seen the same rows.
    return dict(systems.get(str(value)) or systems.get(BASELINES, {}))


def _beaten_by_baseline(content: dict[str, Any], system: str, candidates: Sequence[Mapping[str, Any]]) -> list[str]:
    scores = {
        each["system"]: each["artifact"]["scores"][content["main"]]
        for each in content["systems"]
        if "artifact" in each and (each["family"] == BASELINE or each["system"] == system)
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


def _sentence(part: dict[str, Any], of: dict[str, Any]) -> str:
    what = "all rows" if part["part"] == "all" else f"{part['part']} {part['name']!r} ({part['rows']} rows)"
    difference = of["difference"]
    return (
        f"transfer hurts on {what}: {of['score']['mean']:.3f} against {part['scratch']['mean']:.3f} from scratch, "
        f"difference {difference['mean']:+.3f} [{difference['low']:+.3f}, {difference['high']:+.3f}]"
    )


def story(
    decision: Mapping[str, Any],
    served: Mapping[str, Any] | None,
    *,
    evaluation: Mapping[str, Any],
    candidates: Sequence[Mapping[str, Any]],
) -> str:
    """Which model is the current one and why, in one sentence with the figures of the decision."""
    system, verdict, reasons = decision["system"], decision["verdict"], decision["reasons"]
    if served is None:
        return f"there is no current model: {reasons[0]}"
    name = f"{served['system'] or 'a model'} (version {served['version']})"
    named = {system, served["system"]}
    number = (decision.get("candidate") or {}).get("version")
    other = f"version {number}" if number and system == served["system"] else system
    if decision.get("first"):
        text = reasons[0]
        named |= {max(candidates, key=lambda entry: float(entry["dev_score"]))["system"]}
    elif verdict == "promote":
        text = f"{name} is the current model: {figures(decision)}"
    elif verdict == "reject":
        text = f"{name} stays: {other} is rejected, {reasons[0]}"
        text += f" ({figures(decision)})" if decision.get("gain") is not None else ""
    elif verdict == "unchanged" or decision.get("gain") is None:
        text = f"{name} stays: {reasons[0]}"
    else:
        text = f"{name} stays: {other} is not shown to be better, {figures(decision)}"
    return f"{text}{_better_row(evaluation, served['system'], named, candidates)}"


def figures(decision: Mapping[str, Any]) -> str:
    """Both scores, and the gain with its bounds."""
    text = f"{title(decision['metric'])} {decision['candidate_score']:.4f} against {decision['champion_score']:.4f} of "
    text += f"{decision['against']}, gain {decision['gain']:+.4f}"
    if decision["low"] is None:
        return text
    return f"{text}, between {decision['low']:+.4f} and {decision['high']:+.4f}"


def _better_row(
    evaluation: Mapping[str, Any], served: str, named: set[str], candidates: Sequence[Mapping[str, Any]]
) -> str:
    """Why the model with the best score on test is not the served one, unless the sentence says it already."""
    scores = {
        each["system"]: each["artifact"]["scores"][evaluation["main"]]["mean"]
        for each in evaluation.get("systems", [])
        if "artifact" in each
    }
    best = max(scores, key=lambda name: scores[name], default=served)
    if best in named or (served in scores and scores[best] <= scores[served]):
        return ""
    against = f" against {scores[served]:.4f}" if served in scores else ""
    why = why_not(evaluation, best, candidates)
    return f"; {best} has a higher score on test ({scores[best]:.4f}{against}), but {why}"


def why_not(evaluation: Mapping[str, Any], system: str, candidates: Sequence[Mapping[str, Any]]) -> str:
    """Why a system of the evaluation is not the challenger."""
    selection = {each["system"]: each["artifact"]["selection"] for each in evaluation["systems"] if "artifact" in each}
    families = {each["system"]: each["family"] for each in evaluation["systems"]}
    chosen = max(candidates, key=lambda entry: float(entry["dev_score"]), default=None)
    kept = next((each["system"] for each in candidates if families.get(each["system"]) == "baseline"), system)
    if families.get(system) == "baseline" and selection.get(kept, math.inf) < selection.get(system, -math.inf):
        return (
            f"of the words models {kept} is registered, the simplest one whose score of selection is within one "
            f"standard error of the best ({selection[kept]:.4f}, and {selection[system]:.4f} of {system})"
        )
    if chosen is None or chosen["system"] == system or chosen["system"] not in selection:
        return "models are chosen by their score of selection, not on test"
    return (
        f"the challenger is chosen by its score of selection, which is {selection[chosen['system']]:.4f} of "
        f"{chosen['system']} and {selection[system]:.4f} of {system}"
    )
