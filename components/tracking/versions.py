"""Registered models, their versions and aliases, and what is stored with them: reading."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

from components.errors import RegistryError, RegistryUnavailableError
from components.settings.registry import RegistrySettings
from components.tracking.connection import as_default, is_unanswered, translated

PREFIX = "headstart."
#: Folders inside a logged model that may hold the bundle (weights, tokenizer, configuration). Models of earlier
#: versions have the second; the code that they also contain is never downloaded.
BUNDLES = ("data", "artifacts")
#: Folder of a run with the documents of `Registry.record`.
DOCUMENTS = "lineage"
#: Codes of MLflow's errors about a model, version or alias that does not exist.
MISSING = ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE")


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


class Versions:
    """Registered models, versions and aliases at one tracking URI."""

    def __init__(self, client: MlflowClient, *, uri: str, address: str, settings: RegistrySettings) -> None:
        self.client = client
        #: The tracking URI; the path of a SQLite file is absolute.
        self.uri = uri
        #: The tracking URI as set, without a password, for messages and records.
        self.address = address
        self.settings = settings

    def find(self, name: str, *, digest: str) -> Version | None:
        """The newest version of model `name` with this content digest, or None."""
        with translated(name):
            found = self.client.search_model_versions(f"name='{name}' and tags.`{PREFIX}digest` = '{digest}'")
        return max(map(_version, found), key=lambda version: int(version.number), default=None)

    def get(self, name: str, number: str) -> Version:
        """One version.

        Raises:
            RegistryError: there is no such version.
        """
        with translated(f"{name}/{number}"):
            return _version(self.client.get_model_version(name, str(number)))

    def find_number(self, name: str, number: str) -> Version | None:
        """One version, or None if it does not exist or was deleted."""
        with translated(f"{name}/{number}"):
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
        with translated(name):
            while True:
                page = self.client.search_model_versions(query, order_by=["version_number ASC"], page_token=token)
                found += map(_version, page)
                if not (token := page.token):
                    return sorted(found, key=lambda version: int(version.number))

    def alias(self, name: str, alias: str) -> Version | None:
        """The version that an alias points to; None if there is no such alias or model."""
        with translated(f"{name}@{alias}"):
            try:
                return _version(self.client.get_model_version_by_alias(name, alias))
            except MlflowException as error:
                if error.error_code in MISSING:
                    return None
                raise

    def download(self, version: Version, directory: Path) -> Path:
        """Download a version's bundle into `directory` and return its path. The content is not verified.

        Raises:
            RegistryError: the artifacts do not exist or cannot be downloaded.
            RegistryUnavailableError: the registry, or the object store of its artifacts, does not answer.
        """
        from mlflow.artifacts import download_artifacts
        from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

        directory.mkdir(parents=True, exist_ok=True)
        with translated(version.label), as_default(self.uri):
            uri = self.client.get_model_version_download_uri(version.name, version.number)
            try:
                parts = {item.path for item in get_artifact_repository(uri).list_artifacts("")}
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

    def attached(self, version: Version, file: str) -> bytes | None:
        """The content of a file that `attach` has stored with a version; None if there is none.

        Args:
            version: the version.
            file: `FOLDER/NAME`.
        """
        folder, _, _ = file.rpartition("/")
        with translated(version.label), as_default(self.uri):
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
        with translated(version.label):
            try:
                return dict(self.client.get_run(version.run_id).data.params)
            except MlflowException as error:
                if error.error_code in MISSING:
                    return {}
                raise

    def models(self) -> list[str]:
        """Names of all registered models."""
        found: list[str] = []
        token = None
        with translated("registered models"):
            while True:
                page = self.client.search_registered_models(page_token=token)
                found += [str(model.name) for model in page]
                if not (token := page.token):
                    return found

    def aliased(self, name: str) -> set[str]:
        """Numbers of the versions of a model that have any alias; empty if the model does not exist."""
        with translated(name):
            try:
                return {str(number) for number in self.client.get_registered_model(name).aliases.values()}
            except MlflowException as error:
                if error.error_code in MISSING:
                    return set()
                raise

    def size(self, version: Version) -> int:
        """Bytes of a version's files."""
        with translated(version.label), as_default(self.uri):
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


def _version(raw: Any) -> Version:
    tags = {key.removeprefix(PREFIX): str(value) for key, value in raw.tags.items() if key.startswith(PREFIX)}
    return Version(name=raw.name, number=str(raw.version), source=raw.source or "", run_id=raw.run_id or "", tags=tags)
