"""A labelled file ends as a served model: the stages of the run that `init` writes, without DVC and Prefect."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from components.cli.common import InitOptions
from components.cli.onboarding.command import init
from components.core.errors import ConfigError
from components.pipeline.running import run_stage
from components.pipeline.stages import STAGES
from components.settings.loading import load_params
from flows import fit, retrain_command, summary
from flows.fit import served
from tests.onboarding.test_init import write


def test_labels_alone_end_as_a_champion(tmp_path, monkeypatch):
    root = tmp_path / "empty"
    root.mkdir()
    monkeypatch.chdir(root)
    init(InitOptions(write(tmp_path / "files", "classification", count=20)), root=root)
    file = root / "params.yaml"
    text = file.read_text().replace("folds: 5", "folds: 2\n      seeds: [0]")
    file.write_text(f"{text}")
    params = load_params(file)
    ran = [name for name, stage in STAGES.items() for item in stage.items(params) if run_stage(name, params, item=item)]
    of_words = {"examples", "checks", "baseline", "evaluate", "leakage", "report", "register", "promote"}
    assert set(ran) == {"identity", "unlabelled"} | of_words
    lines = served(file)
    assert lines[0] == "  headstart predict new.csv predictions.csv --task classification"
    (score,) = summary.score(root / "artifacts", "classification")
    assert re.match(r"classification: macro F1 0\.\d+ \[.*\], accuracy 0\.\d+ \[.*\] of tfidf-words", score)


@pytest.mark.parametrize("flag", [{"minutes": 3.0}, {"kind": "pair"}, {"start": ["mini"]}, {"unlabelled": [Path("a")]}])
def test_flags_without_effect_are_refused(flag, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("params.yaml").write_text("data: {}\n")
    with pytest.raises(ConfigError, match=r"params.yaml: exists, so that the flags have no effect"):
        fit.command(**flag)


def test_without_a_served_model_fit_says_what_to_do_and_not_how_to_predict():
    decision = {"test": {"rows": 200}, "labels_needed": 60, "count": 20}
    evaluation = {"systems": [{"artifact": {"labels": 90}}, {}]}
    assert fit.to_be_served("reviews", decision, evaluation) == [
        "label about 400 more test rows, which would show this gain",
        "label more rows to learn from than 90",
        "check the labels: headstart check; headstart ui shows the errors",
        "or serve a version against the rule: headstart promote --task reviews --version NUMBER --reason WHY",
    ]
    assert fit.to_be_served("reviews", {}, {})[:2] == ["label more test rows", "label more rows to learn from"]


def test_the_flags_of_fit_are_those_of_init(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    ran: list[Path] = []
    monkeypatch.setattr(retrain_command, "command", lambda *, params, verbose, brief: ran.append(params))
    monkeypatch.setattr(fit, "served", lambda _: [])
    Path("-rows.csv").write_text("said,also,what\n" + "".join(f"row {n} of {n % 2},x {n},{n % 2}\n" for n in range(40)))
    fit.command(labelled=Path("-rows.csv"), text="said", label="what", kind="classification")
    source = load_params(Path("params.yaml")).data.tasks["rows"]
    assert (source.kind, source.text, source.label) == ("classification", "said", "what")
    assert ran == [tmp_path / "params.yaml"]
    assert "init | column 'said' is the text, 'what' is the label" in capsys.readouterr().out
