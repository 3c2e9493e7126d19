"""The ways to learn from labels, one file each."""

from collections.abc import Mapping
from typing import Final

from components.learners.task_models.base import Task, refuse_settings
from components.learners.ways.base import Way
from components.learners.ways.contrastive import Contrastive
from components.learners.ways.distil import Distil
from components.learners.ways.features import Features
from components.learners.ways.finetune import Finetune
from components.settings.finetune import FinetuneSettings
from components.settings.finetune import Way as WayName

#: Name in the settings -> way to learn.
WAYS: Final[Mapping[WayName, Way]] = {
    "features": Features(),
    "contrastive": Contrastive(),
    "finetune": Finetune(),
    "distil": Distil(),
}


def way_of(settings: FinetuneSettings) -> Way:
    """The way to learn of a run, whose `method` is not `auto`."""
    assert settings.method != "auto", "a run has one way to learn"
    return WAYS[settings.method]


def refuse(task: Task, settings: FinetuneSettings) -> str | None:
    """The reason why the settings do not suit a kind of task; None if they do."""
    problem = refuse_settings(task, settings)
    return problem if problem or settings.method == "auto" else way_of(settings).refuse(task)
