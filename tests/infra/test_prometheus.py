"""infra/prometheus.yaml and its rules: valid, and of ports and gauges that exist."""

from __future__ import annotations

import re
from typing import Any

import yaml
from prometheus_client import generate_latest

from components.pipeline.telemetry import Gauges
from components.settings.telemetry import TelemetrySettings
from tests.infra.conftest import ROOT

CONFIG = ROOT / "infra" / "prometheus.yaml"


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
