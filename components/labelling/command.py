"""What the commands of labelling print."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast, get_args

from components.errors import ConfigError, nearest
from components.labelling.answers import Conflict, Merged
from components.labelling.queue import Model, check_output, queue, write_suggestions
from components.labelling.rows import source_of
from components.settings.params import Params


def suggest(
    params: Params,
    *,
    task: str,
    count: int,
    file: Path | None,
    output: Path | None,
    model: str,
    balanced: bool,
    seed: int,
) -> Iterator[str]:
    """Choose texts and write them; arguments as of `queue`.

    Raises:
        ConfigError, DataError: as `queue` and `write_suggestions`.
    """
    if model not in get_args(Model):
        raise ConfigError(
            f"--model: {model!r} is not one of {', '.join(get_args(Model))}{nearest(model, get_args(Model))}"
        )
    name, source = source_of(params, task)
    output = output or Path(f"{name}-to-label.csv")
    check_output(output)
    found = queue(params, task=name, count=count, file=file, model=cast(Model, model), balanced=balanced, seed=seed)
    write_suggestions(output, found.suggestions, source)
    warm = found.suggestions[0].proposed is not None
    yield f"{found.candidates:,} texts from {found.source}; {found.left_out:,} more have labels or are held out"
    yield f"chosen by {'uncertainty and diversity' if warm else 'typicality'} ({found.model})"
    if len(found.suggestions) < count:
        yield f"only {len(found.suggestions)} of {count} texts: all others are near copies of these"
    labels = ", ".join(found.labels[:20]) + (" ..." if len(found.labels) > 20 else "")
    yield f"labels: {labels or 'none yet; new ones need --new-labels'}"
    yield f"{output}: {len(found.suggestions)} texts; fill in the labels, then run `headstart label {output.name}`"


def merged_lines(merged: Merged, *, empty: int) -> Iterator[str]:
    """The result of a merge in words."""
    yield from (f"settled: {conflict.message}" for conflict in shown_conflicts(merged.conflicts))
    parts = [f"{merged.added} rows added", f"{merged.changed} labels changed", f"{merged.unchanged} unchanged"]
    parts += [f"{merged.left_out} left out"] * bool(merged.left_out) + [f"{empty} without a label"] * bool(empty)
    yield f"{merged.file}: {', '.join(parts)}"
    if merged.batch:
        yield f"merge {merged.batch}; `headstart label --undo` takes it back"


def shown_conflicts(conflicts: Sequence[Conflict], most: int = 20) -> Sequence[Conflict]:
    """The first conflicts."""
    return conflicts[:most]
