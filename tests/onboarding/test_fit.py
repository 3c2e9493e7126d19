"""A labelled file ends as a served model: the stages of the run that `init` writes, without DVC and Prefect."""

import csv
import io
import json
import re
import shlex
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from components.cli import main as cli
from components.cli.common import InitOptions
from components.cli.onboarding.command import init
from components.core.errors import ConfigError
from components.core.steps import step
from components.pipeline.running import run_stage
from components.pipeline.stages import STAGES
from components.registry.decide import Decision
from components.reporting.advice import not_told_apart
from components.settings.loading import load_params
from components.settings.tasks import LABELLED
from flows import fit, repository, retrain_command, summary
from flows.fit import served
from tests.onboarding.test_init import SERVED, write
from tests.package.test_labels_again import rows_of

SLOW = pytest.mark.slow
KINDS = [kind if kind == "classification" else pytest.param(kind, marks=SLOW) for kind in SERVED]


@pytest.mark.parametrize("kind", KINDS)
def test_labels_alone_end_as_a_champion_and_the_printed_commands_run(kind, tmp_path, monkeypatch):
    root = tmp_path / "empty"
    root.mkdir()
    monkeypatch.chdir(root)
    init(InitOptions(write(tmp_path / "files", kind)), root=root)
    file = root / "params.yaml"
    text = file.read_text().replace("folds: 5", "folds: 2\n      seeds: [0]")
    file.write_text(f"{text}")
    params = load_params(file)
    ran = [name for name, stage in STAGES.items() for item in stage.items(params) if run_stage(name, params, item=item)]
    of_words = {"examples", "checks", "baseline", "evaluate", "leakage", "report", "register", "promote"}
    assert set(ran) == {"identity", "unlabelled"} | of_words
    lines = served(file)
    if kind == "classification":
        (score,) = summary.score(root / "artifacts", "classification")
        assert re.match(r"classification: macro F1 [01]\.\d+ \[.*\], accuracy [01]\.\d+ \[.*\] of tfidf-words", score)
    # A file of texts without labels, as a user has it: some of the labelled texts with another end.
    rows = [json.loads(line) for line in (tmp_path / "files" / f"{kind}.jsonl").read_text().splitlines()]
    texts = [
        {name: f"{value} and more" if isinstance(value, str) else value for name, value in row.items()}
        for row in rows[:20]
    ]
    Path("FILE").with_suffix(".jsonl").write_text("".join(json.dumps(row) + "\n" for row in texts))
    ran = [_run(command) for command in _commands(lines)]
    assert {"predict", "suggest"} <= {*ran} if kind in LABELLED else "predict" in ran
    # Any version can be tried, also where none is served.
    assert _run(step("try", task=kind, version=1).replace("predictions", "tried")) == "predict"
    assert len(Path("tried.csv").read_text().splitlines()) == 21
    # What `suggest` prints, with labels filled in.
    if "suggest" in ran:
        answered = csv.DictReader(io.StringIO(Path(f"{kind}-to-label.csv").read_text("utf-8-sig")))
        assert len([*answered]) > 0


def _commands(lines: list[str]) -> list[str]:
    return [line.strip().partition("    #")[0] for line in lines if line.strip().startswith("headstart ")]


def _run(command: str) -> str:
    """Run a printed command, those that end: `serve` and `ui` run until they are stopped. Returns its name."""
    _, verb, *arguments = shlex.split(command.replace("FILE", "FILE.jsonl"))
    if verb in ("predict", "suggest"):
        done = CliRunner().invoke(cli.app, [verb, *arguments])
        assert done.exit_code == 0, f"{command}: {done.output} {done.exception!r}"
    return verb


def test_the_outputs_of_a_project_below_the_repository_are_found(tmp_path, monkeypatch):
    (tmp_path / ".dvc").mkdir()
    folder = tmp_path / "below"
    folder.mkdir()
    settings = SimpleNamespace(run=SimpleNamespace(out="artifacts/below"))
    monkeypatch.setattr(repository, "load_params", lambda path: settings)
    decision = tmp_path / "artifacts/below/registry/decision.json"
    decision.parent.mkdir(parents=True)
    decision.write_text('{"decisions": {}}')
    assert [line.split("#")[0].strip() for line in served(folder / "params.yaml")] == ["headstart ui"]


@pytest.mark.parametrize("flag", [{"minutes": 3.0}, {"kind": "pair"}, {"start": ["mini"]}, {"unlabelled": [Path("a")]}])
def test_flags_without_effect_are_refused(flag, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("params.yaml").write_text("data: {}\n")
    with pytest.raises(ConfigError, match=r"params.yaml: exists, so that the flags have no effect"):
        fit.command(**flag)


def test_without_a_served_model_fit_says_what_to_do_and_not_how_to_predict():
    decision = Decision(test={"rows": 200}, labels_needed=60, count=20, candidate={"version": "4"})
    evaluation = {"systems": [{"family": "baseline", "artifact": {"labels": 90}}, {}]}
    first, *steps, last = fit.to_be_served("reviews", decision, evaluation)
    assert first.startswith("headstart predict FILE predictions.csv --task reviews --version 4 ")
    assert steps == [
        "label about 400 more test rows: they would show this gain",
        "start from a published encoder: headstart starts; then headstart init FILE --start NAME --overwrite",
        "label more rows to learn from than 90",
        "check the labels: headstart check; headstart ui shows the errors",
    ]
    assert last == 'or choose it against the rule: headstart promote --task reviews --version 4 --reason "WHY"'


def test_what_would_help_depends_on_the_verdict():
    decision = Decision(test={"rows": 200}, count=20, candidate={"version": "4"})
    ways = [{"way": "features", "share": 1.0}, {"way": "contrastive", "share": 0.4}]
    encoder = {"family": "mini", "artifact": {"labels": 90}, "budgets": [{"budget": 20}, {"budget": -1, "ways": ways}]}
    for verdict in (decision, replace(decision, labels_needed=60, verdict="reject")):
        _, *steps = fit.to_be_served("reviews", verdict, {"systems": [encoder]})
        # More test rows would show the same.
        assert not any("test rows" in each for each in steps)
        assert steps[0].startswith(
            "give the training more time: of the steps of contrastive, 40% were within finetune.mini."
        )
    _, *steps = fit.to_be_served("reviews", decision, {"systems": [encoder | {"budgets": []}]})
    assert steps[0] == "try another encoder: headstart starts"


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


def test_where_test_rows_are_a_share_of_the_file_the_rows_to_label_are_that_many_more():
    decision = Decision(test={"rows": 200}, labels_needed=60, count=20, candidate={"version": "4"})
    _, first, *_ = fit.to_be_served("reviews", decision, {"systems": []}, share=0.2)
    assert first == (
        "label about 2,000 more rows: 20% of them become test rows, and about 400 more of these would show this gain"
    )


def test_labels_that_test_does_not_tell_apart_are_named_with_the_rows_to_read_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = rows_of(overlap=True)
    (tmp_path / "mail.csv").write_text(
        "text,label\n" + "".join(f"{text} {n},{label}\n" for n, (text, label) in enumerate(rows))
    )
    init(InitOptions(tmp_path / "mail.csv"), root=tmp_path)
    params = load_params(tmp_path / "params.yaml")
    matrix = [[60, 60, 0], [45, 75, 0], [0, 3, 9]]
    cell = {"budget": -1, "confusion": matrix, "seeds": [0, 1, 2]}
    evaluation = {
        "labels": ["billing", "orders", "printer"],
        "budgets": [-1],
        "best": {"-1": "words"},
        "systems": [{"system": "words", "budgets": [cell]}],
    }
    ((first, second, rate),) = not_told_apart(evaluation)
    assert (first, second, rate) == ("billing", "orders", 0.4375)
    line = fit._not_told_apart(params, "mail", first, second, rate)
    assert re.fullmatch(
        r"the labels 'billing' and 'orders' are not told apart: 44% of their test rows are answered with the other "
        r"one; read again (mail\.csv:\d+, )*mail\.csv:\d+ and what `headstart label-quality --task mail` lists",
        line,
    )
    # A tenth of so many rows could be chance.
    cell["confusion"] = [[90, 30, 0], [20, 100, 0], [0, 3, 9]]
    assert not_told_apart(evaluation) == []


def test_wrong_settings_are_refused_before_a_repository_is_made(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("params.yaml").write_text("data: {}\n")
    with pytest.raises(ConfigError, match="data.tasks: missing"):
        retrain_command.run(Path("params.yaml"))
    assert [path.name for path in tmp_path.iterdir()] == ["params.yaml"]
