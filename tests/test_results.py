"""Measured numbers as data: the schema of the files, and documents that equal their files."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from benchmarks import results
from benchmarks.results import Column, Result, app
from components.core.errors import ArtifactError, DataError
from tests.conftest import git

VALID: dict[str, Any] = {
    "schema": 1,
    "name": "speed",
    "title": "Training speed",
    "command": "python benchmarks/training.py all",
    "commit": "0123abc",
    "processor": "Some CPU (bf16 by AMX)",
    "cores": 2,
    "seeds": [0, 1],
    "date": "2026-01-02",
    "selection": "test",
    "confidence": 0.95,
    "row_title": "model",
    "notes": "Nothing else ran.",
    "columns": [
        {"name": "5", "title": "5 labels"},
        {"name": "20", "title": "20 labels", "format": "+.1f", "unit": " %"},
    ],
    "values": [
        {"name": "bert", "estimates": {"5": [0.51, 0.5, 0.52], "20": [1.0]}},
        {"name": "gpt", "estimates": {"20": [-2.0, -3.0, -1.0]}},
    ],
}
TABLE = """\
| model | 5 labels | 20 labels |
|---|---|---|
| bert | 0.510 [0.500, 0.520] | +1.0 % |
| gpt |  | -2.0 % [-3.0, -1.0] |

<sub>Training speed; test split; 2 seeds; 95% intervals; `python benchmarks/training.py all`; Some CPU (bf16 by AMX), \
2 cores; commit 0123abc; 2026-01-02. Nothing else ran.</sub>
"""


def repository(root: Path, text: str, **changes: Any) -> Path:
    """A repository with one result and one document."""
    folder = root / results.RESULTS
    folder.mkdir(parents=True)
    (folder / "speed.json").write_text(json.dumps(VALID | changes))
    (root / "experiments").mkdir()
    (root / "experiments" / "README.md").write_text("Experiments\n")
    (root / "README.md").write_text("Read me\n")
    (root / "docs" / "speed.md").write_text(text)
    return root


def test_a_table_shows_estimates_intervals_and_provenance():
    assert Result.model_validate(VALID).table() == TABLE


def test_a_file_is_unchanged_after_reading_and_writing():
    text = Result.model_validate(VALID).dump()
    again = Result.model_validate(json.loads(text))
    assert (again.dump(), again) == (text, Result.model_validate(VALID))
    assert text.count("\n") < 35  # one row per line


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"values": [{"name": "a", "estimates": {"50": [1.0]}}]}, "unknown column '50'"),
        ({"values": [{"name": "a", "estimates": {"5": [1.0, 2.0]}}]}, "an interval has two bounds"),
        ({"values": [{"name": "a", "estimates": {"5": [1.0, 2.0, 3.0]}}]}, "does not contain the estimate"),
        ({"values": [VALID["values"][0]] * 2}, "row 'bert' appears twice"),
        ({"columns": [*VALID["columns"], {"name": "5", "title": "again"}]}, "column '5' appears twice"),
        ({"columns": [{"name": "5", "title": "5", "format": ".q"}, VALID["columns"][1]]}, "is not a number format"),
        ({"confidence": None}, "confidence: required with intervals"),
        ({"commit": "main"}, "commit"),
        ({"commit": None}, "no commit; run the measuring command with --record"),
        ({"selection": "train"}, "selection"),
        ({"name": "other"}, "must equal the name of the file"),
        ({"figure": {"x": "labels", "y": "F1", "rows": ["t5"]}}, "figure: unknown row 't5'"),
        ({"machine": "mine"}, "machine: Extra inputs"),
    ],
)
def test_a_file_that_violates_the_schema_is_an_error(tmp_path, changes, message):
    path = tmp_path / "speed.json"
    path.write_text(json.dumps(VALID | changes))
    with pytest.raises(ArtifactError) as caught:
        results.read_result(path)
    assert message in str(caught.value) and str(path) in str(caught.value)


def test_documents_are_rendered_and_checked(tmp_path, monkeypatch):
    root = repository(tmp_path, "Before.\n\n<!-- results:speed -->\nold\n<!-- /results -->\n\nAfter.\n")
    monkeypatch.chdir(root)
    run = CliRunner()
    failed = run.invoke(app, ["--check"])
    assert (failed.exit_code, failed.stdout) == (1, "")
    assert "docs/speed.md: speed differ(s) from docs/results" in failed.stderr
    assert "old" in (root / "docs" / "speed.md").read_text()  # a check writes nothing
    assert run.invoke(app, []).stdout == "docs/speed.md: speed\n"
    text = (root / "docs" / "speed.md").read_text()
    assert text == f"Before.\n\n<!-- results:speed -->\n{TABLE}<!-- /results -->\n\nAfter.\n"
    passed = run.invoke(app, ["--check"])
    assert (passed.exit_code, passed.output) == (0, "")
    (root / "docs" / "speed.md").write_text(text.replace("0.510", "0.610"))
    assert run.invoke(app, ["--check"]).exit_code == 1


def test_a_figure_is_a_deterministic_file(tmp_path):
    root = repository(
        tmp_path,
        "<!-- results:speed figure -->\n<!-- /results -->\n",
        figure={"x": "labels", "y": "speed", "rows": ["bert"]},
    )
    assert sorted(results.render(root)) == ["docs/figures/speed.svg: speed", "docs/speed.md: speed"]
    assert "![Training speed](figures/speed.svg)" in (root / "docs" / "speed.md").read_text()
    figure = root / "docs" / "figures" / "speed.svg"
    assert figure.read_text().startswith("<svg ") and "date" not in figure.read_text().lower()
    assert results.differences(root) == []
    figure.write_text(figure.read_text().replace("bert", "gpt"))
    assert results.differences(root) == [
        "docs/figures/speed.svg: speed differ(s) from docs/results; run `python benchmarks/results.py`"
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<!-- results:sped -->\n<!-- /results -->\n", "no file docs/results/sped.json; did you mean 'speed'?"),
        ("<!-- results:speed -->\n", "not closed"),
        ("text <!-- results:speed -->\nx\n<!-- /results -->\n<!-- /results -->\n", "not closed"),
    ],
)
def test_an_invalid_block_is_named(tmp_path, text, message):
    root = repository(tmp_path, text)
    with pytest.raises(ArtifactError) as caught:
        results.render(root)
    assert message in str(caught.value) and "docs/speed.md" in str(caught.value)


def evaluation(folder: Path) -> Path:
    """An evaluation of one system at two budgets."""
    folder.mkdir()
    scores = {"macro_f1": {"mean": 0.5, "low": 0.25, "high": 0.75}, "accuracy": {"mean": 0.6, "low": 0.5, "high": 0.7}}
    content = {
        "task": "trec",
        "main": "macro_f1",
        "scores": ["macro_f1", "accuracy"],
        "titles": {"macro_f1": "macro F1", "accuracy": "accuracy"},
        "unit": "labels a class",
        "rows": {"test": 2619},
        "seeds": [0, 1],
        "budgets": [5, -1],
        "confidence": 0.95,
        "systems": [
            {
                "system": "bert",
                "budgets": [{"budget": budget, "scores": scores} for budget in (5, -1)],
                "artifact": {"scores": scores},
            }
        ],
    }
    (folder / "evaluation.json").write_text(json.dumps(content))
    return folder


def test_an_evaluation_is_recorded_with_commit_processor_and_date(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(results, "commit_of", lambda _: "0123abc")
    folder = evaluation(tmp_path / "evaluation")
    done = CliRunner().invoke(app, ["--record", "trec", "--evaluation", str(folder), "--score", "accuracy"])
    assert done.output.strip() == "docs/results/trec.json"
    result = results.read_result(tmp_path / "docs" / "results" / "trec.json")
    assert result.title == "Accuracy on trec, 2,619 test rows"
    cell = [0.6, 0.5, 0.7]
    assert result.values[0].estimates == {"5": cell, "-1": cell, "registered": cell}
    assert [column.title for column in result.columns] == ["5 labels a class", "all labels", "registered model"]
    assert (result.selection, result.seeds, result.command) == ("test", [0, 1], "make run")
    assert result.commit == "0123abc" and result.processor
    with pytest.raises(DataError, match="no score 'f1'; known: accuracy"):
        results.of_evaluation(folder, "trec", command="make run", score="f1")
    monkeypatch.setattr(results, "commit_of", lambda _: None)
    with pytest.raises(DataError, match="trec: .*no commit; run the measuring command"):
        results.of_evaluation(folder, "trec", command="make run")


def test_a_commit_is_dirty_if_code_differs_and_not_if_another_result_does(tmp_path):
    for name in ("docs/results/a.json", "components/reporting/code.py"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("1\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-q", "-m", "first")
    (tmp_path / "docs/results/a.json").write_text("2\n")
    clean = results.commit_of(tmp_path / "components/reporting")
    assert len(clean) == 40
    (tmp_path / "components/reporting/code.py").write_text("2\n")
    assert results.commit_of(tmp_path / "components/reporting") == f"{clean}-dirty"


def test_a_benchmark_records_its_command_and_keeps_the_figure(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(results, "commit_of", lambda _: "0123abc")
    monkeypatch.setattr(sys, "argv", [f"{tmp_path}/benchmarks/x.py", "--record", "x", "/elsewhere/a b"])
    described = {"title": "Speed", "row_title": "model", "confidence": 0.95}
    described["columns"] = [Column(name="5", title="5 labels")]
    results.record(None, values={"bert": {"5": 1.0}}, **described)
    assert not (tmp_path / "docs").exists()
    results.record("x", values={"bert": {"5": (1 / 3, 0.1, 0.5)}}, **described)
    assert capsys.readouterr().out == "recorded: docs/results/x.json\n"
    path = tmp_path / "docs" / "results" / "x.json"
    result = results.read_result(path)
    assert (result.command, result.values[0].estimates) == ("python benchmarks/x.py 'a b'", {"5": [0.333333, 0.1, 0.5]})
    figure = {"x": "labels", "y": "F1", "rows": ["bert"]}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"figure": figure}))
    results.record("x", values={"bert": {"5": (0.4, 0.1, 0.5)}}, **described)
    assert results.read_result(path).figure is not None
