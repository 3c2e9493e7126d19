"""The encoder that a fit starts from."""

import re
from pathlib import Path

from components.core.artifacts import MANIFEST, read_manifest
from components.interchange.importing import import_encoder, source_digest
from components.interchange.starts.registry import folder_of
from components.models.encoder import KIND
from components.settings.hub import is_hub_name, pinned


def encoder_of(start: str | Path, *, folder: Path) -> tuple[str, Path]:
    """The name and the encoder directory of a start; a published model is converted once.

    Args:
        start: folder of a published model, encoder directory, or name of an installed start or of a model of the hub.
        folder: where a converted model is kept.

    Raises:
        ConfigError: there is no such folder and no such start, or the start is not installed.
        ArtifactError: the model cannot be imported.
    """
    source = folder_of(start)
    called = str(start).partition("@")[0].rpartition("/")[2] if is_hub_name(start) else source.name
    name = re.sub(r"[^A-Za-z0-9]+", "-", called).strip("-").lower() or "start"
    if (source / MANIFEST).is_file() and read_manifest(source).kind == KIND:
        return name, source
    output = folder / source_digest(source)[:16]
    if not (output / MANIFEST).is_file():
        import_encoder(Path(pinned(str(start), source)), output=output)
    return name, output
