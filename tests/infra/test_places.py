"""Environment variables with the places of a team's systems."""

from __future__ import annotations

from pathlib import Path

import pytest

from components.core.errors import ConfigError
from components.registry.drift.traffic import traffic_folder
from components.settings.loading import load_params

PARAMS = Path(__file__).parents[2] / "params.yaml"


def test_environment_variables_take_precedence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "ray-head:6379")
    monkeypatch.setenv("HEADSTART_STORAGE", "s3://headstart/checkpoints")
    cluster = load_params(PARAMS).cluster
    assert (cluster.address, cluster.storage) == ("ray-head:6379", "s3://headstart/checkpoints")
    monkeypatch.setenv("HEADSTART_GPUS", "2")
    monkeypatch.setenv("HEADSTART_TRAFFIC", "/traffic")
    params = load_params(PARAMS)
    assert (params.cluster.gpus, str(traffic_folder())) == (2, "/traffic")
    monkeypatch.setenv("HEADSTART_STAGES", "4")
    assert load_params(PARAMS).cluster.stages_at_once == 4
    monkeypatch.delenv("HEADSTART_GPUS")
    with pytest.raises(ConfigError, match="stages: above 1 needs the size of a training; set cluster.workers"):
        load_params(PARAMS)
    monkeypatch.setenv("HEADSTART_GPUS", "none")
    with pytest.raises(ConfigError, match=r"cluster.gpus: .*'none'"):
        load_params(PARAMS)


def test_without_variables_params_yaml_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("HEADSTART_STORAGE", "")
    cluster = load_params(PARAMS).cluster
    assert (cluster.address, cluster.storage) == ("local", ".headstart/checkpoints")
