"""The images: installed packages are those of requirements.lock, and the scripts are executable."""

import os
import re
import subprocess
import time

import pytest
import yaml
from prefect.utilities.templating import apply_values

from flows import sync
from tests.conftest import git as git_of
from tests.infra.conftest import ROOT

IMAGES = ROOT / "infra" / "images"


@pytest.mark.parametrize("file", sorted(IMAGES.glob("*-requirements.txt")), ids=lambda file: file.name)
def test_additional_packages_are_pinned_and_not_in_the_lock(file, locked):
    lines = [line for line in file.read_text().splitlines() if line and not line.startswith("#")]
    added = dict(re.fullmatch(r"([a-z0-9-]+)==([\w.]+)", line).groups() for line in lines)
    assert added
    assert set(added) & set(locked) == set()


def test_join_ray_joins_again_when_its_node_has_ended(tmp_path):
    ray, joined = tmp_path / "ray", tmp_path / "joined"
    ray.write_text(f'#!/bin/sh\necho "$*" >> {joined}\n')
    # No raylet is found.
    grep = tmp_path / "grep"
    grep.write_text("#!/bin/sh\nexit 1\n")
    for program in (ray, grep):
        program.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "RAY_ADDRESS": "head:6379", "JOIN_RAY_SECONDS": "0.05"}
    wait = f"until [ $(wc -l < {joined}) -ge 3 ]; do sleep 0.05; done"
    subprocess.run([ROOT / "infra" / "join-ray", "sh", "-c", wait], env=environment, check=True, timeout=60)
    # The loop ends with the command.
    before = -1
    while (now := len(joined.read_text().splitlines())) != before:
        before = now
        time.sleep(0.3)


def test_deployments_name_flows_and_the_locked_prefect(locked):
    deployed = yaml.safe_load((ROOT / "infra" / "prefect.yaml").read_text())
    assert deployed["prefect-version"] == locked["prefect"]
    assert [each["name"] for each in deployed["deployments"]] == ["sync", "retrain"]
    for deployment in deployed["deployments"]:
        file, _, flow = deployment["entrypoint"].partition(":")
        assert f'@flow(name="{flow}"' in (ROOT / file).read_text()
        assert deployment["work_pool"]["name"] == "headstart"
        assert deployment["concurrency_limit"]["limit"] == 1


def test_the_scheduled_deployment_is_active_and_pulls(composed, monkeypatch):
    """Its schedule and whether it pushes commits are the operator's variables."""
    (deployment,) = (
        each
        for each in yaml.safe_load((ROOT / "infra" / "prefect.yaml").read_text())["deployments"]
        if each.get("schedules")
    )
    assert deployment["entrypoint"] == "flows/sync.py:sync"
    for name, value in composed["services"]["deployment"]["environment"].items():
        monkeypatch.setenv(name, value)
    filled = apply_values(deployment, {}, remove_notset=False)
    assert filled["schedules"] == [{"cron": "0 3 * * *", "timezone": "UTC", "active": True}]
    assert composed["services"]["prefect-worker"]["environment"][sync.PUSH] == "false"


def test_the_workspace_is_a_clone_that_can_pull_commit_and_push(tmp_path):
    """git's user and token come from the environment at the time of use; none is in the workspace."""
    origin, workspace = tmp_path / "origin", tmp_path / "workspace"
    subprocess.run(["git", "init", "-q", "-b", "main", origin], check=True)
    git_of(origin, "commit", "-q", "--allow-empty", "-m", "one")
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "dvc").write_text("#!/bin/sh\n")
    (programs / "dvc").chmod(0o755)
    environment = {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "HEADSTART_WORKSPACE": str(workspace),
        "HEADSTART_REPOSITORY": str(origin),
        "HEADSTART_BRANCH": "main",
        "HEADSTART_REMOTE": "s3://headstart/dvc",
        "HEADSTART_GIT_USERNAME": "robot",
        "HEADSTART_GIT_TOKEN": "a-secret",
        "GIT_CONFIG_NOSYSTEM": "1",
    }

    def git(*words, **options):
        command = ["git", "-C", workspace, *words]
        return subprocess.run(
            command, env=environment, check=True, capture_output=True, text=True, **options
        ).stdout.strip()

    def prepare():
        script = [ROOT / "infra" / "prepare-workspace"]
        return subprocess.run(script, env=environment, check=True, capture_output=True, text=True).stdout

    assert prepare() == ""
    assert git("rev-parse", "--abbrev-ref", "@{upstream}") == "origin/main"
    asked = git("credential", "fill", input="protocol=https\nhost=git.example.com\n\n")
    assert asked.splitlines()[-2:] == ["username=robot", "password=a-secret"]
    assert "a-secret" not in (workspace / ".git" / "config").read_text()
    # A commit of a scheduled run, and one of a colleague: the next scheduled run brings them together.
    git("commit", "-q", "--allow-empty", "-m", "Retrain")
    assert git("log", "-1", "--format=%an <%ae>") == "Headstart <headstart@localhost>"
    (origin / "new").touch()
    git_of(origin, "add", "new")
    git_of(origin, "commit", "-q", "-m", "two")
    assert "the next scheduled run takes the new commits" in prepare()
    git("reset", "-q", "--hard", "HEAD~")
    assert prepare() == "" and (workspace / "new").exists()
