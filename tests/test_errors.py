"""Classes and exit codes of errors: what the user has to correct, and what may succeed later."""

import errno
import os
import shutil
import sys
from http.server import BaseHTTPRequestHandler
from types import SimpleNamespace

import pytest
from botocore.exceptions import ClientError

from components.cli import main as cli
from components.cluster import storage
from components.cluster.distributed import World
from components.cluster.storage import ensure_bucket
from components.core.artifacts import unwritable
from components.core.errors import (
    CheckpointUnavailableError,
    ConfigError,
    RegistryError,
    RegistryUnavailableError,
    StorageError,
    StorageUnavailableError,
    TrainingError,
    TransientError,
    missing_module,
    of_machine,
)
from components.registry.tracking import connect
from components.settings.registry import RegistrySettings
from components.training.checkpoint import CheckpointStore, Saver
from flows.execution import failure
from tests.conftest import answering


def test_a_registry_that_does_not_answer_is_a_transient_error(port):
    for uri in (f"http://127.0.0.1:{port}", f"postgresql://u:p@127.0.0.1:{port}/mlflow"):
        with pytest.raises(TransientError):
            connect(RegistrySettings(tracking=uri))


def test_a_registry_that_cannot_be_used_is_not(tmp_path):
    (tmp_path / "mlflow.db").write_text("no database at all")
    with pytest.raises(RegistryError) as caught:
        connect(RegistrySettings(tracking=f"sqlite:///{tmp_path}/mlflow.db"))
    assert not isinstance(caught.value, TransientError) and caught.value.exit_code == 2


@pytest.mark.slow
def test_an_object_store_that_does_not_answer(s3, port, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with pytest.raises(StorageUnavailableError):
        ensure_bucket("headstart")
    with pytest.raises(CheckpointUnavailableError, match="checkpoints cannot be listed"):
        CheckpointStore("s3://headstart/checkpoints", key="a").latest()
    with pytest.raises(CheckpointUnavailableError, match="checkpoint of step 1 cannot be written"):
        CheckpointStore("s3://headstart/checkpoints", key="a").save(1, {}, {})


class _Expired(BaseHTTPRequestHandler):
    """An S3 store whose clients have credentials that have expired."""

    def answer(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        self.rfile.read(length)
        body = b"<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>"
        self.send_response(403)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = answer  # noqa: N815 -- names of http.server

    def log_message(self, *arguments: object) -> None:
        pass


def test_an_object_store_that_rejects_the_credentials_needs_the_user(s3, monkeypatch):
    with answering(_Expired) as port:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        store = CheckpointStore("s3://headstart/checkpoints", key="a")
        for call in (lambda: store.save(1, {}, {}), store.latest, store.clear):
            with pytest.raises(TrainingError, match="rejects the request: renew the credentials") as caught:
                call()
            assert not isinstance(caught.value, TransientError)
        with pytest.raises(TrainingError, match=r"step 1 cannot be written .*ExpiredToken"):
            store.save(1, {}, {})


def test_a_transient_error_of_a_checkpoint_stays_one_in_training():
    """The class decides whether the stage is retried, whichever rank meets the error."""

    class Away:
        def save(self, *arguments):
            raise CheckpointUnavailableError("no answer")

        def latest(self):
            raise CheckpointUnavailableError("no answer")

    state = SimpleNamespace(step=1, tensors=lambda world: {}, numbers=dict)
    saver = Saver(Away(), World())
    saver.save(state, {})
    with pytest.raises(CheckpointUnavailableError, match="no answer"):
        saver.wait()
    with pytest.raises(CheckpointUnavailableError, match="no answer"):
        CheckpointStore.latest_for_all(Away(), World())


@pytest.mark.parametrize(("error", "code"), [(ConfigError, 2), (RegistryUnavailableError, 75)])
def test_the_exit_code_of_a_command_tells_which_it_is(error, code, tmp_path, monkeypatch, capsys):
    def app():
        raise error("a message")

    monkeypatch.setattr(cli, "app", app)
    monkeypatch.setenv("HEADSTART_ERROR_FILE", str(tmp_path / "error"))
    monkeypatch.setattr(sys, "argv", ["headstart"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert (ended.value.code, (tmp_path / "error").read_text(), capsys.readouterr().err) == (code, "a message", "")


@pytest.mark.parametrize(("code", "final"), [(2, True), (75, False)])
def test_a_stage_is_retried_after_a_transient_error(code, final):
    alone = failure("a", code, [], message="no answer")
    assert alone.final == final
    assert str(alone) == "a: no answer"


def test_a_package_of_the_pipeline_that_is_not_installed():
    absent = ModuleNotFoundError("No module named 'mlflow.tracking'", name="mlflow.tracking")
    message = "the package mlflow is not installed; install it: pip install 'headstart[pipeline]'"
    assert str(missing_module(absent)) == message
    assert missing_module(ModuleNotFoundError("No module named 'components.x'", name="components.x")) is None
    assert missing_module(ValueError("mlflow")) is None


# Buckets, on a moto server.


def test_a_bucket_is_created_once(s3, monkeypatch):
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    assert ensure_bucket("models") is True
    assert ensure_bucket("models") is False
    # Other tests have buckets on this server.
    s3.delete_bucket(Bucket="models")


def test_no_store_at_the_endpoint(s3, port, monkeypatch):
    endpoint = f"http://127.0.0.1:{port}"
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    with pytest.raises(StorageError, match=rf"^s3://models: no store at {endpoint}; start it, or correct AWS_"):
        ensure_bucket("models")


@pytest.mark.parametrize(
    ("code", "at_creation", "result"),
    [("BucketAlreadyOwnedByYou", True, "False"), ("AccessDenied", True, "rejects"), ("403", False, "rejects")],
)
def test_refused_requests(monkeypatch, code, at_creation, result):
    class Client:
        meta = SimpleNamespace(region_name="us-east-1")

        def head_bucket(self, **request):
            raise ClientError({"Error": {"Code": "404" if at_creation else code}}, "HeadBucket")

        def create_bucket(self, **request):
            assert request == {"Bucket": "models"}
            raise ClientError({"Error": {"Code": code, "Message": "no"}}, "CreateBucket")

    monkeypatch.setattr(storage, "_client", Client)
    if result == "False":
        assert ensure_bucket("models") is False
    else:
        with pytest.raises(StorageError, match=rf"^s3://models: .* rejects the request \({code}: .*check the cred"):
            ensure_bucket("models")


def test_a_folder_that_cannot_be_written_is_one_sentence():
    def cause(number: int) -> OSError:
        return OSError(number, os.strerror(number), "/mnt/params.yaml")

    for number in (errno.EACCES, errno.EPERM, errno.EROFS):
        error = RuntimeError("a stage ended")
        error.__cause__ = cause(number)
        message = of_machine(error)
        assert message is not None and message.exit_code == 2
        assert str(message).startswith(f"/mnt/params.yaml: {os.strerror(number)}; change its permissions")
    assert of_machine(cause(errno.ENOENT)) is None
    assert of_machine(ValueError("a defect")) is None


def test_a_damaged_database_is_one_sentence(tmp_path):
    """Truncated, as by a full disk, or with pages overwritten."""
    path = tmp_path / "mlflow.db"
    connect(RegistrySettings(tracking=f"sqlite:///{path}")).models()
    whole = path.read_bytes()
    for content in (whole[:100_000], whole[:4096] + bytes(len(whole) // 2) + whole[4096 + len(whole) // 2 :]):
        path.write_bytes(content)
        with pytest.raises(RegistryError, match=r"mlflow\.db is damaged \(.*\); restore a copy of it, or move it away"):
            connect(RegistrySettings(tracking=f"sqlite:///{path}"))
    path.write_bytes(whole)
    connect(RegistrySettings(tracking=f"sqlite:///{path}"))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_full_disk_is_one_sentence(number, tmp_path):
    message = of_machine(OSError(number, os.strerror(number), "/mnt/out.csv"))
    assert message is not None and message.exit_code == 2
    assert str(message).startswith(f"/mnt/out.csv: {os.strerror(number)}; `headstart gc` lists")
    # Copies of folders collect their errors as text.
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "weights").write_text("x")

    def full(source: str, target: str, **options: object) -> None:
        raise OSError(number, os.strerror(number), target)

    with pytest.raises(shutil.Error) as caught:
        shutil.copytree(tmp_path / "model", tmp_path / "copy", copy_function=full)
    message = of_machine(caught.value)
    assert message is not None and os.strerror(number) in str(message) and "\n" not in str(message)
    assert os.strerror(number) in str(unwritable(tmp_path, caught.value))
