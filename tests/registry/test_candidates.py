"""Models and parents of a run with task-adaptive pretraining and multi-task learning."""

from __future__ import annotations

from pathlib import Path

from components.registry.candidates import RegisterJob, candidates
from components.settings.registry import RegistrySettings


def test_models_of_additional_initialisations_and_their_parents() -> None:
    job = RegisterJob(
        registry=RegistrySettings(),
        out=Path("out"),
        families=["ulmfit"],
        tasks=["a", "b"],
        starts=["scratch", "pretrained", "adapted"],
        further={"a": ["task-adapted", "adapted-with-both", "scratch-with-both"], "b": ["adapted-with-both"]},
        parameters={},
    )
    actual = {(candidate.start, candidate.task): candidate for candidate in candidates(job)}
    assert list(actual)[:3] == [("pretrained", None), ("adapted", None), ("task-adapted-a", None)], "parents first"
    mine = actual["task-adapted-a", None]
    assert mine.parent == ("ulmfit", "adapted", None) and mine.directory == Path("out/encoder/ulmfit/task-adapted-a")
    assert actual["task-adapted", "a"].parent == mine.key
    assert actual["adapted-with-both", "a"].parent == ("ulmfit", "adapted", None)
    assert actual["adapted-with-both", "b"].directory == Path("out/finetuned/b/ulmfit-adapted-with-both")
    assert actual["scratch-with-both", "a"].parent is None
    assert ("task-adapted", "b") not in actual
    assert all(
        candidate.parent is None or candidate.parent in {c.key for c in actual.values()}
        for candidate in actual.values()
    )


def test_a_teacher_is_registered_before_the_vectors_that_are_computed_from_it() -> None:
    job = RegisterJob(
        registry=RegistrySettings(),
        out=Path("out"),
        families=["minilm-static"],
        tasks=["a"],
        starts=["pretrained", "adapted"],
        parents={"minilm-static": ["minilm"]},
        parameters={},
    )
    actual = list(candidates(job))
    assert [(item.family, item.start, item.task, item.section) for item in actual] == [
        ("minilm", "pretrained", None, "pretrain"),
        ("minilm", "adapted", None, "adapt"),
        ("minilm-static", "pretrained", None, "static"),
        ("minilm-static", "adapted", None, "static"),
        ("minilm-static", "pretrained", "a", "finetune"),
        ("minilm-static", "adapted", "a", "finetune"),
    ]
    assert actual[3].parent == ("minilm", "adapted", None)
    assert actual[5].parent == ("minilm-static", "adapted", None)
