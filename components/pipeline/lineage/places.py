"""Where a document can be: files below a repository, and objects of DVC's cache and remotes, which are searched by
content, of all versions, and followed to what stages have made from them. Listings (`.dir`) stay: they hold names and
digests only. The repository is the working directory, as for all paths of the settings."""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa

from components.core.artifacts import MANIFEST, json_of
from components.core.commits import git
from components.core.data_version import dvc_config, locks, read_yaml
from components.core.errors import DataError
from components.data.ingestion.documents import DROPPED
from components.data.matching import Texts, file_holds
from components.data.removed import STATE
from components.settings.params import Params

_SHARD = re.compile(r"(?:train|heldout)-[0-9a-f]{16}\.parquet")
_KEYS = re.compile(rf"keys-[0-9a-f]{{16}}\.parquet|{re.escape(DROPPED)}")
#: Folders without data of the project.
SKIPPED = {".git", ".venv", "__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".hypothesis", "node_modules"}
#: Output folders below the run's folder that keep what was learned: in DVC's cache it is recognised by what it was made
#: from, not by its content.
LEARNED = ("tokenizer", "encoder", "distilled", "finetuned", "together")
#: Output folders whose content is made from documents: they are removed as a whole and made again by a retraining.
DERIVED = ("domain-texts", "judged", "corpus", "examples", "tokens", "task-tokens", "unlabelled", *LEARNED)


def walk(root: Path, *, without: tuple[Path, ...] = ()) -> Iterator[Path]:
    """All files below a folder outside of `SKIPPED` folders; links are not followed."""
    for folder, folders, files in os.walk(root):
        here = Path(folder)
        folders[:] = sorted(name for name in folders if name not in SKIPPED and here / name not in without)
        for name in sorted(files):
            path = here / name
            if path.is_file() and not path.is_symlink():
                yield path


def project_files() -> Iterator[Path]:
    """All files of the repository but DVC's cache and what is known of removed documents."""
    return walk(Path.cwd(), without=(Cache().path, STATE.absolute()))


def data_folders(params: Params) -> list[Path]:
    """`data/` and the folders of raw data that the settings name outside of it, as far as they exist."""
    places: list[Path] = []
    for name in ("data", *(source.path for source in params.data.sources.values())):
        if (path := Path(name).absolute()).exists() and not any(path.is_relative_to(other) for other in places):
            places.append(path)
    return places


def raw_holders(params: Params, texts: Texts) -> list[Path]:
    paths = (each for place in data_folders(params) for each in ([place] if place.is_file() else walk(place)))
    return [path for path in paths if holds(path, texts)]


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


def tracked_by_git() -> set[Path]:
    """The files that git tracks; empty outside of a git repository."""
    return {Path(name).absolute() for name in (git(Path(), "ls-files", "-z") or "").split("\0") if name}


def output_of(path: Path, params: Params) -> Path | None:
    """The output directory of a stage that contains a file of the run's folder: the highest one with a manifest."""
    out = Path(params.run.out).resolve()
    above = [parent for parent in path.resolve().parents if parent != out and parent.is_relative_to(out)]
    return next((parent for parent in reversed(above) if (parent / MANIFEST).is_file()), None)


@dataclass(frozen=True)
class Item:
    """A file of DVC's cache, its name there, and why it is affected: `text`, `tokens`, `keys` (digests and ids of
    documents) or `derived` (vocabularies and weights that were made from them)."""

    path: Path
    md5: str
    what: str

    @property
    def key(self) -> str:
        """Path of the object relative to a cache or remote."""
        return f"files/md5/{self.md5[:2]}/{self.md5[2:]}"


class Cache:
    """DVC's cache of the repository."""

    def __init__(self) -> None:
        self.path = Path(".dvc", dvc_config().get("cache", {}).get("dir", "cache")).resolve()

    def object(self, md5: str) -> Path:
        return self.path / "files" / "md5" / md5[:2] / md5[2:]

    def objects(self, *, suffix: str = "") -> dict[str, Path]:
        """MD5 -> path of all objects of files; with the suffix `.dir`, of the listings of folders."""
        paths = sorted(self.path.glob("files/md5/[0-9a-f][0-9a-f]/*"))
        return {path.parent.name + path.name: path for path in paths if path.suffix == suffix}

    def folders(self) -> dict[str, dict[str, str]]:
        """MD5 of each listing -> its files, as `listing`."""
        return {md5: self.listing(md5) for md5 in self.objects(suffix=".dir")}

    def listing(self, md5: str) -> dict[str, str]:
        """Relative path -> MD5 of the files of a folder; empty if the cache does not hold its listing."""
        try:
            return {entry["relpath"]: entry["md5"] for entry in json_of(self.object(md5))}
        except (OSError, ValueError, KeyError, TypeError):
            return {}

    def affected(self, texts: Texts) -> list[Item]:
        """The objects that hold one of the texts, its tokens, or digests and ids of the documents of its corpus."""
        objects = self.objects()
        held = {md5 for md5, path in objects.items() if holds(path, texts)}
        listings = [(listing, self._facts(listing)) for listing in self.folders().values()]
        why = dict.fromkeys(held, "text")
        shards, origins = set[str](), set[str]()  # stems of shards with a document, digests of splits with a row
        for listing, facts in listings:
            if names := {name for name, md5 in listing.items() if md5 in held}:
                shards |= {Path(name).stem for name in names if _SHARD.fullmatch(name)}
                why = {md5: "keys" for name, md5 in listing.items() if _KEYS.fullmatch(name)} | why
                digests = facts.get("digests") or {}
                origins |= {digest for split, digest in digests.items() if f"{split}.parquet" in names}
        for listing, facts in listings:
            of_rows = origins.intersection(map(str, (facts.get("origins") or {}).values()))
            arrows = [name for name in listing if Path(name).suffix == ".arrow"]
            why = {listing[name]: "tokens" for name in arrows if of_rows or Path(name).stem in shards} | why
        items = [Item(objects[md5], md5, what) for md5, what in why.items() if md5 in objects]
        # Those with the text last: tokens and keys are found by them, also after an interruption.
        return sorted(items, key=lambda item: (item.what == "text", item.md5))

    def derived(self, changed: Sequence[Path], items: Sequence[Item]) -> tuple[list[Path], list[Item]]:
        """What stages have made from changed files or affected objects, directly or by way of other outputs: the
        outputs of the workspace (`DERIVED`), and the objects of what was learned (`LEARNED`) in every run that a lock
        or the run cache records. What a folder has that no such run has made, too, stays in the cache.
        """
        objects, folders = self.objects(), self.folders()
        # A file is named by its MD5, and one of the workspace by its path, too.
        recorded = [(stage, ["md5", "path"]) for lock in locks(Path()) for stage in lock.values()]
        recorded += [(read_yaml(path) or {}, ["md5"]) for path in self.path.glob("runs/*/*/*")]
        runs = [
            [{each[key] for each in run.get(part, []) for key in keys if key in each} for part in ("deps", "outs")]
            for run, keys in recorded
        ]
        paths = {name: Path(name).resolve() for name in set[str]().union(*chain(*runs))}
        held = {item.md5 for item in items}
        held |= {md5 for md5, listing in folders.items() if held.intersection(listing.values())}
        for place in (path.resolve() for path in changed):
            held |= {name for name, at in paths.items() if place.is_relative_to(at)}
        before, made, clean = None, set[str](), set[str]()
        while made != before:
            before, made, clean = made, set(), set()
            for deps, outs in runs:
                (made if held & (deps | outs) or before & deps else clean).update(outs)
            made -= clean
        outputs = [path for name, path in paths.items() if name in made and {*Path(name).parts} & {*DERIVED}]
        written = [each for run, _ in recorded for each in run.get("outs", [])]
        made &= {each.get("md5") for each in written if {*Path(each["path"]).parts} & {*LEARNED}}
        removed, kept = (
            {file for name in of for file in folders.get(name, {"": name}).values()}
            for of in (made, clean | (folders.keys() - made))
        )
        removed -= kept.union(item.md5 for item in items)
        return [path for path in outputs if path.exists()], [
            Item(path, md5, "derived") for md5, path in objects.items() if md5 in removed
        ]

    def _facts(self, listing: dict[str, str]) -> dict[str, Any]:
        """The facts of the manifest of a folder; empty if the cache does not hold it."""
        try:
            return dict(json_of(self.object(listing[MANIFEST]))["facts"])
        except (OSError, ValueError, KeyError, TypeError):
            return {}


def remotes() -> dict[str, str]:
    """Name -> address of the DVC remotes."""
    items = {}
    for section, values in dvc_config().items():
        if (name := re.fullmatch(r"'?remote \"(.+)\"'?", section)) and "url" in values:
            items[name[1]] = values["url"]
    return items


def local_folder(url: str) -> Path | None:
    """The folder of a remote on this machine; None for other remotes."""
    path = url.removeprefix("file://")
    return None if "://" in path else Path(".dvc", path).resolve()
