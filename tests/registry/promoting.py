"""Registration and promotion of the pipeline's adapted classifier, and what the registry holds afterwards."""

from __future__ import annotations

from components.learners.prediction import predict_rows
from components.learners.task_models.classifier import TextClassifier
from components.registry.ledger import Ledger
from tests.registry.conftest import Pipeline

NAME = "headstart-letters"


def run(pipeline: Pipeline, *, knows: int | None = None, **rule: object) -> dict:
    """Register the adapted classifier, which knows `knows` letters, and promote; returns the decision."""
    if knows is not None:
        pipeline.write_classifier("adapted", knows=knows)
    pipeline.registered(starts=["adapted"])
    return pipeline.promoted(**rule)["decisions"]["letters"]


def champion(pipeline: Pipeline) -> str | None:
    version = pipeline.registry.alias(NAME, "champion")
    return version.number if version is not None else None


def labels_of(classifier: TextClassifier, *texts: str) -> list[str]:
    return [answer["label"] for answer in predict_rows(classifier, [(text,) for text in texts]) if answer]


def events(pipeline: Pipeline) -> list[str]:
    return [entry.event for entry in Ledger(pipeline.registry).entries()]


def champions(pipeline: Pipeline) -> list[str]:
    return [number for number, _ in Ledger(pipeline.registry).state(NAME).champions]


def must_not_be_called(*_: object) -> None:
    raise AssertionError("scored again")
