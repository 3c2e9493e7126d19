"""compose.yaml: its schema and the references between its parts."""

from __future__ import annotations

import copy
import json
import re
from typing import Any

import yaml
from check_jsonschema.builtin_schemas import get_builtin_schema
from jsonschema import Draft202012Validator

from infra.stack import compose
from tests.infra.conftest import ROOT

DOCKERFILE = ROOT / "infra" / "images" / "headstart.Dockerfile"


def problems(document: dict[str, Any]) -> list[str]:
    schema = get_builtin_schema("vendor.compose-spec")
    return [error.message for error in Draft202012Validator(schema).iter_errors(document)]


def test_follows_the_compose_specification() -> None:
    document = yaml.safe_load(compose.COMPOSE.read_text())
    assert problems(document) == []
    wrong = copy.deepcopy(document)
    wrong["services"]["mlflow"]["comand"] = ["mlflow"]
    assert "'comand' was unexpected" in problems(wrong)[0]


def test_the_example_of_settings_names_all_variables() -> None:
    asked = set(re.findall(r"\$\{(\w+)", compose.COMPOSE.read_text()))
    assert asked == set(compose.read_env(compose.ENV_EXAMPLE))


def test_no_secret_is_committed() -> None:
    example = compose.read_env(compose.ENV_EXAMPLE)
    secret = {name for name in example if compose.is_secret(name)}
    assert len(secret) == 16
    assert {example[name] for name in secret} == {""}
    assert ".env" in (ROOT / "infra" / ".gitignore").read_text().split()


def test_only_mlflows_server_has_the_key_to_its_bucket(composed: dict[str, Any], values: dict[str, str]) -> None:
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


def test_the_server_writes_its_log_where_the_flow_reads_it(composed: dict[str, Any]) -> None:
    for name in ("serve", "prefect-worker"):
        body = composed["services"][name]
        assert f"traffic:{body['environment']['HEADSTART_TRAFFIC']}" in body["volumes"], name
    # A new volume has the owner of the folder in the image, by which the containers may write.
    made = re.search(r"install --directory --owner=headstart .* (/.*)", DOCKERFILE.read_text())
    assert made is not None and composed["services"]["serve"]["environment"]["HEADSTART_TRAFFIC"] in made[1].split()


def test_the_state_of_rays_head_is_in_redis(composed: dict[str, Any], values: dict[str, str]) -> None:
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
