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
    found = {(candidate.start, candidate.task): candidate for candidate in candidates(job)}
    assert list(found)[:3] == [("pretrained", None), ("adapted", None), ("task-adapted-a", None)], "parents first"
    own = found["task-adapted-a", None]
    assert own.parent == ("ulmfit", "adapted", None) and own.directory == Path("out/encoder/ulmfit/task-adapted-a")
    assert found["task-adapted", "a"].parent == own.key
    assert found["adapted-with-both", "a"].parent == ("ulmfit", "adapted", None)
    assert found["adapted-with-both", "b"].directory == Path("out/finetuned/b/ulmfit-adapted-with-both")
    assert found["scratch-with-both", "a"].parent is None
    assert ("task-adapted", "b") not in found
    assert all(
        candidate.parent is None or candidate.parent in {c.key for c in found.values()} for candidate in found.values()
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
    found = list(candidates(job))
    assert [(one.family, one.start, one.task, one.section) for one in found] == [
        ("minilm", "pretrained", None, "pretrain"),
        ("minilm", "adapted", None, "adapt"),
        ("minilm-static", "pretrained", None, "static"),
        ("minilm-static", "adapted", None, "static"),
        ("minilm-static", "pretrained", "a", "finetune"),
        ("minilm-static", "adapted", "a", "finetune"),
    ]
    assert found[3].parent == ("minilm", "adapted", None)
    assert found[5].parent == ("minilm-static", "adapted", None)
