"""The registry: `Versions`, their changes, and the runs that have made them."""

from __future__ import annotations

import json
import random
import re
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mlflow.entities import Dataset, DatasetInput, Metric, Param, RunTag
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

from components.data_version import UNKNOWN, DataVersion
from components.errors import RegistryError
from components.masking import masked, masked_json, masked_values
from components.measurements import run_id
from components.settings.registry import RegistrySettings
from components.tracking.connection import SQLITE, as_default, located, probe, translated
from components.tracking.logged_models import ModelFiles, log_model
from components.tracking.versions import DOCUMENTS, PREFIX, Version, Versions

#: Value of the tag `stage` of the run of a retraining, and MLflow's tag of a nested run.
RETRAIN, PARENT = "retrain", "mlflow.parentRunId"
#: Tag of an experiment whose runs MLflow's page shows as those of training, not of language-model applications.
TRAINING = {"mlflow.experimentKind": "custom_model_development"}
#: MLflow's limits for one request and one value.
BATCH_METRICS = 1000
BATCH_PARAMETERS = 100
VALUE_LENGTH = 5000
#: Messages of MLflow's errors about simultaneous writers, after which a request is repeated.
BUSY = re.compile(r"Giving up after|database is locked|deadlock|could not serialize", re.IGNORECASE)
APPEND_ATTEMPTS = 12
#: Source of a version without files: MLflow requires a URI, and servers refuse local paths and the hosts of others.
NO_FILES = "headstart:/no-files"


def connect(settings: RegistrySettings) -> Registry:
    """Open the registry. A server that is down is detected within seconds.

    Raises:
        RegistryError: no MLflow server at the address, or the database file cannot be used.
    """
    uri = located(settings.address)
    probe(uri)
    with translated(masked(uri)):
        client = MlflowClient(tracking_uri=uri, registry_uri=uri)
    return Registry(client, uri=uri, address=masked(settings.address), settings=settings)


class Registry(Versions):
    """Changes and additions: aliases, tags, versions and runs at one tracking URI. Created by `connect`."""

    def find_run(self, **tags: str) -> str | None:
        """Id of the newest run of the experiment with these tags (without prefix), or None."""
        query = " and ".join(f"tags.`{PREFIX}{key}` = '{value}'" for key, value in tags.items())
        with translated(f"experiment {self.settings.experiment}"):
            found = self.client.search_runs(
                [self.experiment_id()], query, max_results=1, order_by=["attributes.start_time DESC"]
            )
            return str(found[0].info.run_id) if found else None

    def set_alias(self, name: str, alias: str, version: Version) -> None:
        """Set an alias of a model to a version, in one transaction of MLflow's database."""
        with translated(f"{name}@{alias}"):
            self.client.set_registered_model_alias(name, alias, version.number)

    def set_tag(self, version: Version, key: str, value: str) -> None:
        """Set a tag of a model version."""
        with translated(version.label):
            self.client.set_model_version_tag(version.name, version.number, PREFIX + key, masked(value)[:VALUE_LENGTH])

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
            with translated(version.label), as_default(self.uri):
                self.client.log_artifact(version.run_id, str(path), folder)

    def delete(self, version: Version) -> None:
        """Delete a version and its files. Metrics and parameters of its run are kept.

        Raises:
            RegistryError: the version has an alias now.
        """
        if version.number in self.aliased(version.name):
            raise RegistryError(f"{version.label}: has an alias now; it is not deleted")
        with translated(version.label), as_default(self.uri):
            # Files without a version are useless, a version without files is an error for everyone who loads it.
            repository = self._repository(version)
            self.client.delete_model_version(version.name, version.number)
            if repository is not None:
                repository.delete_artifacts()

    def description(self, version: Version) -> str:
        """Description of a version; empty if it has none."""
        with translated(version.label):
            return str(self.client.get_model_version(version.name, version.number).description or "")

    def describe(self, version: Version, text: str) -> None:
        """Set the description of a version, in Markdown."""
        with translated(version.label):
            self.client.update_model_version(version.name, version.number, masked(text)[:VALUE_LENGTH])

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
                    tags={PREFIX + key: masked(value) for key, value in tags.items()},
                    description=masked(text)[:VALUE_LENGTH],
                )
                return int(version.version)
            except MlflowException as error:
                if error.error_code == "RESOURCE_DOES_NOT_EXIST":
                    with translated(log):
                        self._ensure_model(log, description=about)
                elif attempt + 1 == APPEND_ATTEMPTS or not BUSY.search(str(error.message)):
                    with translated(log):
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
        with translated(name), as_default(self.uri):
            with self._run(run_name, output=tags.get("dvc_output", "")) as run:
                self._log(run, metrics, parameters, curves, datasets, tags)
                for title, content in (documents or {}).items():
                    self.client.log_dict(run, masked_json(content), f"{DOCUMENTS}/{title}.json")
                logged = self.client.create_logged_model(self.experiment_id(), name=name, source_run_id=run)
                model = log_model(files, model_id=logged.model_id, run=run)
            self._ensure_model(name, description=about)
            version = self.client.create_model_version(
                name,
                source=model.model_uri,
                run_id=run,
                tags={PREFIX + key: masked(value)[:VALUE_LENGTH] for key, value in tags.items()},
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
        settings = [
            Param(metric_key(key), str(value)[:VALUE_LENGTH]) for key, value in masked_values(parameters).items()
        ]
        settings = [setting for setting in settings if setting.key not in known]
        run_tags = [RunTag(PREFIX + key, masked(value)[:VALUE_LENGTH]) for key, value in tags.items()]
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


def metric_key(name: str) -> str:
    """A key with the characters that MLflow accepts: letters, digits, _ - . space : /"""
    return "".join(letter if letter.isalnum() or letter in "_-./: " else "_" for letter in name)[:250]
