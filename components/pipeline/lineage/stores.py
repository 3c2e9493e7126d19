"""Objects of DVC's cache and remotes that hold a document, directly or as tokens and keys.

The cache is searched by content, so objects of all earlier versions of data and outputs are found, whatever git branch
names them. Listings (`.dir`) stay: they hold names and digests only.
"""

from __future__ import annotations

import configparser
import json
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from components.core.errors import ArtifactError, DataError
from components.data.formats.corpus import read_batches
from components.data.ingestion.documents import DROPPED
from components.data.matching import Texts, file_holds

_SHARD = re.compile(r"(?:train|heldout)-[0-9a-f]{16}\.parquet")
_KEYS = re.compile(r"keys-[0-9a-f]{16}\.parquet")
MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Item:
    """A file of DVC's cache.

    Attributes:
        path: of the file.
        md5: its name in the cache.
        what: why it is affected: `text`, `tokens`, `keys` (digests of documents) or `dropped` (their ids).
    """

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
        configured = _config(root).get("cache", {}).get("dir")
        self.path = (root / ".dvc" / configured).resolve() if configured else root / ".dvc" / "cache"

    @property
    def objects(self) -> Path:
        """Folder of the objects."""
        return self.path / "files" / "md5"

    def find(self, md5: str) -> Path | None:
        """The object with this MD5, or None."""
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
        """The listings of all folders."""
        for path in sorted(self.objects.glob("[0-9a-f][0-9a-f]/*.dir")):
            if (items := _listing(path)) is not None:
                yield items

    def affected(self, texts: Texts, *, exact: Collection[bytes], ids: Collection[str]) -> list[Item]:
        """The objects that hold one of the texts, its tokens, its key or its id.

        Args:
            texts: of the documents.
            exact: BLAKE2b-128 keys of the documents, as in the key shards of a corpus.
            ids: of the documents, as in `dropped.parquet`.
        """
        items = {md5: Item(path, md5, "text") for md5, path in self.files() if _holds(path, texts)}
        shards: set[str] = set()  # stems of the shards that hold a document
        origins: set[str] = set()  # digests of the splits that hold a row
        for listing in self.listings():
            shards |= {Path(name).stem for name, md5 in listing.items() if md5 in items and _SHARD.fullmatch(name)}
            if any(md5 in items for name, md5 in listing.items() if name.endswith(".parquet")):
                digests = self._facts(listing).get("digests") or {}
                origins |= {digest for split, digest in digests.items() if listing.get(f"{split}.parquet") in items}
        for listing in self.listings():
            tokens = {f"{stem}.arrow" for stem in shards}
            if origins.intersection(map(str, (self._facts(listing).get("origins") or {}).values())):
                tokens |= {name for name in listing if name.endswith(".arrow")}
            for name, md5 in listing.items():
                path = self.find(md5)
                if md5 in items or path is None:
                    continue
                if name in tokens:
                    items[md5] = Item(path, md5, "tokens")
                elif _KEYS.fullmatch(name) and holds_key(path, exact):
                    items[md5] = Item(path, md5, "keys")
                elif name == DROPPED and holds_id(path, ids):
                    items[md5] = Item(path, md5, "dropped")
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


def _holds(path: Path, texts: Texts) -> bool:
    try:
        return file_holds(path, texts)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path}: cannot be searched ({error}); remove the file or restore it") from error


def holds_key(path: Path, exact: Collection[bytes]) -> bool:
    """Whether a key shard has one of these document keys."""
    try:
        return any(not set(batch.column(0).to_pylist()).isdisjoint(exact) for batch in read_batches(path, ["exact"]))
    except ArtifactError:
        return False


def holds_id(path: Path, ids: Collection[str]) -> bool:
    """Whether a list of dropped documents names one of these ids."""
    try:
        return any(
            not set(column.to_pylist()).isdisjoint(ids)
            for batch in read_batches(path, ["id", "twin"])
            for column in batch.columns
        )
    except ArtifactError:
        return False


def remotes(root: Path) -> dict[str, str]:
    """Name -> address of the DVC remotes."""
    items = {}
    for section, values in _config(root).items():
        if (name := re.fullmatch(r"'?remote \"(.+)\"'?", section)) and "url" in values:
            items[name[1]] = values["url"]
    return items


def local_folder(root: Path, url: str) -> Path | None:
    """The folder of a remote on this machine; None for other remotes."""
    if url.startswith("file://"):
        return Path(url.removeprefix("file://"))
    return None if "://" in url else (root / ".dvc" / url).resolve()


def _config(root: Path) -> dict[str, dict[str, str]]:
    parser = configparser.ConfigParser(interpolation=None)
    parser.read([root / ".dvc" / "config", root / ".dvc" / "config.local"], encoding="utf-8")
    return {section: {key: value.strip('"') for key, value in parser[section].items()} for section in parser.sections()}
