"""The only module that imports MLflow: runs, registered models, their versions, tags and aliases.

It overrides three of MLflow's defaults: minutes of retries while a server is down, unpickling of loaded models, and
artifact paths relative to the working directory. Errors that a user can cause are raised as `RegistryError`.

Lineage: every model version has a run with metrics, curves, parameters and dataset inputs. Tags with the prefix
`headstart.` hold the values that the registry is searched by.
"""

from __future__ import annotations

import json
import logging
import os
import random
import re
import socket
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from components.data_version import UNKNOWN, DataVersion
from components.errors import RegistryError, RegistryUnavailableError
from components.measurements import run_id
from components.settings.registry import RegistrySettings, find_repository

# MLflow reads these variables at import. Existing values take precedence, except that unpickling stays off.
os.environ["MLFLOW_ALLOW_PICKLE_DESERIALIZATION"] = "false"
for _name, _value in {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
}.items():
    os.environ.setdefault(_name, _value)

from mlflow.entities import Dataset, DatasetInput, Metric, Param, RunTag  # noqa: E402
from mlflow.exceptions import MlflowException  # noqa: E402
from mlflow.models import set_model  # noqa: E402
from mlflow.pyfunc import PythonModel  # noqa: E402
from mlflow.tracking import MlflowClient  # noqa: E402

if TYPE_CHECKING:
    from mlflow.models import ModelSignature

    from components.tasks.task_io import TaskIO

__all__ = ["Metric", "ModelFiles", "PythonModel", "Registry", "RunTag", "Version", "connect", "set_model"]

PREFIX = "headstart."
SQLITE = "sqlite:///"
#: Value of the tag `stage` of the run of a retraining, and MLflow's tag of a nested run.
RETRAIN, PARENT = "retrain", "mlflow.parentRunId"
#: Tag of an experiment whose runs MLflow's page shows as those of training, not of language-model applications.
TRAINING = {"mlflow.experimentKind": "custom_model_development"}
#: Folder inside a logged model that holds the bundle (weights, tokenizer, configuration).
BUNDLE = "artifacts"
#: Folder of a run with the documents of `Registry.record`.
DOCUMENTS = "lineage"
#: Folder inside a logged model that holds its package `components`.
CODE = "code"
#: Timeout in seconds of the health check.
PROBE_SECONDS = 5.0
#: MLflow's limits for one request and one value.
BATCH_METRICS = 1000
BATCH_PARAMETERS = 100
VALUE_LENGTH = 5000
#: Codes of MLflow's errors about a model, version or alias that does not exist.
MISSING = ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE")
#: Messages of MLflow's errors about simultaneous writers, after which a request is repeated.
BUSY = re.compile(r"Giving up after|database is locked|deadlock|could not serialize", re.IGNORECASE)
APPEND_ATTEMPTS = 12
#: Source of a version without files: MLflow requires a URI, and servers refuse local paths and the hosts of others.
NO_FILES = "headstart:/no-files"
#: Input examples of an encoder.
EXAMPLES = ({"text": "The name of the bucket."}, {"text": "Whether versioning is on."})
#: Maximum characters of an MLflow message in an error; some messages end with the server's traceback.
MESSAGE_LENGTH = 400

for _noisy in ("alembic", "mlflow"):
    logging.getLogger(_noisy).setLevel(logging.WARNING)


@dataclass(frozen=True)
class ModelFiles:
    """The parts of a logged model.

    Attributes:
        bundle: directory with weights, tokenizer and configuration.
        script: the models-from-code file that serves it.
        code: directory that holds the part of the `components` package that the script imports.
        requirements: pinned, `name==version`.
        form: columns of inputs and outputs of the task; None for an encoder, which returns one vector per text.
    """

    bundle: Path
    script: Path
    code: Path
    requirements: Sequence[str]
    form: TaskIO | None


@dataclass(frozen=True)
class Version:
    """One version of a registered model. Tags are without the `headstart.` prefix."""

    name: str
    number: str
    source: str
    run_id: str
    tags: Mapping[str, str] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """Name and number, such as `headstart-aws-type/3`."""
        return f"{self.name}/{self.number}"

    @property
    def digest(self) -> str:
        """Content digest of the bundle; empty if the version was not made by Headstart."""
        return self.tags.get("digest", "")


def connect(settings: RegistrySettings) -> Registry:
    """Open the registry. A server that is down is detected within seconds.

    Raises:
        RegistryError: no MLflow server at the address, or the database file cannot be used.
    """
    uri = _located(settings.address)
    _probe(uri)
    with _translated(_without_password(uri)):
        client = MlflowClient(tracking_uri=uri, registry_uri=uri)
    return Registry(client, uri=uri, address=_without_password(settings.address), settings=settings)


def _located(uri: str) -> str:
    """The URI with an absolute path if it is that of a SQLite file: a path relative to the repository is the same
    database in all of its folders."""
    path = uri.removeprefix(SQLITE)
    if path == uri or Path(path).is_absolute():
        return uri
    return f"{SQLITE}{(find_repository(Path()) or Path()).resolve() / path}"


def _probe(uri: str) -> None:
    where = "MLFLOW_TRACKING_URI" if os.environ.get("MLFLOW_TRACKING_URI") else "registry.tracking"
    where = f"{where} is {_without_password(uri)}"
    start = "start it with `mlflow server`, or unset the address to use a local database file"
    parts = urlsplit(uri)
    if parts.scheme in ("http", "https"):
        try:
            health = parts._replace(netloc=parts.netloc.rpartition("@")[2], path=parts.path.rstrip("/") + "/health")
            urllib.request.urlopen(health.geturl(), timeout=PROBE_SECONDS).close()
        except urllib.error.HTTPError as error:
            error.close()
            if error.code not in (401, 403):
                raise RegistryError(
                    f"{where}: the server at this address is not MLflow (HTTP {error.code} on /health)"
                ) from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise RegistryUnavailableError(f"{where}: no MLflow server at this address ({reason}); {start}") from None
        except Exception as error:  # http.client raises errors of its own for responses that are not HTTP
            raise RegistryError(f"{where}: the server at this address does not speak HTTP ({error!r})") from None
    elif parts.scheme == "sqlite":
        path = Path(uri.removeprefix(SQLITE))
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("ab+") as file:
                file.seek(0)
                head = file.read(16)
        except OSError as error:
            raise RegistryError(f"{where}: {path} cannot be used ({error.strerror})") from None
        if head not in (b"", b"SQLite format 3\0"):
            raise RegistryError(f"{where}: {path} is not a SQLite database; move it, or set another file")
    elif parts.hostname is not None and parts.scheme.split("+")[0] in ("postgresql", "mysql", "mssql"):
        port = parts.port or {"postgresql": 5432, "mysql": 3306, "mssql": 1433}[parts.scheme.split("+")[0]]
        try:
            socket.create_connection((parts.hostname, port), timeout=PROBE_SECONDS).close()
        except OSError as error:
            raise RegistryUnavailableError(
                f"{where}: no database server at this address ({error}); start it, or correct the address"
            ) from None
    elif parts.scheme in ("", "file"):
        raise RegistryError(
            f"{where}: MLflow no longer stores models in a folder; use sqlite:///{uri.rstrip('/')}/mlflow.db"
        )


def _without_password(uri: str) -> str:
    password = urlsplit(uri).password
    return uri.replace(f":{password}@", ":***@") if password else uri


@contextmanager
def _translated(what: str) -> Iterator[None]:
    """Raise errors of MLflow and of its HTTP client as `RegistryError` with a message of one line; as its subclass
    `RegistryUnavailableError` if the server gives no answer."""
    try:
        yield
    except MlflowException as error:
        text = " ".join(str(error.message).split())
        # MLflow reports a failed connection as an exception of its own with this text.
        unanswered = "failed with exception" in text and "API request to" in text
        kind = RegistryUnavailableError if unanswered else RegistryError
        raise kind(f"MLflow, {what}: {text[:MESSAGE_LENGTH] or type(error).__name__}") from error
    except OSError as error:  # includes the errors of requests
        raise RegistryUnavailableError(f"MLflow, {what}: {error}") from error


@contextmanager
def _as_default(uri: str) -> Iterator[None]:
    """Set the address for MLflow's module-level functions, and restore it on exit. MLflow stores it in the environment,
    where it would take precedence over the settings of later connections."""
    import mlflow

    name = "MLFLOW_TRACKING_URI"
    before = os.environ.get(name)
    mlflow.set_tracking_uri(uri)
    mlflow.set_registry_uri(uri)
    try:
        yield
    finally:
        mlflow.set_tracking_uri(None)
        mlflow.set_registry_uri(None)
        os.environ.pop(name, None)
        if before is not None:
            os.environ[name] = before


class Registry:
    """Registered models, versions and aliases at one tracking URI. Created by `connect`."""

    def __init__(self, client: MlflowClient, *, uri: str, address: str, settings: RegistrySettings) -> None:
        self.client = client
        #: The tracking URI; the path of a SQLite file is absolute.
        self.uri = uri
        #: The tracking URI as set, without a password, for messages and records.
        self.address = address
        self.settings = settings

    # -- reading -----------------------------------------------------------------------------------------------------

    def find(self, name: str, *, digest: str) -> Version | None:
        """The newest version of model `name` with this content digest, or None."""
        with _translated(name):
            found = self.client.search_model_versions(f"name='{name}' and tags.`{PREFIX}digest` = '{digest}'")
        return max(map(_version, found), key=lambda version: int(version.number), default=None)

    def get(self, name: str, number: str) -> Version:
        """One version.

        Raises:
            RegistryError: there is no such version.
        """
        with _translated(f"{name}/{number}"):
            return _version(self.client.get_model_version(name, str(number)))

    def find_number(self, name: str, number: str) -> Version | None:
        """One version, or None if it does not exist or was deleted."""
        with _translated(f"{name}/{number}"):
            try:
                return _version(self.client.get_model_version(name, str(number)))
            except MlflowException as error:
                if error.error_code in MISSING:
                    return None
                raise

    def versions(self, name: str, **tags: str) -> list[Version]:
        """All versions of a model that have these tags, oldest first; empty if the model does not exist."""
        query = " and ".join([f"name='{name}'", *(f"tags.`{PREFIX}{key}` = '{value}'" for key, value in tags.items())])
        found: list[Version] = []
        token = None
        with _translated(name):
            while True:
                page = self.client.search_model_versions(query, order_by=["version_number ASC"], page_token=token)
                found += map(_version, page)
                if not (token := page.token):
                    return sorted(found, key=lambda version: int(version.number))

    def alias(self, name: str, alias: str) -> Version | None:
        """The version that an alias points to; None if there is no such alias or model."""
        try:
            return _version(self.client.get_model_version_by_alias(name, alias))
        except MlflowException as error:
            if error.error_code in MISSING:
                return None
            raise RegistryError(f"MLflow, {name}@{alias}: {error.message}") from error

    def download(self, version: Version, directory: Path) -> Path:
        """Download a version's bundle into `directory` and return its path. The content is not verified.

        Raises:
            RegistryError: the artifacts do not exist or cannot be downloaded.
        """
        root = self._download(version, BUNDLE, directory)
        bundles = [path for path in sorted(root.iterdir()) if path.is_dir()] if root.is_dir() else []
        if len(bundles) != 1:
            raise RegistryError(f"{version.label}: expected one bundle below {BUNDLE}, found {len(bundles)}")
        return bundles[0]

    def download_code(self, version: Version, directory: Path) -> Path:
        """Download a version's code into `directory` and return the folder that contains its package. The content is
        not verified.

        Raises:
            RegistryError: the artifacts do not exist or cannot be downloaded.
        """
        return self._download(version, CODE, directory)

    def _download(self, version: Version, part: str, directory: Path) -> Path:
        from mlflow.artifacts import download_artifacts

        directory.mkdir(parents=True, exist_ok=True)
        with _translated(version.label), _as_default(self.uri):
            uri = f"{self.client.get_model_version_download_uri(version.name, version.number)}/{part}"
            try:
                return Path(download_artifacts(artifact_uri=uri, dst_path=str(directory), tracking_uri=self.uri))
            except MlflowException:
                raise
            except Exception as error:
                raise RegistryError(f"{version.label}: its files cannot be downloaded from {uri} ({error})") from error

    def attached(self, version: Version, file: str) -> bytes | None:
        """The content of a file that `attach` has stored with a version; None if there is none.

        Args:
            version: the version.
            file: `FOLDER/NAME`.
        """
        folder, _, _ = file.rpartition("/")
        with _translated(version.label), _as_default(self.uri):
            if not version.run_id or file not in {item.path for item in self._artifacts(version.run_id, folder)}:
                return None
            with tempfile.TemporaryDirectory(prefix="headstart-") as place:
                return Path(self.client.download_artifacts(version.run_id, file, place)).read_bytes()

    def _artifacts(self, run_id: str, folder: str) -> Sequence[Any]:
        try:
            return self.client.list_artifacts(run_id, folder)
        except MlflowException as error:
            if error.error_code in MISSING:
                return []  # the run was deleted
            raise

    def document(self, version: Version, name: str) -> dict[str, Any] | None:
        """A JSON object that `record` has stored with a version's run; None if there is none.

        Raises:
            RegistryError: the registry cannot be reached.
        """
        found = self.attached(version, f"{DOCUMENTS}/{name}.json")
        return None if found is None else dict(json.loads(found))

    def parameters(self, version: Version) -> dict[str, str]:
        """The parameters of a version's run; empty if the run was deleted."""
        try:
            return dict(self.client.get_run(version.run_id).data.params)
        except MlflowException as error:
            if error.error_code in MISSING:
                return {}
            raise RegistryError(f"MLflow, {version.label}: {error.message}") from error

    def models(self) -> list[str]:
        """Names of all registered models."""
        found: list[str] = []
        token = None
        with _translated("registered models"):
            while True:
                page = self.client.search_registered_models(page_token=token)
                found += [str(model.name) for model in page]
                if not (token := page.token):
                    return found

    def aliased(self, name: str) -> set[str]:
        """Numbers of the versions of a model that have any alias; empty if the model does not exist."""
        with _translated(name):
            try:
                return {str(number) for number in self.client.get_registered_model(name).aliases.values()}
            except MlflowException as error:
                if error.error_code in MISSING:
                    return set()
                raise

    def size(self, version: Version) -> int:
        """Bytes of a version's files."""
        with _translated(version.label), _as_default(self.uri):
            repository = self._repository(version)
            folders, total = [""], 0
            while repository is not None and folders:
                for item in repository.list_artifacts(folders.pop()):
                    if item.is_dir:
                        folders.append(item.path)
                    total += item.file_size or 0
            return total

    def _repository(self, version: Version) -> Any:
        """Where the files of a version are; None if they cannot be found."""
        from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

        try:
            uri = self.client.get_model_version_download_uri(version.name, version.number)
            return get_artifact_repository(uri)
        except MlflowException:
            return None

    def find_run(self, **tags: str) -> str | None:
        """Id of the newest run of the experiment with these tags (without prefix), or None."""
        query = " and ".join(f"tags.`{PREFIX}{key}` = '{value}'" for key, value in tags.items())
        with _translated(f"experiment {self.settings.experiment}"):
            found = self.client.search_runs(
                [self.experiment_id()], query, max_results=1, order_by=["attributes.start_time DESC"]
            )
            return str(found[0].info.run_id) if found else None

    # -- writing -----------------------------------------------------------------------------------------------------

    def set_alias(self, name: str, alias: str, version: Version) -> None:
        """Set an alias of a model to a version, in one transaction of MLflow's database."""
        with _translated(f"{name}@{alias}"):
            self.client.set_registered_model_alias(name, alias, version.number)

    def set_tag(self, version: Version, key: str, value: str) -> None:
        """Set a tag of a model version."""
        with _translated(version.label):
            self.client.set_model_version_tag(version.name, version.number, PREFIX + key, value[:VALUE_LENGTH])

    def attach(self, version: Version, file: str, content: bytes) -> None:
        """Store a file with a version, among the artifacts of its run.

        Args:
            version: the version; nothing is stored if it has no run.
            file: `FOLDER/NAME`.
            content: of the file; it replaces that of an earlier one.
        """
        if not version.run_id:
            return
        folder, _, name = file.rpartition("/")
        with tempfile.TemporaryDirectory(prefix="headstart-") as place:
            path = Path(place) / name
            path.write_bytes(content)
            with _translated(version.label), _as_default(self.uri):
                self.client.log_artifact(version.run_id, str(path), folder)

    def delete(self, version: Version) -> None:
        """Delete a version and its files. Metrics and parameters of its run are kept.

        Raises:
            RegistryError: the version has an alias now.
        """
        if version.number in self.aliased(version.name):
            raise RegistryError(f"{version.label}: has an alias now; it is not deleted")
        with _translated(version.label), _as_default(self.uri):
            # Files without a version are useless, a version without files is an error for everyone who loads it.
            repository = self._repository(version)
            self.client.delete_model_version(version.name, version.number)
            if repository is not None:
                repository.delete_artifacts()

    def description(self, version: Version) -> str:
        """Description of a version; empty if it has none."""
        with _translated(version.label):
            return str(self.client.get_model_version(version.name, version.number).description or "")

    def describe(self, version: Version, text: str) -> None:
        """Set the description of a version, in Markdown."""
        with _translated(version.label):
            self.client.update_model_version(version.name, version.number, text[:VALUE_LENGTH])

    def append(self, log: str, *, tags: Mapping[str, str], text: str, about: str) -> int:
        """Append an entry to a log: a registered model whose versions have tags and a description, and no files.

        MLflow numbers the versions of a model consecutively: each is inserted with the number after the highest, and
        the primary key (name, number) rejects all but one of several simultaneous writers; the others try again. An
        entry is therefore visible to every reader before the next number is assigned, on SQLite, Postgres and MySQL and
        through MLflow's server alike. Numbers of deleted versions are not used again.

        Args:
            log: name of the registered model; created if it does not exist.
            tags: of the entry, without prefix; a value has at most VALUE_LENGTH characters.
            text: description of the entry.
            about: description of the log.

        Returns:
            The number of the entry. After an error or a repeated request the entry may exist, or exist twice.
        """
        for attempt in range(APPEND_ATTEMPTS):
            try:
                version = self.client.create_model_version(
                    log,
                    source=NO_FILES,
                    tags={PREFIX + key: value for key, value in tags.items()},
                    description=text[:VALUE_LENGTH],
                )
                return int(version.version)
            except MlflowException as error:
                if error.error_code == "RESOURCE_DOES_NOT_EXIST":
                    with _translated(log):
                        self._ensure_model(log, description=about)
                elif attempt + 1 == APPEND_ATTEMPTS or not BUSY.search(str(error.message)):
                    with _translated(log):
                        raise
                time.sleep(random.uniform(0, min(1.0, 0.02 * 2**attempt)))
        raise AssertionError  # the last attempt has returned or raised

    def record(
        self,
        name: str,
        *,
        files: ModelFiles,
        run_name: str,
        metrics: Mapping[str, float],
        parameters: Mapping[str, Any],
        curves: Mapping[str, Sequence[tuple[int, float]]],
        datasets: Sequence[DataVersion],
        tags: Mapping[str, str],
        description: str,
        about: str,
        documents: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> Version:
        """Log a model in the run of the stage that made it, then register it as a version of `name`.

        The version is created last, in one transaction with its tags, so every version can be found by its digest. A
        process that is killed earlier leaves a run without a version, and the next registration creates one.

        Args:
            name: name of the registered model; created if it does not exist.
            files: the parts of the model.
            run_name: name of a new run, without its time, if the stage has none.
            metrics: name -> final value.
            parameters: flattened settings.
            curves: name -> (step, value) pairs.
            datasets: inputs of the run.
            tags: tags of the version, without prefix; `find` searches by `digest`.
            description: of the version, in Markdown; a link to its run is added.
            about: description of the registered model.
            documents: name -> JSON object, stored with the run as DOCUMENTS/NAME.json.

        Raises:
            RegistryError: the server rejects a request or cannot be reached.
        """
        with _translated(name), _as_default(self.uri):
            with self._run(run_name, output=tags.get("dvc_output", "")) as run:
                self._log(run, metrics, parameters, curves, datasets, tags)
                for title, content in (documents or {}).items():
                    self.client.log_dict(run, dict(content), f"{DOCUMENTS}/{title}.json")
                logged = self.client.create_logged_model(self.experiment_id(), name=name, source_run_id=run)
                model = _log_model(files, model_id=logged.model_id, run=run)
            self._ensure_model(name, description=about)
            version = self.client.create_model_version(
                name,
                source=model.model_uri,
                run_id=run,
                tags={PREFIX + key: value[:VALUE_LENGTH] for key, value in tags.items()},
                description=f"{description}\n\nRun: [{run}](#/experiments/{self.experiment_id()}/runs/{run})",
                model_id=model.model_id,
            )
            return self.get(name, str(version.version))

    @contextmanager
    def _run(self, name: str, *, output: str) -> Iterator[str]:
        """Id of the run of the stage that has written an output, in this retraining or an earlier one. Without such a
        run (the stage ran without a monitor) a new one, nested in that of this retraining if there is one.

        Args:
            name: of a new run, before its time.
            output: DVC's digest of the output.
        """
        known = output not in ("", UNKNOWN)
        if known and (found := self.find_run(dvc_output=output, outcome="Completed")) is not None:
            yield found
            return
        parent = self.find_run(run=run_id(), stage=RETRAIN) if run_id() else None
        tags = {PARENT: parent} if parent is not None else {}
        tags |= {f"{PREFIX}run": run_id()} if run_id() else {}
        title = f"{name} {time.strftime('%Y-%m-%d %H:%M:%S')}"
        run = self.client.create_run(self.experiment_id(), run_name=title, tags=tags).info.run_id
        try:
            yield run
        except BaseException:
            self.client.set_terminated(run, status="FAILED")
            raise
        self.client.set_terminated(run)

    def experiment_id(self) -> str:
        """Id of the experiment `registry.experiment`, which is created if it does not exist.

        Raises:
            RegistryError: it was deleted.
        """
        name = self.settings.experiment
        found = self.client.get_experiment_by_name(name)
        if found is None:
            try:
                location = self._artifact_location()
                return str(self.client.create_experiment(name, artifact_location=location, tags=TRAINING))
            except MlflowException as error:
                if error.error_code != "RESOURCE_ALREADY_EXISTS":
                    raise
                found = self.client.get_experiment_by_name(name)  # another process created it first
                assert found is not None
        if found.lifecycle_stage != "active":
            raise RegistryError(
                f"registry.experiment: {name!r} was deleted in MLflow; restore it (`mlflow experiments restore "
                f"-x {found.experiment_id}`) or choose another name"
            )
        return str(found.experiment_id)

    def _artifact_location(self) -> str | None:
        """Artifact location: as set, or an absolute path next to a local database; None: the server chooses."""
        if self.settings.artifacts is not None:
            location = self.settings.artifacts
            return location if "://" in location else Path(location).resolve().as_uri()
        if self.uri.startswith(SQLITE):
            database = Path(self.uri.removeprefix(SQLITE)).resolve()
            return (database.parent / "mlruns").as_uri()
        return None

    def _ensure_model(self, name: str, *, description: str) -> None:
        """Create a registered model; one without a description gets it."""
        try:
            self.client.create_registered_model(name, description=description)
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
            if not self.client.get_registered_model(name).description:
                self.client.update_registered_model(name, description)

    def _log(
        self,
        run_id: str,
        metrics: Mapping[str, float],
        parameters: Mapping[str, Any],
        curves: Mapping[str, Sequence[tuple[int, float]]],
        datasets: Sequence[DataVersion],
        tags: Mapping[str, str],
    ) -> None:
        now = int(time.time() * 1000)
        points = [Metric(metric_key(key), value, now, 0) for key, value in metrics.items()]
        points += [Metric(metric_key(key), value, now, step) for key, curve in curves.items() for step, value in curve]
        # MLflow refuses another value of a parameter, which settings without effect on the result may have by now.
        known = self.client.get_run(run_id).data.params
        settings = [Param(metric_key(key), str(value)[:VALUE_LENGTH]) for key, value in parameters.items()]
        settings = [setting for setting in settings if setting.key not in known]
        run_tags = [RunTag(PREFIX + key, value[:VALUE_LENGTH]) for key, value in tags.items()]
        self.client.log_batch(run_id, tags=run_tags)
        for start in range(0, len(settings), BATCH_PARAMETERS):
            self.client.log_batch(run_id, params=settings[start : start + BATCH_PARAMETERS])
        for start in range(0, len(points), BATCH_METRICS):
            self.client.log_batch(run_id, metrics=points[start : start + BATCH_METRICS])
        if datasets:
            self.client.log_inputs(
                run_id,
                datasets=[
                    DatasetInput(
                        Dataset(item.path, item.digest[:36], source_type="dvc", source=json.dumps({"path": item.path}))
                    )
                    for item in datasets
                ],
            )


def machine_monitors() -> list[Any]:
    """MLflow's monitors of processor, memory, disk, network and NVIDIA GPUs that work on this machine."""
    from mlflow.system_metrics.metrics.cpu_monitor import CPUMonitor
    from mlflow.system_metrics.metrics.disk_monitor import DiskMonitor
    from mlflow.system_metrics.metrics.gpu_monitor import GPUMonitor
    from mlflow.system_metrics.metrics.network_monitor import NetworkMonitor

    found: list[Any] = [CPUMonitor(), DiskMonitor(), NetworkMonitor()]
    with suppress(ImportError, RuntimeError):  # there is no GPU
        found.append(GPUMonitor())
    return found


def _log_model(files: ModelFiles, *, model_id: str, run: str) -> Any:
    import mlflow.pyfunc
    import pandas
    from mlflow.models import Model

    # `mlflow.pyfunc.log_model` would need an active run, and end it at the present time.
    return Model.log(
        artifact_path=None,
        model_id=model_id,
        flavor=mlflow.pyfunc,
        flavor_name="pyfunc.ModelFromCode",
        run_id=run,
        python_model=str(files.script),
        artifacts={"bundle": str(files.bundle)},
        code_paths=[str(files.code)],
        signature=_signature(files.form),
        input_example=pandas.DataFrame(list(files.form.examples if files.form else EXAMPLES)),
        pip_requirements=list(files.requirements),
    )


def _signature(form: TaskIO | None) -> ModelSignature:
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, DataType, Schema
    from mlflow.types.schema import Array, Map, Object, Property

    span = [Property(name, DataType.long) for name in ("start", "end")]
    span += [Property(name, DataType.string) for name in ("type", "text")]
    types = {
        "text": DataType.string,
        "texts": Array(DataType.string),
        "number": DataType.double,
        "integer": DataType.long,
        "shares": Map(DataType.double),
        "spans": Array(Object(span)),
        "vector": Array(DataType.double),
    }

    def schema(columns: Mapping[str, str], optional: Mapping[str, str] | None = None) -> Schema:
        further = [ColSpec(types[value], name, required=False) for name, value in (optional or {}).items()]
        return Schema([*(ColSpec(types[value], name) for name, value in columns.items()), *further])

    if form is None:
        return ModelSignature(inputs=schema({"text": "text"}), outputs=schema({"embedding": "vector"}))
    return ModelSignature(inputs=schema(form.inputs, form.context), outputs=schema(form.outputs))


def metric_key(name: str) -> str:
    """A key with the characters that MLflow accepts: letters, digits, _ - . space : /"""
    return "".join(letter if letter.isalnum() or letter in "_-./: " else "_" for letter in name)[:250]


def _version(raw: Any) -> Version:
    tags = {key.removeprefix(PREFIX): str(value) for key, value in raw.tags.items() if key.startswith(PREFIX)}
    return Version(name=raw.name, number=str(raw.version), source=raw.source or "", run_id=raw.run_id or "", tags=tags)
