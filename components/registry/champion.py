"""The champion of a task: download, verification and loading."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from components.errors import RegistryError
from components.inference.prediction import Classifier
from components.registry.alias_changes import missing_champion
from components.registry.packaging import check_bundle
from components.settings.registry import RegistrySettings
from components.tracking import Registry, Version, connect


def find_champion(registry: Registry, task: str) -> Version:
    """The version that the alias of a task points to: `champion`, or `best` unless `registry.production` is set.

    Raises:
        RegistryError: no version has been promoted, or the champion was deleted.
    """
    name, alias = registry.settings.model_name(task), registry.settings.alias
    version = registry.alias(name, alias)
    if version is None:
        if reason := missing_champion(registry, model=name, alias=alias):
            raise RegistryError(reason)
        known = f"{len(registry.versions(name))} version(s), none promoted" if registry.versions(name) else "no version"
        raise RegistryError(f"{name}@{alias} at {registry.address}: {known}; run the stages register and promote first")
    return version


@contextmanager
def fetched(registry: Registry, version: Version, *, kind: str = "classifier") -> Iterator[Path]:
    """Download a version's bundle, verify it against the registered digest, and delete it on exit.

    Raises:
        ArtifactError: the files differ from the registered ones.
        RegistryError: the files cannot be downloaded.
    """
    directory = Path(tempfile.mkdtemp(prefix="headstart-"))
    try:
        bundle = registry.download(version, directory)
        check_bundle(bundle, kind=kind, digest=version.digest, what=version.label)
        yield bundle
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def load_version(registry: Registry, version: Version) -> Classifier:
    """Load a registered classifier."""
    from components.task_models.classifier import load_classifier  # imports torch

    with fetched(registry, version) as bundle:
        return load_classifier(bundle)


def load_champion(
    settings: RegistrySettings,
    task: str,
    *,
    wrapped: Callable[[Classifier, Version], Classifier] = lambda classifier, version: classifier,
) -> Classifier:
    """Load the champion of a task.

    Args:
        settings: `params.registry`.
        task: name of the task.
        wrapped: applied to the loaded champion, such as a log of its rows.

    Raises:
        RegistryError: no server, no champion, or the files cannot be downloaded.
        ArtifactError: the files differ from the registered ones.
    """
    registry = connect(settings)
    version = find_champion(registry, task)
    return wrapped(load_version(registry, version), version)
