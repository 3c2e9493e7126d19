"""Settings laid over params.yaml."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from components.errors import ConfigError
from components.settings.loading import load_params


def merged(base: Any, over: Any) -> Any:
    """`over` where both are not mappings, else key by key; a key that `base` has and `over` has not stays."""
    if not isinstance(base, dict) or not isinstance(over, dict):
        return over
    return base | {key: merged(base.get(key), value) for key, value in over.items()}


def overlay(params: Path, over: Path) -> None:
    """Replace in the file `params` the keys that the file `over` has, and check what comes out.

    Raises:
        ConfigError: `over` is missing or no YAML mapping, or the outcome is not valid.
    """
    try:
        keys = yaml.safe_load(over.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConfigError(f"{over}: does not exist; name a file of settings with --params") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{over}: not readable as YAML: {error}") from error
    if not isinstance(keys, dict):
        raise ConfigError(f"{over}: expected sections as in params.yaml, found {type(keys).__name__}")
    base = yaml.safe_load(params.read_text(encoding="utf-8"))
    params.write_text(yaml.safe_dump(merged(base, keys), sort_keys=False, allow_unicode=True), encoding="utf-8")
    load_params(params)
