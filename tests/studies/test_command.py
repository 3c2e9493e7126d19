"""`headstart study`: names, flags from signatures, terminal output and written files."""

import json

import pytest
from typer.testing import CliRunner

from components.cli import main as cli
from components.core.errors import ArtifactError, ConfigError
from components.data.scoring.intervals import Interval
from components.studies import command, vocabulary
from components.studies.command import STUDIES, Study
from components.studies.frame import Outputs, Parts, Sheet, cell


def count(outputs: Outputs, *, word: str = "bank", times: int = 2) -> Parts:
    outputs.read["tokens"] = "abc"
    yield f"{word}, {times} times."
    yield Sheet([{"word": f"[{word}]", "times": times}])


@pytest.fixture(autouse=True)
def _one_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vocabulary, "count", count, raising=False)
    options = {"word": {"help": "Word."}, "times": {"help": "How often."}}
    study = Study("count", "How often?", "nothing", "vocabulary:count", options=options)
    monkeypatch.setattr(command, "STUDIES", {**STUDIES, "count": study})


def test_flags_come_from_the_signature(params_file):
    done = CliRunner().invoke(
        cli.app, ["study", "count", "--word", "river", "--times", "3", "--params", str(params_file)]
    )
    assert done.exit_code == 0
    assert "river, 3 times." in done.output and "[river]" in done.output
    directory = params_file.parent / "out" / "studies" / "count"
    content = json.loads((directory / "study.json").read_text())
    assert content["options"] == {"word": "river", "times": 3} and content["numbers"] == {
        "count": [{"word": "[river]", "times": 3}]
    }
    assert f"headstart stage report --params {params_file}" in done.output
    assert json.loads((directory / "manifest.json").read_text())["facts"]["inputs"] == {"tokens": "abc"}


def test_an_unknown_study():
    with pytest.raises(ConfigError, match=r"unknown study 'benefit'; did you mean 'benefits'\?"):
        command.study(["benefit"])
    with pytest.raises(ConfigError, match="unknown study 'xyz'; known: ablation, .*label-efficiency"):
        command.study(["xyz"])


def test_every_study_has_a_command():
    for name, each in STUDIES.items():
        assert name == each.name and each.question.endswith("?")
        done = CliRunner().invoke(cli.app, ["study", name, "--help"])
        assert "--params" in done.output, done.output


def test_messages_about_missing_outputs_name_the_stage(outputs):
    with pytest.raises(ArtifactError, match=r"evaluation/aws-type: missing; run `headstart stage evaluate --item"):
        outputs.evaluations("aws-type", "systems", needs="")
    with pytest.raises(ArtifactError, match="ulmfit/pretrained: missing; run `headstart stage pretrain --item ulmfit`"):
        outputs.encoders("ulmfit")
    with pytest.raises(ConfigError, match="unknown encoder 'ulmfit-adaptd'; did you mean 'ulmfit-adapted'"):
        outputs.chosen("ulmfit-adaptd")
    with pytest.raises(ConfigError, match="--task: unknown task 'aws-typ'; did you mean 'aws-type'"):
        outputs.task("aws-typ")
    outputs.params.finetune.pop("gpt")
    with pytest.raises(ConfigError, match=r"finetune\.gpt: missing; this study encodes texts as fine-tuning does"):
        outputs.finetuning("gpt")
    assert outputs.split_name("ulmfit/scratch") == outputs.split_name("ulmfit-scratch") == ("ulmfit", "scratch")


def test_cells_of_a_table():
    values = ("a", None, True, False, 12345, 0.5, Interval(0.5, 0.25, 1.0), Interval(0.5, 0.5, 0.5))
    assert list(map(cell, values)) == ["a", "", "yes", "", "12,345", "0.500", "0.500 [0.250, 1.000]", "0.500"]
    assert cell(Interval(float("inf"), 12.0, float("inf")), ".3g") == "inf [12, inf]"
