"""Prediction of large files in parts, by several processes, resumed after a kill.

Every part is predicted into a file of the folder `.OUTPUT.parts` next to the output; a JSON file, written last, marks a
finished part. At the end the parts are joined into the output, which is complete or absent, and does not depend on
parts, processes and interruptions.
"""

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq

from components.cluster.launcher import map_parallel
from components.cluster.placement import WHOLE_GPU
from components.cluster.shards import PARALLEL_BYTES, Facts, Work, digest_of, on_cluster, sharded
from components.core.artifacts import json_of, link_or_copy, try_lock, write_atomic
from components.core.errors import DataError
from components.core.outputs import check_output, discard, named_output
from components.data.formats.stored import Span, open_stored, store
from components.data.tasks.kinds import find_kind
from components.learners.prediction import (
    ROWS,
    Classifier,
    Part,
    Predicted,
    check_files,
    predict_table,
    schema_of,
    source_files,
)
from components.learners.writing import WRITTEN, Rejects, write_errors
from components.settings.cluster import ClusterSettings

#: Sizes of parts: minutes of work for a small model, so that an interruption loses little.
PART_BYTES = 4_000_000
PART_ROWS = 16_384
#: Kind of an output that is a folder.
KIND: Final = "predictions"
PLAN = "plan.json"
#: The rows of the input, those of them that are not well formed, and their number.
STORED, UNREADABLE, COUNTED = "input.parquet", "input.rejected.jsonl", "input.json"
LOCK = "lock"


@dataclass(frozen=True)
class LoadableModel:
    """A classifier that every process loads for itself.

    Attributes:
        identity: of the classifier; parts predicted by another one are not used.
        gpu: whether the classifier computes on a GPU, if there is one. Each process has a GPU of its own.
    """

    load: Callable[[], Classifier]
    kind: str
    identity: str
    gpu: bool = False
    name: str = ""


@dataclass(frozen=True)
class PartOptions:
    """How the parts of a file are predicted.

    Attributes:
        workers: number of processes on this machine; None: one per core, or per GPU. 1: this process.
        columns: input of the task -> column of the file, if the names differ; for tagging also `document`, the column
            of the document to which a sentence belongs, or `left` and `right`, the columns of the words around it.
        overwrite: whether an output that Headstart has written is replaced; this interrupted run's output always is.
        rejects: file of the rows that cannot be predicted, as JSON lines with `reason` and `row`; they are not in the
            output. It is written only if there are some. None: the first bad row is an error.
        part_bytes, part_rows: sizes of the parts of text files and parquet files.
        started: called with the number of rows, of rows that an earlier run has predicted, and of parts that remain;
            returns a function that is called with numbers of rows that have been predicted since.
        every_output: whether rows of jsonl also have what a served model answers, such as probabilities.
        origin: the file that the rows come from, and the column of each row's place in it, for messages; None: the file
            itself.
        form: of the file, as of `open_rows`.
    """

    cluster: ClusterSettings
    workers: int | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    overwrite: bool = False
    rejects: Path | None = None
    part_bytes: int = PART_BYTES
    part_rows: int = PART_ROWS
    batch_size: int = ROWS
    started: Callable[[int, int, int], Callable[[int], None]] = lambda rows, done, parts: lambda rows: None
    every_output: bool = False
    origin: tuple[Path, str] | None = None
    form: str = ""


def predict_parts(source: Path, output: Path, *, model: LoadableModel, options: PartOptions) -> Predicted:
    """Predict every row of a file of any size and write the rows with their predictions.

    Args:
        output: one of the same formats; or a folder, a path without suffix, which receives one file per part in the
            format of the input.

    Raises:
        ArtifactError: the output or `options.rejects` exists and may not be replaced
            (`components.core.outputs.check_output`).
        ConfigError: `options.columns` names an input that the task does not have.
        DataError: the input is missing, empty, damaged or of an unknown format; a column is missing or ambiguous; every
            row is rejected; the output cannot be written, or another process writes it. The message names the line.
    """
    source, output, rejects = Path(source), Path(output), options.rejects
    name, place = options.origin or (source, "")
    task_io = find_kind(model.kind).io
    suffix = output.suffix or (source.suffix if source.suffix in WRITTEN else ".csv")
    check_files(source, output.with_suffix(suffix), task_io=task_io, columns=options.columns)
    work = output.with_name(f".{output.name}.parts")
    with _owned(work, output):
        key = _key(source, output, model, options)
        planned = _planned(work, key)
        options = replace(options, overwrite=options.overwrite or planned is not None)
        for path in (output, *([rejects] if rejects is not None else [])):
            check_output(path, overwrite=options.overwrite)
        if planned is None:
            planned = _plan(source, output, work, key, options)
        stored = work / STORED if (work / STORED).exists() else source
        spans = planned or [Span(0, 0)]  # an input without rows has one part, which writes the header
        parquet = suffix == ".parquet"
        schema = schema_of(stored, spans[0], task_io=task_io, columns=options.columns) if parquet else None
        parts = [
            Part(
                source=stored,
                name=str(name),
                span=span,
                output=work / f"part-{number:06d}{suffix}",
                rejects=work / f"part-{number:06d}.rejected.jsonl" if rejects is not None else None,
                load=model.load,
                columns=options.columns,
                schema=schema,
                header=not output.suffix or number == 0,
                batch_size=options.batch_size,
                every_output=options.every_output,
                place=place,
            )
            for number, span in enumerate(spans)
        ]
        try:
            _compute(parts, options, key=key, gpu=model.gpu)
        except DataError as error:
            # With --strict the input has to be corrected, so its parts are of no use.
            if rejects is None:
                shutil.rmtree(work)
            if isinstance(error.where, Path) and error.where.parent == work:
                error.where = output  # a person knows the output, not its parts
            raise
        with write_errors(output):
            return _joined(parts, source=name, output=output, work=work, options=options)


def _plan(source: Path, output: Path, work: Path, key: str, options: PartOptions) -> list[Span]:
    with write_errors(output):
        for path in work.iterdir():
            if path.name != LOCK:
                path.unlink()
    with ExitStack() as stack:
        bad = None if options.rejects is None else stack.enter_context(Rejects(work / UNREADABLE))
        planned = store(
            source,
            work / STORED,
            part_bytes=options.part_bytes,
            part_rows=options.part_rows,
            rejected=bad,
            form=options.form,
        )
    count, first = (0, "") if bad is None else (bad.count, bad.first)
    with write_errors(output):
        write_atomic(work / COUNTED, _mark(Predicted(0, 0, count), first))
        write_atomic(work / PLAN, json.dumps({"key": key, "spans": [asdict(span) for span in planned]}))
    return planned


def _compute(parts: Sequence[Part], options: PartOptions, *, key: str, gpu: bool) -> None:
    waiting = [part for part in parts if part.finished() is None]
    total = sum(part.span.rows for part in parts)
    advance = options.started(total, total - sum(part.span.rows for part in waiting), len(waiting))
    if options.workers == 1 or len(waiting) == 1:
        for part in waiting:
            predict_part(part, progress=advance)
    elif waiting and on_cluster(options.cluster):
        _on_nodes(waiting, options.cluster, key, advance, gpu_bytes=WHOLE_GPU if gpu else None)
    elif waiting:
        needed = WHOLE_GPU if gpu else None
        done = map_parallel(predict_part, waiting, settings=options.cluster, most=options.workers, gpu_bytes=needed)
        for index, _ in done:
            advance(waiting[index].span.rows)


@dataclass(frozen=True)
class _NodePart:
    """A part whose rows are the file `stored` of the work folder."""

    part: Part
    stored: str


def predict_on_node(item: _NodePart, key: str, work: Work) -> Facts:
    """Predict a part on a node without the folder of the output; returns the suffixes of the files by their kind."""
    with work.scratch() as folder:
        part = item.part
        moved = replace(
            part,
            source=work.read(item.stored),
            output=folder / part.output.name,
            rejects=None if part.rejects is None else folder / part.rejects.name,
        )
        predict_part(moved)
        files = {name: path for name, path in _files(moved).items() if path.is_file()}
        for name, path in files.items():
            work.put(path, f"{key}.{name}")
    return {"files": list(files)}


def _files(part: Part) -> dict[str, Path]:
    """The files of a finished part; its mark is the last."""
    return {"output": part.output, **({} if part.rejects is None else {"rejects": part.rejects}), "mark": part.mark}


def _on_nodes(
    waiting: Sequence[Part], cluster: ClusterSettings, key: str, advance: Callable[[int], None], gpu_bytes: int | None
) -> None:
    """Predict the parts on a Ray cluster, whose nodes write to `cluster.storage`."""
    with sharded(waiting[0].output.parent, settings=cluster, size=PARALLEL_BYTES) as steps:
        stored = steps.work.publish(waiting[0].source, f"{key[:32]}{waiting[0].source.suffix}")
        items = {digest_of("predict", key, part.output.name): _NodePart(part, stored) for part in waiting}
        done = steps.map(predict_on_node, items, advance=lambda item: advance(item.part.span.rows), gpu_bytes=gpu_bytes)
        for (of_part, item), facts in zip(items.items(), done, strict=True):
            for name in facts["files"]:
                steps.work.fetch(f"{of_part}.{name}", _files(item.part)[name])


#: The classifier of this process, and what has loaded it.
_loaded: list[tuple[Callable[[], Classifier], Classifier]] = []


def predict_part(part: Part, progress: Callable[[int], None] | None = None) -> Predicted:
    """Predict one part, and mark it as finished; `progress` is called with the number of rows of each batch."""
    if not _loaded or _loaded[0][0] != part.load:
        _loaded[:] = [(part.load, part.load())]
    with ExitStack() as stack:
        bad = stack.enter_context(Rejects(part.rejects)) if part.rejects is not None else None
        table = open_stored(part.source, part.span)
        done = predict_table(part, table, classifier=_loaded[0][1], bad=bad, progress=progress)
    first = bad.first if bad is not None else ""
    with write_errors(part.output):
        write_atomic(part.mark, _mark(done, first))
    return done


def _mark(done: Predicted, first: str) -> str:
    return json.dumps({"counts": asdict(done), "first": first})


def _joined(parts: Sequence[Part], *, source: Path, output: Path, work: Path, options: PartOptions) -> Predicted:
    """Join the parts into the output and the file of rejected rows, and remove the folder of the parts."""
    rejects, overwrite = options.rejects, options.overwrite
    files = [work / COUNTED, *(part.mark for part in parts)]
    marks = [*map(json_of, files)]
    done = Predicted(**{name: sum(mark["counts"][name] for mark in marks) for name in ("rows", "empty", "rejected")})
    if done.rejected and not done.rows:
        first = next(mark["first"] for mark in marks if mark["first"])
        shutil.rmtree(work)
        raise DataError(f"{source}: every row is rejected, the first because: {first}")
    if rejects is not None:
        files = [work / UNREADABLE, *(part.rejects for part in parts if part.rejects is not None)]
        if bad := [file for file in files if file.exists()]:
            with named_output(rejects, overwrite=overwrite) as draft:
                _append(draft.path, bad)
        else:
            discard(rejects)
    with named_output(output, kind=None if output.suffix else KIND, overwrite=overwrite) as draft:
        if not output.suffix:
            # Not renamed: a run that is killed here still has its parts.
            for part in parts:
                link_or_copy(part.output, draft.path / part.output.name)
        elif output.suffix == ".parquet":
            _join_parquet(parts, draft.path)
        else:
            _append(draft.path, [part.output for part in parts])
    shutil.rmtree(work)
    return done


def _append(target: Path, paths: Sequence[Path]) -> None:
    with target.open("wb") as file:
        for path in paths:
            with path.open("rb") as part:
                shutil.copyfileobj(part, file)


def _join_parquet(parts: Sequence[Part], path: Path) -> None:
    schema = pq.read_schema(parts[0].output)
    with pq.ParquetWriter(path, schema) as writer:
        for part in parts:
            with pq.ParquetFile(part.output) as file:
                for group in range(file.num_row_groups):
                    writer.write_table(file.read_row_group(group).cast(schema))


@contextmanager
def _owned(work: Path, output: Path) -> Iterator[None]:
    """The folder of the parts, for one process at a time; the lock ends with the process."""
    with write_errors(output):
        work.mkdir(parents=True, exist_ok=True)
        file = (work / LOCK).open("w")
    with file:
        if not try_lock(file):
            raise DataError(f"{output}: another process writes this file; wait for it or choose another path")
        try:
            yield
        finally:
            # A run that failed before its first part leaves nothing behind.
            if work.is_dir() and {path.name for path in work.iterdir()} <= {LOCK, PLAN, STORED, COUNTED}:
                shutil.rmtree(work)


def _key(source: Path, output: Path, model: LoadableModel, options: PartOptions) -> str:
    states = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in source_files(source)]
    content: list[Any] = [str(source.resolve()), states, model.identity, output.suffix]
    content += [dict(options.columns), options.form, options.rejects is None, options.part_bytes, options.part_rows]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def _planned(work: Path, key: str) -> list[Span] | None:
    if not (work / PLAN).is_file():
        return None
    content = json_of(work / PLAN)
    return [Span(**span) for span in content["spans"]] if content["key"] == key else None
