"""Published models by name, fetched by huggingface_hub from a server on this machine."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import huggingface_hub.constants as constants
import pytest
from typer.testing import CliRunner

from components.cli import main as cli
from components.core.artifacts import read_manifest
from components.core.errors import ArtifactError, ConfigError
from components.interchange.importing import source_digest
from components.interchange.starts.registry import advice, folder_of
from components.models.encoder import load_encoder
from components.settings import hub as module
from components.settings.hub import answers, is_hub_name, pinned
from components.settings.loading import load_params
from headstart.starts import encoder_of
from tests.conftest import answering, until
from tests.interchange.importing.conftest import change
from tests.interchange.importing.hub import COMMIT, Hub, serving
from tests.interchange.importing.test_sentence import write_folder

NAME = "someone/tiny-bert"


@pytest.fixture(scope="module")
def sentence(written, tmp_path_factory) -> Path:
    """A folder with a sentence encoder, and with files that are not fetched."""
    folder = shutil.copytree(written("bert"), tmp_path_factory.mktemp("sentence") / "published")
    write_folder(folder, pooling="cls", after=["dense"])
    (folder / "pytorch_model.bin").write_bytes(b"a pickle")
    (folder / "code.py").write_text("raise SystemExit")
    return folder


@pytest.fixture
def hub(sentence, tmp_path, monkeypatch) -> Iterator[Hub]:
    """A server with one sentence encoder; the cache of huggingface_hub is in tmp_path/cache."""
    folder = shutil.copytree(sentence, tmp_path / "published")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    with serving(Hub({NAME: folder})) as server:
        monkeypatch.setattr(constants, "ENDPOINT", server.url)
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", server.url + "/{repo_id}/resolve/{revision}/{filename}"
        )
        yield server


def published(hub: Hub) -> Path:
    return hub.folders[NAME]


def test_a_model_is_fetched_once_and_read_as_a_folder(hub, tmp_path, capsys):
    folder = folder_of(NAME)
    size = sum(
        path.stat().st_size for path in published(hub).rglob("*") if path.suffix in (".json", ".txt", ".safetensors")
    )
    assert capsys.readouterr().err.startswith(f"{NAME}: {size / 1e6:.1f} MB, licence mit, commit {COMMIT}\n")
    names = {path.name for path in folder.rglob("*") if path.is_file()}
    assert {"modules.json", "model.safetensors"} <= names and not names & {"pytorch_model.bin", "code.py"}
    assert source_digest(Path(NAME)) == source_digest(folder) == source_digest(published(hub))
    # Neither the pinned nor the bare name needs the network again.
    count = len(hub.requests)
    assert folder_of(pinned(NAME, folder)) == folder_of(f"{NAME}@{COMMIT}") == folder_of(NAME) == folder
    assert len(hub.requests) == count
    name, encoder = encoder_of(NAME, folder=tmp_path / "encoder")
    assert name == "tiny-bert" and read_manifest(encoder).facts["source"] == f"{NAME}@{COMMIT}"
    assert load_encoder(encoder).model.config.reading.pooling == ("first",)


def test_the_command_installs_it(hub):
    done = CliRunner().invoke(cli.app, ["starts", "--install", NAME])
    assert done.exit_code == 0, done.output
    assert f"use it with --start {NAME}@{COMMIT}\n" in done.output


def test_a_path_is_no_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert is_hub_name("someone/tiny") and is_hub_name("someone/tiny@main")
    assert not any(map(is_hub_name, ("tiny", "a/b/c", "/a/b", "./a", "../b", "a/b@")))
    (tmp_path / "someone").mkdir()
    assert not is_hub_name("someone/tiny")


def test_a_cut_download_is_resumed(hub):
    hub.cut = [1000]
    folder = folder_of(NAME)
    assert source_digest(folder) == source_digest(published(hub))


def test_another_digest_is_refused(hub):
    hub.altered = True
    with pytest.raises(
        ArtifactError, match=r"tiny-bert: model.safetensors has another digest than the hub lists; delete /"
    ):
        folder_of(NAME)


def test_offline(hub, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(
        ConfigError,
        match="does not exist as a folder or in the cache, and the hub does not answer; name a folder, unset",
    ):
        folder_of(NAME)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    folder = folder_of(NAME)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert folder_of(NAME) == folder
    (folder / "1_Pooling" / "config.json").unlink()
    with pytest.raises(ConfigError, match="does not exist as a folder or in the cache"):
        folder_of(NAME)


@pytest.fixture
def not_asked(monkeypatch):
    monkeypatch.setattr(module, "_ANSWERS", {})


def test_whether_the_hub_answers(hub, not_asked, monkeypatch):
    """For the advice of a fit without a start: one request, and nothing is fetched."""
    monkeypatch.setattr(module, "ANSWER_S", 60.0)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert not answers(NAME) and not hub.requests
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    assert answers(NAME) and answers("someone/else")
    assert hub.requests == [f"HEAD /{NAME}/resolve/main/config.json"]


def test_an_error_of_the_hub_is_no_answer(hub, not_asked, monkeypatch):
    monkeypatch.setattr(module, "ANSWER_S", 60.0)
    hub.failing[NAME] = (500, "")
    assert not answers(NAME) and not answers(NAME) and len(hub.requests) == 1


class Portal(BaseHTTPRequestHandler):
    """A captive portal, which answers every request with its page."""

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"" if self.command == "HEAD" else b"<html>Please log in</html>")

    do_HEAD = do_GET  # noqa: N815

    def log_message(self, *arguments):
        pass


@contextmanager
def silent() -> Iterator[int]:
    """A server that accepts connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize("server", [partial(answering, Portal), silent], ids=["portal", "silent"])
def test_the_advice_neither_fails_nor_waits(server, not_asked, tmp_path, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setenv("HEADSTART_STARTS", str(tmp_path))
    monkeypatch.setattr(module, "ANSWER_S", 0.2)
    with server() as port:
        url = f"http://127.0.0.1:{port}"
        monkeypatch.setattr(constants, "ENDPOINT", url)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", url + "/{repo_id}/resolve/{revision}/{filename}")
        texts = []
        for _ in range(9):
            began = time.perf_counter()
            texts.append(advice("en", use="{}"))
            seconds = time.perf_counter() - began
    assert {text[:55] for text in texts} == {"no published encoder is used, words only; all-MiniLM-L6"}
    # The last of them asks nobody.
    assert seconds < 0.5 and not any(module._ANSWERS.values())


FETCH = """
import sys
import huggingface_hub.constants as constants
constants.HUGGINGFACE_CO_URL_TEMPLATE = constants.ENDPOINT + "/{repo_id}/resolve/{revision}/{filename}"
from components.interchange.starts.registry import folder_of
print(folder_of(sys.argv[1]))
"""


def test_a_killed_download_is_resumed(hub, tmp_path):
    """The process is killed while the weights arrive; the next one fetches what is missing only."""
    hub.stalled = 2000
    variables = {"HF_ENDPOINT": hub.url, "HF_HUB_CACHE": str(tmp_path / "cache"), "HF_HUB_OFFLINE": "0"}
    command, environment = [sys.executable, "-c", FETCH, NAME], os.environ | variables
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:
        until(lambda: hub.ranges or process.poll() is not None)
        process.kill()
    assert process.returncode == -signal.SIGKILL
    hub.stalled = 0
    (snapshot,) = (tmp_path / "cache").glob(f"*/snapshots/{COMMIT}")
    complete = {path.relative_to(snapshot).as_posix() for path in snapshot.rglob("*") if path.is_file()}
    assert complete and "model.safetensors" not in complete
    hub.requests.clear()
    assert source_digest(folder_of(NAME)) == source_digest(published(hub))
    again = {request.partition(f"/resolve/{COMMIT}/")[2] for request in hub.requests if request.startswith("GET")}
    assert not complete & again


def test_single_files_of_another_tool_are_completed(hub):
    from huggingface_hub import hf_hub_download

    for name in ("config.json", "model.safetensors"):
        hf_hub_download(NAME, name)
    assert (folder_of(NAME) / "modules.json").is_file()


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda hub: hub.failing.update({NAME: (403, "GatedRepo")}), ConfigError, "is gated; accept .* HF_TOKEN"),
        (lambda hub: hub.failing.update({NAME: (500, "")}), ConfigError, "did not deliver it .*500.*; run this"),
        (lambda hub: hub.folders.clear(), ConfigError, "no such folder or model, or a private one; .*set HF_TOKEN"),
        (lambda hub: hub.listed.append("../evil.json"), ArtifactError, "lists ../evil.json, which is outside"),
        (lambda hub: [path.unlink() for path in published(hub).rglob("*.safetensors")], ArtifactError,
         "has no safetensors, and a pickle can execute code; convert it"),
        (lambda hub: change(published(hub), auto_map={"AutoModel": "code.Model"}), ArtifactError,
         r"code of the repository \(auto_map\), which is not run; choose"),
        (lambda hub: change(published(hub), model_type="t5"), ArtifactError, "no family supports model_type 't5'"),
    ],
)  # fmt: skip
def test_errors_say_what_to_do(change, error, message, hub):
    change(hub)
    with pytest.raises(error, match=f"^someone/tiny-bert: .*{message}"):
        folder_of(NAME)
    assert not any("/cdn/" in request for request in hub.requests)


def test_an_unknown_revision_and_too_little_room_or_memory(hub, monkeypatch):
    with pytest.raises(ConfigError, match="has no revision v9; name a commit"):
        folder_of(f"{NAME}@v9")
    with pytest.raises(ConfigError, match="did you mean 'intfloat/multilingual-e5-small'"):
        folder_of("intfloat/multilingual-e5-smal")
    with monkeypatch.context() as patch:
        patch.setattr(module.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 10}))
        with pytest.raises(ConfigError, match="0 MB of disk for it; free some, or set HF_HOME"):
            folder_of(NAME)
    monkeypatch.setattr(module.os, "sysconf", lambda name: 100)
    with pytest.raises(ConfigError, match=r"tiny-bert: 0 MB, but 0 MB of memory for it; choose a smaller model"):
        folder_of(NAME)
    assert not any("/cdn/" in request for request in hub.requests)


def test_settings_are_written_with_the_commit(hub, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"{word} {number},{word}\n" for number in range(12) for word in ("list", "name"))
    (tmp_path / "things.csv").write_text(f"text,label\n{rows}")
    done = CliRunner().invoke(cli.app, ["init", "things.csv", "--start", NAME])
    assert done.exit_code == 0, done.output
    block = load_params(tmp_path / "params.yaml").pretrain["tiny-bert"]
    assert (block.source, block.digest) == (f"{NAME}@{COMMIT}", source_digest(published(hub)))
    assert block.family == "bert"
