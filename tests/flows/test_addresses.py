"""Data at an address: imported by DVC, updated before every run, and used as it is if the address is not reached."""

import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml

from components.core.data_version import data_versions
from components.settings.imports import Import, local_path, localised
from components.settings.loading import load_params
from flows.repository import Project
from flows.run import bring
from tests.flows.conftest import dvc

TASK = {"kind": "classification", "train": "train.csv", "dev": None, "test": "test.csv"}


class Web:
    """A server of files with ETags."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def _answer(self) -> bytes:
                result = outer.files.get(self.path)
                self.send_response(200 if result is not None else 404)
                content = result or b""
                self.send_header("Content-Length", str(len(content)))
                self.send_header("ETag", f'"{hashlib.md5(content).hexdigest()}"')
                self.end_headers()
                return content

            def do_HEAD(self) -> None:
                self._answer()

            def do_GET(self) -> None:
                self.wfile.write(self._answer())

            def log_message(self, *arguments: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def web() -> Iterator[Web]:
    server = Web()
    yield server
    server.stop()


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty DVC repository, the working directory."""
    monkeypatch.chdir(tmp_path)
    dvc(tmp_path, "init", "--no-scm", "--quiet")
    return tmp_path


def write(root: Path, **data: object) -> Path:
    (root / "params.yaml").write_text(yaml.safe_dump({"data": data}))
    return root / "params.yaml"


def test_addresses_stand_for_local_copies():
    assert local_path("s3://bucket/some reviews/") == local_path("s3://bucket/some reviews")
    assert local_path("s3://bucket/a") != local_path("s3://other/a")
    result, imports = localised(
        {
            "data": {
                "domain": "https://host/texts.jsonl.gz",
                "general": {"path": "data/general"},
                "unlabelled": ["s3://bucket/more"],
                "tasks": {
                    "a": TASK | {"path": "https://host/a/", "train": ["x.csv", "y.json#rows"]},
                    "b": TASK | {"path": "s3://bucket/b", "labels": ["http://schema.org/Person"]},
                },
            }
        }
    )
    a, b = local_path("https://host/a"), local_path("s3://bucket/b")
    assert result["data"]["tasks"]["a"]["path"] == a and result["data"]["tasks"]["b"]["path"] == b
    assert result["data"]["tasks"]["b"]["labels"] == ["http://schema.org/Person"], "a label is no path"
    assert result["data"]["general"] == {"path": "data/general"}
    assert result["data"]["domain"] == local_path("https://host/texts.jsonl.gz")
    assert result["data"]["domain"].endswith("/texts.jsonl.gz")
    assert imports == [
        *(Import(f"https://host/a/{name}", f"{a}/{name}") for name in ("test.csv", "x.csv", "y.json")),
        Import("https://host/texts.jsonl.gz", local_path("https://host/texts.jsonl.gz")),
        Import("s3://bucket/b", b),
        Import("s3://bucket/more", local_path("s3://bucket/more")),
    ]


@pytest.mark.slow
def test_files_of_a_web_server_are_imported_and_updated(repository, web, capsys):
    web.files = {"/reviews/train.csv": b"text,label\na,x\nb,y\n"}
    params = write(repository, tasks={"reviews": {"path": f"{web.address}/reviews", "train": "train.csv"}})
    (train,) = bring(Project(params))
    source = load_params(params).data.tasks["reviews"]
    assert (repository / source.path / "train.csv").read_bytes() == web.files["/reviews/train.csv"]
    assert source.files("dev") == source.files("test") == []
    md5 = yaml.safe_load(train.read_text())["outs"][0]["md5"]
    assert md5 == hashlib.md5(web.files["/reviews/train.csv"]).hexdigest()
    # The version of one file is that of its .dvc file.
    version = data_versions({"train": Path(source.path) / "train.csv"}, project=repository, out=Path("artifacts"))
    assert version["train"].digest == md5
    web.files["/reviews/train.csv"] += b"e,y\n"
    bring(Project(params))
    assert (repository / source.path / "train.csv").read_bytes() == web.files["/reviews/train.csv"]
    assert yaml.safe_load(train.read_text())["outs"][0]["md5"] != md5
    assert f"{web.address}/reviews/train.csv: a new version" in capsys.readouterr().out
    # The earlier version is in DVC's cache.
    assert (repository / ".dvc/cache/files/md5" / md5[:2] / md5[2:]).exists()
    web.stop()
    bring(Project(params))
    assert "cannot be reached; the copy of an earlier run is used" in capsys.readouterr().out
    web.stop = lambda: None


def test_a_folder_in_s3_is_imported(repository, s3):
    s3.create_bucket(Bucket="labels")
    for name in ("train.csv", "test.csv"):
        s3.put_object(Bucket="labels", Key=f"reviews/{name}", Body=b"text,label\na,x\nb,y\n")
    params = write(repository, tasks={"reviews": TASK | {"path": "s3://labels/reviews"}})
    (record,) = bring(Project(params))
    source = load_params(params).data.tasks["reviews"]
    assert sorted(path.name for path in (repository / source.path).iterdir()) == ["test.csv", "train.csv"]
    version = data_versions({"reviews": Path(source.path)}, project=repository, out=Path("artifacts"))["reviews"]
    assert version.path == source.path and version.digest == yaml.safe_load(record.read_text())["outs"][0]["md5"]
