"""The champion of a task: download, verification and loading."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from components.errors import RegistryError
from components.inference.loading import load_model, say_not_quantised
from components.inference.prediction import Classifier
from components.registry.alias_changes import missing_champion
from components.registry.bundle_code import CODE_DIGEST, check_code, differing_file
from components.registry.isolated import IsolatedClassifier
from components.registry.packaging import PACKAGE, check_bundle
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
        where = f"{name}@{alias} at {registry.address}"
        if versions := registry.versions(name):
            raise RegistryError(
                f"{where}: {len(versions)} version(s), none promoted; registry/decision.json in the run's folder has "
                "the reasons, and `headstart promote --version NUMBER --reason WHY` chooses one"
            )
        raise RegistryError(f"{where}: no version; run the stages register and promote first")
    return version


@dataclass(frozen=True)
class Files:
    """The verified files of a version.

    Attributes:
        bundle: weights, tokenizer and configuration.
        code: folder that contains the package `components` of the version, if it differs from the present code; else
            None.
    """

    bundle: Path
    code: Path | None


@contextmanager
def fetched(
    registry: Registry, version: Version, *, kind: str = "classifier", directory: Path | None = None
) -> Iterator[Files]:
    """Download a version, verify weights and code against the registered digests, and delete it on exit.

    Args:
        registry: of the version.
        version: to download.
        kind: "encoder" or "classifier".
        directory: where to; None: a temporary directory.

    Raises:
        ArtifactError: the files differ from the registered ones.
        RegistryError: the files cannot be downloaded.
    """
    directory = Path(tempfile.mkdtemp(prefix="headstart-")) if directory is None else directory
    try:
        bundle = registry.download(version, directory / "model")
        check_bundle(bundle, kind=kind, digest=version.digest, what=version.label)
        code = None
        # Versions without a digest of their code are older than it. They run with the present code.
        if digest := version.tags.get(CODE_DIGEST):
            package = registry.download_code(version, directory / "code") / PACKAGE.name
            check_code(package, digest=digest, what=version.label)
            code = package.parent if differing_file(package) else None
        yield Files(bundle, code)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def load_version(registry: Registry, version: Version, *, int8: bool = False) -> Classifier:
    """Load a registered classifier: in this process if its code is the present code, else in a process of its own.

    Args:
        registry: of the version.
        version: to load.
        int8: as of `load_model`; a version in a process of its own is not quantised.

    Raises:
        ArtifactError: the files differ from the registered ones, or the code of the version cannot be run.
        RegistryError: the files cannot be downloaded.
    """
    with ExitStack() as stack:
        files = stack.enter_context(fetched(registry, version))
        if files.code is None:
            return load_bundle(files, what=version.label, int8=int8)
        kept = ExitStack()
        classifier = load_bundle(files, what=version.label, int8=int8, on_close=kept.close)
        kept.push(stack.pop_all())  # the files are needed until the process ends
        print(f"{version.label}: runs with its own code, in a separate process", file=sys.stderr, flush=True)
        return classifier


def load_bundle(
    files: Files, *, what: str = "", int8: bool = False, on_close: Callable[[], object] = lambda: None
) -> Classifier:
    """Load verified files; `on_close` is called when a separate process has ended.

    Raises:
        ArtifactError: the code of the version cannot be run.
    """
    if files.code is None:
        return load_model(files.bundle, int8=int8, what=what)
    if int8:
        say_not_quantised(what, "runs with its own code")
    return IsolatedClassifier(files.bundle, code=files.code, what=what, on_close=on_close)


@dataclass(frozen=True)
class Loader:
    """Loads verified files in any process that can read them; a picklable function.

    Attributes:
        files: what `fetched` has returned.
        version: their version.
        wrapped: applied to the classifier, such as a log of its rows.
        int8: as of `load_model`.
    """

    files: Files
    version: Version
    wrapped: Callable[[Classifier, Version], Classifier]
    int8: bool = False

    def __call__(self) -> Classifier:
        """The classifier.

        Raises:
            ArtifactError: the code of the version cannot be run.
        """
        return self.wrapped(load_bundle(self.files, what=self.version.label, int8=self.int8), self.version)

    @property
    def kind(self) -> str:
        """Kind of task."""
        return str(json.loads((self.files.bundle / "config.json").read_text(encoding="utf-8"))["kind"])

    @property
    def gpu(self) -> bool:
        """Whether the classifier computes on a GPU, if there is one."""
        from components.words.classifier import FORM, form_of  # imports scikit-learn

        return not self.int8 and form_of(self.files.bundle) != FORM

    @property
    def identity(self) -> str:
        """Identity of weights, code and arithmetic."""
        return f"{self.version.digest} {self.version.tags.get(CODE_DIGEST, '')}{' int8' if self.int8 else ''}"


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
