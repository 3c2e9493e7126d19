"""A secret in every setting that can hold one is in no file, run or message of a retraining."""

import json
import socket
from pathlib import Path

import pytest
import yaml

from components.core.errors import ConfigError
from components.pipeline.dvc_yaml import write_dvc_yaml
from components.pipeline.identity import identity_of
from components.pipeline.stages import STAGES
from components.pipeline.telemetry import masked_yaml
from components.registry.tracking import Record, connect
from components.settings.loading import load_params, sources
from components.settings.registry import RegistrySettings
from flows.plan import Stage
from flows.repository import Project
from flows.telemetry import FOLDER, Monitor
from flows.terminal import StageError, terminal

from .conftest import ROOT

SECRET = "tOp-sEcReT-91x"
ADDRESS = f"postgresql://me:{SECRET}@127.0.0.1:1/db"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository whose settings and environment hold the secret wherever they can."""
    monkeypatch.setattr("flows.telemetry.WAIT_S", 5.0)
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".dvc").mkdir()
    content = yaml.safe_load((ROOT / "params.yaml").read_text())
    content["registry"] = {"tracking": ADDRESS}
    content["cluster"] = content.get("cluster", {}) | {"storage": f"s3://key:{SECRET}@bucket/runs"}
    text = yaml.safe_dump(content) + f"# formerly: http://me:{SECRET}@old\n"
    (tmp_path / "params.yaml").write_text(text)
    monkeypatch.setenv("HEADSTART_PUSHGATEWAY", f"http://me:{SECRET}@127.0.0.1:1")
    monkeypatch.setenv("HEADSTART_NOTIFY_WEBHOOK", f"https://example.org/other/{SECRET}")
    monkeypatch.setenv("HEADSTART_SMTP", f"smtp://me:{SECRET}@host")
    monkeypatch.setenv("RAY_ADDRESS", f"ray://me:{SECRET}@head:10001")
    return tmp_path


def holders(root: Path) -> list[str]:
    """The files below a folder, except the settings file, that hold the secret."""
    files = (path for path in root.rglob("*") if path.is_file() and path != root / "params.yaml")
    return [path.relative_to(root).as_posix() for path in files if SECRET.encode() in path.read_bytes()]


def test_the_records_of_a_retraining(root, capfd):
    monitor = Monitor(Project(root / "params.yaml"))
    stage = Stage("pretrain@ulmfit", address="dvc.yaml:pretrain@ulmfit", reasons=[f"registry.tracking is {ADDRESS}"])

    def run(_: Stage) -> str:
        terminal.say(f"connecting to {ADDRESS}")
        raise StageError(f"{ADDRESS} does not answer", final=True)

    with pytest.raises(StageError) as caught:
        monitor.run(stage, run)
    monitor.finish("FAILED", reason=str(caught.value), summary=[f"see {ADDRESS}"])

    assert holders(root) == []
    assert oct((root / FOLDER).stat().st_mode & 0o777) == "0o700"
    shown = "".join(capfd.readouterr())
    assert "MLflow has not received all runs of this retraining" in shown
    assert SECRET not in shown + str(caught.value) + masked_yaml((root / "params.yaml").read_text())


def test_a_user_of_a_domain_is_named_in_full(root, monkeypatch):
    monkeypatch.setenv("LOGNAME", "ann@lab")
    tags = Monitor(Project(root / "params.yaml"))._tags()
    assert (tags["user"], tags["host"]) == ("ann@lab", socket.gethostname())


def test_the_files_of_dvc_and_the_printed_settings(root):
    params = load_params(root / "params.yaml")
    write_dvc_yaml(params, root / "params.yaml")
    for stage in ("register", "promote", "report"):
        for item in STAGES[stage].items(params):
            (root / stage).write_text(json.dumps(identity_of(stage, item, params).settings))
    assert (root / "register").is_file() and holders(root) == []
    shown = sources(root / "params.yaml")
    assert SECRET not in str(shown) and shown["registry.tracking"][0] == ADDRESS.replace(SECRET, "***")


def test_the_parameters_and_tags_of_a_version(tmp_path):
    registry = connect(RegistrySettings(tracking=f"sqlite:///{tmp_path}/mlflow.db"))
    run = registry.client.create_run(registry.experiment_id()).info.run_id
    parameters = {"notify.webhook": SECRET, "pretrain.x.source": ADDRESS}
    registry._log(run, Record("run", parameters=parameters, tags={"why": ADDRESS}))
    data = registry.client.get_run(run).data
    assert data.params == {"notify.webhook": "***", "pretrain.x.source": ADDRESS.replace(SECRET, "***")}
    assert holders(tmp_path) == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"data": {"domain": {"path": f"https://me:{SECRET}@example.org/texts"}}},
            r"https://me:\*\*\*@example.org/texts holds a password or token",
        ),
        ({"notify": {"webhook": f"https://example.org/{SECRET}"}}, "notify: unknown key"),
    ],
)
def test_a_refused_value_of_a_setting_is_not_shown(root, changes, message):
    (root / "params.yaml").write_text(yaml.safe_dump(yaml.safe_load((root / "params.yaml").read_text()) | changes))
    with pytest.raises(ConfigError, match=message) as caught:
        load_params(root / "params.yaml")
    assert SECRET not in str(caught.value)
