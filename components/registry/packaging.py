"""A registered model: a bundle, which is data that the installed code loads.

A bundle is a complete directory (`components.artifacts`) with weights, tokenizer and configuration. It holds no timings
or curves, which differ between two runs with the same result, so its digest identifies the model.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from components.artifacts import SCHEMA, Manifest, read_manifest, writing
from components.errors import ArtifactError, SchemaError

#: Files of a model's directory that describe its training and are not part of the bundle.
EXCLUDED = ("metrics.json", "curve.csv")


@dataclass(frozen=True)
class Content:
    """The part of a stage's output directory that is the model.

    Attributes:
        directory: directory of the files.
        kind: "encoder" or "classifier".
        files: relative name -> size and SHA-256, from the directory's manifest.
        facts: facts of that manifest.
    """

    directory: Path
    kind: str
    files: dict[str, dict[str, Any]]
    facts: dict[str, Any]

    @property
    def digest(self) -> str:
        """Digest of the bundle's manifest."""
        return Manifest(kind=self.kind, schema=SCHEMA, files=self.files, facts={}).digest


def model_content(directory: Path, *, kind: str) -> Content:
    """The model in a complete directory, according to its manifest; no other file is read.

    Args:
        directory: directory of an encoder or a classifier.
        kind: "encoder" or "classifier".

    Raises:
        ArtifactError: the directory is not complete, is of another kind, or holds no weights.
    """
    manifest = read_manifest(directory, kind=kind)
    files = {name: entry for name, entry in manifest.files.items() if name not in EXCLUDED}
    if not any(name.endswith(".safetensors") for name in files):
        raise ArtifactError(f"{directory}: holds no weights (*.safetensors); run its stage again")
    return Content(directory=directory, kind=kind, files=files, facts=manifest.facts)


def write_bundle(content: Content, path: Path) -> Path:
    """Copy a model's files to the bundle `path` and verify the copies against the digests in the manifest.

    Raises:
        ArtifactError: a file was altered after the stage wrote it.
    """
    with writing(path, kind=content.kind) as draft:
        draft.facts.update(content.facts)
        for name in content.files:
            target = draft.path / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(content.directory / name, target)
    written = read_manifest(path)
    for name, entry in content.files.items():
        if written.files[name]["sha256"] != entry["sha256"]:
            raise ArtifactError(
                f"{content.directory / name}: altered since it was written (SHA-256 differs); "
                "restore it with `dvc checkout` or run the stage again"
            )
    return path


def check_bundle(path: Path, *, kind: str, digest: str, what: str) -> None:
    """Verify that a bundle is the registered one.

    Args:
        path: the bundle.
        kind: "encoder" or "classifier".
        digest: content digest from the model version's tags.
        what: name of the version for the message.

    Raises:
        ArtifactError: a file differs from the bundle's manifest, or the manifest from the registered digest.
        SchemaError: the bundle has another schema.
    """
    try:
        manifest = read_manifest(path, kind=kind, verify=True)
    except SchemaError as error:
        raise SchemaError(
            f"{what}: the schema of the registered model is not the one that this version of Headstart reads "
            f"({SCHEMA}); run the pipeline again, which registers a new model, or install the version of Headstart "
            "that has registered this one"
        ) from error
    if manifest.digest != digest:
        raise ArtifactError(
            f"{what}: its files are not the ones that were registered (digest {manifest.digest[:12]}, "
            f"registered {digest[:12] or 'none'}); register the model again or roll back"
        )
