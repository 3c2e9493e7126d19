"""What the commands of labelling print."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from components.artifacts import read_json
from components.errors import ConfigError, nearest
from components.labelling.answers import Merged, read_answers
from components.labelling.queue import check_format, queue, write_suggestions
from components.labelling.review import review, write_review
from components.labelling.rows import shown, source_of
from components.outputs import check_output
from components.scoring.label_curves import best_system, in_words, of_system
from components.settings.params import Params

#: Rows of a list that are printed.
SHOWN = 10


def suggest(
    params: Params,
    *,
    task: str,
    count: int,
    file: Path | None,
    output: Path | None,
    overwrite: bool = False,
) -> Iterator[str]:
    """Choose texts and write them; arguments as of `queue` and `write_suggestions`.

    Raises:
        ArtifactError: the file exists and may not be replaced.
        ConfigError, DataError: as `queue` and `write_suggestions`.
    """
    name, source = source_of(params, task)
    output = output or Path(f"{name}-to-label.csv")
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
    yield f"{output}: {len(result.suggestions)} texts; fill in the labels, then run `headstart label {output.name}`"


def merged_lines(merged: Merged, *, empty: int) -> Iterator[str]:
    """The result of a merge in words."""
    yield from (f"settled: {conflict.message}" for conflict in merged.conflicts[:20])
    parts = [f"{merged.added} rows added", f"{merged.changed} labels changed", f"{merged.unchanged} unchanged"]
    parts += [f"{merged.left_out} left out"] * bool(merged.left_out) + [f"{empty} without a label"] * bool(empty)
    yield f"{merged.file}: {', '.join(parts)}"
    if merged.batch:
        yield f"merge {merged.batch}; `headstart label --undo` takes it back"


def label_quality(
    params: Params,
    *,
    task: str,
    annotators: str,
    answers: Sequence[Path],
    output: Path | None,
    overwrite: bool = False,
) -> Iterator[str]:
    """Review the labels of a task and write the rows that should be looked at.

    Raises:
        ArtifactError: the file exists and may not be replaced.
        ConfigError, DataError: as `review` and `write_review`.
    """
    name, source = source_of(params, task)
    output = output or Path(f"{name}-label-quality.csv")
    check_output(output, overwrite=overwrite)
    given = [answer for path in answers for answer in read_answers(path, source, by=path.stem)[0]]
    result = review(params, task=name, annotators=annotators, answers=given)
    counts = Counter(result.rows[suspect.row].split for suspect in result.suspects)
    sizes = Counter(row.split for row in result.rows)
    yield f"probabilities: {result.sources}"
    for split, size in sizes.items():
        yield f"{split}: {counts[split]} of {size:,} labels look wrong"
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
    if (several := result.agreement) is None:
        yield "agreement: no text has labels of two annotators (--annotators COLUMN, --answers FILE)"
    else:
        alpha = "undefined" if several.alpha is None else f"{several.alpha:.3f}"
        bounds = "" if several.low is None else f" [{several.low:.3f}, {several.high:.3f}]"
        disputed = len(several.disputed)
        yield f"agreement on {several.texts} texts: Krippendorff's alpha {alpha}{bounds}; {disputed} are disputed"
    rows = write_review(output, result, source, overwrite=overwrite)
    yield f"{output}: {rows} rows; fill in labels that should change, then run `headstart label {output.name}`"


def more_labels(params: Params, *, task: str, system: str, labels: int) -> str:
    """How much more labels are expected to bring, in words.

    Args:
        params: settings.
        task: the first of run.tasks if empty.
        system: of the last run; the best one with the most labels if empty.
        labels: further labels, in the unit of the budgets; 0: 100, or as many as there are.

    Raises:
        ConfigError: task or system are unknown.
        ArtifactError: the task is not evaluated.
    """
    if task and task not in params.data.tasks:
        raise ConfigError(f"--task: unknown task {task!r}{nearest(task, params.data.tasks)}")
    name = task or params.run.tasks[0]
    path = Path(params.run.out) / "evaluation" / name / "evaluation.json"
    evaluation = read_json(path, made_by="the stage evaluate")
    systems = [result["system"] for result in evaluation["systems"]]
    if system and system not in systems:
        raise ConfigError(f"--system: unknown system {system!r}{nearest(system, systems)}")
    system = system or best_system(evaluation)
    gain = of_system(evaluation, system, more=labels)
    return in_words(gain, unit=evaluation["unit"], title=evaluation["titles"][evaluation["main"]], system=system)
