"""The forms in which predictions are written for annotation tools."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from components.core.errors import ConfigError, nearest
from components.data.formats.annotations.doccano import write_doccano
from components.data.formats.annotations.hub import write_hub
from components.data.formats.annotations.labelstudio import write_label_studio
from components.data.formats.annotations.prodigy import write_prodigy


@dataclass(frozen=True)
class Form:
    """One form: its writer, and the suffix of its files; without suffix it is a folder."""

    write: Callable[..., None]
    suffix: str


FORMS: Final = {
    "label-studio": Form(write_label_studio, ".json"),
    "doccano": Form(write_doccano, ".jsonl"),
    "prodigy": Form(write_prodigy, ".jsonl"),
    "datasets": Form(write_hub, ""),
}


def form_named(name: str, output: Path) -> Form:
    if name not in FORMS:
        raise ConfigError(f"unknown format {name!r}{nearest(name, FORMS)}")
    form = FORMS[name]
    if output.suffix != form.suffix:
        expected = (
            f"a file {output.stem}{form.suffix}" if form.suffix else f"a folder, such as {output.with_suffix('')}"
        )
        raise ConfigError(f"{output}: predictions for {name} are {expected}")
    return form
