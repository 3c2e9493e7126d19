"""The summary of a run, and the terminal."""

import io
import json
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from flows import summary
from flows.repository import Project
from flows.terminal import Terminal

from .conftest import ROOT


def cell(budget: int, mean: float) -> dict[str, Any]:
    return {"budget": budget, "scores": {"macro_f1": {"mean": mean, "low": mean - 0.01, "high": mean + 0.01}}}


ACCURACY = {"mean": 0.7, "low": 0.65, "high": 0.75}
EVALUATION = {
    "best": {"-1": "ulmfit-adapted"},
    "labels": ["a", "b"],
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
            "artifact": {"labels": 300, "scores": cell(-1, 0.62)["scores"] | {"accuracy": ACCURACY}},
        },
        {"system": "tfidf-words", "budgets": [cell(20, 0.45)]},
    ],
    "challenger": {"text": "Of the models that can be registered, ulmfit-adapted is better."},
    "statements": [],
    "cut": {"ulmfit-adapted": 0.123},
}
DECISION = {
    "decisions": {
        "aws-type": {
            "verdict": "promote",
            "reasons": ["better by 0.05 (0.03 to 0.07)", "fast"],
            "story": "ulmfit-adapted (version 3) is the current model: better by 0.05",
            "warnings": ["the limit of latency is almost reached"],
            "served": {"version": "3", "system": "ulmfit-adapted"},
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


def test_scores_decision_report_and_registry(params):
    lines = summary.lines(Project(params))
    assert [" ".join(line.split()) for line in lines if not line.strip().startswith("─")] == [
        "aws-type: macro F1, 95% interval",
        "labels a class 5 20 all registered its labels",
        "ulmfit-adapted 0.400 [0.390, 0.410] 0.500 [0.490, 0.510] 0.600 [0.590, 0.610] 0.620 [0.610, 0.630] 300",
        "tfidf-words 0.450 [0.440, 0.460]",
        "aws-type: Transfer was worth 4 times the labels.",
        "aws-type: ulmfit-adapted (version 3) is the current model: better by 0.05",
        "aws-type: warning: the limit of latency is almost reached",
        "aws-type: next: Label more texts: from 20 to all labels a class, macro F1 rose from 0.500 to 0.600. "
        "`headstart suggest FILE --task aws-type --count 50`",
        f"report: {params.parent}/artifacts/report/report.html",
    ]


def test_a_fit_has_one_score_and_one_decision_for_a_task(params):
    lines = summary.lines(Project(params), brief=True)
    assert lines == [
        "aws-type: macro F1 0.620 [0.610, 0.630], accuracy 0.700 [0.650, 0.750] of ulmfit-adapted, 95% intervals",
        "aws-type: ulmfit-adapted (version 3) is the current model: better by 0.05",
        "aws-type: warning: the limit of latency is almost reached",
        f"report: {params.parent}/artifacts/report/report.html",
    ]


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


BAR = "pretrain ulmfit   34%  1.20M/3.50M tok  10.4k tok/s, loss=4.21  03:40 left"


def play(terminal: Terminal) -> None:
    terminal.expect({"a": 6.0, "b": 2.0})
    terminal.begin("a", reasons=["new text"], usual_s=200)
    terminal.say(BAR, source="a")
    terminal.say("2 files", source="a")
    terminal.say("warning: an empty file", source="a")
    terminal.done("a", "completed", 3.25)
    terminal.done("b", "up to date")
    terminal.say("t: promote; champion: version 2", important=True)


VERBOSE = (
    f"a | reason: new text\na | {BAR}\na | 2 files\na | warning: an empty file\n"
    "a | completed in 3.2 s (1 stage left, about 2 s)\nb | up to date\nt: promote; champion: version 2\n"
)
SHORT = "a | warning: an empty file\nt: promote; champion: version 2\n"


@pytest.mark.parametrize(("style", "expected"), [("verbose", VERBOSE), ("text", SHORT), ("quiet", SHORT)])
def test_a_log_has_warnings_and_decisions_and_with_verbose_every_line(style, expected):
    log = io.StringIO()
    play(Terminal(log, style=style))
    assert log.getvalue() == expected


def test_a_log_has_a_line_about_the_progress_once_a_minute(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    log = io.StringIO()
    terminal = Terminal(log)
    terminal.expect({"a@x": None, "b": None})
    for second in range(0, 200, 5):
        now[0] = second
        terminal.say(f"a x  {second // 4}%  {second}/400 run  1 run/s  99:99 left", source="a@x")
    # Half of the first of two stages: nothing is known of the second, and a quarter took 200 s.
    assert log.getvalue().splitlines() == [
        "  8% ──────────  a x  60/400 run",
        " 15% ━─────────  about 11 min left  a x  120/400 run",
        " 22% ━━────────  about 10 min left  a x  180/400 run",
    ]


def test_a_terminal_shows_one_line_about_the_run_and_what_stays(monkeypatch):
    """The numbers come first, so that a narrow terminal does not cut them."""
    monkeypatch.setenv("COLUMNS", "38")
    screen = Screen()
    play(Terminal(screen))
    shown = [line.rpartition("\r\x1b[K")[2] for line in screen.getvalue().split("\n")]
    assert shown == ["a | warning: an empty file", "t: promote; champion: version 2", ""]
    written = screen.getvalue().replace("\n", "").split("\r\x1b[K")
    assert written[1:3] == ["  0% ──────────  8 s left  a", " 26% ━━────────  6 s left  a  1.20M/3"]
    assert written[4] == " 75% ━━━━━━━───  2 s left  a"


@pytest.mark.parametrize("style", ["text", "quiet"])
def test_the_last_lines_of_a_crash_are_shown(style):
    log = io.StringIO()
    Terminal(log, style=style).trace("ValueError: a defect", source="a")
    assert log.getvalue() == "a | ValueError: a defect\n"


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
        {"event": "done", "stage": "a", "outcome": "completed", "seconds": 3.2, "left": "1 stage left, about 2 s"},
        {"event": "done", "stage": "b", "outcome": "up to date", "seconds": None, "left": ""},
        {"event": "line", "stage": None, "text": "t: promote; champion: version 2"},
        {"event": "error", "message": "a: no text"},
    ]
