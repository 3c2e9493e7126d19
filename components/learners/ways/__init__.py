"""The ways to learn from labels, one file each."""

from collections.abc import Mapping
from typing import Final

from components.core.errors import ConfigError
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


def ways_of(task: Task, settings: FinetuneSettings) -> dict[WayName, FinetuneSettings]:
    """Way to learn -> settings of its runs, in the order in which they are tried.

    With `method: auto`, ways that do not suit the kind of task are left out.

    Raises:
        ConfigError: no way is left, or the method of the settings does not suit the kind.
    """
    if settings.method != "auto":
        if problem := refuse(task, settings):
            raise ConfigError(problem)
        return {settings.method: settings}
    names = list(dict.fromkeys(settings.auto.ways))
    suitable = [name for name in names if WAYS[name].is_tried(task)] or [
        name for name in names if WAYS[name].refuse(task) is None
    ]
    if not suitable:
        raise ConfigError(f"auto.ways: none of {', '.join(names)} suits kind {task.kind}; add finetune")
    return {name: settings.model_copy(update={"method": name}) for name in suitable}
