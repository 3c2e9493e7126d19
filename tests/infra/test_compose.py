"""compose.yaml: its schema and the references between its parts."""

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from check_jsonschema.builtin_schemas import get_builtin_schema
from jsonschema import Draft202012Validator

from components.core.errors import ConfigError
from components.pipeline.telemetry import Gauges
from components.registry.drift.traffic import traffic_folder
from components.settings.loading import load_params
from components.settings.params import TelemetrySettings
from infra.stack import compose
from tests.infra.conftest import ROOT


def problems(document: dict[str, Any]) -> list[str]:
    schema = get_builtin_schema("vendor.compose-spec")
    return [error.message for error in Draft202012Validator(schema).iter_errors(document)]


def test_follows_the_compose_specification():
    document = yaml.safe_load(compose.COMPOSE.read_text())
    assert problems(document) == []
    wrong = copy.deepcopy(document)
    wrong["services"]["mlflow"]["comand"] = ["mlflow"]
    assert "'comand' was unexpected" in problems(wrong)[0]


def test_the_example_of_settings_names_all_variables():
    asked = set(re.findall(r"\$\{(\w+)", compose.COMPOSE.read_text()))
    assert asked == set(compose.read_env(compose.ENV_EXAMPLE))


def test_no_secret_is_committed():
    example = compose.read_env(compose.ENV_EXAMPLE)
    secret = {name for name in example if compose.is_secret(name)}
    assert len(secret) == 16
    assert {example[name] for name in secret} == {""}
    assert ".env" in (ROOT / "infra" / ".gitignore").read_text().split()


def test_only_mlflows_server_has_the_key_to_its_bucket(composed, values):
    holders = {
        name
        for name, body in composed["services"].items()
        if values["MLFLOW_SECRET_ACCESS_KEY"] in body.get("environment", {}).values()
    }
    assert holders == {"mlflow"}
    # The store has three identities; MLflow's has access to its own bucket only.
    identities = json.loads(composed["configs"]["identities"]["content"])["identities"]
    keys = {each["name"]: each["credentials"][0] for each in identities}
    assert keys["mlflow"] == {
        "accessKey": values["MLFLOW_ACCESS_KEY_ID"],
        "secretKey": values["MLFLOW_SECRET_ACCESS_KEY"],
    }
    assert {action.split(":")[1] for action in identities[2]["actions"]} == {"mlflow"}


def test_the_state_of_rays_head_is_in_redis(composed, values):
    services = composed["services"]
    head, redis = services["ray-head"], services["redis"]
    assert head["environment"]["RAY_REDIS_ADDRESS"] == "redis:6379"
    assert f"--redis-password={values['REDIS_PASSWORD']}" in head["command"]
    assert f"--requirepass {values['REDIS_PASSWORD']}" in redis["command"] and "--appendonly yes" in redis["command"]
    assert redis["volumes"] == ["redis:/data"]
    for name in ("ray-head", "ray-worker", "prefect-worker"):
        assert services[name]["restart"] == "unless-stopped"
        assert services[name]["environment"]["RAY_gcs_rpc_server_reconnect_timeout_s"] == "600"
    assert "RAY_REDIS_ADDRESS" not in services["ray-worker"]["environment"]


# Environment variables with the places of a team's systems.


PARAMS = Path(__file__).parents[2] / "params.yaml"


def test_environment_variables_take_precedence(monkeypatch):
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


def test_without_variables_params_yaml_is_used(monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("HEADSTART_STORAGE", "")
    cluster = load_params(PARAMS).cluster
    assert (cluster.address, cluster.storage) == ("local", ".headstart/checkpoints")


# infra/prometheus.yaml and its rules: valid, and of ports and gauges that exist.


CONFIG = ROOT / "infra" / "prometheus.yaml"


def test_rules_are_about_gauges_that_exist(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (name,) = yaml.safe_load(CONFIG.read_text())["rule_files"]
    rules = [rule for group in yaml.safe_load((CONFIG.parent / name).read_text())["groups"] for rule in group["rules"]]
    gauges = Gauges("params.yaml", TelemetrySettings())
    gauges.end("FINISHED", begun=1.0, time=2.0)
    gauges.begin(1.0)
    gauges.publish()
    learned = set(re.findall(r"^(headstart_\w+)", gauges.file.read_text(), re.MULTILINE))
    for rule in rules:
        named = set(re.findall(r"headstart_\w+", rule["expr"]))
        assert named and named <= learned, rule
        assert set(rule["annotations"]) == {"summary", "description"}
        statuses = re.findall(r'status=~"([A-Z|]+)"', rule["expr"])
        assert all(set(single.split("|")) <= {"FINISHED", "FAILED", "KILLED"} for single in statuses)
