"""A classifier that logs the rows that it answers, as `drift` in params.yaml says."""

from __future__ import annotations

import sys
from pathlib import Path

from components.drift.measuring import ObservedClassifier
from components.drift.traffic import TrafficLog
from components.inference.prediction import Classifier
from components.settings.drift import DriftSettings
from components.settings.registry import find_repository
from components.tracking import Version


def logged(classifier: Classifier, version: Version, task: str, settings: DriftSettings) -> Classifier:
    """The classifier of a version, with a log of its rows; itself if `drift.log` is off or the version was not
    made by Headstart.

    Args:
        classifier: the model.
        version: of the model.
        task: name of the task.
        settings: `params.drift`. Its folder is relative to the repository of the working directory.
    """
    if not settings.log or not version.digest:
        return classifier
    log = TrafficLog(
        traffic_folder(settings),
        task=task,
        digest=version.digest,
        version=version.number,
        megabytes=settings.megabytes,
        text=settings.text,
        say=lambda line: print(line, file=sys.stderr, flush=True),
    )
    return ObservedClassifier(classifier, log.append)


def traffic_folder(settings: DriftSettings) -> Path:
    """The folder of all logs: absolute, or relative to the repository."""
    return (find_repository(Path()) or Path()) / settings.folder
