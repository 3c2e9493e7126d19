"""Data at an address: a path s3://bucket/folder or https://host/folder of a corpus or task stands for a local copy
below `imports/`, which DVC imports (`dvc import-url`) and whose .dvc file records address, version and digest. The name
of the copy depends on the address only."""

import hashlib
import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Final
from urllib.parse import urlsplit

from components.core.errors import ConfigError
from components.core.masking import masked
from components.settings.tasks import SPLITS, named_files

FOLDER: Final = "imports"
_ADDRESS: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
#: Protocols without folders: the files of a task are imported one by one.
_FILES_ONLY: Final = ("http", "https")


@dataclass(frozen=True, order=True)
class Import:
    """A file or folder at an address, and its local path, relative to the repository."""

    url: str
    path: str


def is_address(path: Any) -> bool:
    """Whether a path of params.yaml is an address."""
    return isinstance(path, str) and _ADDRESS.match(path) is not None


def local_path(url: str) -> str:
    """The local path of what is at an address: readable, and different for different addresses."""
    parts = urlsplit(url.rstrip("/"))
    name = PurePosixPath(parts.path).name or parts.netloc
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip(".-") or "data"
    digest = hashlib.sha256(url.rstrip("/").encode()).hexdigest()[:8]
    return f"{FOLDER}/{digest}/{readable}"


def is_local_copy(path: str) -> bool:
    """Whether a path is below the folder of local copies."""
    return PurePosixPath(path).parts[:1] == (FOLDER,)


def localised(raw: dict[str, Any]) -> tuple[dict[str, Any], list[Import]]:
    """The content of a settings file with local paths instead of addresses, and what they stand for.

    Raises:
        ConfigError: an address holds a password or token.
    """
    collected: dict[str, Import] = {}

    def replaced(block: Any, *, files: bool = False) -> Any:
        if is_address(block):
            return replaced({"path": block})["path"]
        if not isinstance(block, dict) or not is_address(block.get("path")):
            return block
        url = block["path"].rstrip("/")
        if masked(url) != url:
            raise ConfigError(
                f"data: path {url} holds a password or token, which DVC would write to a file of git; set it with "
                "`dvc remote add NAME URL` and `dvc remote modify --local NAME password ...`, and name the path "
                "remote://NAME/FOLDER"
            )
        try:
            path = local_path(url)
        except ValueError as error:
            raise ConfigError(f"data: path {url}: {error}; correct the address") from error
        if files and urlsplit(url).scheme in _FILES_ONLY:
            # Nobody can list the files there, so splits that are not named do not exist.
            block = {"dev": None, "test": None} | block
            for name in _files(block):
                collected[f"{url}/{name}"] = Import(f"{url}/{name}", f"{path}/{name}")
        else:
            collected[url] = Import(url, path)
        return block | {"path": path}

    data = raw.get("data")
    if not isinstance(data, dict):
        return raw, []
    data = dict(data)
    for name, value in data.items():
        if name in ("general", "domain"):
            data[name] = replaced(value)
        elif name in ("tasks", "parallel") and isinstance(value, dict):
            data[name] = {key: replaced(block, files=name == "tasks") for key, block in value.items()}
        elif name == "unlabelled" and isinstance(value, list):
            data[name] = [replaced(text) for text in value]
    return raw | {"data": data}, sorted(collected.values())


def _files(task: dict[str, Any]) -> list[str]:
    names: list[str] = []
    for split in SPLITS:
        names += named_files(task.get(split, "train.jsonl" if split == "train" else None))
    return [name.partition("#")[0] for name in dict.fromkeys(map(str, names))]
