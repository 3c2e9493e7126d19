"""The Kubernetes manifests: valid by their schemas, consistent with each other and with compose.yaml.

The schemas of Kubernetes' own kinds come from the package kubernetes-validate. RayCluster is KubeRay's; no package
carries its schema, so its pod templates are checked as what they are, and its other fields by name.
"""

import copy
import json
import re
from typing import Any

import kubernetes_validate
import pytest
import yaml

from components.pipeline.stages import STAGES
from components.settings.loading import load_params
from tests.infra.conftest import ROOT


def templates(ray: dict[str, Any]) -> dict[str, dict[str, Any]]:
    groups = {group["groupName"]: group for group in ray["spec"]["workerGroupSpecs"]}
    return {"head": ray["spec"]["headGroupSpec"]["template"]} | {
        name: each["template"] for name, each in groups.items()
    }


FOLDER = ROOT / "infra" / "kubernetes"
#: Kinds whose schema comes with kubernetes-validate.
CORE = {
    "v1",
    "apps/v1",
    "batch/v1",
    "rbac.authorization.k8s.io/v1",
    "autoscaling/v2",
    "policy/v1",
    "networking.k8s.io/v1",
}


def check(document: dict[str, Any]) -> None:
    kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)


def only(manifests: list[dict[str, Any]], kind: str, name: str) -> dict[str, Any]:
    result = [each for each in manifests if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    assert len(result) == 1
    return result[0]


def containers(document: dict[str, Any]) -> list[dict[str, Any]]:
    """All containers of a document."""
    result: list[dict[str, Any]] = []
    for key, value in document.items():
        if key in ("containers", "initContainers"):
            result += value
        elif isinstance(value, dict):
            result += containers(value)
        elif isinstance(value, list):
            result += [each for item in value if isinstance(item, dict) for each in containers(item)]
    return result


def test_core_kinds_follow_their_schemas(manifests):
    core = [each for each in manifests if each["apiVersion"] in CORE]
    assert [each["kind"] for each in manifests if each not in core] == ["RayCluster"]
    for document in core:
        check(document)
    for document in yaml.safe_load_all((FOLDER / "secrets.example.yaml").read_text()):
        check(document)
    wrong = copy.deepcopy(only(manifests, "Deployment", "mlflow"))
    wrong["spec"]["template"]["spec"]["containers"][0]["livenesProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError, match="livenesProbe"):
        check(wrong)


def test_gpu_nodes_start_when_trainings_ask_for_them(manifests, monkeypatch):
    """Without minimum, a node starts only for a request, which `cluster.gpus` makes."""
    ray = only(manifests, "RayCluster", "headstart")
    (group,) = [each for each in ray["spec"]["workerGroupSpecs"] if each["groupName"] == "gpu"]
    monkeypatch.setenv("HEADSTART_GPUS", only(manifests, "ConfigMap", "headstart")["data"]["HEADSTART_GPUS"])
    asked = load_params(ROOT / "params.yaml").cluster.gpus
    assert group["minReplicas"] == 0 and asked is not None
    held = group["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"]
    assert 1 <= asked <= group["maxReplicas"] * int(held)
    stages = only(manifests, "ConfigMap", "headstart")["data"]["HEADSTART_STAGES"]
    assert int(stages) == group["maxReplicas"] * int(held) // asked, "each training has the GPUs that it asks for"


def test_the_server_writes_its_log_where_the_flow_reads_it(manifests):
    folder = only(manifests, "ConfigMap", "headstart")["data"]["HEADSTART_TRAFFIC"]
    job = json.loads((FOLDER / "work-pool.json").read_text())["job_configuration"]["job_manifest"]
    pods = [each["spec"]["template"]["spec"] for each in (only(manifests, "Deployment", "serve"), job)]
    for pod in pods:
        (container,) = pod["containers"]
        assert {"configMapRef": {"name": "headstart"}} in container["envFrom"]
        (mount,) = [each for each in container["volumeMounts"] if each["mountPath"] == folder]
        assert not mount.get("readOnly") and pod["securityContext"]["fsGroup"] == pod["securityContext"]["runAsUser"]
        volumes = {each["name"]: each for each in pod["volumes"]}
        claim = volumes[mount["name"]]["persistentVolumeClaim"]["claimName"]
        assert only(manifests, "PersistentVolumeClaim", claim)["spec"]["accessModes"] == ["ReadWriteMany"]
    names = [{each["name"]: each for each in pod["volumes"]}["traffic"] for pod in pods]
    assert names[0] == names[1]


def test_settings_are_those_of_compose(manifests, composed):
    ours = only(manifests, "ConfigMap", "headstart")["data"]
    theirs = composed["services"]["workspace"]["environment"] | composed["services"]["deployment"]["environment"]
    # In Kubernetes, keys are in secrets, and Ray's token is a file of a secret.
    secret = {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "RAY_AUTH_TOKEN"}
    secret |= {"HEADSTART_GIT_USERNAME", "HEADSTART_GIT_TOKEN"}
    secret |= {"MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD", "PREFECT_API_AUTH_STRING"}
    secret |= {"HEADSTART_NOTIFY_WEBHOOK", "HEADSTART_NOTIFY_EMAIL", "HEADSTART_SMTP", "PREFECT_UI_URL"}
    assert set(ours) == set(theirs) - secret | {"RAY_AUTH_TOKEN_PATH"}
    elsewhere = {"AWS_ENDPOINT_URL", "HEADSTART_REPOSITORY", "RAY_ADDRESS", "RAY_AUTH_TOKEN_PATH"}
    elsewhere |= {"HEADSTART_GPUS", "HEADSTART_STAGES"}
    assert {name for name in ours if ours[name] != theirs.get(name)} == elsewhere


def test_servers_run_as_in_compose(manifests, composed):
    for name in ("mlflow", "prefect-server"):
        container = only(manifests, "Deployment", name)["spec"]["template"]["spec"]["containers"][0]
        ours, theirs = set(container["args"]), set(composed["services"][name]["command"])
        assert {flag.partition("=")[0] for flag in ours} == {flag.partition("=")[0] for flag in theirs}
        assert {flag for flag in ours ^ theirs if not flag.startswith("--workers=")} == set()
        literal = {each["name"]: each["value"] for each in container["env"] if "value" in each}
        assert literal.items() <= composed["services"][name]["environment"].items()


def test_secrets_are_named_in_the_example_and_empty_there(manifests):
    example = {
        each["metadata"]["name"]: each["stringData"]
        for each in yaml.safe_load_all((FOLDER / "secrets.example.yaml").read_text())
    }
    text = "".join(json.dumps(each) for each in manifests) + (FOLDER / "work-pool.json").read_text()
    asked = set(re.findall(r'"(?:secret(?:Key)?Ref": \{"name|secretName)": "([\w-]+)"', text))
    assert asked == set(example)
    assert {value for secret in example.values() for value in secret.values()} == {""}
    assert [each for each in manifests if each["kind"] == "Secret"] == []


def test_the_sizes_for_a_terabyte_follow_from_the_measured_data_path(manifests):
    path = json.loads((ROOT / "docs" / "results" / "data-path.json").read_text())["values"][-1]["estimates"]
    documents, tokens = path["corpus_bytes"][0], path["token_bytes"][0]  # MB per GB, so GB per TB
    component = yaml.safe_load((FOLDER / "terabyte" / "kustomization.yaml").read_text())
    set_to: dict[str, list[str]] = {}
    for patch in component["patches"]:
        document = only(manifests, **patch["target"])
        for change in yaml.safe_load(patch["patch"]):
            *above, last = change["path"].strip("/").split("/")
            place: Any = document
            for key in above:
                place = place[int(key) if isinstance(place, list) else key]
            assert (last in place) == (change["op"] == "replace")
            set_to.setdefault(last, []).append(change["value"])
    (cache,) = map(int, set_to["HEADSTART_CACHE_GB"])
    assert tokens < cache
    assert 2 * (1000 + documents + tokens) < int(set_to["storage"][0].removesuffix("Ti")) * 1.024**4 * 1000
    assert len(set_to["sizeLimit"]) == 2
    for size in set_to["sizeLimit"]:
        assert 2 * cache + 50 < int(size.removesuffix("Ti")) * 1.024**4 * 1000
    group = templates(only(manifests, "RayCluster", "headstart"))["cpu"]["spec"]["containers"][0]
    most = 4 * int(group["resources"]["limits"]["cpu"])
    for stage, seconds in (("ingest", "ingest_seconds"), ("tokenize", "tokenize_seconds")):
        assert path[seconds][0] * 1000 / most < 60 * STAGES[stage].minutes
