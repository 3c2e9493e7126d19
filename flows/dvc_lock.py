"""What DVC has recorded about the stages in dvc.lock."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml


def outputs(lock: Path) -> dict[str, list[dict[str, Any]]]:
    """Stage -> its outputs, each with `path`, `md5` and `size`; empty without a readable dvc.lock."""
    try:
        stages = (yaml.safe_load(lock.read_text(encoding="utf-8")) or {}).get("stages", {})
        return {name: list(stage.get("outs", ())) for name, stage in stages.items()}
    except (OSError, yaml.YAMLError, AttributeError, TypeError, ValueError):
        return {}
