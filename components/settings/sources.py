"""Where each setting comes from: `headstart check --settings`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from components.core.artifacts import flatten
from components.core.masking import masked_values
from components.settings.loading import VARIABLES, resolve


def sources(path: Path) -> dict[str, tuple[Any, str]]:
    """Dotted key -> (value, source) of all settings.

    The source is FILE:LINE, `computed: ` and from what, `variable NAME`, or `default`.

    Raises ConfigError: the settings are invalid.
    """
    params, completed = resolve(path)
    lines = dict(_lines(yaml.compose(path.read_text(encoding="utf-8")), ""))
    variables = {f"cluster.{key}": name for name, key in VARIABLES.items() if os.environ.get(name)}
    of_file = {"registry.prefix", "registry.production", "checks.record"}

    def source(key: str) -> str:
        if key in variables:
            return f"variable {variables[key]}"
        if (line := _nearest(lines, key)) is not None:
            return f"{path}:{line}"
        if (reason := _nearest(completed.reasons, key)) is not None:
            return f"computed: {reason}"
        return "computed: the folder of the settings file" if key in of_file else "default"

    return {key: (value, source(key)) for key, value in flatten(masked_values(params.model_dump(mode="json")))}


def _lines(node: Any, key: str) -> Iterator[tuple[str, int]]:
    """Dotted key -> line of every value that the file gives; a key in a merged mapping (`<<`) has its line there."""
    if isinstance(node, yaml.MappingNode):
        merged = [value for name, value in node.value if name.tag == "tag:yaml.org,2002:merge"]
        for parent in merged:
            for item in parent.value if isinstance(parent, yaml.SequenceNode) else [parent]:
                yield from _lines(item, key)
        for name, value in node.value:
            if name.tag != "tag:yaml.org,2002:merge":
                inner = f"{key}.{name.value}" if key else str(name.value)
                # An empty mapping gives none of the keys below it.
                if not isinstance(value, yaml.MappingNode):
                    yield inner, name.start_mark.line + 1
                yield from _lines(value, inner)


def _nearest(names: Mapping[str, Any], key: str) -> Any:
    """The entry of a key, or of the section that it is in."""
    parts = key.split(".")
    return next((names[name] for end in range(len(parts), 0, -1) if (name := ".".join(parts[:end])) in names), None)
