"""The models that a server answers with: the champion, followed through the registry, and perhaps a challenger."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from components.core.artifacts import read_manifest
from components.core.errors import HeadstartError
from components.data.tasks.task_io import TaskIO
from components.learners.loading import load_model
from components.learners.prediction import Classifier, io_of, predict_rows
from components.registry.champion import find_champion, load_version
from components.registry.tracking import Registry, Version


@dataclass(frozen=True)
class Served:
    """A loaded version."""

    version: Version
    classifier: Classifier

    @cached_property
    def io(self) -> TaskIO:
        """Columns of inputs and outputs."""
        return io_of(self.classifier)

    @cached_property
    def quick(self) -> bool:
        """Whether a batch of few short texts takes less than a millisecond."""
        return getattr(getattr(self.classifier, "inner", self.classifier), "quick", False)


def load(registry: Registry, version: Version, *, int8: bool = False, error: float | None = None) -> Served:
    """Load a version (as `load_version`), verify its files, and predict its example inputs once, so that no request
    waits for the first prediction."""
    return warmed(Served(version, load_version(registry, version, int8=int8, error=error)))


#: Loads a version of the registry.
Load = Callable[[Registry, Version], Served]


def warmed(served: Served) -> Served:
    """The model after it has predicted its example inputs once, so that no request waits for the first prediction."""
    predict_rows(served.classifier, [served.io.parse(example) for example in served.io.examples])
    return served


class FixedModel:
    """Holds the model of a directory, which is not replaced; for a server without registry."""

    def __init__(self, directory: Path, *, int8: bool = False, error: float | None = None) -> None:
        digest = read_manifest(directory, kind="classifier").digest
        version = Version(name=directory.resolve().name, number="", source="", run_id="", tags={"digest": digest})
        self.current = warmed(Served(version, load_model(directory, int8=int8, error=error)))

    def start(self) -> None:
        """Do nothing: there is no alias to follow."""

    def stop(self) -> None:
        """Do nothing."""


class ChampionFollower:
    """Holds the champion of a task and replaces it after the alias has moved. The new version is loaded next to the old
    one, so no request waits for it. If the registry cannot be reached or the version cannot be loaded, the old version
    stays."""

    def __init__(
        self,
        registry: Registry,
        task: str,
        *,
        poll_seconds: float,
        on_change: Callable[[Served], None] = lambda served: None,
        on_failure: Callable[[str], None] = lambda message: None,
        observed: Callable[[Served], Served] = lambda served: served,
        load: Load = load,
    ) -> None:
        self._registry, self._task = registry, task
        self._poll_seconds, self._on_change, self._on_failure = poll_seconds, on_change, on_failure
        self._observed, self._load = observed, load
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="follow-champion", daemon=True)
        self.current = observed(load(registry, find_champion(registry, task)))
        on_change(self.current)

    def start(self) -> None:
        """Start checking the alias."""
        self._thread.start()

    def stop(self) -> None:
        """Stop checking; a version that is being loaded is given up."""
        self._stop.set()

    def check(self) -> bool:
        """Check the alias once; returns whether another version is served now."""
        try:
            settings = self._registry.settings
            version = self._registry.alias(settings.model_name(self._task), settings.alias)
            if version is None:
                label = self.current.version.label
                raise HeadstartError(f"{self._task}: the alias {settings.alias} is gone; {label} stays")
            if (version.number, version.digest) == (self.current.version.number, self.current.version.digest):
                return False
            served = self._observed(self._load(self._registry, version))
        except HeadstartError as error:
            self._on_failure(str(error))
            return False
        self.current = served
        self._on_change(served)
        return True

    def _follow(self) -> None:
        while not self._stop.wait(self._poll_seconds):
            try:
                self.check()
            except Exception as error:  # the thread must outlive a defect of one version
                self._on_failure(f"{type(error).__name__}: {error}")
