"""Weights and code of a version: both are verified before use, and each version is computed by its own code."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pytest

from components.errors import ArtifactError
from components.registry import stage
from components.registry.bundle_code import code_digest, differing_file
from components.registry.champion import load_version
from components.registry.isolated import IsolatedClassifier
from components.registry.packaging import copy_code
from components.registry.promote import promote
from components.registry.stage import register
from components.task_models.classifier import TextClassifier
from components.tracking import connect
from tests.registry.conftest import Pipeline

ROWS = [("a",), ("bb",), ("ccc",)]
HEADS = "components/task_models/heads.py"


def stored(pipeline: Pipeline, name: str) -> Path:
    """A file of the classifier in the artifact store."""
    (head,) = pipeline.root.glob("mlruns/**/head.safetensors")
    return head.parents[2] / name


def with_other_code(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, edit) -> None:
    """Register the adapted classifier, with `edit` applied to the heads' source in its bundle."""

    def copied(files, target):
        package = copy_code(files, target)
        path = package.parent / HEADS
        path.write_text(edit(path.read_text()))
        return package

    monkeypatch.setattr(stage, "copy_code", copied)
    register(pipeline.register_job(starts=["adapted"]))
    monkeypatch.undo()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (f"code/{HEADS}", r"letters/1: its code in the artifact store is not the code that was registered .*roll back"),
        ("artifacts/bundle/head.safetensors", r"head\.safetensors"),
    ],
)
def test_an_altered_file_is_found_before_it_is_used(
    name: str, message: str, pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Even code that differs from the present one, and would be run, is verified first.
    with_other_code(pipeline, monkeypatch, lambda text: text.replace("softmax(1)", "neg().softmax(1)"))
    registry = connect(pipeline.settings)
    path, marker = stored(pipeline, name), tmp_path / "imported"
    altered = path.read_bytes()
    path.write_bytes(
        altered + f"\nopen({str(marker)!r}, 'w').close()\n".encode() if name.endswith(".py") else altered[:-1] + b"!"
    )
    with pytest.raises(ArtifactError, match=message):
        load_version(registry, registry.get("headstart-letters", "1"))
    assert not marker.exists()


def test_an_added_file_of_code_is_found(pipeline: Pipeline) -> None:
    register(pipeline.register_job(starts=["adapted"]))
    version = connect(pipeline.settings).get("headstart-letters", "1")
    assert isinstance(load_version(connect(pipeline.settings), version), TextClassifier), "the present code"
    stored(pipeline, f"code/{HEADS}").with_name("added.py").write_text("")
    with pytest.raises(ArtifactError, match="its code"):
        load_version(connect(pipeline.settings), version)


def test_a_version_is_computed_by_the_code_it_was_registered_with(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with_other_code(pipeline, monkeypatch, lambda text: text.replace("softmax(1)", "neg().softmax(1)"))
    registry = connect(pipeline.settings)
    classifier = load_version(registry, registry.get("headstart-letters", "1"))
    assert isinstance(classifier, IsolatedClassifier)
    assert "letters/1: runs with its own code, in a separate process" in capsys.readouterr().err
    present = pipeline.classifier("adapted")
    assert (classifier.kind, list(classifier.labels)) == (present.kind, list(present.labels))
    answers, expected = classifier.answer(ROWS), present.answer(ROWS)
    assert [int(answer.argmin()) for answer in answers] == [int(answer.argmax()) for answer in expected]
    assert classifier.answer([]) == []

    os.kill(classifier._process._process.pid, signal.SIGKILL)
    np.testing.assert_array_equal(classifier.answer(ROWS), answers, "it is started again")
    process, folder = classifier._process._process, Path(classifier._arguments[0])
    classifier.close()
    assert process.poll() is not None and not folder.exists()

    # The gate scores it with its own code, too: every class is the wrong one.
    decision = promote(pipeline.promote_job(metric="accuracy"))
    assert "reject" in decision.read_text()


def test_code_that_cannot_be_run_is_refused_with_the_reason(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with_other_code(pipeline, monkeypatch, lambda text: text.replace("import torch\n", "import no_such_library\n", 1))
    registry = connect(pipeline.settings)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with pytest.raises(
        ArtifactError,
        match=r"letters/1: the code of this version, .*cannot be run \(ModuleNotFoundError: .*no_such_.*roll back",
    ):
        load_version(registry, registry.get("headstart-letters", "1"))


def test_comments_and_docstrings_are_no_difference(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for folder, text in (
        (first, "def f(x):\n    return x\n"),
        (second, 'def f(x):\n    """Doc."""\n    return x  # why\n'),
    ):
        folder.mkdir()
        (folder / "a.py").write_text(text)
    assert differing_file(first, present=second) == ""
    assert code_digest(first) != code_digest(second)
    (second / "a.py").write_text("def f(x):\n    return -x\n")
    assert differing_file(first, present=second) == "a.py"
    (second / "a.py").unlink()
    assert differing_file(first, present=second) == "a.py"
