"""dvc.yaml, as DVC reads it, and the STAGES table."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from components.cli.common import InitOptions
from components.cli.onboarding.command import init
from components.core.artifacts import write_json
from components.core.errors import ConfigError
from components.pipeline import dvc_yaml as writer
from components.pipeline.dvc_yaml import dvc_yaml, write_dvc_yaml
from components.pipeline.identity import PLACES, Identity, file_name
from components.pipeline.jobs import WHOLE
from components.pipeline.stages import STAGES
from components.settings.loading import load_params
from flows import plan
from flows.execution import add_folder
from flows.plan import Changes, Stage, read_plan
from flows.run import wanted
from flows.terminal import StageError

from .conftest import ROOT, dvc, git

SHIPPED = sorted(path.relative_to(ROOT) for path in [ROOT / "params.yaml", *ROOT.glob("experiments/*/params.yaml")])
KINDS = {"ulmfit": "wordpiece", "bert": "wordpiece", "flair": "char", "cove": "parallel"}


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository without data or code: the shipped settings with their pipelines, and two more settings files, one
    with several families and one with task-adaptive pretraining, joint training and
    distillation."""
    root = tmp_path_factory.mktemp("clone")
    for name in [".dvc/config", ".dvcignore", *SHIPPED]:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes((ROOT / name).read_bytes())
    raw = yaml.safe_load((ROOT / "params.yaml").read_text())
    raw["run"]["starts"] = ["scratch", "pretrained", "adapted"]
    raw["run"] |= {"out": "artifacts/several", "families": list(KINDS), "tasks": ["aws-type", "aws-service"]}
    raw["tokenizer"] |= {"kinds": ["wordpiece", "char"], "domain_vocabulary": "general"}
    for section in ("pretrain", "adapt", "finetune"):
        raw[section] |= dict.fromkeys(KINDS, raw[section]["ulmfit"])
    raw["static"] = {"words": {"teacher": "bert"}}
    raw["run"]["families"] += ["words"]
    raw["finetune"]["words"] = raw["finetune"]["ulmfit"]
    raw["data"]["parallel"] = {corpus: {"path": "data/parallel/aws"} for corpus in ("general", "domain")}
    raw["pretrain"] = {family: block | {"tokenizer": KINDS[family]} for family, block in raw["pretrain"].items()}
    several = root / "experiments/several"
    several.mkdir(parents=True)
    (several / "params.yaml").write_text(yaml.safe_dump(raw))
    ways = yaml.safe_load((ROOT / "params.yaml").read_text())
    ways["run"]["starts"] = ["scratch", "pretrained", "adapted"]
    ways["run"] |= {"out": "artifacts/ways", "tasks": ["aws-type", "aws-service"]}
    ways["adapt_task"] = {"aws-type": {"epochs": 2}, "aws-service": {"epochs": 1}}
    ways["together"] = {"aws": {"tasks": ["aws-type", "aws-service"]}, "again": {"tasks": ["aws-service", "aws-type"]}}
    ways["distil"] = {"small": {"teachers": ["ulmfit-adapted"], "students": ["ulmfit-pretrained"]}}
    (root / "experiments/ways").mkdir()
    (root / "experiments/ways/params.yaml").write_text(yaml.safe_dump(ways))
    for file in [root / "params.yaml", *root.glob("experiments/*/params.yaml")]:
        assert write_dvc_yaml(load_params(file), file)
    git(root, "init", "-q")
    return root


def pipelines() -> list[str]:
    derived = [f"experiments/{name}/params.yaml" for name in ("several", "ways")]
    return ["params.yaml", *derived]


@pytest.fixture(scope="module", params=pipelines())
def resolved(request: pytest.FixtureRequest, clone: Path) -> tuple[Path, dict[str, Any]]:
    """A settings file and the stages that DVC resolves from its pipeline: name -> definition."""
    params = Path(request.param)
    script = """
import json, sys
from dvc.parsing import DataResolver
from dvc.repo import Repo
from dvc.utils.serialize import load_yaml
repo = Repo()
folder = sys.argv[1]
print(json.dumps(DataResolver(repo, folder, load_yaml(f"{folder}/dvc.yaml")).resolve()["stages"]))
"""
    command = [sys.executable, "-c", script, str(params.parent)]
    done = subprocess.run(command, cwd=clone, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return params, json.loads(done.stdout)


def test_the_committed_file_is_written_from_the_table(clone):
    params = load_params(ROOT / "params.yaml")
    assert (ROOT / "dvc.yaml").read_text() == dvc_yaml(params, Path("params.yaml"), root=ROOT), "run headstart dvc"
    assert not write_dvc_yaml(params, clone / "params.yaml")


def test_a_file_of_the_user_stays(clone, tmp_path):
    (tmp_path / ".dvc").mkdir()
    params = load_params(clone / "params.yaml")
    file = tmp_path / "params.yaml"
    assert write_dvc_yaml(params, file)
    edited = (tmp_path / "dvc.yaml").read_text().partition("\n")[2].replace("minutes: 2880", "minutes: 9000")
    (tmp_path / "dvc.yaml").write_text(edited)
    assert not write_dvc_yaml(params, file)
    assert (tmp_path / "dvc.yaml").read_text() == edited
    for earlier in (
        "# The pipeline: inputs and outputs of each stage. `make run` ...",
        "# Derived from the root's dvc.yaml",
    ):
        (tmp_path / "dvc.yaml").write_text(earlier + "\nstages: {}\n")
        assert write_dvc_yaml(params, file)


@pytest.mark.parametrize("text", ["stages:\n  train:\n    cmd: python train.py\n", "# a comment\nartifacts: {}\n"])
def test_a_pipeline_of_something_else_is_refused(clone, tmp_path, text):
    (tmp_path / "dvc.yaml").write_text(text)
    with pytest.raises(ConfigError, match=r"dvc\.yaml: is a pipeline of something else, without stages of Headstart"):
        write_dvc_yaml(load_params(clone / "params.yaml"), tmp_path / "params.yaml")
    (tmp_path / "texts.csv").write_text("text,label\n" + "a b c,x\nd e f,y\n" * 9)
    before = {path.name for path in tmp_path.iterdir()}
    with pytest.raises(ConfigError, match="is a pipeline of something else"):
        init(InitOptions(tmp_path / "texts.csv"), root=tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == before
    assert (tmp_path / "dvc.yaml").read_text() == text


def test_a_folder_that_is_no_checkout_depends_on_theinstalled_code_but_not_on_compiled_files(clone, tmp_path):
    """Python writes compiled files into the package at any time, and no .dvcignore applies outside of a repository."""
    package = tmp_path / "installed/components"
    (package / "pipeline").mkdir(parents=True)
    (package / "part.py").write_text("A = 1\n")

    def identity():
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(writer, "_CODE", package)
            writer.installed_code.cache_clear()
            text = dvc_yaml(load_params(clone / "params.yaml"), Path("params.yaml"), root=tmp_path)
        writer.installed_code.cache_clear()
        return yaml.safe_load(text)["stages"]["identity"]

    before = identity()
    assert before["deps"] == [] and str(tmp_path) not in str(before)
    (package / "__pycache__").mkdir()
    (package / "__pycache__/part.cpython-311.pyc").write_bytes(b"compiled")
    assert identity() == before
    (package / "part.py").write_text("A = 2\n")
    assert identity()["cmd"] != before["cmd"]


def test_the_stages_are_those_of_the_table_and_depend_on_their_identity(resolved, clone):
    file, stages = resolved
    params = load_params(clone / file)
    records = {
        f"{name}@{item}" if item else name: f"{params.run.out}/identity/{file_name(name, item)}"
        for name, stage in STAGES.items()
        for item in stage.items(params)
    }
    assert set(stages) == set(records)
    # The clone has no code of its own.
    assert stages["identity"]["deps"] == []
    assert stages["identity"]["params"] == [{str(file): None}]
    for name, stage in stages.items():
        group, _, item = name.partition("@")
        command, _, code = stage["cmd"].partition(" --code ")
        assert command == f"headstart stage {group}" + (f" --item {item}" if item else "") + f" --params {file}"
        assert bool(code) == (name == "identity")
        assert stage["wdir"] == ("." if len(file.parts) == 1 else "../..")
        assert set(stage["meta"]) == {"minutes", "retries"}
        if name != "identity":
            assert records[name] in stage["deps"] and "params" not in stage
            assert not [path for path in stage["deps"] if Path(path).name == "components"]


def test_the_paths_of_a_job_are_dependencies_and_outputs(resolved, clone):
    file, stages = resolved
    params = load_params(clone / file)
    for group, table in STAGES.items():
        for item, arguments in table.items(params).items():
            stage = stages[f"{group}@{item}" if item else group]
            listed = [Path(path) for path in stage["deps"]]
            outputs = [Path(next(iter(out)) if isinstance(out, dict) else out) for out in stage["outs"]]
            if "output" in arguments:
                assert outputs == [arguments[key] for key in ("output", "record") if key in arguments]
            reads = [value for key, value in arguments.items() if isinstance(value, Path) and key not in PLACES]
            # A published model is tracked by its digest, which is a parameter.
            reads += [Path(arguments["source"].path)] if hasattr(arguments.get("source"), "path") else []
            reads = reads if table.reads is None else [Path(params.run.out, name) for name in table.reads(params)]
            for path in reads:
                assert any(path == each or each in path.parents for each in listed), (group, item, path)


def test_the_stages_that_act_on_the_registry_are_never_cached(resolved):
    _, stages = resolved
    assert {name for name, stage in stages.items() if stage.get("always_changed")} == {"register", "promote"}
    uncached = {
        name
        for name, stage in stages.items()
        for out in [*stage["outs"], *stage.get("metrics", [])]
        if isinstance(out, dict) and next(iter(out.values())).get("cache") is False
    }
    assert uncached == {"register", "promote"}


def test_the_pipelines_of_one_repository_have_disjoint_outputs(clone):
    """DVC reports overlapping outputs as an error."""
    # Without --fail, DVC ignores pipelines that it cannot read.
    assert "pretrain@flair" in dvc(clone, "stage", "list", "--all", "--fail")


def test_dvc_says_why_a_folder_cannot_be_added(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    git(tmp_path, "init", "--quiet")
    dvc(tmp_path, "init", "--quiet")
    (tmp_path / "other").mkdir()
    (tmp_path / "other/dvc.yaml").write_text("vars: [missing.yaml]\nstages: {}\n")
    (tmp_path / "data").mkdir()
    (tmp_path / "data/rows.csv").write_text("text,label\n")
    with pytest.raises(StageError, match=r"data: failed to parse 'vars' in 'other.dvc.yaml'"):
        add_folder(Path("data"))


def test_only_outputs_that_the_next_run_continues_persist_between_runs(resolved):
    _, stages = resolved
    kept = {name.partition("@")[0] for name, stage in stages.items() if "persist" in json.dumps(stage["outs"])}
    assert kept == {"ingest", "tokenizer", "tokenize", "adapt"} & {name.partition("@")[0] for name in stages}


def test_the_order_of_the_graph(clone):
    plan = read_plan(clone / "dvc.yaml", root=clone)
    assert [stage.name for stage in wanted(plan)] == [
        "identity",
        # Errors in the labels are reported before training.
        "examples@aws-type",
        "unlabelled@aws-type-baselines",
        "ingest@general",
        "ingest@domain",
        "checks",
        "tokenizer@general-wordpiece",
        "tokenizer@domain-wordpiece",
        "tokenize@general-wordpiece",
        "tokenize@domain-wordpiece",
        "pretrain@ulmfit",
        "adapt@ulmfit",
        "scratch@ulmfit",
        "scratch@ulmfit-vectors",
        "baseline@aws-type",
        "finetune@aws-type-ulmfit-scratch",
        "finetune@aws-type-ulmfit-vectors",
        "finetune@aws-type-ulmfit-adapted",
        "evaluate@aws-type",
        "leakage@aws-type",
        "register",
        "promote",
        "report",
    ]
    by_name = {stage.name: stage for stage in plan.stages}
    assert by_name["pretrain@ulmfit"].reasons == ("has not run yet",)
    assert by_name["register"].always
    assert by_name["pretrain@ulmfit"].metrics == ("artifacts/metrics/pretrain/ulmfit.json",)
    assert isinstance(by_name["report"], Stage)


def test_another_installed_version_makes_a_dvc_yaml_of_the_user_run_its_identity(tmp_path, monkeypatch):
    def requested(code: str, **settings: int) -> list[str]:
        now = Identity(settings, {}, {})
        monkeypatch.setattr(plan, "identities", lambda _: {"checks": {WHOLE: now}})
        command = f"headstart stage identity --params params.yaml --code {code}"
        stage = SimpleNamespace(name="identity", cmd=command, outs=[SimpleNamespace(fs_path=tmp_path)], status=dict)
        changes = Changes([stage], None, params=ROOT / "params.yaml")
        assert (changes.computed is None) == (code == "0a")
        return changes.requested(stage)

    monkeypatch.setattr(plan, "installed_code", lambda: "0a")
    write_json(tmp_path / "checks.json", asdict(Identity({"a": 1}, {}, {})))
    assert requested("0a", a=2) == requested("0b", a=1) == []
    assert requested("0b", a=2) == ["another version of the package is installed"]
    (tmp_path / "checks.json").unlink()
    assert requested("0b", a=1) == ["another version of the package is installed"]
