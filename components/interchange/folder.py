"""Files of a Hugging Face folder: config.json, and safetensors in one file or in shards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from components.errors import ArtifactError

WEIGHTS: Final = "model.safetensors"
INDEX: Final = "model.safetensors.index.json"
PICKLES: Final = ("pytorch_model.bin", "pytorch_model.bin.index.json", "model.pt", "model.pth", "tf_model.h5")


def read_config(folder: Path) -> dict[str, Any]:
    """Read config.json.

    Raises:
        ArtifactError: the folder or the file does not exist, or the file is not a JSON object.
    """
    if not folder.is_dir():
        raise ArtifactError(f"{folder}: no such folder")
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ArtifactError(f"{folder}: no config.json; this is not a Hugging Face model") from error
    except ValueError as error:
        raise ArtifactError(f"{folder / 'config.json'}: not readable as JSON ({error})") from error
    if not isinstance(config, dict):
        raise ArtifactError(f"{folder / 'config.json'}: expected an object")
    return config


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a folder.

    Raises:
        ArtifactError: there are none, only pickles, or a shard is missing.
    """
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    if (folder / INDEX).is_file():
        try:
            names = sorted(set(json.loads((folder / INDEX).read_text(encoding="utf-8"))["weight_map"].values()))
        except (ValueError, KeyError, AttributeError) as error:
            raise ArtifactError(f"{folder / INDEX}: damaged ({error!r}); download it again") from error
        if missing := [name for name in names if not (folder / name).is_file()]:
            raise ArtifactError(f"{folder}: missing {', '.join(missing)}; download the folder again")
        return [folder / name for name in names]
    if pickles := [name for name in PICKLES if (folder / name).is_file()]:
        raise ArtifactError(
            f"{folder / pickles[0]}: a pickle can execute code, so only safetensors are read; convert it where you "
            "trust it: AutoModel.from_pretrained(folder).save_pretrained(folder)"
        )
    raise ArtifactError(f"{folder}: no {WEIGHTS}; this folder has no weights")


def read_tensors(files: list[Path]) -> dict[str, Tensor]:
    """All tensors of safetensors files, by name.

    Raises:
        ArtifactError: a file is damaged.
    """
    tensors: dict[str, Tensor] = {}
    for path in files:
        try:
            tensors |= load_file(path)
        except (SafetensorError, OSError) as error:
            raise ArtifactError(f"{path}: not readable as safetensors ({error}); download it again") from error
    return tensors
