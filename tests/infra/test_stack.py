"""The local stack without Postgres: translation of compose.yaml, commands, processes, error messages."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import s3fs

from components.core.errors import ConfigError
from components.settings.loading import load_params
from infra.stack import compose, postgres, processes, stack
from infra.stack.params import overlay
from infra.stack.processes import StackError, Started
from tests.conftest import empty_s3
from tests.infra.conftest import ROOT

PORTS = {"postgres": 45001, "s3": 45002, "mlflow": 45003, "prefect-server": 45004, "ray-head": 45005, "serve": 45006}
SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]
#: Starts SLEEP in a new session, as Ray starts its agents, prints the process id and sleeps as well.
PARENT = [
    sys.executable,
    "-c",
    "import subprocess, time; "
    f"child = subprocess.Popen({SLEEP!r}, start_new_session=True); print(child.pid, flush=True); time.sleep(60)",
]


@pytest.fixture
def running(tmp_path: Path, values: dict[str, str]) -> stack.Stack:
    """A stack with settings and ports, without processes."""
    layout = stack.Layout(tmp_path)
    layout.logs.mkdir()
    return stack.Stack(layout, values, PORTS, print, marker="mark", ray_folder=Path("/tmp/hs-ray-x"))


class TestSettings:
    def test_names_an_invalid_line(self, tmp_path: Path) -> None:
        file = tmp_path / ".env"
        file.write_text("A=1\nexport B=2\n")
        with pytest.raises(ConfigError, match=r"\.env:2: expected NAME=value, found 'export B=2'"):
            compose.read_env(file)

    @pytest.mark.parametrize(
        ("text", "values", "expected"),
        [
            ("a ${X} b", {"X": "1"}, "a 1 b"),
            ("${X-no}${Y-no}", {"X": ""}, "no"),
            ("${X:-no}", {"X": ""}, "no"),
            ("${X?needed}", {"X": ""}, ""),
            ("$$HOME costs $${X}", {}, "$HOME costs ${X}"),
        ],
    )
    def test_variables_are_replaced_as_by_compose(self, text: str, values: dict[str, str], expected: str) -> None:
        assert compose.interpolate(text, values) == expected

    def test_names_a_required_variable(self) -> None:
        with pytest.raises(ConfigError, match=r"^compose\.yaml: TOKEN is not set; see infra/\.env\.example$"):
            compose.interpolate("${TOKEN:?see infra/.env.example}", {"TOKEN": ""})


class TestTranslation:
    def test_no_address_of_the_containers_is_left(self, running: stack.Stack) -> None:
        started = [
            "buckets",
            "mlflow",
            "prefect-server",
            "ray-head",
            "ray-worker",
            "workspace",
            "deployment",
            "prefect-worker",
        ]
        inside = re.compile(
            r"0\.0\.0\.0|(?<![\w.-])(?:postgres|s3|mlflow|prefect-server|ray-head):\d|^/workspace|^/opt/headstart"
            r"|[=:](?:5432|8333|5000|4200|6379)(?!\w)"
        )
        for name in started:
            service = running.services[name]
            assert [text for text in (*service.command, *service.environment.values()) if inside.search(text)] == [], (
                name
            )

    def test_no_setting_of_the_caller_is_passed_on(self, running: stack.Stack, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://production")
        monkeypatch.setenv("AWS_PROFILE", "production")
        monkeypatch.setenv("LANG", "C.UTF-8")
        environment = running.environment()
        assert {"MLFLOW_TRACKING_URI", "AWS_PROFILE"} & set(environment) == set()
        assert environment["LANG"] == "C.UTF-8"
        assert environment["PATH"].startswith(str(Path(sys.executable).parent))
        assert environment[stack.MARKER] == "mark"


class TestProcesses:
    @pytest.fixture
    def options(self, tmp_path: Path) -> dict[str, Any]:
        return {"environment": {"PATH": os.environ["PATH"]}, "log": tmp_path / "log", "folder": tmp_path}

    def test_stops_a_process_with_its_children(self, options: dict[str, Any], tmp_path: Path) -> None:
        started = processes.start("parent", PARENT, **options)
        while not (text := (tmp_path / "log").read_text()).endswith("\n"):
            time.sleep(0.02)
        child = psutil.Process(int(text))
        processes.stop([started], patience=1)
        assert started.process() is None
        assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE

    def test_stops_descendants_of_a_killed_parent(self, options: dict[str, Any], tmp_path: Path) -> None:
        options["environment"] |= {"STACK_TEST": "it"}
        started = processes.start("parent", PARENT, **options)
        while not (text := (tmp_path / "log").read_text()).endswith("\n"):
            time.sleep(0.02)
        os.kill(started.pid, signal.SIGKILL)
        while started.process():
            time.sleep(0.02)
        assert [each.pid for each in processes.marked("STACK_TEST", "it")] == [int(text)]
        processes.stop([started], marker=("STACK_TEST", "it"), patience=1)
        assert processes.marked("STACK_TEST", "it") == []

    def test_a_reused_pid_is_not_stopped(self) -> None:
        other = subprocess.Popen(SLEEP)
        try:
            earlier = Started("mlflow", other.pid, psutil.Process(other.pid).create_time() - 100)
            assert earlier.process() is None
            processes.stop([earlier], patience=0.1)
            assert other.poll() is None
        finally:
            other.kill()
            other.wait()

    def test_a_process_that_ends_while_starting_is_reported_with_its_last_lines(
        self, options: dict[str, Any], tmp_path: Path
    ) -> None:
        started = processes.start("mlflow", ["sh", "-c", "echo no database; exit 3"], **options)
        with pytest.raises(StackError, match=r"(?s)^mlflow: ended while starting; see .*/log\n    no database$"):
            processes.wait_until(started, lambda: False, log=tmp_path / "log")

    def test_a_failed_command_is_reported_with_its_last_lines(self, options: dict[str, Any]) -> None:
        with pytest.raises(StackError, match=r"(?s)^buckets: failed with exit code 7; see .*/log\n    no store$"):
            processes.run("buckets", ["sh", "-c", "echo no store; exit 7"], **options)
        with pytest.raises(StackError, match=r"^buckets: did not end within 0\.2 s; see "):
            processes.run("buckets", SLEEP, **options, timeout=0.2)

    def test_a_program_that_is_missing_is_named(self, options: dict[str, Any]) -> None:
        with pytest.raises(
            StackError, match=r"^s3: cannot start moto-server-x \(No such file or directory\); run `make"
        ):
            processes.start("s3", ["moto-server-x"], **options)

    def test_a_damaged_file_of_processes_is_reported(self, tmp_path: Path) -> None:
        state = tmp_path / "state.json"
        state.write_text('{"processes": [{"name": "s3"}]}')
        with pytest.raises(StackError, match=r"state\.json: damaged .*; stop the processes manually and remove it"):
            processes.recall(state)


class TestCommands:
    def test_a_second_stack_in_the_same_folder_is_refused(self, tmp_path: Path) -> None:
        started = processes.start("s3", SLEEP, environment={}, log=tmp_path / "log", folder=tmp_path)
        processes.remember(tmp_path / "state.json", [started], {"marker": "m", "ray_folder": "", "ports": {}})
        try:
            with pytest.raises(
                StackError, match=r"a stack runs here; stop it with `infra/local-stack down` or choose another"
            ):
                stack.up(tmp_path)
            said: list[str] = []
            assert stack.status(tmp_path, say=said.append) is True
            assert said[0].split()[:2] == ["s3", "runs"]
            stack.down(tmp_path, say=said.append)
            assert said[-1].startswith("stopped 1 services, 0 process(es) left")
            assert not (tmp_path / "state.json").exists()
            assert started.process() is None
        finally:
            processes.stop([started], patience=1)

    def test_a_missing_stack_is_reported(self, tmp_path: Path) -> None:
        said: list[str] = []
        assert stack.status(tmp_path, say=said.append) is False
        stack.down(tmp_path, say=said.append)
        assert said == [f"{tmp_path}: no stack"] * 2
        with pytest.raises(StackError, match="no stack runs here; start one with `infra/local-stack up`"):
            stack.attach(tmp_path)

    def test_started_services_are_stopped_when_one_fails(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        seen: list[Started] = []

        def fail(running: stack.Stack, *_: object) -> None:
            seen.append(running.start("s3", SLEEP))
            raise StackError("mlflow: not ready")

        monkeypatch.setattr(stack, "_start", fail)
        monkeypatch.setattr(postgres, "programs", lambda: Path("/bin"))
        monkeypatch.setattr(postgres, "unprivileged_user", lambda euid: None)
        monkeypatch.setattr(stack, "settings", lambda: compose.fill_secrets(compose.read_env(compose.ENV_EXAMPLE)))
        with pytest.raises(StackError, match="mlflow: not ready"):
            stack.up(tmp_path / "stack", say=lambda text: None)
        assert seen[0].process() is None
        assert not (tmp_path / "stack" / "state.json").exists()


class TestStore:
    @pytest.fixture
    def store(self, values: dict[str, str], tmp_path: Path) -> Iterator[stack.Stack]:
        """A stack of which only the S3 server runs."""
        with empty_s3() as port:
            yield stack.Stack(stack.Layout(tmp_path), values, PORTS | {"s3": port}, print)

    def test_creates_the_buckets_once_and_counts_their_objects(self, store: stack.Stack) -> None:
        service = store.services["buckets"]
        printed = [
            subprocess.run(
                service.command, env=store.environment(service), cwd=ROOT, capture_output=True, text=True, check=True
            ).stdout.splitlines()
            for _ in range(2)
        ]
        assert printed[0] == ["bucket headstart: created", "bucket mlflow: created"]
        assert printed[1] == ["bucket headstart: exists", "bucket mlflow: exists"]
        files = s3fs.S3FileSystem(
            key="any", secret="any", endpoint_url=f"http://127.0.0.1:{store.ports['s3']}", skip_instance_cache=True
        )
        for name, size in [("headstart/dvc/a/b", 1_500_000), ("headstart/dvc/c", 500_000), ("mlflow/artifacts/1", 0)]:
            with files.open(name, "wb") as file:
                file.write(b"x" * size)
        assert [" ".join(line.split()) for line in stack.stored(store)] == [
            "s3://headstart/dvc 2 objects 2.0 MB",
            "s3://mlflow/artifacts 1 objects 0.0 MB",
        ]


class TestParams:
    def test_shipped_settings_fit_params_yaml(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("HEADSTART_STORAGE", raising=False)
        params = tmp_path / "params.yaml"
        params.write_text((ROOT / "params.yaml").read_text())
        overlay(params, ROOT / "infra" / "local-stack-params.yaml")
        small, whole = load_params(params), load_params(ROOT / "params.yaml")
        assert small.run.families == ["ulmfit"]
        assert small.cluster.workers == 2
        assert small.pretrain["ulmfit"].training.tokens < whole.pretrain["ulmfit"].training.tokens
        assert small.data == whole.data.model_copy(update={"tasks": small.data.tasks})

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("- 1\n", "expected sections as in params.yaml, found list"),
            ("a: [\n", "not readable as YAML"),
            ("runn: {}\n", r"runn: unknown key; did you mean 'run'\?"),
        ],
    )
    def test_invalid_settings_are_named(self, tmp_path: Path, text: str, message: str) -> None:
        params, over = tmp_path / "params.yaml", tmp_path / "over.yaml"
        params.write_text((ROOT / "params.yaml").read_text())
        over.write_text(text)
        with pytest.raises(ConfigError, match=message):
            overlay(params, over)

    def test_a_missing_file_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"none\.yaml: does not exist; name a file of settings with --params"):
            overlay(tmp_path / "params.yaml", tmp_path / "none.yaml")
