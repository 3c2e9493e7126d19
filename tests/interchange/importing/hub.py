"""A small server of the hub's protocol: metadata, trees, resolve with redirects, ETags and ranges."""

import hashlib
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from tests.conftest import answering

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class Hub:
    """Repositories by name, each a folder, and how requests fail.

    Attributes:
        failing: name -> (status, error code) of every request about the repository.
        listed: further names in the tree of every repository.
        cut: bytes after which the connection of a large file ends, once for each entry.
        stalled: bytes after which the connection of a large file sends nothing more; 0: never.
        ranges: first bytes of the requests for large files.
        altered: whether the bytes of large files are others than the listed digest says.
        requests: methods and paths, in order.
    """

    folders: dict[str, Path]
    failing: dict[str, tuple[int, str]] = field(default_factory=dict)
    listed: list[str] = field(default_factory=list)
    cut: list[int] = field(default_factory=list)
    stalled: int = 0
    ranges: list[int] = field(default_factory=list)
    altered: bool = False
    requests: list[str] = field(default_factory=list)
    url: str = ""

    def files(self, repo: str) -> list[dict[str, Any]]:
        folder, entries = self.folders[repo], []
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            entry = entry_of(path) | {"path": path.relative_to(folder).as_posix()}
            entries.append(entry)
        return [*entries, *({"type": "file", "path": name, "size": 3, "oid": "0" * 40} for name in self.listed)]


def entry_of(path: Path) -> dict[str, Any]:
    data = path.read_bytes()
    entry: dict[str, Any] = {"type": "file", "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
    if path.suffix == ".safetensors":
        entry["lfs"] = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 134}
    return entry


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.hub.requests.append(f"{self.command} {path}")
        parts = path.strip("/").split("/")
        is_api = parts[:2] == ["api", "models"]
        repo = "/".join(parts[2:4] if is_api else parts[1:3] if parts[0] == "cdn" else parts[:2])
        if repo in self.hub.failing:
            status, code = self.hub.failing[repo]
            self._send(status, b"{}", {"X-Error-Code": code, "X-Error-Message": code})
        elif repo not in self.hub.folders:
            self._send(401, b"{}", {"X-Error-Code": "RepoNotFound"})
        elif is_api and parts[4] in ("revision", "tree") and parts[5] not in ("main", COMMIT):
            self._send(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
        elif is_api and parts[4] == "tree":
            self._json(self.hub.files(repo))
        elif is_api:
            files = [{"rfilename": entry["path"], "size": entry["size"]} for entry in self.hub.files(repo)]
            self._json({"id": repo, "sha": COMMIT, "cardData": {"license": "mit"}, "siblings": files, "tags": []})
        else:
            self._file(repo, parts)

    def _file(self, repo: str, parts: list[str]) -> None:
        is_cdn = parts[0] == "cdn"
        name = "/".join(parts[3:] if is_cdn else parts[4:])
        path = self.hub.folders[repo] / name
        if not path.is_file():
            self._send(404, b"", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT})
            return
        entry, data = entry_of(path), path.read_bytes()
        if "lfs" not in entry:
            self._send(200, data, {"ETag": f'"{entry["oid"]}"', "X-Repo-Commit": COMMIT})
        elif not is_cdn:
            # Large files lie elsewhere.
            facts = {"X-Linked-Size": str(entry["size"]), "X-Linked-ETag": f'"{entry["lfs"]["oid"]}"'}
            where = f"{self.hub.url.replace('127.0.0.1', 'localhost')}/cdn/{repo}/{name}"
            self._send(302, b"", {**facts, "X-Repo-Commit": COMMIT, "ETag": f'"{entry["oid"]}"', "Location": where})
        else:
            if self.hub.altered:
                data = data[:-1] + bytes([data[-1] ^ 1])
            start = int((self.headers.get("Range") or "bytes=0-").removeprefix("bytes=").split("-")[0])
            if self.command == "GET":
                self.hub.ranges.append(start)
            more = {"Content-Range": f"bytes {start}-{len(data) - 1}/{len(data)}"} if start else {}
            self._send(206 if start else 200, data[start:], more, large=True)

    def _json(self, content: Any) -> None:
        self._send(200, json.dumps(content).encode(), {"Content-Type": "application/json"})

    def _send(self, status: int, data: bytes, headers: dict[str, str], *, large: bool = False) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command == "HEAD":
            return
        if large and self.hub.cut:
            self.wfile.write(data[: self.hub.cut.pop()])
            self.close_connection = True
            return
        if large and self.hub.stalled:
            self.wfile.write(data[: self.hub.stalled])
            self.wfile.flush()
            while self.hub.stalled:
                time.sleep(0.05)
            self.close_connection = True
            return
        self.wfile.write(data)


@contextmanager
def serving(hub: Hub) -> Iterator[Hub]:
    with answering(type("Handler", (_Handler,), {"hub": hub})) as port:
        hub.url = f"http://127.0.0.1:{port}"
        yield hub
