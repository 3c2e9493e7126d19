"""Models and parents of a run with task-adaptive pretraining and multi-task learning."""

from __future__ import annotations

from pathlib import Path

from components.registry.stage import RegisterJob, candidates
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
