"""What the commands of labelling print."""

import os
import shlex
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path

from components.core.outputs import check_output
from components.core.steps import step
from components.labelling.answers import Merged
from components.labelling.queue import queue, write_suggestions
from components.labelling.review import review, write_review
from components.labelling.rows import check_format, shown, source_of
from components.settings.params import Params

#: Rows of a list that are printed.
SHOWN = 10


def suggest(
    params: Params, *, task: str, count: int, file: Path | None, output: Path, overwrite: bool = False
) -> Iterator[str]:
    """Choose texts and write them; arguments as of `queue` and `write_suggestions`."""
    name, source = source_of(params, task)
    check_format(output)
    check_output(output, overwrite=overwrite)
    result = queue(params, task=name, count=count, file=file)
    write_suggestions(output, result.suggestions, source, overwrite=overwrite)
    warm = result.suggestions[0].proposed is not None
    yield f"{result.candidates:,} texts from {result.source}; {result.left_out:,} more have labels or are held out"
    yield f"chosen by {'uncertainty and diversity' if warm else 'typicality'} ({result.model})"
    if len(result.suggestions) < count:
        others = result.candidates - len(result.suggestions)
        why = f"the {others:,} others are near copies of these" if others else "there are no others"
        yield f"only {len(result.suggestions)} of {count} texts: {why}"
    labels = ", ".join(result.labels[:20]) + (" ..." if len(result.labels) > 20 else "")
    yield f"labels: {labels or 'none yet; new ones need --new-labels'}"
    yield f"{output}: {len(result.suggestions)} texts; fill in the labels, then run `{_label(output, name)}`"


def _label(output: Path, task: str) -> str:
    """The command that reads a file of answers, by its path from the working directory of the user."""
    folder = Path(os.environ.get("PWD", "")).resolve()
    file = output.resolve()
    file = file.relative_to(folder) if file.is_relative_to(folder) else file
    return step("label", file=shlex.quote(str(file)), task=task)


def merged_lines(merged: Merged, *, task: str, empty: int) -> Iterator[str]:
    yield from (f"settled: {conflict.message}" for conflict in merged.conflicts[:20])
    parts = [f"{merged.added} rows added", f"{merged.changed} labels changed", f"{merged.unchanged} unchanged"]
    parts += [f"{merged.left_out} left out"] * bool(merged.left_out) + [f"{empty} without a label"] * bool(empty)
    yield f"{merged.file}: {', '.join(parts)}"
    if merged.batch:
        yield f"merge {merged.batch}; `{step('undo', task=task)}` takes it back"


def rows_to_read(params: Params, *, task: str, labels: Collection[str]) -> list[str]:
    """The rows of a label whose text looks as if it had another one of these, the surest first."""
    result = review(params, task=task)
    rows = [(result.rows[each.row], each.proposed) for each in result.suspects]
    return [row.id for row, proposed in rows if {*(row.labels or ()), *proposed} == {*labels}][:SHOWN]


def label_quality(params: Params, *, task: str, output: Path, overwrite: bool = False) -> Iterator[str]:
    """Review the labels of a task and write the rows that should be looked at."""
    name, source = source_of(params, task)
    check_output(output, overwrite=overwrite)
    result = review(params, task=name)
    counts = Counter(result.rows[suspect.row].split for suspect in result.suspects)
    sizes = Counter(row.split for row in result.rows)
    yield f"probabilities: {result.sources}"
    for split, size in sizes.items():
        yield f"{split}: {counts[split]} of {size:,} labels look wrong"
    if (test := result.test) is not None:
        yield f"test: of {test.planted} labels changed on purpose, {test.detected} are in a list of {test.listed} rows"
        if not test.tells:
            yield (
                "these models cannot tell wrong labels well; most listed rows may be right. An encoder tells more: "
                + (f"{step('starts')}, then {step('init')} --start NAME --overwrite")
            )
    for suspect in result.suspects[:SHOWN]:
        row = result.rows[suspect.row]
        labels = f"{shown(row.labels or (), source)!r}, rather {shown(suspect.proposed, source)!r}"
        yield f"  {row.split} {row.id}: {labels}: {' | '.join(row.fields)[:80]!r}"
    yield f"{len(result.pairs)} pairs of copies or near copies have different labels"
    for pair in result.pairs[:SHOWN]:
        first, second = result.rows[pair.first], result.rows[pair.second]
        yield (
            f"  {first.split} {first.id} {shown(first.labels or (), source)!r}, {second.split} {second.id} "
            f"{shown(second.labels or (), source)!r}: {' | '.join(first.fields)[:60]!r}"
        )
    rows = write_review(output, result, source, overwrite=overwrite)
    yield f"{output}: {rows} rows; fill in labels that should change, then run `{_label(output, name)}`"
