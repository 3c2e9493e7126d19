"""The Prefect server of a user, with a quick program in place of Prefect's application."""

import base64
import http.server
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import httpx
import psutil
import pytest
from prefect.exceptions import CancelledRun, PrefectException

import flows
from components.core.artifacts import try_lock
from components.core.errors import ConfigError, HeadstartError, TransientError
from flows import server as module
from flows import stages
from flows.processes import MARK, answers, orphans
from flows.repository import write_locked
from flows.server import Server, configured, ensure, server
from flows.sync import sync
from tests.conftest import until

from .conftest import is_running

ROOT = Path(__file__).parents[2]
#: In place of `prefect.server.api.server`.
APPLICATION = """
import base64, os
if os.path.exists("broken"):
    open("starts", "a").write("one ")
    raise SystemExit("no database")
text = "Basic " + base64.b64encode(os.environ["PREFECT_SERVER_API_AUTH_STRING"].encode()).decode()
def create_app(final):
    async def application(scope, receive, send):
        if scope["type"] == "http":
            known = dict(scope["headers"]).get(b"authorization", b"").decode() == text
            await send({"type": "http.response.start", "status": 200 if known else 401})
            await send({"type": "http.response.body", "body": os.environ["no_proxy"].encode()})
    return application
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A user's folder of Prefect, whose servers run the quick application; none is left."""
    package = tmp_path / "programs" / "prefect" / "server" / "api"
    package.mkdir(parents=True)
    for folder in (package, *package.parents[:2]):
        (folder / "__init__.py").touch()
    (package / "server.py").write_text(APPLICATION)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "programs"), str(ROOT)]))
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(module, "configured", lambda: "")
    yield tmp_path / "home"
    (tmp_path / "home").mkdir(exist_ok=True)
    if held := module._holder():
        psutil.Process(held["pid"]).kill()


def pid_of_server() -> int:
    return int(module._holder().get("pid", 0))


def test_all_users_share_a_server_which_outlives_them_and_is_started_again(home, port, monkeypatch):
    monkeypatch.setenv(MARK, f"{os.getpid()} {ROOT}")
    with server(port=port) as first:
        process = pid_of_server()
        assert first.address == os.environ["PREFECT_API_URL"] == f"http://127.0.0.1:{port}/api"
        assert os.environ["PREFECT_API_AUTH_STRING"] == first.auth and (home / "auth").stat().st_mode & 0o777 == 0o600
        commands = [" ".join(each.info["cmdline"] or ()) for each in psutil.process_iter(["cmdline"])]
        assert not any(str(first.auth) in each for each in commands)
        with server() as second:
            assert (second.port, pid_of_server()) == (port, process)
        # It belongs to no run, whose end would end it.
        assert process not in {each.pid for each in orphans(ROOT)}
        assert psutil.Process(process).environ().get(MARK) is None
        psutil.Process(process).kill()
        until(lambda: not module._holder())
        assert ensure() == port
        assert pid_of_server() != process and answers(f"{first.address}/admin/version", auth=str(first.auth))
        # Another command would start it at the port that it had.
        psutil.Process(pid_of_server()).kill()
        until(lambda: not module._holder())
        with server() as third:
            assert third.port == port
        os.environ["PREFECT_API_URL"] = "http://127.0.0.1:9/api"
        with pytest.raises(
            TransientError, match=rf"^http://127.0.0.1:9/api: the Prefect server now is at port {port};"
        ):
            ensure()
    assert is_running(pid_of_server())
    psutil.Process(pid_of_server()).terminate()
    until(lambda: not (home / "lock").read_text())


def test_it_ends_when_it_has_had_no_user_for_a_while(home, port, monkeypatch):
    monkeypatch.setenv(module.IDLE, "1")
    with server(port=port):
        process, began = pid_of_server(), time.monotonic()
        time.sleep(3)
        assert is_running(process), "it has a user"
    until(lambda: not is_running(process))
    assert time.monotonic() - began >= 3


def test_a_port_that_another_program_uses(home, port):
    other = subprocess.Popen([sys.executable, "-m", "http.server", str(port)], cwd=home.parent)
    try:
        until(lambda: module.in_use(port))
        message = rf"^port {port} is used by another program; choose another one with --port, or name a Prefect"
        with pytest.raises(ConfigError, match=message), server(port=port):
            pass
    finally:
        other.kill()
        other.wait()


def test_a_server_that_does_not_start(home, port):
    home.mkdir()
    (home / "broken").touch()
    with pytest.raises(ConfigError, match=r"did not start; see .*server\.log"), server(port=port):
        pass
    assert "no database" in (home / "server.log").read_text()
    assert (home / "starts").read_text() == "one one "


def test_no_request_to_this_host_is_sent_to_a_proxy(home, port, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_PROXY", "example.org")
    with server(port=port) as running:
        assert os.environ["no_proxy"] == os.environ["NO_PROXY"] == "example.org,127.0.0.1"
        client = httpx.Client(auth=tuple(str(running.auth).split(":")))
        assert client.get(f"{running.address}/admin/version").text == "example.org,127.0.0.1", "the server's own"
    assert os.environ["NO_PROXY"] == "example.org" and "no_proxy" not in os.environ


def test_a_server_of_another_user_is_not_taken_for_ones_own(home, monkeypatch):
    """It has the port at which the user's own would start, and answers /health."""

    class Other(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/api/health" else 401)
            self.end_headers()

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Other) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        taken = other.server_address[1]
        # The server before it had the port.
        home.mkdir()
        (home / "lock").write_text(json.dumps({"port": taken, "pid": 0}))
        with server() as running:
            assert running.port not in (0, taken)
        other.shutdown()


def test_a_server_on_another_host(home):
    home.mkdir()
    with (home / "lock").open("a+") as file:
        assert try_lock(file)
        write_locked(file, port=1, pid=0, host="elsewhere")
        message = r"home: the Prefect server of this folder runs on elsewhere; .* PREFECT_HOME, .* PREFECT_API_URL$"
        with pytest.raises(ConfigError, match=message), server():
            pass


def test_a_folder_of_another_user(home, monkeypatch):
    monkeypatch.setattr("os.getuid", lambda: 1)
    message = r"home: must be a folder of your own that can be written; name another one with PREFECT_HOME$"
    with pytest.raises(ConfigError, match=message), server():
        pass


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"HOME": "/nowhere/of/mine"}, "headstart-{uid}"),
        ({"HOME": "{folder}"}, "{folder}/.local/state/headstart/prefect"),
        ({"HOME": "{folder}", "XDG_STATE_HOME": "{folder}/state"}, "{folder}/state/headstart/prefect"),
        ({"PREFECT_HOME": "here"}, "{folder}/here"),
    ],
)
def test_the_folder_of_the_server_is_made_by_it_only(tmp_path, variables, expected):
    given = {name: value.format(folder=tmp_path) for name, value in variables.items()}
    script = "import os; os.access = lambda path, _: str(path) != '/'; from flows.server import folder; print(folder())"
    environment = {"PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path), **given}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(tmp_path / expected.format(folder=tmp_path, uid=os.getuid()))
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_user_without_a_home(monkeypatch, tmp_path):
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def unknown() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr("pathlib.Path.home", unknown)
    assert flows._home() == tmp_path / f"headstart-{os.getuid()}"


def test_the_names_of_two_projects_on_the_users_own_server_differ(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name / ".dvc").mkdir(parents=True)
    shared, other = Server("", None, 4200), Server("")
    first, second = (shared.suffix(tmp_path / name) for name in ("a", "b"))
    assert re.fullmatch("-[0-9a-f]{6}", first) and first != second == shared.suffix(tmp_path / "b")
    assert other.suffix(tmp_path / "a") == ""


PROFILES = """
active = "quick"
[profiles.quick]
[profiles.team]
PREFECT_API_URL = "http://prefect.example/api"
"""


@pytest.mark.parametrize(
    ("variables", "profiles", "expected"),
    [
        ({}, "", "False False"),
        ({"PREFECT_API_URL": "http://prefect.example/api"}, "", "True False"),
        ({}, PROFILES, "False True"),
        ({}, PROFILES.replace('active = "quick"', 'active = "team"'), "True True"),
        ({"PREFECT_PROFILE": "team"}, PROFILES, "True True"),
        # Prefect reads no profile without the file.
        ({"PREFECT_PROFILE": "local"}, "", "False False"),
    ],
)
def test_a_server_may_be_configured_in_a_profile(tmp_path, variables, profiles, expected):
    if profiles:
        (tmp_path / "profiles.toml").write_text(profiles)
    ours = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    script = "import sys; from flows.server import configured; print(bool(configured()), 'prefect' in sys.modules)"
    environment = {**ours, **variables, "PREFECT_HOME": str(tmp_path)}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == expected


class Api(http.server.BaseHTTPRequestHandler):
    """Prefect's API for who knows the password."""

    def do_GET(self) -> None:
        ours = self.headers["Authorization"] == f"Basic {base64.b64encode(b'a:b').decode()}"
        self.send_response(200 if ours else 401)
        self.end_headers()
        self.wfile.write(b'"3.0.0"')


@pytest.mark.parametrize(("auth", "message"), [("a:b", ""), ("a:c", "401"), (None, "refused|failed")])
def test_a_server_that_is_configured(monkeypatch, auth, message):
    from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, temporary_settings

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Api) as api:
        threading.Thread(target=api.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{api.server_address[1]}/api" if auth else "http://127.0.0.1:9/api"
        monkeypatch.setenv("PREFECT_API_URL", address)
        monkeypatch.delenv("PREFECT_API_AUTH_STRING", raising=False)
        refused = rf"^{address}: the Prefect server does not answer \(.*({message}).*\); start it, or"
        ends = pytest.raises(TransientError, match=refused) if message else nullcontext()
        settings = temporary_settings({PREFECT_API_URL: address, PREFECT_API_AUTH_STRING: auth})
        with settings, ends, server(port=1) as running:
            assert (running.address, running.port) == (address, 0) and configured() == address
        api.shutdown()


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (httpx.ConnectError("refused"), TransientError),
        (httpx.InvalidURL("Invalid port"), TransientError),
        (PrefectException("no"), TransientError),
        (RuntimeError("Cannot run flow. Failed to reach API at http://a/api."), TransientError),
        (RuntimeError("a defect"), RuntimeError),
        (ConfigError("wrong"), ConfigError),
        (CancelledRun("cancelled"), HeadstartError),
    ],
)
def test_a_server_that_ends_in_mid_run(home, port, error, expected):
    with pytest.raises(expected) as raised, server(port=port):
        raise error
    assert type(raised.value) is expected


@pytest.mark.parametrize(
    "run",
    [
        lambda file: stages.run_pipeline(file, run=lambda *_: ""),
        lambda file: stages.act_on_registry(file, run=lambda *_: ""),
        lambda file: sync.fn(str(file)),
    ],
)
def test_the_server_runs_at_the_end_of_a_run_that_has_failed(tmp_path, monkeypatch, run):
    calls = list[str]()
    monkeypatch.setattr(module, "ensure", lambda: calls.append("ensured"))
    with pytest.raises(ConfigError, match=r"no params\.yaml here"):
        run(tmp_path / "params.yaml")
    assert set(calls) == {"ensured"}


def test_a_server_that_is_killed_is_started_again_within_a_run(home, port, monkeypatch):
    monkeypatch.setattr(module, "KEEP_S", 0.1)
    with server(port=port) as running, module.ensured():
        process = pid_of_server()
        psutil.Process(process).kill()
        until(lambda: pid_of_server() not in (0, process))
        until(lambda: answers(f"{running.address}/admin/version", auth=str(running.auth)))


def test_a_server_at_another_port_is_said_once(monkeypatch):
    said, looks = list[str](), list[int]()
    monkeypatch.setattr(module, "KEEP_S", 0.01)
    monkeypatch.setattr(module.terminal, "say", lambda text, **_: said.append(text))

    def ensure() -> None:
        looks.append(1)
        raise TransientError("the Prefect server now is at port 7")

    monkeypatch.setattr(module, "ensure", ensure)
    with pytest.raises(TransientError, match="now is at port 7"), module.ensured():
        until(lambda: len(looks) > 3)
    assert said == ["the Prefect server now is at port 7"]
