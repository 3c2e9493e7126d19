"""The local stack without Postgres: translation of compose.yaml, commands, processes, error messages."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from components.core.errors import ConfigError
from components.core.liveness import is_alive
from components.settings.loading import load_params
from infra.stack import compose, processes, stack
from infra.stack.__main__ import overlay
from infra.stack.processes import StackError
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
    return stack.Stack(layout, values, PORTS, ray_folder=Path("/tmp/hs-ray-x"))


class TestSettings:
    def test_names_an_invalid_line(self, tmp_path):
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
    def test_variables_are_replaced_as_by_compose(self, text, values, expected):
        assert compose.interpolate(text, values) == expected

    def test_names_a_required_variable(self):
        with pytest.raises(ConfigError, match=r"^compose\.yaml: TOKEN is not set; see infra/\.env\.example$"):
            compose.interpolate("${TOKEN:?see infra/.env.example}", {"TOKEN": ""})


class TestTranslation:
    def test_no_address_of_the_containers_is_left(self, running):
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

    def test_no_setting_of_the_caller_is_passed_on(self, running, monkeypatch):
        monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://production")
        monkeypatch.setenv("AWS_PROFILE", "production")
        monkeypatch.setenv("LANG", "C.UTF-8")
        environment = running.environment()
        assert {"MLFLOW_TRACKING_URI", "AWS_PROFILE"} & set(environment) == set()
        assert environment["LANG"] == "C.UTF-8"
        assert environment["PATH"].startswith(str(Path(sys.executable).parent))
        assert environment[stack.MARKER] == running.layout.marker


class TestProcesses:
    @pytest.fixture
    def options(self, tmp_path: Path) -> dict[str, Any]:
        return {"environment": {"PATH": os.environ["PATH"]}, "log": tmp_path / "log", "folder": tmp_path}

    def test_a_process_that_ends_while_starting_is_reported_with_its_last_lines(self, options, tmp_path):
        started = processes.start("mlflow", ["sh", "-c", "echo no database; exit 3"], **options)
        with pytest.raises(StackError, match=r"(?s)^mlflow: ended while starting; see .*/log\n    no database$"):
            processes.wait_until("mlflow", started, lambda: False, log=tmp_path / "log")

    def test_a_failed_command_is_reported_with_its_last_lines(self, options):
        with pytest.raises(StackError, match=r"(?s)^buckets: failed with exit code 7; see .*/log\n    no store$"):
            processes.run("buckets", ["sh", "-c", "echo no store; exit 7"], **options)
        with pytest.raises(StackError, match=r"^buckets: did not end within 0\.2 s; see "):
            processes.run("buckets", SLEEP, **options, timeout=0.2)

    def test_a_program_that_is_missing_is_named(self, options):
        with pytest.raises(
            StackError, match=r"^s3: cannot start moto-server-x \(No such file or directory\); run `make"
        ):
            processes.start("s3", ["moto-server-x"], **options)


class TestStack:
    @pytest.fixture
    def begin(self, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
        """Sets what starts the services."""
        monkeypatch.setattr(stack, "programs", lambda: Path("/bin"))
        monkeypatch.setattr(stack, "unprivileged_user", lambda euid: "")
        monkeypatch.setattr(stack, "settings", lambda: compose.fill_secrets(compose.read_env(compose.ENV_EXAMPLE)))
        return lambda function: monkeypatch.setattr(stack, "_start", function)

    def test_all_processes_end_with_the_block(self, tmp_path, begin):
        begin(lambda services, *_: services.start("mlflow", PARENT))
        with stack.started(tmp_path) as services:
            while not (text := services.layout.log("mlflow").read_text()).endswith("\n"):
                time.sleep(0.02)
            child, parent = psutil.Process(int(text)), services.running["mlflow"]
            # Its child has a session of its own, and is known by its environment.
            parent.kill()
            assert is_alive(child)
            with pytest.raises(StackError, match="a stack runs here; stop it, or choose another --folder"):
                stack.started(tmp_path).__enter__()
        assert not is_alive(child)
        assert not services.ray_folder.exists()
        assert services.layout.log("mlflow").exists()

    def test_started_services_are_stopped_when_one_fails(self, tmp_path, begin):
        seen: list[subprocess.Popen[bytes]] = []

        def fail(services, *_):
            services.start("s3", SLEEP)
            seen.append(services.running["s3"])
            raise StackError("mlflow: not ready")

        begin(fail)
        with pytest.raises(StackError, match="mlflow: not ready"):
            stack.started(tmp_path).__enter__()
        assert seen[0].poll() == -signal.SIGTERM


class TestStore:
    @pytest.fixture
    def store(self, values: dict[str, str], tmp_path: Path) -> Iterator[stack.Stack]:
        """A stack of which only the S3 server runs."""
        with empty_s3() as port:
            yield stack.Stack(stack.Layout(tmp_path), values, PORTS | {"s3": port})

    def test_creates_the_buckets_once(self, store):
        service = store.services["buckets"]
        printed = [
            subprocess.run(
                service.command, env=store.environment(service), cwd=ROOT, capture_output=True, text=True, check=True
            ).stdout.splitlines()
            for _ in range(2)
        ]
        assert printed[0] == ["bucket headstart: created", "bucket mlflow: created"]
        assert printed[1] == ["bucket headstart: exists", "bucket mlflow: exists"]


class TestParams:
    def test_shipped_settings_fit_params_yaml(self, tmp_path, monkeypatch):
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
            ("- 1\n", r"expected sections \(run, data, pretrain \.\.\.\), found list"),
            ("a: [\n", "not readable as YAML"),
            ("runn: {}\n", r"runn: unknown key; did you mean 'run'\?"),
        ],
    )
    def test_invalid_settings_are_named(self, tmp_path, text, message):
        params, over = tmp_path / "params.yaml", tmp_path / "over.yaml"
        params.write_text((ROOT / "params.yaml").read_text())
        over.write_text(text)
        with pytest.raises(ConfigError, match=message):
            overlay(params, over)

    def test_a_missing_file_is_named(self, tmp_path):
        with pytest.raises(ConfigError, match=r"none\.yaml: does not exist; .* name it with --params"):
            overlay(tmp_path / "params.yaml", tmp_path / "none.yaml")
