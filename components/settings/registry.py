"""`registry`: MLflow tracking and model registry."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from components.settings.names import FileName
from components.settings.section import NO_EFFECT, Section

#: Alias of the version that production serves, and of the best version of any other settings file.
CHAMPION = "champion"
BEST = "best"
SQLITE = "sqlite:///"


class RegistrySettings(Section):
    """MLflow tracking and model registry."""

    #: Tracking URI. The variable MLFLOW_TRACKING_URI takes precedence. The path of a SQLite file is relative to the
    #: repository.
    tracking: str = "sqlite:///mlflow.db"
    #: Name of the MLflow experiment.
    experiment: str = "headstart"
    #: Prefix of the registered models' names; by default `headstart` for the params.yaml of the repository and
    #: `headstart-NAME` for the params.yaml of a folder NAME.
    prefix: FileName = "headstart"
    #: Whether the alias `champion` is moved; otherwise the alias is `best`, which nothing serves by default. By default
    #: true for the params.yaml of the repository and false for the params.yaml of a folder.
    production: bool = True

    @property
    def address(self) -> str:
        """The tracking URI in use."""
        return os.environ.get("MLFLOW_TRACKING_URI") or self.tracking

    @property
    def alias(self) -> str:
        """The alias that promotion moves."""
        return CHAMPION if self.production else BEST

    def model_name(self, task: str) -> str:
        """Name of a task's registered model."""
        return f"{self.prefix}-{task}"


def file_defaults(path: Path) -> dict[str, Any]:
    """The defaults of a settings file that depend on its location: `prefix` and `production`. Without them a
    production run, an experiment and `make full` would move each other's champions."""
    folder = Path(path).resolve().parent
    root = find_repository(folder)
    if root is None or folder == root:
        return {}
    return {"prefix": f"headstart-{re.sub(r'[^A-Za-z0-9_.-]+', '-', folder.name)}", "production": False}


def find_repository(start: Path) -> Path | None:
    """The nearest folder at or above `start` that contains `.dvc`; None outside of a DVC repository."""
    start = start.resolve()
    return next((folder for folder in (start, *start.parents) if (folder / ".dvc").is_dir()), None)


def located(uri: str, folder: Path = Path()) -> str:
    """The URI with an absolute path if it names a SQLite file: a path relative to the repository is the same
    database in all of its folders, of which `folder` is one."""
    path = uri.removeprefix(SQLITE)
    if path == uri or Path(path).is_absolute():
        return uri
    return f"{SQLITE}{(find_repository(folder) or folder).resolve() / path}"


class DriftSettings(Section):
    """What `serve` and `predict` log, for `headstart drift`. No key changes a model."""

    model_config = {**Section.model_config, "json_schema_extra": NO_EFFECT}

    #: Whether `serve` and `predict` log numbers about every row: lengths, unknown pieces, prediction, confidence, and a
    #: sketch of its features.
    log: bool = True
    #: Whether the texts are logged too; `headstart drift` then shows examples.
    text: bool = False
