"""Files of the project that are part of the installed package."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path
from typing import Final

#: Folder with dvc.yaml and requirements.lock; in a checkout these are links to the files at its root.
FILES: Final = Path(str(files("headstart"))) / "files"
PIPELINE: Final = "dvc.yaml"
LOCK: Final = "requirements.lock"


def pipeline_text() -> str:
    """dvc.yaml for a folder that is not a checkout: it depends on the installed code and on the lock in `FILES`."""
    text = (FILES / PIPELINE).read_text(encoding="utf-8")
    places = {"components": Path(__file__).parent, LOCK: FILES / LOCK}
    for name, place in places.items():
        text = re.sub(rf"^(\s+- ){re.escape(name)}$", rf"\g<1>{place}", text, flags=re.MULTILINE)
    return f"# Written by headstart from its installed dvc.yaml. Do not edit.\n{text}"
