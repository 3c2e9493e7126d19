"""Where a document can be: files below a repository, and objects of DVC's cache and remotes, which are searched by
content, of all versions. Listings (`.dir`) stay: they hold names and digests only."""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from components.core.artifacts import MANIFEST
from components.core.data_version import dvc_config, locks
from components.core.errors import DataError
from components.data.ingestion.documents import DROPPED
from components.data.matching import Texts, file_holds
from components.settings.params import Params

_SHARD = re.compile(r"(?:train|heldout)-[0-9a-f]{16}\.parquet")
_KEYS = re.compile(rf"keys-[0-9a-f]{{16}}\.parquet|{re.escape(DROPPED)}")
#: Folders without data of the project.
SKIPPED = {".git", ".venv", "__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".hypothesis", "node_modules"}
#: Output folders below the run's folder whose content is made from documents: they are removed as a whole and made
#: again by a retraining.
DERIVED = (
    "domain-texts",
    "judged",
    "corpus",
    "examples",
    "tokenizer",
    "tokens",
    "task-tokens",
    "encoder",
    "unlabelled",
    "distilled",
    "finetuned",
    "together",
)


def walk(root: Path, *, without: tuple[Path, ...] = ()) -> Iterator[Path]:
    """All files below a folder outside of `SKIPPED` folders; links are not followed."""
    for folder, folders, files in os.walk(root):
        here = Path(folder)
        folders[:] = sorted(name for name in folders if name not in SKIPPED and here / name not in without)
        for name in sorted(files):
            path = here / name
            if path.is_file() and not path.is_symlink():
                yield path


def data_folders(params: Params, root: Path) -> list[Path]:
    """`data/` and the folders of raw data that the settings name outside of it, as far as they exist."""
    places: list[Path] = []
    for path in (root / "data", *(root / source.path for source in params.data.sources.values())):
        if path.exists() and not any(path.is_relative_to(other) for other in places):
            places.append(path)
    return places


def raw_holders(params: Params, texts: Texts, *, root: Path) -> list[Path]:
    return [
        path
        for folder in data_folders(params, root)
        for path in ([folder] if folder.is_file() else walk(folder))
        if holds(path, texts)
    ]


def holds(path: Path, texts: Texts) -> bool:
    """Whether a file holds one of the texts.

    Raises:
        DataError: the file cannot be read.
    """
    try:
        return file_holds(path, texts)
    except FileNotFoundError:
        return False  # removed meanwhile
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path}: cannot be searched ({error}); repair or remove the file") from error


def tracked_by_git(root: Path) -> set[Path]:
    """The files that git tracks; empty outside of a git repository."""
    try:
        done = subprocess.run(["git", "-C", str(root), "ls-files", "-z"], capture_output=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return set()
    return {root / name for name in done.stdout.decode().split("\0") if name}


def derived_outputs(changed: list[Path], *, root: Path) -> list[Path]:
    """The outputs that DVC's stages, also of experiments, have made from changed raw files or outputs, directly or by
    way of other outputs, as far as they exist and hold data or weights (`DERIVED`)."""
    base = root.resolve()
    affected = [path.resolve() for path in changed]
    made: set[Path] = set()
    stages = [stage for lock in locks(root) for stage in lock.values()]
    # `affected` grows while it is read: an output is a changed file of the stages that read it.
    for path in affected:
        for stage in stages:
            read = ((root / entry["path"]).resolve() for entry in stage.get("deps", []))
            if any(path.is_relative_to(other) or other.is_relative_to(path) for other in read):
                outs = {(root / entry["path"]).resolve() for entry in stage.get("outs", [])} - made
                outs = {out for out in outs if out.is_relative_to(base) and {*out.relative_to(base).parts} & {*DERIVED}}
                made |= outs
                affected += outs
    return sorted(path for path in made if path.exists())


def output_of(path: Path, params: Params, *, root: Path) -> Path | None:
    """The output directory of a stage that contains a file of the run's folder: the highest one with a manifest."""
    out = (root / params.run.out).resolve()
    if not path.resolve().is_relative_to(out):
        return None
    for parent in reversed(path.resolve().relative_to(out).parents[:-1]):
        if (out / parent / MANIFEST).is_file():
            return out / parent
    return None


@dataclass(frozen=True)
class Item:
    """A file of DVC's cache, its name there, and why it is affected: `text`, `tokens` or `keys` (digests and ids of
    documents)."""

    path: Path
    md5: str
    what: str

    @property
    def key(self) -> str:
        """Path of the object relative to a cache or remote."""
        return f"files/md5/{self.md5[:2]}/{self.md5[2:]}"


class Cache:
    """DVC's cache of a repository."""

    def __init__(self, root: Path) -> None:
        self.root = root
        configured = dvc_config(root).get("cache", {}).get("dir")
        self.path = (root / ".dvc" / configured).resolve() if configured else root / ".dvc" / "cache"

    @property
    def objects(self) -> Path:
        return self.path / "files" / "md5"

    def find(self, md5: str) -> Path | None:
        path = self.objects / md5[:2] / md5[2:]
        return path if path.is_file() else None

    def listing(self, md5: str) -> dict[str, str] | None:
        """Relative path -> MD5 of the files of a folder; None if the cache does not hold its listing."""
        path = self.find(md5)
        return None if path is None else _listing(path)

    def files(self) -> Iterator[tuple[str, Path]]:
        """(MD5, path) of all objects that are files."""
        for folder in sorted(self.objects.glob("[0-9a-f][0-9a-f]")):
            for path in sorted(folder.iterdir()):
                if path.suffix != ".dir" and path.is_file():
                    yield folder.name + path.name, path

    def listings(self) -> Iterator[dict[str, str]]:
        for path in sorted(self.objects.glob("[0-9a-f][0-9a-f]/*.dir")):
            if (items := _listing(path)) is not None:
                yield items

    def affected(self, texts: Texts) -> list[Item]:
        """The objects that hold one of the texts, its tokens, or digests and ids of the documents of its corpus."""
        items = {md5: Item(path, md5, "text") for md5, path in self.files() if holds(path, texts)}
        held = frozenset(items)
        shards: set[str] = set()  # stems of the shards that hold a document
        origins: set[str] = set()  # digests of the splits that hold a row
        derived: list[tuple[str, str]] = []
        for listing in self.listings():
            if names := {name for name, md5 in listing.items() if md5 in held}:
                shards |= {Path(name).stem for name in names if _SHARD.fullmatch(name)}
                derived += [(md5, "keys") for name, md5 in listing.items() if _KEYS.fullmatch(name)]
                digests = self._facts(listing).get("digests") or {}
                origins |= {digest for split, digest in digests.items() if f"{split}.parquet" in names}
        for listing in self.listings():
            of_rows = origins.intersection(map(str, (self._facts(listing).get("origins") or {}).values()))
            for name, md5 in listing.items():
                if Path(name).suffix == ".arrow" and (of_rows or Path(name).stem in shards):
                    derived.append((md5, "tokens"))
        for md5, what in derived:
            if (path := self.find(md5)) is not None:
                items.setdefault(md5, Item(path, md5, what))
        # Those with the text last: tokens and keys are found by them, also after an interruption.
        return sorted(items.values(), key=lambda item: (item.what == "text", item.md5))

    def _facts(self, listing: dict[str, str]) -> dict[str, Any]:
        path = self.find(listing[MANIFEST]) if MANIFEST in listing else None
        try:
            return dict(json.loads(path.read_text())["facts"]) if path is not None else {}
        except (OSError, ValueError, KeyError, TypeError):
            return {}


def _listing(path: Path) -> dict[str, str] | None:
    try:
        return {entry["relpath"]: entry["md5"] for entry in json.loads(path.read_text())}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def remotes(root: Path) -> dict[str, str]:
    """Name -> address of the DVC remotes."""
    items = {}
    for section, values in dvc_config(root).items():
        if (name := re.fullmatch(r"'?remote \"(.+)\"'?", section)) and "url" in values:
            items[name[1]] = values["url"]
    return items


def local_folder(root: Path, url: str) -> Path | None:
    """The folder of a remote on this machine; None for other remotes."""
    if url.startswith("file://"):
        return Path(url.removeprefix("file://"))
    return None if "://" in url else (root / ".dvc" / url).resolve()
