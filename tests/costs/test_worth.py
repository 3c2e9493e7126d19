"""Whether a retraining is worth it: label and data curves, advice in words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from components.costs.estimate import Total
from components.costs.outcomes import FILE, Outcome, read_outcomes, record_outcomes
from components.costs.worth import Advice, advise, label_gains, trend
from components.data_checks.measure import corpus_unit, task_units
from components.settings.loading import load_params
from components.settings.params import Params
from tests.raw_data import write_raw_data

ROOT = Path(__file__).parents[2]
TOTAL = Total(1440, 600, 3000, 0, 0, 0.4, 0.2, 0.8, [])
NEW_DATA = {"adapt@ulmfit": "artifacts/corpus/domain modified"}


def score(mean: float, half: float = 0.01) -> dict[str, float]:
    return {"mean": mean, "low": mean - half, "high": mean + half}


def evaluation(systems: dict[str, list[tuple[int, float, float]]]) -> dict[str, Any]:
    return {
        "main": "f1",
        "titles": {"f1": "macro F1"},
        "unit": "labels a class",
        "digests": {"test": "t"},
        "systems": [
            {
                "system": name,
                "family": "baseline" if name == "tfidf" else "ulmfit",
                "budgets": [
                    {"budget": budget, "labels": labels, "scores": {"f1": score(mean)}}
                    for budget, labels, mean in cells
                ],
            }
            for name, cells in systems.items()
        ],
    }


CURVES = {
    "tfidf": [(5, 5.0, 0.4), (20, 20.0, 0.9)],
    "ulmfit-pretrained": [(5, 5.0, 0.45), (20, 20.0, 0.55)],
    "ulmfit-adapted": [(5, 5.0, 0.52), (20, 20.0, 0.63)],
}


class Project:
    """The results of a run, and data that can be changed."""

    def __init__(self, root: Path) -> None:
        write_raw_data(root)
        raw = yaml.safe_load((ROOT / "params.yaml").read_text())
        (root / "params.yaml").write_text(yaml.safe_dump(raw))
        self.evaluate(CURVES)
        params = self.params
        units = [corpus_unit("domain", params.data.domain), *task_units("aws-type", params.data.tasks["aws-type"])]
        self.write("checks/statistics.json", {unit.name: unit.statistics.compact() for unit in units})
        self.write("registry/decision.json", {"decisions": {"aws-type": {"detectable": 0.021}}})

    def evaluate(self, curves: dict[str, list[tuple[int, float, float]]]) -> None:
        self.write("evaluation/aws-type/evaluation.json", evaluation(curves))

    def write(self, name: str, content: Any) -> None:
        path = Path("artifacts") / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content))

    @property
    def params(self) -> Params:
        return load_params(Path("params.yaml"))

    def advice(self, why: dict[str, str] = NEW_DATA) -> Advice:
        (found,) = advise(self.params, TOTAL, why=why)
        return found


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.chdir(tmp_path)
    return Project(tmp_path)


def more_text(rows: int) -> None:
    Path("data/domain/aws/b.jsonl").write_text("".join(f'{{"text": "new text {n}"}}\n' for n in range(rows)))


def test_a_little_more_text_is_not_worth_it(project: Project) -> None:
    more_text(9)
    found = project.advice()
    assert found.text.startswith(
        "domain text +3.0%, labels unchanged: expected gain +0.001 [+0.000, +0.001] in macro F1"
    )
    assert "by the benefit of adaptation, as fewer than 3 amounts of text have been tried" in found.text
    assert "; below the detectable 0.021; retraining is not worth 0.40 USD (24 min). Twice the labels" in found.text
    assert found.worth is False and found.detectable == 0.021
    assert found.low is not None and found.gain is not None and found.high is not None
    assert found.low <= found.gain <= found.high


def test_labels_count_only_if_a_budget_uses_all_of_them(project: Project) -> None:
    train = Path("data/tasks/aws-type/train.jsonl")
    rows = [json.dumps({"text": f"more {n}", "label": ("one", "two")[n % 2], "service": "s"}) for n in range(60)]
    train.write_text(train.read_text() + "\n" + "\n".join(rows))
    assert "labels +100.0% (not used: no budget is `all`); the curves" in project.advice().text
    project.evaluate({"ulmfit-adapted": [(5, 5.0, 0.2), (20, 20.0, 0.5), (-1, 30.0, 0.56)]})
    found = project.advice()
    assert "domain text unchanged, labels +100.0%: expected gain" in found.text
    assert found.worth is True and "retraining is worth 0.40 USD (24 min)" in found.text
    assert found.low is not None and found.high is not None and 0.021 < found.low < found.high < 0.4


def test_what_the_curves_do_not_cover_is_said(project: Project) -> None:
    edited = "setting finetune.ulmfit.epochs: 5 -> 7"
    assert f"say nothing about {edited}" in project.advice({"finetune@aws-type-ulmfit-adapted": edited}).text
    assert "say nothing about edited data" in project.advice().text
    assert advise(project.params, TOTAL, why={"report": "code x"}) == []
    Path("artifacts/checks/statistics.json").unlink()
    assert project.advice().text.startswith("the last run recorded no statistics")
    Path("artifacts/evaluation/aws-type/evaluation.json").unlink()
    assert project.advice() == Advice("aws-type", "no evaluation yet, so the gain of a run is unknown")


def test_earlier_runs_with_other_amounts_of_text_give_the_trend(project: Project) -> None:
    runs = [
        Outcome("aws-type", "", "ulmfit-adapted", "t", 0.5 + 0.1 * np.log(rows / 75), 0.01, rows)
        for rows in (75, 150, 300)
    ]
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text("".join(json.dumps(vars(one)) + "\n" for one in runs))
    slope, error = trend(runs)
    assert slope == pytest.approx(0.1) and error == pytest.approx(0.01 / np.sqrt(2) / np.log(2), rel=1e-6)
    more_text(300)
    found = project.advice()
    assert (
        "domain text +100.0%, labels unchanged" in found.text
        and "by 3 earlier runs; above the detectable" in found.text
    )
    assert found.gain == pytest.approx(0.1 * np.log(2), abs=0.002)


def test_the_label_curve_recovers_a_power_law() -> None:
    def law(labels: float) -> float:
        return float(0.8 - 0.6 * labels**-0.5)

    points = [(labels, law(labels), 0.002) for labels in (5.0, 10.0, 20.0, 40.0, 80.0)]
    gains = label_gains(points, 80, 160)
    low, high = np.quantile(gains, [0.025, 0.975])
    assert low < law(160) - law(80) < high and high - low < 0.02
    # Two budgets do not determine the exponent.
    wide = np.quantile(label_gains([points[2], points[4]], 80, 160), [0.025, 0.975])
    assert wide[1] - wide[0] > high - low


def test_an_outcome_is_recorded_once(project: Project) -> None:
    for _ in range(2):
        record_outcomes(project.params, root=Path())
    (found,) = read_outcomes(Path())
    assert (found.system, found.score, found.domain, found.test) == ("ulmfit-adapted", 0.63, 300, "t")
    assert found.error == pytest.approx(0.01 / 1.96)
