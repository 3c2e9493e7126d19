"""`headstart export`: the champion of a task, or a directory, in the form of another library."""

from __future__ import annotations

from pathlib import Path

from components.artifacts import read_manifest
from components.errors import ArtifactError, ConfigError
from components.interchange.champion import Source, export_classifier, is_classifier
from components.interchange.exporting import export_encoder
from components.registry.champion import fetched, find_champion
from components.settings.params import Params
from components.tasks.data import Split
from components.tasks.examples import read_facts, read_split
from components.tracking import connect


def export_directory(
    directory: Path, *, output: Path, form: str, int8: bool = False, member: int | None = None, overwrite: bool = False
) -> list[str]:
    """Export an encoder or a trained model; see `export_encoder` and `export_classifier`."""
    if not is_classifier(directory):
        if int8 or member is not None:
            raise ConfigError(f"{directory}: --int8 and --member need a trained model, not an encoder")
        return export_encoder(directory, output=output, form=form, overwrite=overwrite)
    manifest = read_manifest(directory)
    task = str(manifest.facts.get("task", ""))
    source = Source(directory, directory.resolve().name, task, manifest.digest)
    return export_classifier(source, output=output, form=form, int8=int8, member=member, overwrite=overwrite)


def export_champion(
    params: Params,
    task: str,
    *,
    output: Path,
    form: str,
    int8: bool = False,
    member: int | None = None,
    overwrite: bool = False,
) -> list[str]:
    """Export the champion of a task, and measure it on the rows of test, or of dev if there are none.

    Args:
        params: the settings.
        task: name of the task; empty: the first of `run.tasks`.
        output, form, int8, member, overwrite: as of `export_classifier`.

    Raises:
        RegistryError: there is no champion.
        ConfigError: as `export_classifier`.
        ArtifactError: the files differ from the registered ones.
    """
    name = task or params.run.tasks[0]
    registry = connect(params.registry)
    version = find_champion(registry, name)
    with fetched(registry, version) as bundle:
        rows, split = _rows(Path(params.run.out) / "examples" / name)
        source = Source(bundle, version.label, name, version.digest, rows, split)
        return export_classifier(source, output=output, form=form, int8=int8, member=member, overwrite=overwrite)


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
