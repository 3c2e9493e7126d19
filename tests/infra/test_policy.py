"""Security of infra/: checkov's policies on what would be applied, and who may talk to whom."""

import copy
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from components.registry.exports.champion import SERVED_IMAGE
from flows.notify import SCHEMES
from tests.infra.conftest import ROOT

FOLDER = ROOT / "infra"
CHECKOV = Path(sys.prefix) / "policy" / "bin" / "checkov"


def rendered(manifests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The manifests in their namespace and with their images, the pods of the RayCluster and of flow runs as pods."""
    kustomization = yaml.safe_load((FOLDER / "kubernetes" / "kustomization.yaml").read_text())
    documents = [*copy.deepcopy(manifests), *ray_pods(manifests), flow_job()]
    for document in documents:
        if document["kind"] != "Namespace":
            document["metadata"]["namespace"] = kustomization["namespace"]
    text = json.dumps(documents)
    for image in kustomization["images"]:
        text = text.replace(f'"image": "{image["name"]}"', f'"image": "{image["newName"]}:{image["newTag"]}"')
    loaded: list[dict[str, Any]] = json.loads(text)
    return loaded


def ray_pods(manifests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    spec = next(each for each in manifests if each["kind"] == "RayCluster")["spec"]
    groups = {"ray-head": spec["headGroupSpec"]} | {
        f"ray-{each['groupName']}": each for each in spec["workerGroupSpecs"]
    }
    return [pod(name, group["template"]) for name, group in groups.items()]


def flow_job() -> dict[str, Any]:
    pool = json.loads((FOLDER / "kubernetes" / "work-pool.json").read_text())
    defaults = {name: each["default"] for name, each in pool["variables"]["properties"].items() if "default" in each}
    text = json.dumps(pool["job_configuration"]["job_manifest"])
    text = re.sub(r"\{\{ (\w+) \}\}", lambda match: str(defaults.get(match[1], match[1])), text)
    job: dict[str, Any] = json.loads(text)
    # Prefect fills in a mapping and two lists.
    job["metadata"] = {"name": "flow"}
    job["spec"]["template"]["spec"]["containers"][0] |= {"args": ["flow"], "env": []}
    return job


def pod(name: str, template: dict[str, Any]) -> dict[str, Any]:
    template = copy.deepcopy(template)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **template["metadata"]},
        "spec": template["spec"],
    }


def port_of(value: str) -> int | None:
    """The port of an address, `host:port` or a URL; None: the value is no address."""
    if re.fullmatch(r"[\w.-]+:\d+", value):
        return int(value.rpartition(":")[2])
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https", "ssh"):
        return None
    return parts.port or {"http": 80, "https": 443, "ssh": 22}[parts.scheme]


def failed(folder: Path) -> list[str]:
    """The policies that the files of a folder violate, as `ID resource`."""
    if not CHECKOV.is_file():
        pytest.fail(f"{CHECKOV} does not exist; run `make infra-check`, which installs it")
    command = [CHECKOV, "--config-file", FOLDER / "policy" / "checkov.yaml", "--output", "json", "--directory", folder]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    reports = json.loads(done.stdout)
    reports = reports if isinstance(reports, list) else [reports]
    assert sum(each["summary"]["passed"] for each in reports) > 0, done.stderr
    return sorted(
        {f"{check['check_id']} {check['resource']}" for each in reports for check in each["results"]["failed_checks"]}
    )


@pytest.mark.slow
def test_what_is_applied_and_built_follows_the_policies(manifests, tmp_path):
    (tmp_path / "all.yaml").write_text(yaml.safe_dump_all(rendered(manifests)))
    for file in (FOLDER / "images").glob("*.Dockerfile"):
        shutil.copy(file, tmp_path)
    (tmp_path / "exported.Dockerfile").write_text(SERVED_IMAGE)
    assert failed(tmp_path) == []


def test_base_images_are_pinned_by_digest():
    bases = [
        match
        for file in (FOLDER / "images").glob("*.Dockerfile")
        for match in re.findall(r"^FROM (\S*[:/]\S+)", file.read_text(), re.MULTILINE)
    ]
    assert len(bases) == 4
    assert all(re.fullmatch(r"[^@]+:[^@]+@sha256:[0-9a-f]{64}", base) for base in bases)


class TestCompose:
    def test_every_container_is_hardened(self, composed):
        for name, service in composed["services"].items():
            assert service["cap_drop"] == ["ALL"], name
            assert service["security_opt"] == ["no-new-privileges:true"], name
            limits = service["deploy"]["resources"]["limits"]
            assert {"memory", "pids"} <= set(limits), name
            # SeaweedFS's image writes its configuration below /etc.
            assert service.get("read_only") or name == "s3", name
            assert "privileged" not in service

    def test_only_servers_reach_the_databases(self, composed):
        reach = {name for name, service in composed["services"].items() if "databases" in service.get("networks", [])}
        assert reach == {"postgres", "mlflow", "prefect-server"}
        assert composed["services"]["postgres"]["networks"] == ["databases"]
        assert composed["networks"]["databases"] == {"internal": True}


class TestNetworkPolicies:
    """The policies, evaluated for pairs of pods as the API reference describes."""

    @pytest.fixture
    def pods(self, manifests: list[dict[str, Any]]) -> dict[str, dict[str, str]]:
        """Name of an app -> labels of its pods."""
        templates = [each["spec"]["template"] for each in manifests if each["kind"] in ("Deployment", "Job")]
        templates += [*ray_pods(manifests), flow_job()["spec"]["template"]]
        labels = [each["metadata"]["labels"] for each in templates]
        return {each["app.kubernetes.io/name"]: each for each in labels}

    @pytest.fixture
    def policies(self, manifests: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [each["spec"] for each in manifests if each["kind"] == "NetworkPolicy"]

    @staticmethod
    def selects(selector: dict[str, Any], labels: dict[str, str]) -> bool:
        expressions = selector.get("matchExpressions", [])
        assert all(each["operator"] == "In" for each in expressions)
        return selector.get("matchLabels", {}).items() <= labels.items() and all(
            labels.get(each["key"]) in each["values"] for each in expressions
        )

    def allows(
        self,
        policies: list[dict[str, Any]],
        direction: str,
        labels: dict[str, str],
        other: dict[str, str] | None,
        port: int,
    ) -> bool:
        """Whether a pod may connect in a direction; `other` None: an address outside the cluster."""
        side = {"Ingress": "from", "Egress": "to"}[direction]
        mine = [
            each for each in policies if direction in each["policyTypes"] and self.selects(each["podSelector"], labels)
        ]
        rules = [rule for each in mine for rule in each.get(direction.lower(), [])]

        def peer(rule: dict[str, Any]) -> bool:
            if side not in rule:
                return True
            return other is not None and any(
                "podSelector" in each and "namespaceSelector" not in each and self.selects(each["podSelector"], other)
                for each in rule[side]
            )

        return any(
            peer(rule) and ("ports" not in rule or port in {each["port"] for each in rule["ports"]}) for rule in rules
        )

    def connects(
        self, policies: list[dict[str, Any]], pods: dict[str, Any], source: str, target: str, port: int
    ) -> bool:
        return self.allows(policies, "Egress", pods[source], pods[target], port) and self.allows(
            policies, "Ingress", pods[target], pods[source], port
        )

    def test_every_address_of_the_settings_is_reached(self, manifests, policies, pods):
        """Variables with the address of another system, in the settings, in the secrets and in compose."""
        settings = next(each for each in manifests if each["kind"] == "ConfigMap")["data"]
        example = yaml.safe_load_all((FOLDER / "kubernetes" / "secrets.example.yaml").read_text())
        secrets = {name for each in example for name in each["stringData"]}
        scrape = yaml.safe_load((FOLDER / "prometheus.yaml").read_text())["scrape_configs"]
        (gateway,) = [each for each in scrape if each["job_name"] == "pushgateway"]
        assert settings["HEADSTART_PUSHGATEWAY"] == ""
        given = {**settings, "HEADSTART_PUSHGATEWAY": gateway["static_configs"][0]["targets"][0]}
        ports = {name: result for name, value in given.items() if (result := port_of(value)) is not None}
        ports |= {name: 5432 for name in secrets if name.endswith(("_STORE_URI", "_CONNECTION_URL"))}
        ports |= {"HEADSTART_NOTIFY_WEBHOOK": 443} | {f"HEADSTART_SMTP {each}": SCHEMES[each][2] for each in SCHEMES}
        # Who uses each of them, and the pods behind it; none: outside of the namespace.
        users = {
            "MLFLOW_TRACKING_URI": (["flow", "serve"], "mlflow"),
            "PREFECT_API_URL": (["flow", "prefect-worker"], "prefect-server"),
            "RAY_ADDRESS": (["flow", "ray"], "ray"),
            "AWS_ENDPOINT_URL": (["flow", "ray", "workspace", "mlflow"], None),
            "HEADSTART_REPOSITORY": (["flow", "workspace"], None),
            "HEADSTART_PUSHGATEWAY": (["flow"], None),
            "MLFLOW_BACKEND_STORE_URI": (["mlflow"], None),
            "PREFECT_API_DATABASE_CONNECTION_URL": (["prefect-server"], None),
            "HEADSTART_NOTIFY_WEBHOOK": (["prefect-server"], None),
            **{f"HEADSTART_SMTP {each}": (["prefect-server"], None) for each in SCHEMES},
        }
        assert set(ports) == set(users), "a new address needs its users here, and a policy"
        for name, (sources, target) in users.items():
            for source in sources:
                if target is None:
                    reached = self.leaves(policies, pods[source], ports[name])
                else:
                    reached = self.connects(policies, pods, source, target, ports[name])
                assert reached, (name, source, ports[name])

    def leaves(self, policies: list[dict[str, Any]], labels: dict[str, str], port: int) -> bool:
        """Whether a pod may connect to an address outside the namespace, or to pods of another namespace."""
        others = [
            rule
            for each in policies
            if "Egress" in each["policyTypes"] and self.selects(each["podSelector"], labels)
            for rule in each.get("egress", [])
            if any("namespaceSelector" in peer for peer in rule.get("to", []))
        ]
        return self.allows(policies, "Egress", labels, None, port) or any(
            port in {each["port"] for each in rule["ports"]} for rule in others
        )

    def test_everything_else_is_closed(self, policies, pods):
        stranger = {"app.kubernetes.io/name": "stranger"}
        assert [name for name in pods if self.allows(policies, "Ingress", pods[name], stranger, 5000)] == []
        for source, target, port in [
            ("ray", "mlflow", 5000),
            ("ray", "prefect-server", 4200),
            ("serve", "ray", 6379),
            ("serve", "prefect-server", 4200),
            ("mlflow", "prefect-server", 4200),
            ("prefect-worker", "mlflow", 5000),
        ]:
            assert not self.connects(policies, pods, source, target, port), (source, target)
        # The model that is served cannot send its requests anywhere.
        assert not self.allows(policies, "Egress", pods["serve"], None, 443)


def test_every_account_that_can_have_a_role_exists(manifests):
    component = yaml.safe_load((FOLDER / "kubernetes" / "roles" / "kustomization.yaml").read_text())
    accounts = {each["metadata"]["name"] for each in manifests if each["kind"] == "ServiceAccount"}
    named = {name for patch in component["patches"] for name in patch["target"]["name"].split("|")}
    assert named == {"headstart-flow", "ray", "mlflow"}
    assert named <= accounts
    # Without the secret of the keys, pods start with the role of their account.
    text = "".join(json.dumps(each) for each in manifests) + json.dumps(flow_job())
    assert '"name": "headstart-s3"}' not in text
