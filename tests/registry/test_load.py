"""Registered models from Python (`headstart.load`)."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
import yaml

from components.core.errors import RegistryError
from components.learners.prediction import predict_rows
from components.registry.champion import load_champion
from components.registry.promote import promote
from components.registry.stage import register
from headstart import load
from tests.registry.conftest import Pipeline

TEXTS = ["aaa", "bbb", "ccc"]


def test_the_champion_and_a_version(pipeline: Pipeline, tmp_path: Path) -> None:
    params = yaml.safe_load((Path(__file__).parents[2] / "params.yaml").read_text())
    params["registry"] = {"tracking": pipeline.settings.tracking}
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(params))
    register(pipeline.register_job(starts=["adapted"]))
    promote(pipeline.promote_job())
    model = load("letters", params=tmp_path / "params.yaml")
    served = predict_rows(load_champion(pipeline.settings, "letters"), [(text,) for text in TEXTS])
    actual = model.predict(TEXTS)
    assert actual["confidence"].tolist() == [answer["confidence"] for answer in served if answer]
    assert actual["label"].tolist() == [answer["label"] for answer in served if answer]
    saved = load(model.save(tmp_path / "saved"))
    pd.testing.assert_frame_equal(saved.predict(TEXTS), actual, check_exact=True)
    pd.testing.assert_frame_equal(load(pipeline.out).predict(TEXTS), actual, check_exact=True)
    version = load("letters/1", params=tmp_path / "params.yaml")
    pd.testing.assert_frame_equal(version.predict(TEXTS), actual, check_exact=True)
    with pytest.raises(RegistryError, match="has no version '7'"):
        load("letters/7", params=tmp_path / "params.yaml")
    with pytest.raises(RegistryError, match="no version"):
        load("others", params=tmp_path / "params.yaml")
