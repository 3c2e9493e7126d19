"""The registry: registered models, their versions and aliases, and the runs that have made them."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from mlflow.entities import Dataset, DatasetInput, Metric, Param
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

from components.core.artifacts import MANIFEST, json_of, link_or_copy
from components.core.data_version import UNKNOWN
from components.core.errors import RegistryError, RegistryUnavailableError
from components.core.masking import masked, masked_json, masked_values
from components.core.measurements import Point, run_id
from components.data.tasks.task_io import TEXT_EXAMPLES, TaskIO
from components.registry.tracking.connection import as_default, is_unanswered, probe, translated
from components.registry.tracking.log import Log
from components.registry.version import LEDGER, PREFIX, PROVENANCE, Version, numbered
from components.settings.registry import SQLITE, RegistrySettings, located

if TYPE_CHECKING:
    from mlflow.entities import LoggedModel
    from mlflow.models import ModelSignature

#: Module of the installed package that loads a bundle for MLflow, and the package.
LOADER: Final = "components.registry.pyfunc"
PACKAGE: Final = "headstart"


def log_model(client: MlflowClient, bundle: Path, form: TaskIO | None, *, model: LoggedModel, run: str) -> None:
    """Store a bundle as a logged model of a run: in a folder of this machine as links to its files, elsewhere it is
    sent once. `form`: columns of inputs and outputs of the task; None for an encoder, which returns one vector per
    text."""
    import mlflow.pyfunc
    import pandas
    from mlflow.entities import LoggedModelOutput
    from mlflow.models import Model

    location = str(model.artifact_location)
    local = urlsplit(location).scheme in ("", "file")
    with tempfile.TemporaryDirectory(prefix="headstart-model-") as place:
        # `mlflow.pyfunc.log_model` would copy the files twice, load the model to answer the example, and need an active
        # run, which it ends at the present time. The description is made for a bundle without its weights.
        named = Path(place) / bundle.name
        named.mkdir()
        shutil.copyfile(bundle / MANIFEST, named / MANIFEST)
        folder = Path(unquote(urlsplit(location).path)) if local else Path(place) / "model"
        folder.parent.mkdir(parents=True, exist_ok=True)
        mlflow.pyfunc.save_model(
            folder,
            loader_module=LOADER,
            data_path=str(named),
            mlflow_model=Model(artifact_path=location, model_uuid=model.model_id, run_id=run, model_id=model.model_id),
            signature=signature(form),
            input_example=pandas.DataFrame(list(form.examples if form else TEXT_EXAMPLES)),
            pip_requirements=[PACKAGE],
        )
        for file in (path for path in bundle.rglob("*") if path.is_file() and path.name != MANIFEST):
            target = folder / BUNDLES[0] / bundle.name / file.relative_to(bundle)
            target.parent.mkdir(parents=True, exist_ok=True)
            link_or_copy(file, target)
        if not local:
            client.log_model_artifacts(model.model_id, str(folder))
    client.log_outputs(run, models=[LoggedModelOutput(model.model_id, step=0)])
    client.finalize_logged_model(model.model_id, "READY")


def signature(form: TaskIO | None) -> ModelSignature:
    """The columns of a model's inputs and outputs; None: of an encoder."""
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, DataType, Schema
    from mlflow.types.schema import Array, Map, Object, Property

    text, number, integer = DataType.string, DataType.double, DataType.long
    fields = {"start": integer, "end": integer, "type": text, "text": text}
    types = {
        "text": text,
        "texts": Array(text),
        "number": number,
        "integer": integer,
        "shares": Map(number),
        "spans": Array(Object([Property(*field) for field in fields.items()])),
        "vector": Array(number),
    }
    sides = (form.inputs, form.outputs) if form else ({"text": "text"}, {"embedding": "vector"})
    return ModelSignature(*(Schema([ColSpec(types[of], name) for name, of in side.items()]) for side in sides))


#: Value of the tag `stage` of the run of a retraining, and MLflow's tag of a nested run.
RETRAIN, PARENT = "retrain", "mlflow.parentRunId"
#: Tag of an experiment whose runs MLflow's page shows as trainings, not of language-model applications.
TRAINING = {"mlflow.experimentKind": "custom_model_development"}
#: MLflow's limits for one request and one value.
BATCH_METRICS = 1000
BATCH_PARAMETERS = 100
VALUE_LENGTH = 5000
#: Folders inside a logged model that may hold the bundle (weights, tokenizer, configuration). Models of earlier
#: versions have the second; the code that they also contain is never downloaded.
BUNDLES = ("data", "artifacts")
#: Folder of a run with the documents of `Registry.record`.
DOCUMENTS = "lineage"
#: Codes of MLflow's errors about a model, version or alias that does not exist.
MISSING = ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE")
#: In place of an answer about something that does not exist: the error is raised.
ERROR: Final = object()


@dataclass(frozen=True)
class Record:
    """What is stored with a version of a model.

    Attributes:
        run_name: name of a new run, without its time, if the stage has none.
        datasets: path -> digest.
        tested: name and digest of the rows that metrics `test.NAME` were measured on, by which MLflow's page of models
            compares versions.
    """

    run_name: str
    metrics: Mapping[str, float] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    datasets: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    description: str = ""
    about: str = ""
    provenance: Mapping[str, Any] = field(default_factory=dict)
    tested: tuple[str, str] | None = None


def connect(settings: RegistrySettings) -> Registry:
    """Open the registry of the repository that the working directory is in. A server that is down is detected within
    seconds."""
    uri = located(settings.address)
    probe(uri)
    with translated(masked(uri)):
        client = MlflowClient(tracking_uri=uri, registry_uri=uri)
    return Registry(client, uri=uri, address=masked(settings.address), settings=settings)


#: Tags whose values are names, digests and ids, which other code compares; one may equal a password by chance.
STRUCTURE = frozenset({
    "digest", "kind", "family", "start", "task", "system", "parent", "teacher", "stage", "run", "outcome",
    "dvc_output", "git_commit", "latency", "tainted",
})  # fmt: skip


class Registry:
    """Registered models, versions, aliases and runs at one tracking URI. Created by `connect`. Every method raises
    `RegistryError` if the server rejects the request; its subclass `RegistryUnavailableError` if it gives no answer."""

    def __init__(self, client: MlflowClient, *, uri: str, address: str, settings: RegistrySettings) -> None:
        self.client = client
        #: The tracking URI; the path of a SQLite file is absolute.
        self.uri = uri
        #: The tracking URI as set, without a password, for messages and records.
        self.address = address
        self.settings = settings
        #: The entries of `components.registry.ledger`.
        self.log = Log(self, LEDGER)

    def read_log(self) -> tuple[dict[int, str], dict[str, str]]:
        return self.log.read()

    def _ask(self, what: str, method: str, *arguments: Any, missing: Any = ERROR, **options: Any) -> Any:
        """The answer of MLflow's client; `missing`: in place of an error about something that does not exist."""
        with translated(what):
            try:
                return getattr(self.client, method)(*arguments, **options)
            except MlflowException as error:
                if missing is ERROR or error.error_code not in MISSING:
                    raise
                return missing

    def get(self, name: str, number: str) -> Version:
        return numbered(self, name, number)

    def find_number(self, name: str, number: str) -> Version | None:
        """One version, or None if it does not exist or was deleted."""
        return _version(self._ask(f"{name}/{number}", "get_model_version", name, str(number), missing=None))

    def versions(self, name: str, **tags: str) -> list[Version]:
        """All versions of a model that have these tags, oldest first; empty if the model does not exist."""
        query = _query([f"name='{name}'"], tags)
        raw = self._pages(name, "search_model_versions", query)
        return sorted(filter(None, map(_version, raw)), key=lambda version: int(version.number))

    def alias(self, name: str, alias: str) -> Version | None:
        """The version that an alias points to; None if there is no such alias or model."""
        return _version(self._ask(f"{name}@{alias}", "get_model_version_by_alias", name, alias, missing=None))

    def models(self) -> list[str]:
        return [str(model.name) for model in self._pages("registered models", "search_registered_models")]

    def _pages(self, what: str, method: str, *arguments: Any, **options: Any) -> Iterator[Any]:
        token: str | None = ""
        while token is not None:
            page = self._ask(what, method, *arguments, page_token=token or None, **options)
            yield from page
            token = page.token or None

    def aliased(self, name: str) -> set[str]:
        """Numbers of the versions of a model that have any alias; empty if the model does not exist."""
        model = self._ask(name, "get_registered_model", name, missing=None)
        return set(map(str, model.aliases.values())) if model else set()

    def location(self, version: Version) -> str:
        """URI of the folder of a version's files."""
        return str(self._ask(version.label, "get_model_version_download_uri", version.name, version.number))

    def download(self, version: Version, directory: Path) -> Path:
        """Download a version's bundle into `directory` and return its path. The content is not verified."""
        from mlflow.artifacts import download_artifacts, list_artifacts

        directory.mkdir(parents=True, exist_ok=True)
        uri = self.location(version)
        with translated(version.label):
            try:
                listed = list_artifacts(artifact_uri=uri, tracking_uri=self.uri)
                parts = {item.path.rpartition("/")[2] for item in listed}
                uri = f"{uri}/{next((part for part in BUNDLES if part in parts), BUNDLES[0])}"
                root = Path(download_artifacts(artifact_uri=uri, dst_path=str(directory), tracking_uri=self.uri))
            except MlflowException:
                raise
            except Exception as error:
                kind = RegistryUnavailableError if is_unanswered(error) else RegistryError
                raise kind(f"{version.label}: its files cannot be downloaded from {uri} ({error})") from error
        bundles = [path for path in sorted(root.iterdir()) if path.is_dir()] if root.is_dir() else []
        if len(bundles) != 1:
            raise RegistryError(f"{version.label}: expected one bundle below {root.name}, found {len(bundles)}")
        return bundles[0]

    def document(self, version: Version, name: str) -> dict[str, Any] | None:
        """A JSON object that is stored with a version's run; None if there is none."""
        label, run, file = version.label, version.run_id, f"{DOCUMENTS}/{name}.json"
        with tempfile.TemporaryDirectory(prefix="headstart-") as place:
            # The run may have been deleted.
            if run and file in {item.path for item in self._ask(label, "list_artifacts", run, DOCUMENTS, missing=())}:
                return dict(json_of(Path(self._ask(label, "download_artifacts", run, file, place))))
        return None

    def write_document(self, version: Version, name: str, content: Mapping[str, Any]) -> None:
        """Store a JSON object with a version's run, in place of an earlier one; nothing if it has no run."""
        if version.run_id:
            self._ask(version.label, "log_dict", version.run_id, content, f"{DOCUMENTS}/{name}.json")

    def _repository(self, version: Version) -> Any:
        """Where the files of a version are; None if they cannot be found."""
        from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

        with suppress(RegistryError, MlflowException):
            return get_artifact_repository(self.location(version), tracking_uri=self.uri, registry_uri=self.uri)
        return None

    def size(self, version: Version) -> int:
        """Bytes of a version's files."""
        with translated(version.label):
            repository = self._repository(version)
            folders, total = [""], 0
            while repository is not None and folders:
                for item in repository.list_artifacts(folders.pop()):
                    if item.is_dir:
                        folders.append(item.path)
                    total += item.file_size or 0
            return total

    def delete(self, version: Version) -> None:
        """Delete a version and its files. Metrics and parameters of its run are kept."""
        if version.number in self.aliased(version.name):
            raise RegistryError(f"{version.label}: has an alias now; it is not deleted")
        with translated(version.label):
            repository = self._repository(version)
            # Files without a version are useless, a version without files is an error for everyone who loads it.
            self.client.delete_model_version(version.name, version.number)
            if repository is not None:
                repository.delete_artifacts()

    def set_alias(self, name: str, alias: str, version: Version) -> None:
        """Set an alias of a model to a version, in one transaction of MLflow's database."""
        self._ask(f"{name}@{alias}", "set_registered_model_alias", name, alias, version.number)

    def set_tag(self, version: Version, key: str, value: str) -> None:
        stored = PREFIX + key, _shown(key, value)
        self._ask(version.label, "set_model_version_tag", version.name, version.number, *stored)

    def record(self, name: str, bundle: Path, form: TaskIO | None, record: Record) -> Version:
        """Log a model in the run of the stage that made it, then register it as a version of `name`; `bundle` and
        `form` as of `log_model`. The version is created last, in one transaction with its tags; without it, the next
        registration creates one."""
        with translated(name), as_default(self.uri):
            with self._run(record.run_name, output=record.tags.get("dvc_output", "")) as run:
                model = self.client.create_logged_model(self.experiment_id(), name=name, source_run_id=run)
                self._log(run, record, model=model.model_id)
                log_model(self.client, bundle, form, model=model, run=run)
            self._ensure_model(name, description=record.about)
            version = self.client.create_model_version(
                name,
                source=model.model_uri,
                run_id=run,
                tags=self.tags(record.tags),
                description=f"{record.description}\n\nRun: [{run}](#/experiments/{self.experiment_id()}/runs/{run})",
                model_id=model.model_id,
            )
            return self.get(name, str(version.version))

    def search_runs(self, *conditions: str, most: int = 1000, **tags: str) -> list[Any]:
        """The newest runs of the experiment with these conditions and tags (without prefix)."""
        with translated(f"experiment {self.settings.experiment}"):
            experiment, _ = self.experiment(self.settings.experiment, create=False)
            order = ["attributes.start_time DESC"]
            query = _query(conditions, tags)
            return list(
                self.client.search_runs([experiment], query, max_results=most, order_by=order) if experiment else []
            )

    @contextmanager
    def _run(self, name: str, *, output: str) -> Iterator[str]:
        """Id of the run of the stage that has written an output, else of a new one, nested in the retraining's run."""
        if output not in ("", UNKNOWN) and (runs := self.search_runs(dvc_output=output, outcome="Completed", most=1)):
            yield str(runs[0].info.run_id)
            return
        tags = {}
        if run_id():
            tags = {f"{PREFIX}run": run_id()}
            if runs := self.search_runs(run=run_id(), stage=RETRAIN, most=1):
                tags[PARENT] = runs[0].info.run_id
        title = f"{name} {time.strftime('%Y-%m-%d %H:%M:%S')}"
        run = self.client.create_run(self.experiment_id(), run_name=title, tags=tags).info.run_id
        try:
            yield run
        except BaseException:
            self.client.set_terminated(run, status="FAILED")
            raise
        self.client.set_terminated(run)

    def experiment_id(self) -> str:
        """Id of the experiment `registry.experiment`, which is created if it does not exist."""
        return self.experiment(self.settings.experiment, create=True)[0]

    def experiment(self, name: str, *, create: bool) -> tuple[str, bool]:
        """Id of an experiment, and whether this call has created it; an empty id if it does not exist and is not
        created."""
        experiment = self.client.get_experiment_by_name(name)
        if experiment is None and not create:
            return "", False
        if experiment is None:
            try:
                # An absolute path next to a local database; otherwise the server chooses.
                database = Path(self.uri.removeprefix(SQLITE)).resolve()
                place = (database.parent / "mlruns").as_uri() if self.uri.startswith(SQLITE) else None
                return str(self.client.create_experiment(name, artifact_location=place, tags=TRAINING)), True
            except MlflowException as error:
                if error.error_code != "RESOURCE_ALREADY_EXISTS":
                    raise
                experiment = self.client.get_experiment_by_name(name)  # another process created it first
                assert experiment is not None
        if experiment.lifecycle_stage != "active":
            choice = " or choose another name" if name == self.settings.experiment else ""
            raise RegistryError(
                f"{'registry.experiment: ' if choice else ''}{name!r} was deleted in MLflow; restore it "
                f"(`mlflow experiments restore -x {experiment.experiment_id}`){choice}"
            )
        return str(experiment.experiment_id), False

    def _ensure_model(self, name: str, *, description: str) -> None:
        try:
            self.client.create_registered_model(name, description=description)
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
            if not self.client.get_registered_model(name).description:
                self.client.update_registered_model(name, description)

    def _log(self, run: str, record: Record, *, model: str = "") -> None:
        now = int(time.time() * 1000)
        rows = (model, *record.tested) if record.tested else ()
        scores = [
            Metric(metric_key(key), value, now, 0, *(rows if key.startswith("test.") else ()))
            for key, value in record.metrics.items()
        ]
        # MLflow refuses another value of a parameter, which settings without effect on the result may have by now.
        present = self.client.get_run(run).data.params
        values = {metric_key(key): str(value)[:VALUE_LENGTH] for key, value in masked_values(record.parameters).items()}
        parameters = [Param(key, value) for key, value in values.items() if key not in present]
        for start in range(0, len(parameters), BATCH_PARAMETERS):
            self.client.log_batch(run, params=parameters[start : start + BATCH_PARAMETERS])
        self.client.log_batch(run, metrics=scores)
        if record.datasets:
            datasets = [
                Dataset(path, digest[:36], source_type="dvc", source=json.dumps({"path": path}))
                for path, digest in record.datasets.items()
            ]
            self.client.log_inputs(run, datasets=[DatasetInput(dataset) for dataset in datasets])
        self.client.log_dict(run, masked_json(record.provenance), f"{DOCUMENTS}/{PROVENANCE}.json")

    def log_points(self, run: str, points: Iterable[Point]) -> None:
        metrics = [Metric(metric_key(each.key), each.value, each.time, each.step) for each in points]
        for start in range(0, len(metrics), BATCH_METRICS):
            self.client.log_batch(run, metrics=metrics[start : start + BATCH_METRICS])

    @staticmethod
    def tags(ours: Mapping[str, str], others: Mapping[str, str] | None = None) -> dict[str, str]:
        """Tags as MLflow stores them: `ours` with the prefix of Headstart, `others` without; without secrets."""
        return {
            **{PREFIX + key: _shown(key, value) for key, value in ours.items()},
            **{key: _shown("", value) for key, value in (others or {}).items()},
        }


def _shown(key: str, value: str) -> str:
    """The value of a tag; masked, unless it is compared with others."""
    return (value if key in STRUCTURE else masked(value))[:VALUE_LENGTH]


def metric_key(name: str) -> str:
    """A key with the characters that MLflow accepts: letters, digits, _ - . space : /"""
    return "".join(letter if letter.isalnum() or letter in "_-./: " else "_" for letter in name)[:250]


def _query(conditions: Iterable[str], tags: Mapping[str, str]) -> str:
    return " and ".join([*conditions, *(f"tags.`{PREFIX}{key}` = '{value}'" for key, value in tags.items())])


def _version(raw: Any) -> Version | None:
    if raw is None:
        return None
    tags = {key.removeprefix(PREFIX): str(value) for key, value in raw.tags.items() if key.startswith(PREFIX)}
    return Version(name=raw.name, number=str(raw.version), source=raw.source or "", run_id=raw.run_id or "", tags=tags)
