"""Several classifiers of one recipe, which differ in their seeds, in one directory; the classifier is their average.

config.json     kind, form, `members`: their number, and of the average `temperature` (default 1) or
                `threshold` (default: the mean of the members)
labels.json     names of the labels, by index
domain.safetensors   vectors of training texts (components.learners.domain); not of every kind of task
members/<n>/    a classifier each, without a manifest
encoder/        the encoder, if all members have the same; then they hold only what is above it

A single member, or members with the same files, are written as one classifier.
"""

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from components.core.artifacts import MANIFEST, digest_tree, json_of, write_json, writing
from components.core.errors import ConfigError

MEMBERS: Final = "members"
ENCODER: Final = "encoder"
DOMAIN: Final = "domain.safetensors"
KIND: Final = "classifier"


def save_members(
    directory: Path,
    members: Sequence[Callable[[Path], None]],
    *,
    facts: dict[str, Any],
    beside: Callable[[Path], None] = lambda folder: None,
    average: Mapping[str, float] | None = None,
) -> None:
    """Write a classifier directory, which may be part of another draft.

    Args:
        members: each writes the files of one classifier into a folder.
        facts: of the manifest.
        beside: writes what belongs to all members into the directory.
        average: entries of config.json, where there are several members.
    """
    with writing(directory, kind=KIND) as draft:
        draft.facts |= facts
        beside(draft.path)
        if len(members) == 1:
            members[0](draft.path)
            return
        folders = [draft.path / MEMBERS / str(number) for number in range(len(members))]
        for folder, write in zip(folders, members, strict=True):
            folder.mkdir(parents=True)
            write(folder)
        # A threshold of equal members is their own.
        if "temperature" not in (average or {}) and len(set(map(digest_tree, folders))) == 1:
            shutil.copytree(folders[0], draft.path, dirs_exist_ok=True)
            shutil.rmtree(draft.path / MEMBERS)
            return
        encoders = [folder / ENCODER for folder in folders if (folder / ENCODER).is_dir()]
        if encoders and len(set(map(digest_tree, encoders))) == 1:
            encoders[0].rename(draft.path / ENCODER)
            for encoder in encoders[1:]:
                shutil.rmtree(encoder)
        config = json_of(folders[0] / "config.json")
        config = (
            {name: config[name] for name in ("form", "kind") if name in config}
            | {"members": len(members)}
            | dict(average or {})
        )
        write_json(draft.path / "config.json", config)
        shutil.copyfile(folders[0] / "labels.json", draft.path / "labels.json")


def members_of(directory: Path) -> list[Path]:
    """The folders of a classifier's members: the directory itself if it is a single one.

    Raises:
        OSError, ValueError: config.json is missing or damaged.
    """
    count = json_of(directory / "config.json").get("members")
    return [directory] if count is None else [directory / MEMBERS / str(number) for number in range(int(count))]


def encoder_of(member: Path) -> Path:
    shared = member.parent.parent / ENCODER
    return member / ENCODER if (member / ENCODER).is_dir() or member.parent.name != MEMBERS else shared


def extract_member(directory: Path, number: int, target: Path) -> None:
    """Write one member as a classifier of its own.

    Raises:
        ConfigError: there is no such member.
    """
    folders = members_of(directory)
    if not 0 <= number < len(folders):
        raise ConfigError(f"{directory}: has {len(folders)} member(s), no member {number}; the first is 0")
    with writing(target, kind=KIND) as draft:
        shutil.copytree(folders[number], draft.path, dirs_exist_ok=True, ignore=shutil.ignore_patterns(MANIFEST))
        if (domain := directory / DOMAIN).is_file():
            shutil.copyfile(domain, draft.path / DOMAIN)
        if (encoder := encoder_of(folders[number])).is_dir():
            shutil.copytree(encoder, draft.path / ENCODER, dirs_exist_ok=True)
