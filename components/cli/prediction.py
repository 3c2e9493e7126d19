"""Commands that use the champion: prediction of files, serving, drift."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from components.cli.common import (
    PARAMS,
    Columns,
    Int8,
    Overwrite,
    ParamsFile,
    Task,
    flags,
    print_table,
    registry_of,
    run_flow,
    settings_at,
)
from components.core import threads
from components.core.processors import cores

if TYPE_CHECKING:
    from components.registry.champion import Loader
    from components.settings.params import Params

app = typer.Typer()
#: Maximum characters of the row in the example request of `serve`.
SAMPLE = 300
Error = Annotated[
    float | None,
    typer.Option(
        help="Allowed share of wrong answers, such as 0.05. The column `abstained` marks the rows whose confidence is "
        "too low or that are unlike the training texts (`out_of_domain`)."
    ),
]


@dataclass(frozen=True)
class PredictFlags:
    """Flags of `headstart predict`."""

    source: Path
    output: Path
    task: Task = ""
    version: Annotated[str, typer.Option(help="Number of a version to try; the champion by default.")] = ""
    column: Columns = field(default_factory=list)
    overwrite: Overwrite = False
    strict: Annotated[bool, typer.Option("--strict", help="End at the first bad row.")] = False
    workers: Annotated[int, typer.Option(help="Number of processes; by default one per core.")] = 0
    error: Error = None
    form: Annotated[str, typer.Option("--format", help="Write for label-studio, doccano, prodigy or datasets.")] = ""
    int8: Int8 = False
    params: ParamsFile = PARAMS


@app.command()
@flags
def predict(options: PredictFlags) -> None:
    """Predict every row of a file (csv, tsv, jsonl, parquet, or txt: a text a line), or of a folder that `fit` reads,
    with the champion.

    The input has the columns of the labelled data, or `text`; --column names others. OUTPUT without a suffix is a
    folder of parts. Bad rows are written to OUTPUT.rejected.jsonl with the reason. After a kill the same command
    continues with the first part that is missing."""
    from components.cli.onboarding.splits import split_files
    from components.core.artifacts import json_of
    from components.core.errors import ConfigError
    from components.learners.prediction import input_columns, named_columns, reading_of
    from components.serving.annotating import predict_annotations
    from components.serving.parts import LoadableModel, PartOptions, predict_parts

    output, source = options.output, options.source
    if output.name in ("", ".."):
        raise ConfigError(f"{output}: is a folder; name a file, such as {output / 'predictions.csv'}")
    if options.form and options.error is not None:
        raise ConfigError(f"--error adds columns, which {options.form} has no place for; leave out one of them")
    settings, columns = settings_at(options.params), named_columns(options.column)
    name = options.task or settings.run.tasks[0]
    rejects = output.with_name(f"{output.name}.rejected.jsonl")
    with ExitStack() as stack:
        load = _fetched(stack, options, settings, name)
        if source.is_dir() and not options.form:
            source, *others = split_files(source).values()
            print(f"{source} is predicted" + "".join(f", without {path.name}" for path in others), file=sys.stderr)
        data, labels = settings.data.tasks.get(name), json_of(load.bundle / "labels.json")
        guess = not options.form
        columns, form, said = reading_of(
            source, kind=load.kind, labels=labels, source=data, columns=columns, guess=guess
        )
        for line in said:
            print(line, file=sys.stderr)
        model = LoadableModel(load, load.kind, load.identity, gpu=load.gpu, name=load.version.label)
        part_options = PartOptions(
            cluster=settings.cluster,
            workers=options.workers or None,
            columns=columns,
            overwrite=options.overwrite,
            rejects=None if options.strict else rejects,
            started=partial(_started, stack, output),
            form=form,
        )
        labelled = [*input_columns(load.kind, vars(data) if data else {}).values()]
        run = partial(predict_annotations, form=options.form, labelled=labelled) if options.form else predict_parts
        done = run(source, output, model=model, options=part_options)
    print(f"{output}: {done.rows} rows" + (f", {done.empty} without input" if done.empty else ""))
    if done.rejected:
        print(f"{rejects}: {done.rejected} rejected rows")


def _fetched(stack: ExitStack, options: PredictFlags, settings: Params, task: str) -> Loader:
    """The champion, or the version that the flags name; its files are kept until the end of the prediction."""
    from components.core.artifacts import partial_path
    from components.learners.abstention import threshold_of
    from components.learners.writing import write_errors
    from components.registry.champion import Loader, fetched_champion
    from components.registry.drift.traffic import logged, traffic_folder

    error, output = options.error, options.output
    with write_errors(output):
        output.parent.mkdir(parents=True, exist_ok=True)
        # Next to the output, where a node of a cluster finds it and the next run removes it after a kill.
        folder = stack.enter_context(partial_path(output.with_name(f"{output.name}.model"), folder=True))
    version, bundle = stack.enter_context(
        fetched_champion(settings.registry, task, number=options.version, directory=folder)
    )
    # Workers have another working directory.
    log = partial(logged, task=task, settings=settings.drift, folder=traffic_folder().absolute())
    threshold = None if error is None else threshold_of(bundle, error, what=version.label)
    return Loader(bundle, version, log, options.int8, threshold)


def _started(stack: ExitStack, output: Path, rows: int, done: int, parts: int) -> Callable[[int], None]:
    from components.core.progress import Progress

    if done:
        print(f"{output}: continues after {done} rows; {parts} parts are missing", file=sys.stderr, flush=True)
    return stack.enter_context(Progress("predict", total=rows, unit="row", done=done)).advance


@dataclass(frozen=True)
class ServeFlags:
    """Flags of `headstart serve`."""

    task: Task = ""
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1"
    port: Annotated[int, typer.Option(help="Port to listen on; 0: a free one.")] = 5001
    name: Annotated[
        list[str],
        typer.Option(metavar="HOST", help="A further name of this machine, as clients address it; may be repeated."),
    ] = field(default_factory=list)
    challenger: Annotated[str, typer.Option(help="Version number of a second model.")] = ""
    canary: Annotated[bool, typer.Option("--canary", help="Let the challenger answer its share.")] = False
    share: Annotated[float, typer.Option(help="Fraction of the requests for the challenger.")] = 0.1
    model: Annotated[
        Path | None, typer.Option(help="Directory of a model to serve instead of the champion; needs no registry.")
    ] = None
    replicas: Annotated[int, typer.Option(help="Number of processes, each with the whole model.")] = 1
    int8: Int8 = False
    error: Error = None
    params: ParamsFile = PARAMS


@app.command()
@flags
def serve(options: ServeFlags) -> None:
    """Serve the champion over HTTP until stopped; it follows the alias `champion`."""
    from components.serving.server import Address, Trial, serve_directory
    from components.serving.server import serve as serve_champion

    address = Address(options.host, options.port, options.name)
    if options.model is not None:
        serve_directory(
            options.model, address=address, int8=options.int8, error=options.error, replicas=options.replicas
        )
        return
    from components.serving.models import load

    params = settings_at(options.params)
    task = options.task or params.run.tasks[0]
    mode: Literal["shadow", "canary"] = "canary" if options.canary else "shadow"
    serve_champion(
        params.registry,
        task,
        drift=params.drift,
        address=address,
        trial=Trial(options.challenger, mode, options.share) if options.challenger else None,
        load=partial(load, int8=options.int8, error=options.error),
        replicas=options.replicas,
        sample=_sample(Path(params.run.out) / "examples" / task),
    )


def _sample(examples: Path) -> tuple[str, ...]:
    """A short row of test; empty if the stage `examples` has not run here."""
    from components.core.errors import HeadstartError
    from components.data.tasks.examples import read_split

    try:
        rows = read_split(examples, "test").fields
    except (HeadstartError, OSError):
        return ()
    return next((row for row in rows if sum(map(len, row)) <= SAMPLE), ())


@app.command()
def drift(
    *,
    task: Annotated[str, typer.Option(help="Task; all of run.tasks by default, with --file the first.")] = "",
    file: Annotated[
        Path | None, typer.Option(help="Compare the rows of this file (csv, tsv, jsonl, parquet), not the served ones.")
    ] = None,
    column: Columns = [],  # noqa: B006 -- typer does not mutate the default
    exit_code: Annotated[bool, typer.Option("--exit-code", help="Exit with 1 if there is drift.")] = False,
    retrain: Annotated[bool, typer.Option("--retrain", help="Retrain with a full rebuild if there is drift.")] = False,
    params: ParamsFile = PARAMS,
) -> None:
    """Compare served traffic, or a new batch, with the training data of the champion."""
    from components.learners.prediction import named_columns
    from components.pipeline.monitoring import drift_check

    file, params = file and file.resolve(), params.resolve()
    settings = registry_of(params)
    threads.use(cores())
    columns = named_columns(column)
    drifted = False
    for name in [task or settings.run.tasks[0]] if task or file else settings.run.tasks:
        if file is not None:
            comparison = drift_check.check_file(settings, name, file, columns=columns)
        else:
            comparison = drift_check.check_traffic(settings, name)
            drift_check.publish(comparison, out=Path(settings.run.out), name=name)
        print(comparison.sentence)
        if comparison.features:
            print_table(drift_check.COLUMNS, drift_check.cells(comparison))
            texts = (f"unusual text: {text!r}" for text in comparison.examples)
            print(*drift_check.notes(comparison), *texts, sep="\n")
        drifted |= comparison.drift
    if drifted and retrain:
        run_flow("retrain", ["--params", str(params), "--rebuild"])
    raise typer.Exit(1 if drifted and exit_code else 0)
