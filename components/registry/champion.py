"""The champion of a task: download, verification and loading; from a local database without MLflow, whose import takes
longer than a prediction."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from components.core.artifacts import SCHEMA, json_of, read_manifest
from components.core.errors import ArtifactError, RegistryError, SchemaError
from components.core.steps import step
from components.learners.abstention import abstaining
from components.learners.loading import load_model
from components.learners.prediction import Classifier
from components.registry.version import PREFIX, Version
from components.settings.registry import SQLITE, RegistrySettings, located, with_models

if TYPE_CHECKING:
    from components.registry.tracking import Registry

#: Revisions of MLflow's schema whose tables are read here.
REVISIONS: Final = frozenset({"dc11669786a5"})
QUERY: Final = """
SELECT version, source, run_id, storage_location
FROM model_versions NATURAL JOIN (SELECT workspace, name, version FROM registered_model_aliases WHERE alias = ?)
WHERE workspace = 'default' AND name = ? AND current_stage <> 'Deleted_Internal'
"""
NUMBERED: Final = """
SELECT version, source, run_id, storage_location FROM model_versions
WHERE version = ? AND workspace = 'default' AND name = ? AND current_stage <> 'Deleted_Internal'
"""
TAGS: Final = "SELECT key, value FROM model_version_tags WHERE workspace = 'default' AND name = ? AND version = ?"


def local_champion(settings: RegistrySettings, task: str, number: str = "") -> tuple[Version, Path] | None:
    """The version that the alias of a task points to, or the one with a number, and its bundle; None if MLflow has to
    be asked."""
    address = located(settings.address)
    file = Path(address.removeprefix(SQLITE))
    if not address.startswith(SQLITE) or not file.is_file():
        return None
    name = settings.model_name(task)
    asked = (NUMBERED, (number, name)) if number else (QUERY, (settings.alias, name))
    try:
        with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as database:
            if {revision for (revision,) in database.execute("SELECT version_num FROM alembic_version")} - REVISIONS:
                return None
            if (row := database.execute(*asked).fetchone()) is None:
                return None
            number, source, run, location = row
            tags = {
                key.removeprefix(PREFIX): value
                for key, value in database.execute(TAGS, (name, number))
                if key.startswith(PREFIX)
            }
    except sqlite3.Error:
        return None
    parts = urlsplit(location or "")
    bundles = [*Path(unquote(parts.path)).glob("data/*/")]
    if parts.scheme not in ("", "file") or len(bundles) != 1:
        return None
    return Version(name, str(number), source, run or "", tags), bundles[0]


def find_champion(registry: Registry, task: str) -> Version:
    """The version that the alias of a task points to: `champion`, or `best` unless `registry.production` is set.

    Raises:
        RegistryError: no version has been promoted, or the champion was deleted.
    """
    from components.registry.ledger import Ledger, missing_champion

    name, alias = registry.settings.model_name(task), registry.settings.alias
    version = registry.alias(name, alias)
    if version is None:
        if reason := missing_champion(registry, Ledger(registry).state(name, alias)):
            raise RegistryError(reason)
        where = f"{name}@{alias} at {registry.address}"
        if versions := registry.versions(name):
            last = {"task": task, "version": versions[-1].number}
            raise RegistryError(
                f"{where}: {len(versions)} version(s), none promoted; registry/decision.json in the run's folder has "
                f"the reasons. Try the last one: {step('try', **last)}; choose it: {step('promote', **last)}"
            )
        raise RegistryError(f"{where}: no version; run the stages register and promote first")
    return version


def _numbered(registry: Registry, task: str, number: str) -> Version:
    """A version of a task; raises RegistryError, with the numbers that exist, if there is no such version."""
    name = registry.settings.model_name(task)
    if (version := registry.find_number(name, number)) is None:
        numbers = ", ".join(each.number for each in registry.versions(name)) or "none"
        raise RegistryError(f"--version: {name} has no version {number}; versions: {numbers}")
    return version


@contextmanager
def fetched_champion(
    settings: RegistrySettings, task: str, *, number: str = "", directory: Path | None = None
) -> Iterator[tuple[Version, Path]]:
    """The champion of a task, or its version with a number, and its bundle, as `find_champion` and `fetched`; MLflow is
    imported only if the registry is not a local database."""
    if (local := local_champion(settings, task, number)) is None:
        from components.registry.tracking import connect

        registry = connect(with_models(settings))
        version = _numbered(registry, task, number) if number else find_champion(registry, task)
        with fetched(registry, version, directory=directory) as bundle:
            yield version, bundle
        return
    version, stored = local
    with _verified(version, lambda place: Path(shutil.copytree(stored, place / "bundle")), directory) as bundle:
        yield version, bundle


@contextmanager
def fetched(registry: Registry, version: Version, *, directory: Path | None = None) -> Iterator[Path]:
    """Download the bundle of a classifier, verify it against the registered digest, and delete it on exit; `directory`:
    where to, by default a temporary one."""
    with _verified(version, lambda place: registry.download(version, place / "model"), directory) as bundle:
        yield bundle


@contextmanager
def _verified(version: Version, fetch: Callable[[Path], Path], directory: Path | None) -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="headstart-")) if directory is None else directory
    try:
        bundle = fetch(directory)
        _check(bundle, version)
        yield bundle
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _check(bundle: Path, version: Version) -> None:
    try:
        manifest = read_manifest(bundle, kind="classifier", verify=True)
    except SchemaError as error:
        raise SchemaError(
            f"{version.label}: the schema of the registered model is not the one that this version of Headstart reads "
            f"({SCHEMA}); run the pipeline again, which registers a new model, or install the version of Headstart "
            "that has registered this one"
        ) from error
    if manifest.digest != version.digest:
        raise ArtifactError(
            f"{version.label}: its files are not the ones that were registered (digest {manifest.digest[:12]}, "
            f"registered {version.digest[:12] or 'none'}); register the model again or roll back"
        )


def load_version(registry: Registry, version: Version, *, int8: bool = False, error: float | None = None) -> Classifier:
    """Load a registered classifier with the present code.

    Raises:
        ArtifactError: the files differ from the registered ones, or their schema is not supported.
        RegistryError: the files cannot be downloaded.
    """
    with fetched(registry, version) as bundle:
        return load_model(bundle, int8=int8, what=version.label, error=error)


@dataclass(frozen=True)
class Loader:
    """Loads verified files in any process that can read them; a picklable function. `wrapped`: applied to the
    classifier, such as a log of its rows. `threshold`: of its confidence (`components.learners.abstention`)."""

    bundle: Path
    version: Version
    wrapped: Callable[[Classifier, Version], Classifier]
    int8: bool = False
    threshold: float | None = None

    def __call__(self) -> Classifier:
        loaded = self.wrapped(load_model(self.bundle, int8=self.int8, what=self.version.label), self.version)
        return loaded if self.threshold is None else abstaining(loaded, self.bundle, self.threshold)

    @property
    def kind(self) -> str:
        return str(json_of(self.bundle / "config.json")["kind"])

    @property
    def gpu(self) -> bool:
        """Whether the classifier computes on a GPU, if there is one."""
        from components.learners.words.classifier import FORM, form_of  # imports scikit-learn

        return not self.int8 and form_of(self.bundle) != FORM

    @property
    def identity(self) -> str:
        """Identity of weights, arithmetic and threshold."""
        threshold = "" if self.threshold is None else f" threshold {self.threshold!r}"
        return f"{self.version.digest}{' int8' if self.int8 else ''}{threshold}"


def load_champion(settings: RegistrySettings, task: str) -> Classifier:
    with fetched_champion(settings, task) as (version, bundle):
        return load_model(bundle, what=version.label)
