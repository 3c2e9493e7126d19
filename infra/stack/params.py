"""Overrides of params.yaml, and the commit of them to the repository that the workspace is cloned from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from components.settings.loading import load_params, read_file
from infra.stack import stack


def merged(base: Any, over: Any) -> Any:
    """`base` with the keys of `over`; mappings are merged recursively, other values replaced."""
    if not isinstance(base, dict) or not isinstance(over, dict):
        return over
    return base | {key: merged(base.get(key), value) for key, value in over.items()}


def overlay(params: Path, over: Path) -> None:
    """Override keys of the file `params` by keys of the file `over`, and check the result. Raises ConfigError: `over`
    is missing or no YAML mapping, or the result is invalid."""
    keys = read_file(over)
    base = yaml.safe_load(params.read_text(encoding="utf-8"))
    params.write_text(yaml.safe_dump(merged(base, keys), sort_keys=False, allow_unicode=True), encoding="utf-8")
    load_params(params)


def commit_params(services: stack.Stack, over: Path) -> None:
    """Override keys of params.yaml by keys of `over` in a clone of the origin, commit and push."""
    clone, branch = services.layout.folder / "clone", services.values["HEADSTART_BRANCH"]
    stack.git("clone", "--quiet", "--branch", branch, str(services.layout.origin), str(clone))
    overlay(clone / "params.yaml", over)
    who = ("-c", "user.name=local-stack", "-c", "user.email=local-stack@localhost")
    message = "Settings of the local stack"
    stack.git(*who, "commit", "--quiet", "--all", "--allow-empty", "--message", message, folder=clone)
    stack.git("push", "--quiet", "origin", f"HEAD:{branch}", folder=clone)
