"""The summary of a run, and the terminal."""

import io
import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from flows import summary
from flows.terminal import Terminal

from .conftest import ROOT


def cell(budget: int, mean: float) -> dict[str, Any]:
    return {"budget": budget, "scores": {"macro_f1": {"mean": mean, "low": mean - 0.01, "high": mean + 0.01}}}


EVALUATION = {
    "confidence": 0.95,
    "main": "macro_f1",
    "titles": {"macro_f1": "macro F1"},
    "unit": "labels a class",
    "headline": "Transfer was worth 4 times the labels.",
    "budgets": [5, 20, -1],
    "systems": [
        {
            "system": "ulmfit-adapted",
            "budgets": [cell(5, 0.4), cell(20, 0.5), cell(-1, 0.6)],
            "artifact": cell(-1, 0.62) | {"labels": 300},
        },
        {"system": "tfidf-words", "budgets": [cell(20, 0.45)]},
    ],
    "challenger": {"text": "Of the models that can be registered, ulmfit-adapted is better."},
    "statements": [{"text": "ulmfit-adapted beats tfidf-words at 20 labels a class"}],
    "cut": {"ulmfit-adapted": 0.123},
}
DECISION = {
    "decisions": {
        "aws-type": {
            "verdict": "promote",
            "reasons": ["better by 0.05 (0.03 to 0.07)", "fast"],
            "story": "ulmfit-adapted (version 3) is served: better by 0.05",
            "warnings": ["a baseline does better: tfidf-words"],
            "alias_after": "3",
        }
    }
}


@pytest.fixture
def params(tmp_path: Path) -> Path:
    (tmp_path / "params.yaml").write_text((ROOT / "params.yaml").read_text())
    for name, text in {
        "evaluation/aws-type/evaluation.json": json.dumps(EVALUATION),
        "registry/decision.json": json.dumps(DECISION),
        "report/report.html": "<html>",
    }.items():
        (tmp_path / "artifacts" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "artifacts" / name).write_text(text)
    return tmp_path / "params.yaml"


def test_scores_decision_report_and_registry(params, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    lines = summary.lines(root=params.parent, params=params)
    assert [" ".join(line.split()) for line in lines if not line.strip().startswith("─")] == [
        "aws-type: macro F1, 95% interval",
        "labels a class 5 20 all registered its labels",
        "ulmfit-adapted 0.400 [0.390, 0.410] 0.500 [0.490, 0.510] 0.600 [0.590, 0.610] 0.620 [0.610, 0.630] 300",
        "tfidf-words 0.450 [0.440, 0.460]",
        "",
        "- aws-type: Transfer was worth 4 times the labels.",
        "",
        "aws-type: promote: ulmfit-adapted (version 3) is served: better by 0.05",
        "aws-type: warning: a baseline does better: tfidf-words",
        f"report: {params.parent}/artifacts/report/report.html",
        "pages: headstart ui; headstart ui --servers: MLflow's page too",
    ]


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


BAR = "pretrain ulmfit   34%  1.20M/3.50M tok  10.4k tok/s, loss=4.21  03:40 left"


def play(terminal: Terminal) -> None:
    terminal.begin("a", reasons=["new text"], usual_s=200)
    terminal.say(BAR, source="a")
    terminal.say("2 files", source="a")
    terminal.say("warning: an empty file", source="a")
    terminal.done("a", "completed", 3.25, left="1 stage left, about 5 s")
    terminal.done("b", "up to date")
    terminal.say("")
    terminal.say("t: promote; champion: version 2", important=True)


WHOLE = (
    f"a | reason: new text\na | {BAR}\na | 2 files\na | warning: an empty file\n"
    "a | completed in 3.2 s (1 stage left, about 5 s)\nb | up to date\n\nt: promote; champion: version 2\n"
)


@pytest.mark.parametrize(
    ("style", "expected"),
    [("text", WHOLE), ("quiet", "a | warning: an empty file\nt: promote; champion: version 2\n")],
)
def test_a_log_has_every_line_and_quiet_has_warnings_and_decisions(style, expected):
    log = io.StringIO()
    play(Terminal(log, style=style))
    assert log.getvalue() == expected


def test_a_terminal_shows_one_line_a_stage(monkeypatch):
    monkeypatch.setenv("COLUMNS", "50")
    screen = Screen()
    play(Terminal(screen))
    shown = [line.rpartition("\r\x1b[K")[2] for line in screen.getvalue().split("\n")]
    expected = ["a | warning: an empty file", "a | completed in 3.2 s (1 stage left, about 5 s)", "b | up to date", ""]
    assert shown == [*expected, "t: promote; champion: version 2", ""]
    assert screen.getvalue().startswith("a | reason: new text (the last time: 3 min)\r")
    assert f"\r\x1b[Ka | {BAR}"[:53] in screen.getvalue(), "cut to the width, and overwritten"


def test_json_prints_an_object_a_line():
    log = io.StringIO()
    terminal = Terminal(log, style="json")
    play(terminal)
    terminal.error("a: no text")
    events = [json.loads(line) for line in log.getvalue().splitlines()]
    assert all(datetime.fromisoformat(event.pop("time")).tzinfo for event in events)
    assert events == [
        {"event": "begin", "stage": "a", "reasons": ["new text"], "usual_s": 200},
        {"event": "line", "stage": "a", "text": BAR},
        {"event": "line", "stage": "a", "text": "2 files"},
        {"event": "line", "stage": "a", "text": "warning: an empty file"},
        {"event": "done", "stage": "a", "outcome": "completed", "seconds": 3.2, "left": "1 stage left, about 5 s"},
        {"event": "done", "stage": "b", "outcome": "up to date", "seconds": None, "left": ""},
        {"event": "line", "stage": None, "text": "t: promote; champion: version 2"},
        {"event": "error", "message": "a: no text"},
    ]
