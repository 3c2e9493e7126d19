"""infra/prometheus.yaml and its rules: valid, and of ports and gauges that exist."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml
from prometheus_client import generate_latest

from components.pipeline.telemetry import Gauges
from components.settings.telemetry import TelemetrySettings
from tests.infra.conftest import ROOT

CONFIG = ROOT / "infra" / "prometheus.yaml"
PORT = "8080"


@pytest.fixture
def jobs() -> dict[str, dict[str, Any]]:
    return {job["job_name"]: job for job in yaml.safe_load(CONFIG.read_text())["scrape_configs"]}


def test_ray_exports_metrics_where_they_are_scraped(
    jobs: dict[str, dict[str, Any]], composed: dict[str, Any], manifests: list[dict[str, Any]]
) -> None:
    (lookup,) = jobs["ray"]["dns_sd_configs"]
    assert jobs["ray"]["static_configs"] == [{"targets": [f"ray-head:{PORT}"]}]
    assert (lookup["type"], str(lookup["port"])) == ("A", PORT)
    for service in ("ray-head", *lookup["names"]):
        assert f"--metrics-export-port={PORT}" in composed["services"][service]["command"]
        assert composed["services"][service]["build"]["target"] == "kuberay"  # has the agent that exports them
    ray = next(each for each in manifests if each["kind"] == "RayCluster")["spec"]
    for group in (ray["headGroupSpec"], *ray["workerGroupSpecs"]):
        assert group["rayStartParams"]["metrics-export-port"] == PORT
        (container,) = group["template"]["spec"]["containers"]
        assert {"name": "metrics", "containerPort": int(PORT)} in container["ports"]
        labels = group["template"]["metadata"]["labels"]
        assert labels["app.kubernetes.io/name"] == "ray"
    kept = {
        rule["source_labels"][0]: rule["regex"]
        for rule in jobs["ray-kubernetes"]["relabel_configs"]
        if rule.get("action") == "keep"
    }
    assert kept == {
        "__meta_kubernetes_pod_label_app_kubernetes_io_name": "ray",
        "__meta_kubernetes_pod_container_port_name": "metrics",
    }


def test_the_prediction_server_is_scraped_at_its_port(
    jobs: dict[str, dict[str, Any]], composed: dict[str, Any]
) -> None:
    (target,) = jobs["serve"]["static_configs"][0]["targets"]
    name, _, port = target.partition(":")
    assert f"--port={port}" in composed["services"][name]["command"]


def test_rules_are_about_gauges_that_exist(tmp_path: Any) -> None:
    (name,) = yaml.safe_load(CONFIG.read_text())["rule_files"]
    rules = [rule for group in yaml.safe_load((CONFIG.parent / name).read_text())["groups"] for rule in group["rules"]]
    gauges = Gauges(tmp_path, "params.yaml", TelemetrySettings())
    gauges.end("FINISHED", begun=1.0, time=2.0)
    gauges.begin(1.0)
    gauges.publish()
    known = set(re.findall(r"^(headstart_\w+)", generate_latest(gauges.registry).decode(), re.MULTILINE))
    for rule in rules:
        named = set(re.findall(r"headstart_\w+", rule["expr"]))
        assert named and named <= known, rule
        assert set(rule["annotations"]) == {"summary", "description"}
        statuses = re.findall(r'status=~"([A-Z|]+)"', rule["expr"])
        assert all(set(one.split("|")) <= {"FINISHED", "FAILED", "KILLED"} for one in statuses)
