"""Whether a retraining is worth its cost: the gain that more text or labels are expected to bring, in words.

Labels: a power law, score = a - b labels^-c, through the label budgets of the last evaluation (Hestness et al. 2017).
Domain text: the trend over earlier runs of this repository with other amounts of text; with fewer than three amounts,
the benefit of adaptation is assumed to grow with a power of the text between 0 and 1/2 (Hernandez et al. 2021: 0.2).
Intervals are those of a simulation: scores are drawn from their intervals, unknown exponents from their range.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from components.artifacts import read_json
from components.costs.estimate import Total
from components.costs.outcomes import Outcome, best_system, read_outcomes, standard_error
from components.data_checks import STATISTICS
from components.data_checks.measure import corpus_units, task_units
from components.errors import DataError
from components.pipeline.stages import TRAINING
from components.settings.params import Params

Floats = NDArray[np.float64]

#: Number of distinct amounts of text from which earlier runs show a trend.
AMOUNTS = 3
DRAWS = 4_000
LABEL_EXPONENTS = (0.1, 1.5)
TEXT_EXPONENTS = (0.0, 0.5)
ALL = -1
#: Beginnings of reasons that are not about data.
EDITS = ("setting ", "code ", "library ")
#: Stages that prepare the data of training.
PREPARING = frozenset(("ingest", "tokenizer", "tokenize", "examples"))


@dataclass(frozen=True)
class Advice:
    """Whether a retraining is worth it for a task.

    Attributes:
        task: its name.
        text: the advice.
        gain: expected gain of the primary metric; None: unknown.
        low: lower bound of its 95% interval.
        high: upper bound.
        detectable: smallest gain that the promotion rule detects; None: unknown.
        worth: whether the retraining is worth it; None: unknown.
    """

    task: str
    text: str
    gain: float | None = None
    low: float | None = None
    high: float | None = None
    detectable: float | None = None
    worth: bool | None = None


def advise(params: Params, total: Total, *, why: Mapping[str, str]) -> list[Advice]:
    """Advice for every task of the run; none if nothing would be trained.

    Args:
        params: the settings; the working directory is the repository.
        total: the cost of the run.
        why: stage that would run -> reason.
    """
    groups = {name.partition("@")[0] for name in why}
    if not groups & TRAINING:
        return []
    reasons = [reason for name, reason in why.items() if name.partition("@")[0] in TRAINING | PREPARING]
    out = Path(params.run.out)
    before = read_json(out / "checks" / STATISTICS, made_by="the stage checks", missing_ok=True)
    return [_advice(task, params, before, total, reasons) for task in params.run.tasks]


def _advice(task: str, params: Params, before: Mapping[str, Any], total: Total, why: Sequence[str]) -> Advice:
    out = Path(params.run.out)
    found = read_json(out / "evaluation" / task / "evaluation.json", made_by="evaluate", missing_ok=True)
    best = best_system(found) if found else None
    if best is None:
        return Advice(task, "no evaluation yet, so the gain of a run is unknown")
    if not before:
        return Advice(task, "the last run recorded no statistics of its data, so the gain of a run is unknown")
    try:
        texts = corpus_units("domain", params.data.domain) if params.data.domain is not None else []
        known = {"domain": {"rows": sum(before.get(unit.name, {}).get("rows", 0) for unit in texts)}}
        text = _ratio(known, sum(unit.statistics.rows for unit in texts), "domain")
        train = _ratio(before, task_units(task, params.data.tasks[task])[0].statistics.rows, f"{task} train")
    except DataError as error:
        return Advice(task, f"the data are invalid, so the gain of a run is unknown ({str(error).splitlines()[0]})")
    uses_all = any(cell["budget"] == ALL for cell in best["budgets"])
    unused = "" if uses_all or train == 1 else " (not used: no budget is `all`)"
    changes = f"domain text {_percent(text)}, labels {_percent(train)}{unused}"
    points = label_points(best, found["main"])
    hint = _more_labels(points, found)
    if edited := [reason for reason in why if reason.startswith(EDITS)]:
        return Advice(task, f"{changes}; the curves of text and labels say nothing about {edited[0]}{hint}")
    if text == 1 and (train == 1 or not uses_all):
        return Advice(task, f"{changes}; the curves of text and labels say nothing about edited data{hint}")
    gains, basis = np.zeros(DRAWS), ""
    if text != 1:
        gains, basis = text_gains(task, found, best, text)
    if train != 1 and uses_all:
        if len(points) < 2:
            return Advice(task, f"{changes}; the label curve has one budget, so the gain is unknown")
        gains = gains + label_gains(points, points[-1][0], train * points[-1][0])
    gain, low, high = float(gains.mean()), *map(float, np.quantile(gains, [0.025, 0.975]))
    detectable = _detectable(out, task)
    verdict, worth = _verdict(gain, high, detectable, _cost(total, params.cost.currency))
    expected = f"expected gain {gain:+.3f} [{low:+.3f}, {high:+.3f}] in {found['titles'][found['main']]}{basis}"
    return Advice(task, f"{changes}: {expected}; {verdict}{hint}", gain, low, high, detectable, worth)


def _cost(total: Total, currency: str) -> str:
    cost = (
        f"{total.money:.2f} {currency} ({total.seconds / 60:.0f} min)"
        if total.money
        else f"{total.seconds / 60:.0f} min"
    )
    return f"at least {cost}" if total.unknown else cost


def _verdict(gain: float, high: float, detectable: float | None, cost: str) -> tuple[str, bool | None]:
    if detectable is None:
        return f"no decision yet has stated which gain is detectable; a retraining costs {cost}", None
    if high < detectable:
        return f"below the detectable {detectable:.3f}; retraining is not worth {cost}", False
    if gain > detectable:
        return f"above the detectable {detectable:.3f}; retraining is worth {cost}", True
    return f"the detectable {detectable:.3f} may be reached or not by a retraining for {cost}", None


def _more_labels(points: Sequence[tuple[float, float, float]], found: Mapping[str, Any]) -> str:
    """What twice the labels would bring; empty if there is no label curve."""
    if len(points) < 2:
        return ""
    gains = label_gains(points, points[-1][0], 2 * points[-1][0])
    low, high = np.quantile(gains, [0.025, 0.975])
    return (
        f". Twice the labels ({points[-1][0]:.0f} -> {2 * points[-1][0]:.0f} {found['unit']}): "
        f"{gains.mean():+.3f} [{low:+.3f}, {high:+.3f}]"
    )


def label_points(system: Mapping[str, Any], metric: str) -> list[tuple[float, float, float]]:
    """(labels, mean score, standard error) of every label budget, ascending."""
    points = [
        (float(cell["labels"]), cell["scores"][metric]["mean"], standard_error(cell["scores"][metric]))
        for cell in system["budgets"]
    ]
    return sorted(points)


def label_gains(points: Sequence[tuple[float, float, float]], now_: float, then: float) -> Floats:
    """(DRAWS,) simulated gains of a power law between two numbers of labels.

    Each draw takes scores from their intervals and an exponent from its range, and fits a and b by least squares. Draws
    are resampled by their likelihood, which is informative from three budgets on; curves above 1 are excluded.
    """
    random = np.random.default_rng(0)
    labels, means, errors = (np.asarray(column) for column in zip(*points, strict=True))
    errors = np.maximum(errors, 1e-4)
    exponents = random.uniform(*LABEL_EXPONENTS, DRAWS)
    scores = means + errors * random.standard_normal((DRAWS, len(points)))
    x = labels ** -exponents[:, None]
    x_mean, y_mean = x.mean(1), scores.mean(1)
    slope = ((x - x_mean[:, None]) * (scores - y_mean[:, None])).sum(1) / ((x - x_mean[:, None]) ** 2).sum(1)
    limit = y_mean - slope * x_mean
    residuals = scores - (limit[:, None] + slope[:, None] * x)
    weights = np.exp(-0.5 * ((residuals / errors) ** 2).sum(1)) * (limit <= 1)
    if not weights.sum():
        weights = np.ones(DRAWS)
    chosen = random.choice(DRAWS, DRAWS, p=weights / weights.sum())
    return np.asarray(slope * (then**-exponents - now_**-exponents))[chosen]


def text_gains(task: str, found: Mapping[str, Any], best: Mapping[str, Any], ratio: float) -> tuple[Floats, str]:
    """(DRAWS,) simulated gains of `ratio` times the domain text, and what they are based on."""
    random = np.random.default_rng(1)
    earlier = [
        one
        for one in read_outcomes(Path())
        if one.task == task and one.test == found["digests"].get("test") and one.system == best["system"]
    ]
    if len({one.domain for one in earlier}) >= AMOUNTS:
        slope, error = trend(earlier)
        return np.log(ratio) * (slope + error * random.standard_normal(DRAWS)), f" by {len(earlier)} earlier runs"
    metric = found["main"]
    of = {system["system"]: system["budgets"][-1]["scores"][metric] for system in found["systems"]}
    adapted, pretrained = (of.get(f"{best['family']}-{start}") for start in ("adapted", "pretrained"))
    if not adapted or not pretrained:
        return np.zeros(DRAWS), " (too few earlier runs for a data curve, and no benefit of adaptation is known)"
    error = float(np.hypot(standard_error(adapted), standard_error(pretrained)))
    benefit = adapted["mean"] - pretrained["mean"] + error * random.standard_normal(DRAWS)
    gains = benefit * (ratio ** random.uniform(*TEXT_EXPONENTS, DRAWS) - 1)
    return gains, f" by the benefit of adaptation, as fewer than {AMOUNTS} amounts of text have been tried"


def trend(found: Sequence[Outcome]) -> tuple[float, float]:
    """Slope of the score on the logarithm of the amount of text, and its standard error: weighted least squares, with
    the larger of the errors of the scores and of their scatter."""
    x = np.log([one.domain for one in found])
    y = np.asarray([one.score for one in found])
    weights = 1 / np.maximum([one.error for one in found], 1e-4) ** 2
    x_mean, y_mean = np.average(x, weights=weights), np.average(y, weights=weights)
    spread = (weights * (x - x_mean) ** 2).sum()
    slope = float((weights * (x - x_mean) * (y - y_mean)).sum() / spread)
    residuals = y - y_mean - slope * (x - x_mean)
    scatter = (weights * residuals**2).sum() / max(len(found) - 2, 1)
    return slope, float(np.sqrt(max(1.0, scatter) / spread))


def _ratio(before: Mapping[str, Any], rows: int, unit: str) -> float:
    return rows / before[unit]["rows"] if before.get(unit, {}).get("rows") else 1.0


def _percent(ratio: float) -> str:
    return "unchanged" if ratio == 1 else f"{100 * (ratio - 1):+.1f}%"


def _detectable(out: Path, task: str) -> float | None:
    decisions = read_json(out / "registry" / "decision.json", made_by="promote", missing_ok=True).get("decisions", {})
    value = decisions.get(task, {}).get("detectable")
    return None if value is None else float(value)
