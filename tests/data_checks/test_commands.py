"""Broken data of each kind through `headstart check`: stop, warn, off, and the acceptance of a change."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from components.cli import main as cli
from components.core.environment import who
from components.core.errors import DataError
from components.data.checks import record
from components.data.checks.measure import corpus_unit
from components.pipeline.running import run_stage
from components.settings.cluster import ClusterSettings
from components.settings.data import CorpusSource
from components.settings.loading import load_params
from tests.example_task import write_jsonl

ROOT = Path(__file__).parents[2]
WORDS = "the a of name list value number that is returned when request service resource for each to in with"
CYRILLIC = "имя список значение число которое возвращается когда запрос служба ресурс для каждого"
Rows = list[dict[str, Any]]


def texts(count: int, *, words: str = WORDS, seed: int = 0, length: int = 12) -> list[str]:
    """`count` different texts."""
    chosen = random.Random(f"{seed} {words}")
    return [f"{' '.join(chosen.choices(words.split(), k=length))} {number} {seed}" for number in range(count)]


def labelled(found: list[str], *, share: float = 0.5) -> Rows:
    return [{"text": text, "label": "yes" if index < share * len(found) else "no"} for index, text in enumerate(found)]


class Project:
    """A repository with one task and two corpora; `check` runs the command."""

    def __init__(self, root: Path) -> None:
        self.root, self.train = root, labelled(texts(400))
        raw = yaml.safe_load((ROOT / "params.yaml").read_text())
        task = {"path": "data/tasks/t", "kind": "classification", "text": "text", "label": "label"}
        raw["data"] = {
            "general": {"path": "data/general"},
            "domain": {"path": "data/domain"},
            "tasks": {"t": task},
        }
        raw["run"]["tasks"] = ["t"]
        raw["checks"] = {}
        self.raw = raw
        write_jsonl(root / "data/general/a.jsonl", [{"text": text} for text in texts(300, seed=1, length=30)])
        write_jsonl(root / "data/domain/a.jsonl", [{"text": text} for text in texts(300, seed=2, length=30)])
        self.write_train(self.train)
        for seed, split in enumerate(("dev", "test"), 3):
            write_jsonl(root / f"data/tasks/t/{split}.jsonl", labelled(texts(200, seed=seed)))

    def write_train(self, rows: Rows) -> None:
        write_jsonl(self.root / "data/tasks/t/train.jsonl", rows)

    def check(self, *arguments: str, **rules: Any) -> str:
        """The output of `headstart check`, or its error."""
        (self.root / "params.yaml").write_text(yaml.safe_dump(self.raw | {"checks": rules}))
        done = CliRunner().invoke(cli.app, ["check", *arguments])
        if isinstance(done.exception, DataError):
            return str(done.exception)
        assert done.exit_code == 0, done.output
        return done.output

    def accept(self) -> None:
        self.check("--accept", "the first version")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    (tmp_path / ".dvc").mkdir()
    monkeypatch.chdir(tmp_path)
    # The settings are those that are shipped; the test is about the data.
    monkeypatch.setattr("components.pipeline.checks.check_params", lambda params: None)
    made = Project(tmp_path)
    made.accept()
    return made


def repeated(rows: Rows) -> Rows:
    return rows + rows[:100]


def conflicting(rows: Rows) -> Rows:
    return rows + [{"text": row["text"], "label": "no"} for row in rows[:50]]


def blank(rows: Rows) -> Rows:
    return [row | {"text": " "} if index % 20 == 3 else row for index, row in enumerate(rows)]


def replaced(words: str, share: float, length: int = 12) -> Callable[[Rows], Rows]:
    def change(rows: Rows) -> Rows:
        other = iter(texts(len(rows), words=words, seed=9, length=length))
        return [row | {"text": next(other)} if index % 10 < 10 * share else row for index, row in enumerate(rows)]

    return change


def unbalanced(rows: Rows) -> Rows:
    return labelled([row["text"] for row in rows], share=0.8)


#: Kind of broken data -> the check, the change of the rows, and a part of the message.
BROKEN: dict[str, tuple[str, Callable[[Rows], Rows], str]] = {
    "label": ("labels", lambda rows: [*rows, {"text": "a text", "label": "maybe"}], "new label 'maybe'"),
    "balance": ("class_balance", unbalanced, "'yes' 50.0% -> 80.0%"),
    "rows": ("rows", lambda rows: rows[::5], "80 rows, 400 before; allowed loss 50%"),
    "duplicates": ("duplicates", repeated, "20.0% repeated rows, 0.0% before"),
    "conflicts": ("label_conflicts", conflicting, "rows whose text also has another label, 0.0% before"),
    "length": ("length", replaced(WORDS, 0.5, length=40), "characters 0.0% ->"),
    "script": ("language", replaced(CYRILLIC, 0.2), "'cyrillic' 0.0% -> 20.0%"),
    "empty": ("empty_rows", blank, "rows without text, 0.0% before"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_each_kind_of_broken_data_stops_or_warns(name, project):
    check, change, message = BROKEN[name]
    project.raw["data"]["tasks"]["t"]["empty"] = "drop"
    project.write_train(project.train)
    project.accept()
    project.write_train(change(project.train))
    others = dict.fromkeys(("duplicates", "length", "class_balance", "language"), "off")
    stopped = project.check(**others | {check: "stop"})
    line = next(line for line in stopped.splitlines() if message in line)
    assert "t train (data/tasks/t/train.jsonl" in line and line.endswith(f"(checks.{check}: stop)")
    assert stopped.endswith("correct the data; if the change is intended: headstart check --accept REASON")
    warned = project.check(**others | {check: "warn"})
    assert f"warning: {line.strip().removesuffix('stop)')}warn)" in warned.splitlines()
    assert warned.endswith("inputs compared with their last accepted versions\n")
    assert message not in project.check(**others | {check: False})


def test_labels_that_a_person_gave_are_intended(project):
    """A new label, and another balance of the labels, that come from `headstart label` end no run; in a data file they
    do, also if the text was labelled before."""
    entries = [
        {"batch": "1", "time": "t", "by": "p", "action": "add", "texts": [text], "before": None, "after": ["new"]}
        for text in texts(200, seed=9)
    ]
    entries.append(entries[0] | {"batch": "2", "action": "change", "before": ["new"], "after": ["newer"]})
    renamed = [
        {"batch": "3", "time": "t", "by": "p", "action": "change", "texts": [row["text"]], "before": ["yes"]}
        | {"after": ["agreed"]}
        for row in project.train[:190]
    ]
    write_jsonl(project.root / "data/tasks/t/labels-t.ledger.jsonl", entries)
    assert "violation" not in project.check()
    write_jsonl(project.root / "data/tasks/t/labels-t.ledger.jsonl", [*entries, *renamed])
    assert "violation" not in project.check()
    project.write_train([*project.train, {"text": "a text", "label": "maybe"}])
    assert "new label 'maybe' (checks.labels: stop)" in project.check()


def test_positions_of_the_rows_are_named(project):
    project.write_train(conflicting(project.train))
    assert "train.jsonl, first at train.jsonl:401, train.jsonl:402, train.jsonl:403)" in project.check()
    project.write_train(replaced(CYRILLIC, 0.2)(project.train))
    assert "first at train.jsonl:1)" in project.check()


def test_a_missing_column_that_no_task_reads_is_warned_about(project):
    project.write_train([row | {"service": "s3"} for row in project.train])
    project.accept()
    project.write_train(labelled(texts(400, seed=6)))
    message = "t train (data/tasks/t/train.jsonl): column 'service' is missing (checks.columns: "
    assert f"warning: {message}warn)" in project.check()
    assert message + "stop)" in project.check(columns="stop")


def test_a_label_of_train_that_gets_its_first_row_of_test_is_noted(project):
    """The split by hash gives a rare class its first test row once there are more rows; a label that no split had
    ends the run."""
    rare = {"text": "a rare text", "label": "rare"}
    project.write_train([*project.train, rare])
    project.accept()
    test = labelled(texts(200, seed=4))
    write_jsonl(project.root / "data/tasks/t/test.jsonl", [*test, rare | {"text": "another rare text"}])
    noted = "t test (data/tasks/t/test.jsonl): new label 'rare' in this split; other splits had it before"
    assert f"warning: {noted} (checks.labels: note)" in project.check()
    project.write_train([*project.train, rare, rare | {"text": "a rarer text", "label": "rarer"}])
    assert "t train (data/tasks/t/train.jsonl): new label 'rarer' (checks.labels: stop)" in project.check()
    # It moves from train to test: still a label of the task.
    project.write_train([*project.train, *(rare | {"text": f"a rare text {number}"} for number in range(14))])
    rows = [rare | {"text": f"a rare text of test {number}"} for number in range(14)]
    write_jsonl(project.root / "data/tasks/t/test.jsonl", [*test, *rows])
    project.accept()
    # Without the last row, because all of them were accepted before.
    write_jsonl(project.root / "data/tasks/t/test.jsonl", test[:-1])
    assert "missing label 'rare' in this split; other splits have it (checks.labels: note)" in project.check()
    project.write_train(project.train)
    assert "missing label 'rare' (checks.labels: stop)" in project.check()


def test_another_balance_of_labels_by_added_rows_is_noted(project):
    added = [{"text": text, "label": "no"} for text in texts(400, seed=9)]
    project.write_train([*project.train, *added])
    actual = project.check()
    assert "'no' 50.0% -> 75.0%" in actual and "(checks.class_balance: note)" in actual
    project.write_train([*project.train[100:], *added])
    assert "(checks.class_balance: stop)" in project.check()


def test_a_few_rows_of_a_small_split_are_noted(project):
    """Three of 203 conflicting rows exceed the limit by chance, sixty do not."""
    test = labelled(texts(200, seed=4))
    for count, rule in ((3, "note"), (60, "stop")):
        copies = [row | {"label": "yes" if row["label"] == "no" else "no"} for row in test[:count]]
        write_jsonl(project.root / "data/tasks/t/test.jsonl", [*test, *copies])
        assert f"(checks.label_conflicts: {rule})" in project.check()


def test_empty_rows_are_refused_with_file_and_line_unless_they_are_dropped(project):
    project.write_train(blank(project.train))
    assert project.check().startswith("data/tasks/t/train.jsonl, line 4: the text ('text') is empty; remove the row")


def test_new_files_of_a_corpus_are_compared_alone(project):
    """Fifteen documents in another script are too few to change the corpus as a whole."""
    added = [{"text": text} for text in texts(15, words=CYRILLIC, length=30)]
    write_jsonl(project.root / "data/domain/b.jsonl", added)
    actual = project.check(length="off")
    assert "1 violation(s)" in actual
    assert "domain, new files (data/domain: b.jsonl, first at b.jsonl:1): share of the writing system changed" in actual
    write_jsonl(project.root / "data/domain/b.jsonl", [{"text": text} for text in texts(30, seed=7, length=30)])
    assert project.check().splitlines()[1:-1] == ["domain: 330 rows, 300 before"]


def test_a_record_of_an_earlier_version_is_read(project):
    path = project.root / "data-checks.json"
    content = json.loads(path.read_text())
    for versions in content.values():
        for version in versions:
            version["digest"] = "another"
            version["statistics"] |= {"clusters": 3, "trigrams": [[1], [2]]}
            del version["statistics"]["content"]
    path.write_text(json.dumps(content))
    project.write_train(unbalanced(project.train))
    assert "'yes' 50.0% -> 80.0%" in project.check()


def test_an_accepted_change_is_recorded_with_who_when_and_why(project):
    project.write_train(unbalanced(project.train))
    assert "class_balance" in project.check()
    assert "data-checks.json: t train accepted (new collection)" in project.check("--accept", "new collection")
    entry = record.read(project.root / "data-checks.json")["t train"][-1]
    assert (entry["reason"], entry["by"]) == ("new collection", who()) and entry["time"].endswith("+00:00")
    assert entry["findings"][0].startswith("t train (data/tasks/t/train.jsonl): share of the label changed")
    assert "class_balance" not in project.check()
    # The next version is compared with this one; the first one, which was accepted too, is not refused.
    project.write_train(unbalanced(labelled(texts(400, seed=8))))
    assert "class_balance" not in project.check()
    project.write_train(project.train)
    assert "class_balance" not in project.check()


def test_the_stage_records_the_version_and_repeats_its_output(project):
    project.write_train(repeated(project.train))
    assert "warning" in project.check(duplicates="warn")
    params = load_params(Path("params.yaml"))
    written = run_stage("checks", params)
    first = (written / "checks.json").read_text()
    actual = json.loads(first)["t train"]
    assert "20.0% repeated rows" in actual["findings"][0] and actual["accepted"] is None and actual["compared_with"]
    assert record.read(Path("data-checks.json"))["t train"][-1]["reason"] == record.BY_RULE
    run_stage("checks", params)
    assert (written / "checks.json").read_text() == first
    assert len(record.read(Path("data-checks.json"))["t train"]) == 2


def test_the_stage_ends_before_training_if_a_rule_is_violated(project):
    project.write_train(unbalanced(project.train))
    assert "class_balance" in project.check()
    with pytest.raises(DataError, match="^1 violation"):
        run_stage("checks", load_params(Path("params.yaml")))
    assert not Path("artifacts/checks").exists()


def test_the_first_version_is_not_refused(project):
    Path("data-checks.json").unlink()
    project.write_train(conflicting(project.train))
    assert "the first version; allowed increase 2.0%" in (actual := project.check())
    assert actual.startswith("params.yaml: ok\nwarning: t train")


def test_the_file_of_accepted_versions_is_next_to_the_settings(project):
    folder = project.root / "experiments" / "mine"
    folder.mkdir(parents=True)
    (folder / "params.yaml").write_text(yaml.safe_dump(project.raw))
    assert load_params(folder / "params.yaml").checks.record == "experiments/mine/data-checks.json"
    assert load_params(project.root / "params.yaml").checks.record == "data-checks.json"


def test_records_of_two_clones_are_merged():
    def text(*versions):
        entries = [{"digest": digest, "time": time, "by": "a@b", "reason": "r"} for digest, time in versions]
        return json.dumps({"t": entries})

    merged = json.loads(record.merge(text(("one", "1"), ("three", "3")), text(("one", "1"), ("two", "2"))))
    assert [entry["digest"] for entry in merged["t"]] == ["one", "two", "three"]


@pytest.mark.parametrize("kept", [0.6, 0.9])
def test_random_resamples_of_the_data_raise_no_alarm(project, kept):
    for seed in range(10):
        chosen = random.Random(seed)
        rows = int(kept * len(project.train))
        project.write_train(chosen.sample(project.train, rows))
        assert project.check() == (
            f"params.yaml: ok\nt train: {rows} rows, 400 before\n"
            "data: ok; 5 inputs compared with their last accepted versions\n"
        )


def test_files_of_two_folders_with_the_same_name_and_content(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in ("a", "b"):
        write_jsonl(tmp_path / "raw" / folder / "x.jsonl", [{"text": text} for text in texts(2)])
    unit = corpus_unit("domain", CorpusSource(path="raw"), cluster=ClusterSettings())
    assert (unit.statistics["rows"], [name for name, _, _ in unit.parts]) == (4, ["x.jsonl", "x.jsonl"])
