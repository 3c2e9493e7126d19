"""The changes since the last run of a stage: settings, files and functions, libraries, data files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from components.pipeline import rebuild
from components.pipeline.identity import STAGE as IDENTITY
from components.pipeline.identity import Identity, file_name, identities
from components.settings.loading import load_params

#: Maximum number of changed files of raw data that a reason names.
NAMED = 5


class Changes:
    """Compares the stages of a pipeline with their last runs.

    If code or settings have changed since the stage `identity` ran, the identities of all stages are computed here, so
    the reasons are those that DVC finds after that stage has run.

    Raises:
        ConfigError: the identities have to be computed and the settings are invalid.
    """

    def __init__(self, index: Any, repo: Any, *, params: Path) -> None:
        self.graph, self.repo = index.graph, repo
        writer = next((stage for stage in index.stages if stage.name == IDENTITY), None)
        self.folder = Path(writer.outs[0].fs_path) if writer is not None else None
        self.computed: dict[str, Identity] | None = None
        if writer is not None and writer.status():
            self.computed = {
                file_name(stage, item): value
                for stage, items in identities(load_params(params)).items()
                for item, value in items.items()
            }

    def identity(self, stage: Any) -> Any:
        """The dependency of a DVC stage on its identity; None if it has none."""
        return next((each for each in stage.deps if self.folder and self.folder in Path(each.fs_path).parents), None)

    def requested(self, stage: Any) -> list[str]:
        """The request of a full rebuild of a DVC stage, as a reason."""
        group, _, item = str(stage.name).partition("@")
        reason = rebuild.requested(self.folder.parent, group, item) if self.folder and item else ""
        return [f"a full rebuild was requested ({reason})"] if reason else []

    def reasons(self, stage: Any, *, files: bool = False) -> list[str]:
        """Why DVC would run a stage; empty if it is up to date.

        Args:
            files: whether to name the files of raw data that have changed.
        """
        identity = self.identity(stage)
        compared = identity is not None and bool(identity.hash_info)
        entries = stage.status().get(stage.addressing, [])
        states = [
            (path, state)
            for entry in entries
            if isinstance(entry, dict)
            for value in entry.values()
            for path, state in value.items()
            if not compared or path != str(identity)
        ]
        others = [entry for entry in entries if isinstance(entry, str) and entry != "always changed"]
        if (states or others) and not any(dependency.hash_info for dependency in stage.deps):
            # The stage is not in dvc.lock; DVC then reports every file as modified or deleted.
            return ["has not run yet"]
        raw = {str(each): each for each in stage.deps if not self._made(each, stage)} if files else {}
        named = [f"{path} {_state(state)}{self._files(raw[path]) if path in raw else ''}" for path, state in states]
        return (self._identity_changes(identity) if compared else []) + named + others

    def _identity_changes(self, dependency: Any) -> list[str]:
        path = Path(dependency.fs_path)
        try:
            name = path.relative_to(str(self.folder)).as_posix()
            now = Identity.read(path) if self.computed is None else self.computed[name]
        except (OSError, ValueError, KeyError):
            return [f"{dependency} is missing; the stage {IDENTITY} writes it"]
        try:
            before = Identity.read(Path(self.repo.cache.local.oid_to_path(dependency.hash_info.value)))
        except (OSError, ValueError):
            same = self.computed is None and not dependency.status()
            return [] if same else ["code or settings (the earlier identity is not in DVC's cache)"]
        return now.changes(before)

    def _made(self, dependency: Any, stage: Any) -> bool:
        """Whether a dependency of a stage is an output of another stage."""
        path = Path(dependency.fs_path)
        outs = [Path(out.fs_path) for needed in self.graph.successors(stage) for out in needed.outs if needed.name]
        return any(path == out or out in path.parents or path in out.parents for out in outs)

    def _files(self, dependency: Any) -> str:
        """`: a.txt (changed), b.txt (new)` for a folder of raw data; empty if its earlier files are unknown.

        DVC stores one listing of all of `data/` per version. The earlier files are taken from the listing in which the
        folder has the MD5 of the last run.
        """
        from dvc_data.hashfile.build import build
        from dvc_data.hashfile.hash_info import HashInfo
        from dvc_data.hashfile.tree import Tree

        path, before, odb = Path(dependency.fs_path), dependency.hash_info, self.repo.cache.local
        if not path.is_dir() or not before:
            return ""
        _, _, now = build(odb, str(path), dependency.fs, "md5", ignore=self.repo.dvcignore, dry_run=True)
        new = _listing(now)
        below = path.relative_to(self.repo.root_dir).parts[1:]
        for listing in Path(odb.path).glob("*/*.dir"):
            part = Tree()
            version = Tree.load(odb, HashInfo("md5", listing.parent.name + listing.name))
            for key, (meta, oid) in version.as_dict().items():
                if key[: len(below)] == below:
                    part.add(key[len(below) :], meta, oid)
            part.digest()
            if part.hash_info == before:
                old = _listing(part)
                value = [
                    f"{name} ({'new' if name not in old else 'removed' if name not in new else 'changed'})"
                    for name in sorted({*old, *new})
                    if old.get(name) != new.get(name)
                ]
                more = f" and {len(value) - NAMED} more" if len(value) > NAMED else ""
                return f": {', '.join(value[:NAMED])}{more}"
        return ""


def _listing(tree: Any) -> dict[str, str]:
    return {"/".join(key): oid.value for key, (_, oid) in tree.as_dict().items()}


def _state(state: Any) -> str:
    return state if isinstance(state, str) else "(" + ", ".join(f"{key} {how}" for key, how in state.items()) + ")"
