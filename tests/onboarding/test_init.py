"""From labelled files of every kind to a params.yaml that passes the check."""

import json
import random
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from components.cli import main as cli
from components.cli.common import InitOptions
from components.cli.onboarding import command
from components.cli.onboarding.command import Proposal, _without_labels, init
from components.cli.onboarding.project import renew, take_files
from components.cli.onboarding.splits import split_files
from components.cli.onboarding.starts import Measured
from components.core.errors import ArtifactError, ConfigError, DataError
from components.data.facts import Facts
from components.data.sampling import read_rows
from components.data.tasks.kinds import find_kind
from components.labelling.answers import Answer, merge
from components.learners.task_models.extent import Extent
from components.pipeline.checks import changed_originals, check_params
from components.settings import recipes
from components.settings.detection import detected
from components.settings.loading import load_params, sources
from components.settings.tasks import TaskSource
from tests.example_task import ROWS, rows, write_jsonl

SERVED = ("classification", "multilabel", "regression", "pair", "similarity", "choice", "tagging", "questions")


def write(folder: Path, kind: str, count: int = 24) -> Path:
    file = folder / f"{kind}.jsonl"
    result = [ROWS[kind](row) for row in rows(count)]
    random.Random(0).shuffle(result)
    write_jsonl(file, result)
    return file


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "empty"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.parametrize("kind", SERVED)
def test_every_kind_with_a_words_model_passes_the_check(kind, root, tmp_path):
    lines = init(InitOptions(write(tmp_path / "files", kind)), root=root)
    params = load_params(root / "params.yaml")
    check_params(params)
    source = params.data.tasks[kind]
    assert source.kind == kind and source.path == f"data/tasks/{kind}" and params.run.families == []
    result = find_kind(kind).read(kind, source)
    assert len(result.train) + len(result.test) == 72 and len(result.test)
    assert any(line.startswith("wrote params.yaml") for line in lines)
    text = (root / "params.yaml").read_text()
    assert len(text.splitlines()) <= 25


def test_an_empty_folder_becomes_a_project(root, tmp_path):
    file = write(tmp_path / "files", "classification")
    init(InitOptions(file, name="My things"), root=root)
    assert {".git", ".dvc", ".gitignore", "dvc.yaml", "params.yaml", "data"} <= {path.name for path in root.iterdir()}
    assert (root / "data/tasks/my-things/classification.jsonl").read_bytes() == file.read_bytes()
    subprocess.run(["git", "check-ignore", "-q", "data"], cwd=root, check=True)
    with pytest.raises(ArtifactError, match=r"params.yaml: exists; .* replace it with --overwrite"):
        init(InitOptions(file), root=root)
    init(InitOptions(file, overwrite=True), root=root)
    assert list(load_params(root / "params.yaml").data.tasks) == ["classification"]


@pytest.mark.parametrize(
    ("header", "labels", "why"),
    [
        ("text,label", ("1.0", "0.0"), None),
        ("text,label", ("1 ", " 0"), None),
        ("text,label", ("?", "?"), "has no label of train in column 'label' ('?')"),
        ("text,Label", ("1", "0"), "has no column 'label' (columns: text, Label)"),
        ("text,label", ("", ""), "has no label in column 'label'"),
    ],
)
def test_a_test_file_with_the_same_numbers_is_no_file_without_labels(header, labels, why, tmp_path):
    (tmp_path / "train.csv").write_text("text,label\n" + "".join(f"text {n} a,{n % 2}\n" for n in range(12)))
    (tmp_path / "test.csv").write_text(f"{header}\n" + "".join(f"text {n} b,{labels[n % 2]}\n" for n in range(4)))
    samples = {split: read_rows(tmp_path / f"{split}.csv") for split in ("train", "test")}
    expected = {} if why is None else {"test": f"{why}; it is left out, its rows can be predicted (headstart predict)"}
    assert _without_labels(samples, {"kind": "classification", "text": "text", "label": "label"}) == expected


def test_changed_files_are_copied_again(root, tmp_path):
    file = write(tmp_path / "files", "classification")
    init(InitOptions(file), root=root)
    write(tmp_path / "files", "classification", count=30)
    # A file beside the settings that has changed is named by `check` and `plan`.
    shutil.copyfile(file, root / file.name)
    (line,) = changed_originals(load_params(root / "params.yaml"), root)
    assert line.endswith(
        f"{file.name}: differs from its copy data/tasks/classification/{file.name}, which is read; "
        f"headstart fit {file.name} takes the new one"
    )
    assert renew(file, root=root) == "classification"
    assert [*changed_originals(load_params(root / "params.yaml"), root)] == []
    assert (root / "data/tasks/classification/classification.jsonl").read_bytes() == file.read_bytes()
    other = write(tmp_path / "files", "pair")
    with pytest.raises(ConfigError, match=r"no task learns from a file pair.jsonl; `headstart init --overwrite"):
        renew(other, root=root)
    # A folder that does not exist is named, and the settings are not replaced.
    params = root / "params.yaml"
    params.write_text(params.read_text().replace("data/tasks/classification", "data/taks/classification"))
    with pytest.raises(
        ConfigError, match=r"data\.tasks\.classification\.path: data/taks/classification: no such folder"
    ):
        renew(file, root=root)


def test_copies_of_parallel_files_are_still_parallel_files(root, tmp_path):
    for split in ("train", "test"):
        folder = tmp_path / "snips" / split
        folder.mkdir(parents=True)
        (folder / "seq.in").write_text("".join(f"play song {number}\n" for number in range(20)))
        (folder / "seq.out").write_text("O O B-number\n" * 20)
        (folder / "label").write_text("play\n" * 20)
    files = split_files(tmp_path / "snips")
    path = take_files(files, name="snips", root=root)
    assert detected(root / path / "train", kind="tagging") == detected(files["train"], kind="tagging")
    assert (root / path / ".train.manifest.json").is_file()


def test_what_a_person_has_changed_is_not_replaced(root, tmp_path):
    file = write(tmp_path / "files", "classification")
    init(InitOptions(file), root=root)
    copy = root / "data/tasks/classification/classification.jsonl"
    for path in (copy, root / "params.yaml"):
        changed = path.read_text() + "\n"
        path.write_text(changed)
        write(tmp_path / "files", "classification", count=30)
        with pytest.raises(ArtifactError, match=f"{path.name}: exists, and has changed since Headstart has written it"):
            init(InitOptions(file, overwrite=True), root=root)
        assert path.read_text() == changed
        copy.unlink(missing_ok=True)


def test_labels_that_people_gave_stay_when_the_file_is_copied_anew(root, tmp_path, monkeypatch):
    file = write(tmp_path / "files", "classification")
    init(InitOptions(file), root=root)
    monkeypatch.chdir(root)
    params = load_params(root / "params.yaml")
    text = "a text that a person has labelled"
    merge(params, [Answer((text,), (ROWS["classification"](rows(1)[0])["label"],))])
    write(tmp_path / "files", "classification", count=30)
    renew(file, root=root)
    assert (root / "data/tasks/classification/classification.jsonl").read_bytes() == file.read_bytes()
    result = find_kind("classification").read("classification", params.data.tasks["classification"])
    assert (text,) in [*result.train.fields, *result.test.fields]


def test_text_without_labels_is_read_by_a_language_model(root, tmp_path, monkeypatch):
    for module in (recipes, command):
        monkeypatch.setattr(module, "LEAST_WORDS", 200_000)
    more = tmp_path / "files/more.csv"
    file = write(tmp_path / "files", "classification")
    more.write_text("id,body\n" + "".join(f"{number},{'some words of the domain ' * 40}\n" for number in range(1300)))
    init(InitOptions(file, unlabelled=[more]), root=root)
    params = load_params(root / "params.yaml")
    check_params(params)
    assert (params.run.families, params.run.starts) == (["ulmfit"], ["scratch", "pretrained"])
    assert params.data.unlabelled[0].text == "body"
    assert len((root / "params.yaml").read_text().splitlines()) <= 25


def test_a_list_of_texts_is_rows_and_other_text_files_are_documents(root, tmp_path):
    file = write(tmp_path / "files", "classification")
    listed, prose, folder = tmp_path / "more.txt", tmp_path / "prose.txt", tmp_path / "letters"
    listed.write_text("first text\r\nsecond text\n")
    prose.write_text("a paragraph\n\nanother one\n")
    folder.mkdir()
    (folder / "letter.txt").write_text("a line\nanother line\n")
    (folder / "more.txt").write_text("one\ntwo\n")
    lines = init(InitOptions(file, unlabelled=[listed, prose, folder, folder / "more.txt"]), root=root)
    rows = (root / "data/unlabelled/more.jsonl").read_text().splitlines()
    assert list(map(json.loads, rows)) == [{"text": "first text"}, {"text": "second text"}]
    assert len((root / "data/unlabelled/more-2.jsonl").read_text().splitlines()) == 2
    paths = [source.path for source in load_params(root / "params.yaml").data.unlabelled]
    assert paths == ["data/unlabelled/more.jsonl", str(prose), str(folder), "data/unlabelled/more-2.jsonl"]
    assert f"{listed}: 22 characters without labels; one text a line, written to data/unlabelled/more.jsonl" in lines


def facts_of(source: TaskSource) -> Facts:
    return Facts(source.kind, find_kind(source.kind).read("mood", source))


MINI = Measured("mini", Path("mini"), "", 1, 100.0, 1000.0, "", large=False, logme=0.0, reading=Extent(768, 256, 0.02))


def test_long_texts_are_read_in_windows_and_the_share_that_is_cut_is_named(tmp_path):
    file = write(tmp_path, "classification")
    task = {"path": str(tmp_path), "train": file.name, "dev": None, "test": None}
    facts = facts_of(TaskSource.model_validate(task))
    facts.long = 3000
    text = Proposal("mood", task, facts, start=MINI).text()
    assert re.search(r"max_length: 768 +# pieces of a text; 2.0% are longer\n    chunk: 256 ", text)
    base = Proposal("mood", task, facts, own_tokens=100_000, speed=1000.0).text()
    assert re.search(r"max_length: 1024 +# pieces of a text, estimated from characters\n    chunk: 256 ", base)


def test_a_name_with_another_separator_of_lines_is_in_one_line(tmp_path):
    task = {"path": str(tmp_path), "train": write(tmp_path, "classification").name, "dev": None, "test": None}
    facts = facts_of(TaskSource.model_validate(task))
    text = Proposal("mood", task | {"label": "m\u2028\u0085d"}, facts, others=["a\x0bb"]).text()
    (line,) = (line for line in text.split("\n") if line.startswith("      label:"))
    assert re.fullmatch('      label: "m\u2028\u0085d" +# column of the label; or a\x0bb', line)


def test_only_heads_of_an_encoder_with_a_large_table_are_trained(tmp_path):
    file = write(tmp_path, "classification")
    task = {"path": str(tmp_path), "train": file.name, "dev": None, "test": None}
    facts = facts_of(TaskSource.model_validate(task))
    trained, frozen = (
        Proposal("mood", task, facts, start=replace(MINI, large=large), minutes=5) for large in (False, True)
    )
    assert "auto: {minutes: 5} " in trained.text()
    assert "auto: {minutes: 5, ways: [features]} " in frozen.text()
    assert frozen.expected_minutes < trained.expected_minutes


def test_labels_that_are_no_words_are_named_for_an_encoder(tmp_path):

    def text(labels, start):
        file = tmp_path / "mood.csv"
        lines = [f"text number {row},{labels[row % len(labels)]}" for row in range(40)]
        file.write_text("\n".join(["text,label", *lines]))
        source = TaskSource(path=str(tmp_path), train="mood.csv", dev=None, test=None)
        task = {"path": "data/tasks/mood", "kind": "classification", "train": "mood.csv"}
        return Proposal("mood", task, facts_of(source), start=start, minutes=5).text()

    assert '      # label_texts: {"0": ..., "1": ...}' in text(("0", "1"), MINI)
    assert "label_texts" not in text(("good", "bad"), MINI)
    assert "label_texts" not in text(("0", "1"), None)


def test_the_source_of_every_setting(root, tmp_path):
    init(InitOptions(write(tmp_path / "files", "classification")), root=root)
    result: dict[str, Any] = sources(root / "params.yaml")
    lines = (root / "params.yaml").read_text().splitlines()
    number = next(number for number, line in enumerate(lines, 1) if line.strip().startswith("train:"))
    assert result["data.tasks.classification.train"] == ("classification.jsonl", f"{root / 'params.yaml'}:{number}")
    assert result["data.tasks.classification.budgets"] == (["all"], "computed: all labels are used")
    assert result["promote.confidence"] == (0.95, "default")
    assert result["run.tasks"] == (["classification"], "computed: all of data.tasks")


def test_a_group_column_is_proposed_and_written(root, tmp_path):
    file = tmp_path / "tickets.jsonl"
    result = [ROWS["classification"](row) | {"customer": f"c{number % 18}"} for number, row in enumerate(rows(24))]
    write_jsonl(file, result)
    lines = init(InitOptions(file), root=root)
    assert any(line.startswith("column 'customer' is the group: 18 values, 4.0 rows each") for line in lines)
    assert "      group: customer " in (root / "params.yaml").read_text()
    source = load_params(root / "params.yaml").data.tasks["tickets"]
    read = find_kind(source.kind).read("tickets", source)
    assert not {*read.train.groups} & {*read.test.groups}
    named = init(InitOptions(file, group="customer", overwrite=True), root=root)
    assert "column 'customer' is the group (--group)" in named
    with pytest.raises(DataError, match="no column 'author'; the columns are text, label, customer"):
        init(InitOptions(file, group="author", overwrite=True), root=root)


def test_the_commands_of_the_page_run(root):
    """Those of docs/own-data.md and README.md that end within a second: `init` and `check`; the others are the steps
    that a run prints."""
    folder = Path(__file__).parents[2]
    text = "".join((folder / name).read_text(encoding="utf-8") for name in ("README.md", "docs/own-data.md"))
    fences = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    blocks = "".join(block for language, block in fences if not language)
    commands = [line.partition(" #")[0].split()[1:] for line in re.findall(r"^headstart .*", blocks, re.MULTILINE)]
    short = [given for given in commands if given[0] in ("init", "check") and not {"--start", "NAME"} & {*given}]
    assert len(short) >= 4
    labelled = "".join(f"the {'bad' if n % 2 else 'good'} meal {n},{'ab'[n % 2]}\n" for n in range(60))
    Path("reviews.csv").write_text(f"text,label\n{labelled}")
    for arguments in short:
        done = CliRunner().invoke(cli.app, arguments)
        assert done.exit_code == 0, f"{arguments}: {done.output} {done.exception!r}"
