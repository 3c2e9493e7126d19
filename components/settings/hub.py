"""Published models by name, `owner/name` or `owner/name@revision`: `huggingface_hub` fetches them into its cache.

Only data is fetched (`ALLOWED`); nothing is unpickled, and no code of a repository runs. The variables of
huggingface_hub apply: HF_HOME, HF_ENDPOINT, HF_TOKEN, HF_HUB_OFFLINE. A model that is in the cache with all of its
files needs no network; a name without a revision is then the revision that was fetched last.
"""

import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from threading import Thread
from typing import Any, Final

from components.core.artifacts import digest_file, json_of
from components.core.errors import ArtifactError, ConfigError, nearest

ALLOWED: Final = ["*.safetensors", "*.json", "*.txt", "*.model"]
#: Other forms of the same weights, and checkpoints of their training.
IGNORED: Final = ["onnx/*", "openvino/*", "original/*", "checkpoint*/*", "*/checkpoint*/*"]
_DATA: Final[dict[str, Any]] = {"allow_patterns": ALLOWED, "ignore_patterns": IGNORED}
#: Seconds for which the hub is asked when nobody has named a model of it.
ANSWER_S: Final = 2.0
#: Endpoint -> whether it has answered.
_ANSWERS: Final = dict[str, bool]()
#: As huggingface_hub accepts them: at most 96 characters, no `--`, `..` and `.git`.
_NAME: Final = re.compile(
    r"(?![^@]*(--|\.\.|([-.]|\.git)(/|@|$)))[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}(@[\w./-]+)?"
)
_SHA256: Final = re.compile(r"[0-9a-f]{64}")


def is_hub_name(start: str | Path) -> bool:
    """Whether a start that is no path names a model of the hub: `models/mini` is a path if there is a folder models."""
    text = str(start)
    return _NAME.fullmatch(text) is not None and not Path(Path(text).parts[0]).exists()


def hub_folder(
    start: str | Path, *, known: Iterable[str] = (), check: Callable[[dict[str, Any]], Any] = lambda config: None
) -> Path:
    """The folder of a model in the cache of huggingface_hub, fetched unless it is there; its name is the commit.

    Args:
        known: names among which the nearest is proposed.
        check: called with the content of config.json before the weights are fetched; raises ArtifactError.

    Raises:
        ConfigError: the name, the revision, access, the network, memory or disk are missing.
        ArtifactError: the repository has no safetensors, an architecture that is not supported, or code; or a file is
            not the one that the hub lists.
    """
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.utils import filter_repo_objects

    repo, _, revision = str(start).partition("@")
    if (folder := cached_folder(repo, revision=revision or None)) is not None:
        return folder
    with _explained(repo, revision, known):
        facts = HfApi().model_info(repo, revision=revision or "main", files_metadata=True)
        sizes = {file.rfilename: file.size or 0 for file in facts.siblings or []}
        names = list(filter_repo_objects(sizes, **_DATA))
        _refuse(repo, names, str(facts.sha), check)
        size = sum(sizes[name] for name in names)
        _room(repo, size)
        licence = getattr(facts.card_data, "license", None) or "not stated"
        print(f"{repo}: {size / 1e6:.1f} MB, licence {licence}, commit {facts.sha}", file=sys.stderr)
        folder = Path(snapshot_download(repo, revision=revision or None, **_DATA))
    for path in folder.rglob("*.safetensors"):
        # The cache names the content of a large file by its digest.
        if _SHA256.fullmatch(path.resolve().name) and digest_file(path) != path.resolve().name:
            raise ArtifactError(
                f"{repo}: {path.name} has another digest than the hub lists; delete {path.resolve()}, and try again"
            )
    return folder


def answers(repo: str) -> bool:
    """Whether the hub answers one request within `ANSWER_S`: for config.json of a model, of which nothing is fetched.
    Asked once per process and endpoint; any error means no."""
    try:
        from huggingface_hub import constants, get_hf_file_metadata, hf_hub_url

        if constants.HF_HUB_OFFLINE:
            return False
        url = hf_hub_url(repo, "config.json")
    except Exception:  # as of a broken installation
        return False

    def ask() -> None:
        with suppress(Exception):
            # The page of a captive portal names no commit.
            _ANSWERS[constants.ENDPOINT] = get_hf_file_metadata(url, timeout=ANSWER_S).commit_hash is not None

    if constants.ENDPOINT not in _ANSWERS:
        _ANSWERS[constants.ENDPOINT] = False
        # The limit of a socket neither holds for the look-up of its name nor for the whole answer.
        asking = Thread(target=ask, daemon=True)
        asking.start()
        asking.join(ANSWER_S)
    return _ANSWERS[constants.ENDPOINT]


def pinned(start: str, folder: Path) -> str:
    """`start` with the commit of its folder, if it is a model of the hub; else the folder."""
    return f"{start.partition('@')[0]}@{folder.name}" if is_hub_name(start) else str(folder)


def config_file(start: str, root: Path) -> Path:
    """config.json of a published model: in a folder, relative to `root`, or in the cache, which need not have it."""
    if not is_hub_name(start):
        return root / start / "config.json"
    from huggingface_hub import try_to_load_from_cache

    repo, _, revision = start.partition("@")
    cached = try_to_load_from_cache(repo, "config.json", revision=revision or None)
    return Path(cached) if isinstance(cached, str) else root / start


def cached_folder(repo: str, *, revision: str | None = None) -> Path | None:
    """The folder in the cache, if no file of the model can be missing in it; None without huggingface_hub."""
    try:
        from huggingface_hub import snapshot_download, try_to_load_from_cache
        from huggingface_hub.errors import LocalEntryNotFoundError
    except ModuleNotFoundError:
        return None

    try:
        folder = Path(snapshot_download(repo, local_files_only=True, revision=revision, **_DATA))
    except (LocalEntryNotFoundError, ValueError):
        return None
    # Another tool may have fetched single files; it has then asked for those that decide how a text is read.
    listed = folder.parents[1] / "trees" / f"{folder.name}.json"
    complete = (folder / "config.json").exists() and any(folder.glob("*.safetensors"))
    asked = try_to_load_from_cache(repo, "modules.json", revision=folder.name) is not None
    return folder if complete and (listed.exists() or asked) else None


def _refuse(repo: str, names: list[str], commit: str, check: Callable[[dict[str, Any]], Any]) -> None:
    """Refuse a repository before its weights are fetched."""
    from huggingface_hub import hf_hub_download

    if outside := [name for name in names if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts]:
        raise ArtifactError(
            f"{repo}: lists {outside[0]}, which is outside of its folder; use another copy of the model"
        )
    if not any(name.endswith(".safetensors") for name in names):
        raise ArtifactError(
            f"{repo}: has no safetensors, and a pickle can execute code; convert it where you trust it, with "
            "AutoModel.from_pretrained(NAME).save_pretrained(FOLDER), and name the folder"
        )
    if "config.json" not in names:
        return  # an old folder, with the model inside
    config = json_of(Path(hf_hub_download(repo, "config.json", revision=commit)))
    if "auto_map" in config:
        raise ArtifactError(
            f"{repo}: its architecture is code of the repository (auto_map), which is not run; choose another model"
        )
    try:
        check(config)
    except ArtifactError as error:
        raise ArtifactError(f"{repo}: {error}") from error


def _room(repo: str, size: int) -> None:
    from huggingface_hub import constants

    place = Path(constants.HF_HUB_CACHE)
    place.mkdir(parents=True, exist_ok=True)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for what, there, remedy in (
        ("disk", shutil.disk_usage(place).free, f"free some, or set HF_HOME to another disk than that of {place}"),
        # The weights once as the file has them, and once as float32.
        ("memory", memory // 2, "choose a smaller model"),
    ):
        if size > there:
            raise ConfigError(f"{repo}: {size / 1e6:,.0f} MB, but {there / 1e6:,.0f} MB of {what} for it; {remedy}")


@contextmanager
def _explained(repo: str, revision: str, known: Iterable[str]) -> Iterator[None]:
    """Errors of huggingface_hub, each as one sentence with a remedy."""
    from httpx2 import TransportError
    from huggingface_hub import errors

    try:
        yield
    except errors.GatedRepoError as error:
        raise ConfigError(f"{repo}: is gated; accept its terms on the hub, and set HF_TOKEN to your token") from error
    except errors.RevisionNotFoundError as error:
        raise ConfigError(f"{repo}: has no revision {revision}; name a commit, or no revision") from error
    except errors.RepositoryNotFoundError as error:
        hint = nearest(repo, list(known))
        raise ConfigError(
            f"{repo}: no such folder or model, or a private one{hint}; correct it, or set HF_TOKEN"
        ) from error
    except (errors.LocalEntryNotFoundError, ConnectionError, TransportError) as error:
        raise ConfigError(
            f"{repo}: does not exist as a folder or in the cache, and the hub does not answer; name a folder, unset "
            "HF_HUB_OFFLINE, or check the connection and HF_ENDPOINT"
        ) from error
    except (errors.HfHubHTTPError, OSError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ConfigError(f"{repo}: the hub did not deliver it ({reason}); run this again, it is resumed") from error
