"""`registry`, `promote` and `drift`: tracking and model registry, the promotion rule, and the log of served traffic."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, model_validator

from components.core.errors import RegistryError
from components.core.masking import masked
from components.core.steps import step
from components.settings.section import NO_EFFECT, FileName, Positive, Section

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
        return f"{self.prefix}-{task}"


def find_repository(start: Path) -> Path | None:
    """The nearest folder at or above `start` that contains `.dvc`; None outside of a DVC repository."""
    start = start.resolve()
    return next((folder for folder in (start, *start.parents) if (folder / ".dvc").is_dir()), None)


def located(uri: str) -> str:
    """The URI with an absolute path if it names a SQLite file: a path relative to the repository is the same database
    in all of its folders, of which the working directory is one."""
    path = uri.removeprefix(SQLITE)
    return uri if path == uri else f"{SQLITE}{(find_repository(Path()) or Path.cwd()) / path}"


def database_of(settings: RegistrySettings) -> Path | None:
    """The SQLite file of a registry; None if it is a server."""
    uri = located(settings.address)
    return Path(uri.removeprefix(SQLITE)) if uri.startswith(SQLITE) else None


def with_models(settings: RegistrySettings) -> RegistrySettings:
    """The settings, if their registry can hold a model: a command that only reads makes no database.

    Raises:
        RegistryError: a local database does not exist; nothing was registered.
    """
    if (database := database_of(settings)) is not None and not database.is_file():
        raise RegistryError(
            f"{masked(settings.address)}: no model is registered yet; `{step('fit')}` trains the first one"
        )
    return settings


class DriftSettings(Section, json_schema_extra=NO_EFFECT):
    """What `serve` and `predict` log, for `headstart drift`. No key changes a model."""

    #: Whether `serve` and `predict` log numbers about every row: lengths, unknown pieces, prediction, confidence, and a
    #: sketch of its features.
    log: bool = True
    #: Whether the texts are logged too; `headstart drift` then shows examples.
    text: bool = False


#: `superiority`: better than the champion. `non_inferiority`: worse by less than `margin` (fresher data, removed
#: documents, a cheaper model). `latency`: non-inferior and significantly faster.
Mode = Literal["superiority", "non_inferiority", "latency"]


class PromotionRule(Section):
    """When a challenger replaces the champion. Scores are fractions between 0 and 1."""

    #: What the challenger has to show.
    mode: Mode = "superiority"
    #: Metric of the task's kind that is compared; null: its primary metric.
    metric: str | None = None
    #: Minimum gain over the champion, in mode `superiority`.
    least_gain: NonNegativeFloat = 0.0
    #: Maximum loss against the champion, in modes `non_inferiority` and `latency`.
    margin: PositiveFloat = 0.01
    #: 1 - confidence is the probability of a false promotion by any of the comparisons on test rows that grow or change
    #: in part, however many there are: the k-th one is made at the one-sided error (1 - confidence) / (k (k + 1)).
    confidence: Annotated[float, Field(gt=0.5, lt=1)] = 0.95
    #: Named slices: name -> maximum loss. A challenger is promoted only if a larger loss is excluded.
    slices: dict[str, PositiveFloat] = {}
    #: Maximum decrease of the metric on any other slice. A larger one rejects the challenger if it is significant.
    largest_slice_loss: NonNegativeFloat = 0.05
    #: Minimum number of test rows of a slice for the check of `largest_slice_loss`.
    slice_rows: Positive = 50
    #: Maximum processor time of one text in milliseconds (median of several passes), which may be exceeded by a half
    #: with a warning; null: no limit.
    latency_ms: PositiveFloat | None = None

    @model_validator(mode="after")
    def _keys_of_the_mode(self) -> PromotionRule:
        if self.mode == "superiority" and "margin" in self.model_fields_set:
            raise ValueError("key margin has no effect in mode superiority; set mode: non_inferiority or remove margin")
        if self.mode != "superiority" and "least_gain" in self.model_fields_set and self.least_gain > 0:
            raise ValueError(f"key least_gain has no effect in mode {self.mode}; set margin or remove least_gain")
        return self

    @property
    def threshold(self) -> float:
        """The gain that the lower bound has to exceed."""
        return self.least_gain if self.mode == "superiority" else -self.margin

    def error_of(self, use: int, budget: float = 1.0) -> float:
        """One-sided error of the k-th comparison on the same test rows: alpha * budget / (k (k + 1)). The errors of all
        comparisons sum to alpha * budget, alpha = 1 - confidence (alpha spending; the union bound needs no assumption
        on the dependence between comparisons). `budget`: what comparisons on earlier rows have left of alpha."""
        return (1 - self.confidence) * budget / (use * (use + 1))
