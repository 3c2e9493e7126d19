"""`headstart export`: the champion of a task, or a directory, in the form of another library."""

from __future__ import annotations

from pathlib import Path

from components.core.artifacts import read_manifest
from components.core.errors import ArtifactError, ConfigError
from components.data.tasks.data import Split
from components.data.tasks.examples import read_facts, read_split
from components.registry.champion import fetched, find_champion
from components.registry.exports.champion import Export, Source, export_classifier, is_classifier
from components.registry.exports.exporting import export_encoder
from components.registry.tracking import connect
from components.settings.params import Params


def export_directory(directory: Path, export: Export) -> list[str]:
    """Export an encoder or a trained model; see `export_encoder` and `export_classifier`."""
    if not is_classifier(directory):
        if export.int8 or export.member is not None:
            raise ConfigError(f"{directory}: --int8 and --member need a trained model, not an encoder")
        return export_encoder(directory, output=export.output, form=export.form, overwrite=export.overwrite)
    manifest = read_manifest(directory)
    task = str(manifest.facts.get("task", ""))
    return export_classifier(Source(directory, directory.resolve().name, task, manifest.digest), export)


def export_champion(params: Params, task: str, export: Export) -> list[str]:
    """Export the champion of a task, and measure it on the rows of test, or of dev if there are none."""
    name = task or params.run.tasks[0]
    registry = connect(params.registry)
    version = find_champion(registry, name)
    with fetched(registry, version) as bundle:
        rows, split = _rows(Path(params.run.out) / "examples" / name)
        return export_classifier(Source(bundle, version.label, name, version.digest, rows, split), export)


def _rows(examples: Path) -> tuple[Split | None, str]:
    """The labelled rows of a task on this machine: test, or dev if test is empty."""
    try:
        read_facts(examples)
        for split in ("test", "dev"):
            if len(rows := read_split(examples, split)):
                return rows, split
    except ArtifactError:
        pass
    return None, "test"
