"""The champion of a task: download, verification and loading."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from components.core.artifacts import SCHEMA, json_of, read_manifest
from components.core.errors import ArtifactError, RegistryError, SchemaError
from components.learners.abstention import abstaining
from components.learners.loading import load_model
from components.learners.prediction import Classifier
from components.registry.ledger import Ledger, missing_champion, none_promoted
from components.registry.reading import Reading
from components.registry.version import Version, numbered
from components.settings.registry import RegistrySettings, with_models

if TYPE_CHECKING:
    from components.registry.tracking import Registry


def find_champion(registry: Registry | Reading, task: str) -> Version:
    """The version that the alias of a task points to: `champion`, or `best` unless `registry.production` is set.

    Raises:
        RegistryError: no version has been promoted, or the champion was deleted.
    """
    name, alias = registry.settings.model_name(task), registry.settings.alias
    version = registry.alias(name, alias)
    if version is None:
        if reason := missing_champion(registry, Ledger(registry).state(name)):
            raise RegistryError(reason)
        raise RegistryError(none_promoted(registry, name, task))
    return version


@contextmanager
def fetched_champion(
    settings: RegistrySettings, task: str, *, number: str = "", directory: Path | None = None
) -> Iterator[tuple[Version, Path]]:
    """The champion of a task, or its version with a number, and its bundle, as `find_champion` and `fetched`; MLflow is
    asked only for what `Reading` does not know."""
    registry = Reading(with_models(settings))
    model = settings.model_name(task)
    version = numbered(registry, model, number) if number else find_champion(registry, task)
    with fetched(registry, version, directory=directory) as bundle:
        yield version, bundle


@contextmanager
def fetched(registry: Registry | Reading, version: Version, *, directory: Path | None = None) -> Iterator[Path]:
    """Download the bundle of a classifier, verify it against the registered digest, and delete it on exit; `directory`:
    where to, by default a temporary one."""
    directory = Path(tempfile.mkdtemp(prefix="headstart-")) if directory is None else directory
    try:
        bundle = registry.download(version, directory / "model")
        try:
            manifest = read_manifest(bundle, kind="classifier", verify=True)
        except SchemaError as error:
            raise SchemaError(
                f"{version.label}: the schema of the registered model is not the one that this version of Headstart "
                f"reads ({SCHEMA}); run the pipeline again, which registers a new model, or install the version of "
                "Headstart that has registered this one"
            ) from error
        if manifest.digest != version.digest:
            raise ArtifactError(
                f"{version.label}: its files are not the ones that were registered (digest {manifest.digest[:12]}, "
                f"registered {version.digest[:12] or 'none'}); register the model again or roll back"
            )
        yield bundle
    finally:
        shutil.rmtree(directory, ignore_errors=True)


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
