"""The files of a version: verified before use, loaded by the present code, and never run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from components.core.errors import ArtifactError, SchemaError
from components.registry.champion import load_version
from components.registry.promote import promote
from components.registry.stage import register
from components.registry.tracking import Registry, Version, connect
from components.serving.models import FixedModel
from headstart import load
from tests.registry.conftest import Pipeline

ROWS = [("a",), ("bb",), ("ccc",)]


def registered(pipeline: Pipeline) -> tuple[Registry, Version, Path]:
    """The registry, the version of the adapted classifier, and its folder in the artifact store."""
    register(pipeline.register_job(starts=["adapted"]))
    registry = connect(pipeline.settings)
    (head,) = pipeline.root.glob("mlruns/**/head.safetensors")
    return registry, registry.get("headstart-letters", "1"), head.parents[2]


@pytest.mark.parametrize("name", ["head.safetensors", "encoder/model.safetensors", "labels.json"])
def test_an_altered_file_is_found_before_it_is_used(name: str, pipeline: Pipeline) -> None:
    registry, version, stored = registered(pipeline)
    path = stored / "data" / "bundle" / name
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    with pytest.raises(ArtifactError, match=f"{name}: altered since it was written"):
        load_version(registry, version)


def test_the_data_of_an_earlier_version_is_loaded_and_its_code_is_not_run(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Earlier versions stored the bundle as an artifact beside a package `components` and a script."""
    registry, version, stored = registered(pipeline)
    (stored / "data").rename(stored / "artifacts")
    marker = tmp_path / "executed"
    for name in ("code/components/__init__.py", "code/components/learners/task_models/heads.py", "model.py"):
        (stored / name).parent.mkdir(parents=True, exist_ok=True)
        (stored / name).write_text(f"open({str(marker)!r}, 'w').close()\n")
    (stored / "python_model.pkl").write_bytes(b"cposix\nsystem\n(S'touch " + str(marker).encode() + b"'\ntR.")
    answers = load_version(registry, version).answer(ROWS)
    np.testing.assert_array_equal(answers, pipeline.classifier("adapted").answer(ROWS))
    assert "promote" in promote(pipeline.promote_job()).read_text()
    assert not marker.exists()


@pytest.mark.parametrize("schema", [0, 2, "1", None])
def test_another_schema_is_refused_with_what_to_do(schema: object, pipeline: Pipeline) -> None:
    registry, version, stored = registered(pipeline)
    path = stored / "data" / "bundle" / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"schema": schema}))
    message = r"^headstart-letters/1: the schema of the registered model is not .* reads \(1\); run the pipeline again"
    with pytest.raises(SchemaError, match=message):
        load_version(registry, version)
    shutil.copytree(path.parent, pipeline.root / "copy")
    for read in (FixedModel, load):  # a directory that a person names
        with pytest.raises(SchemaError, match=r"manifest.json: schema .* is not supported"):
            read(pipeline.root / "copy")
