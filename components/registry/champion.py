"""The model in use: fetched from the registry and checked before it answers."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from components.errors import RegistryError
from components.inference.prediction import Classifier
from components.registry.ledger import CHAMPION
from components.registry.packaging import check_bundle
from components.settings.registry import RegistrySettings
from components.tracking import Registry, Version, connect


def model_name(settings: RegistrySettings, task: str) -> str:
    """Name of a task's classifiers in the registry."""
    return f"{settings.prefix}-{task}"


def find_champion(registry: Registry, task: str) -> Version:
    """The version that the alias `champion` of a task points to.

    Raises:
        RegistryError: no version was promoted yet.
    """
    name = model_name(registry.settings, task)
    version = registry.alias(name, CHAMPION)
    if version is None:
        known = f"{len(registry.versions(name))} version(s), none promoted" if registry.versions(name) else "no version"
        raise RegistryError(
            f"{name}@{CHAMPION} at {registry.address}: {known}; run the stages register and promote first"
        )
    return version


@contextmanager
def fetched(registry: Registry, version: Version, *, kind: str = "classifier") -> Iterator[Path]:
    """A version's bundle on this machine, checked against the registered digest, removed afterwards.

    Raises:
        ArtifactError: the files are not the ones that were registered.
        RegistryError: the files cannot be fetched.
    """
    directory = Path(tempfile.mkdtemp(prefix="headstart-"))
    try:
        bundle = registry.download(version, directory)
        check_bundle(bundle, kind=kind, digest=version.digest, what=version.label)
        yield bundle
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def load_version(registry: Registry, version: Version) -> Classifier:
    """A registered classifier, ready to answer."""
    from components.task_models.classifier import load_classifier  # torch: only who asks for answers waits for it

    with fetched(registry, version) as bundle:
        return load_classifier(bundle)


def load_champion(settings: RegistrySettings, task: str) -> Classifier:
    """The classifier that serves a task now.

    Raises:
        RegistryError: no server, no champion, files that cannot be fetched.
        ArtifactError: the files are not the ones that were registered.
    """
    registry = connect(settings)
    return load_version(registry, find_champion(registry, task))
