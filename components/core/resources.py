"""Files of the project that are part of the installed package."""

from importlib.resources import files
from pathlib import Path
from typing import Final

#: Folder with requirements.lock; in a checkout a link to the file at its root.
FILES: Final = Path(str(files("headstart"))) / "files"
PIPELINE: Final = "dvc.yaml"
LOCK: Final = "requirements.lock"
