"""dvc.yaml, written from the table of stages and the settings of a run. A stage depends on its identity and on the
paths among the arguments of its job. DVC cannot expand lists, so all items of a group have as many dependencies; they
repeat their identity."""

import functools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from components.core.artifacts import digest_file, digest_text, text_in, write_atomic
from components.core.errors import ConfigError
from components.core.masking import masked
from components.core.resources import FILES, LOCK, PIPELINE
from components.pipeline.code_identity import SHORT
from components.pipeline.identity import PLACES, file_name
from components.pipeline.identity import STAGE as IDENTITY
from components.pipeline.jobs import WHOLE, Arguments, out
from components.pipeline.stages import STAGES, Stage
from components.settings.params import Params
from components.settings.registry import find_repository
from components.settings.section import Section

#: The package that runs.
_CODE: Final = Path(__file__).resolve().parents[1]
_WRITTEN: Final = "# Written by headstart"
#: How the dvc.yaml of earlier versions began, which are replaced.
_EARLIER: Final = ("# The pipeline: inputs and outputs of each stage.", "# Derived from the root's dvc.yaml")
#: What a command of a stage begins with.
_STAGE: Final = "headstart stage "
_HEAD: Final = f"""\
{_WRITTEN} (`headstart dvc`) from params.yaml and components/pipeline/stages.py. To keep
# your own edits, remove this line: headstart then leaves the file alone.
# `make run` runs it through Prefect; `dvc repro`, `dvc status`, `dvc plots`, `dvc push` work as in any DVC project.
# The flow reads `meta`: time limit in minutes, and number of retries.
"""


def dvc_yaml(params: Params, file: Path, *, root: Path) -> str:
    """The text of dvc.yaml.

    Args:
        root: of the repository. In a folder that is not a checkout, the code is the installed package.
    """
    stages = {name: _group(name, stage, params, file, root) for name, stage in STAGES.items() if stage.items(params)}
    return _HEAD + masked(yaml.safe_dump({"stages": stages}, sort_keys=False, allow_unicode=True, width=120))


def write_dvc_yaml(params: Params, file: Path) -> bool:
    """Write the dvc.yaml beside a params.yaml if it differs; returns whether it did. A dvc.yaml whose first line is
    another than headstart's belongs to the user and is left as it is. Without a repository, its folder will be one.

    Raises:
        ConfigError: as `refuse_other_pipeline`.
    """
    path = file.resolve().with_name(PIPELINE)
    refuse_other_pipeline(path.parent)
    root = find_repository(path.parent) or path.parent
    text = dvc_yaml(params, file.resolve().relative_to(root), root=root)
    before = text_in(path)
    if before == text or (before and not before.startswith((_WRITTEN, *_EARLIER))):
        return False
    write_atomic(path, text)
    return True


def refuse_other_pipeline(folder: Path) -> None:
    """Check that the dvc.yaml of a folder, if there is one, has stages of Headstart.

    Raises:
        ConfigError: it is the pipeline of something else, whose stages a run would execute.
    """
    path = folder / PIPELINE
    text = text_in(path)
    if text.strip() and _STAGE not in text and not text.startswith((_WRITTEN, *_EARLIER)):
        raise ConfigError(f"{path}: is a pipeline of something else, without stages of Headstart; use another folder")


def _group(name: str, stage: Stage, params: Params, file: Path, root: Path) -> dict[str, Any]:
    items = stage.items(params)
    whole = set(items) == {WHOLE}
    paths = {
        item: {"deps": _reads(name, stage, item, arguments, params, root), "outs": _writes(stage, arguments, params)}
        for item, arguments in items.items()
    }
    most = max(len(each["deps"]) for each in paths.values())
    for each in paths.values():
        each["deps"] += each["deps"][:1] * (most - len(each["deps"]))
    first = next(iter(paths.values()))
    names = first if whole else {key: [f"${{item.{key}[{n}]}}" for n in range(len(first[key]))] for key in first}
    key = name if whole else "${key}"
    options = {"persist": True} if stage.persist else {"cache": False} if stage.always else {}
    code = f" --code {installed_code()}" if name == IDENTITY and not _is_checkout(root) else ""
    body: dict[str, Any] = {
        "wdir": "/".join([".."] * len(file.parent.parts)) or ".",
        "cmd": f"{_STAGE}{name}{'' if whole else ' --item ${key}'} --params {file.as_posix()}{code}",
        "desc": stage.description,
        "meta": {"minutes": stage.minutes, "retries": stage.retries},
        "deps": names["deps"],
        "outs": [{path: options} if options else path for path in names["outs"]],
    }
    if name == IDENTITY:
        body["params"] = [{file.as_posix(): None}]
    if stage.always:
        body["always_changed"] = True
    if stage.metrics:
        body["metrics"] = [out(params, "metrics", name, f"{key}.json").as_posix()]
    if stage.curve:
        x, y = stage.curve
        body["plots"] = [{out(params, "curves", name, f"{key}.csv").as_posix(): {"x": x, "y": y}}]
    return body if whole else {"foreach": paths, "do": body}


def _reads(name: str, stage: Stage, item: str, arguments: Arguments, params: Params, root: Path) -> list[str]:
    """The dependencies of an item, its identity first."""
    if name == IDENTITY:
        return ["components", LOCK] if _is_checkout(root) else []
    paths = [out(params, name) for name in stage.reads(params)] if stage.reads else [*_paths(arguments)]
    outer = [path for path in dict.fromkeys(paths) if not set(path.parents) & set(paths)]
    return [path.as_posix() for path in (out(params, IDENTITY, file_name(name, item)), *outer)]


def _is_checkout(root: Path) -> bool:
    """Whether the code that runs is that of the repository; .dvcignore leaves its compiled files out."""
    return _CODE.parent == root.resolve()


@functools.cache
def installed_code() -> str:
    """Digest of the installed code and its lock: a part of the command instead of a dependency, because Python writes
    compiled files between those of the package, and because its folder has another path on another machine."""
    files = [*sorted(_CODE.rglob("*.py")), FILES / LOCK]
    return digest_text("".join(map(digest_file, files)))[:SHORT]


def _writes(stage: Stage, arguments: Arguments, params: Params) -> list[str]:
    if stage.writes:
        return [out(params, stage.writes).as_posix()]
    return [arguments[key].as_posix() for key in ("output", "record") if key in arguments]


def _paths(arguments: Mapping[str, Any]) -> Iterator[Path]:
    """The paths that a job reads: its arguments, and the raw data of its sources."""
    for key, value in arguments.items():
        if key in PLACES:
            continue
        if isinstance(value, Path):
            yield value
        elif isinstance(value, Mapping):
            yield from _paths(value)
        elif isinstance(value, Section) and isinstance(path := getattr(value, "path", None), str):
            yield Path(path)
