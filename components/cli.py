"""The command `headstart`. Every verb is a function; its flags come from the signature.

What a user got wrong ends in one message and exit code 2; a traceback means a defect of Headstart.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from components.errors import HeadstartError
from components.settings.loading import load_params
from components.training import threads

PARAMS = Path("params.yaml")

app = typer.Typer(
    no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help="Transfer learning for text."
)

ParamsFile = Annotated[Path, typer.Option("--params", help="The file of settings.")]


@app.command()
def stage(name: str, *, item: str = "", params: ParamsFile = PARAMS) -> None:
    """Run one stage by itself, as DVC does (items: `general`, `ulmfit`, `aws-type-ulmfit-adapted` ...)."""
    from components.pipeline.stages import run_stage

    print(run_stage(name, load_params(params), item=item))


@app.command()
def check(*, params: ParamsFile = PARAMS) -> None:
    """Check the settings, the model sizes and the data folders before anything runs."""
    from components.pipeline.checks import check_params

    check_params(load_params(params))
    print(f"{params}: ok")


@app.command()
def data(*, directory: Path = Path("data")) -> None:
    """Extract the built-in data from the documentation that the installed packages carry."""
    from components.ingestion.builtin import build

    build(directory)


@app.command()
def families(*, params: ParamsFile = PARAMS) -> None:
    """What the last run says of its families side by side, best first (`bakeoff` runs it)."""
    from components.reporting import bakeoff

    run = load_params(params).run
    columns, rows = bakeoff.table(bakeoff.entries(Path(run.out), families=run.families, tasks=run.tasks))
    table = Table(*columns, box=box.SIMPLE_HEAD)
    for row in rows:
        table.add_row(*row)
    # As wide as it has to be: a log has no edge.
    Console(width=max(120, 24 * len(columns))).print(table)


@app.command(add_help_option=False, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def study(context: typer.Context) -> None:
    """Ask a finished run: `benefits`, `layers`, `which-source` ... (`headstart study` lists them)."""
    from components.studies import command

    command.study(context.args)


@app.command("try")
def try_(
    model: Path,
    text: str,
    *,
    length: Annotated[int, typer.Option(help="Pieces to write.")] = 40,
    count: Annotated[int, typer.Option(help="Continuations, pieces for a gap, or words.")] = 5,
    temperature: Annotated[float, typer.Option(help="0: the most probable piece each time.")] = 1.0,
    top_k: Annotated[int, typer.Option(help="Draw from the k most probable pieces; 0: all.")] = 0,
    top_p: Annotated[float, typer.Option(help="Draw from the fewest pieces with this probability.")] = 1.0,
    seed: int = 0,
) -> None:
    """Let a model go on with a text, fill its [MASK], or name the words nearest to "king - man + woman"."""
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
    text: Annotated[str, typer.Option(help="Column that holds the text, where there are columns.")] = "text",
    pieces: Annotated[int, typer.Option(help="Documents are read until there are so many pieces; 0: all.", min=0)] = 0,
) -> None:
    """How well a model predicts a file: perplexity per word and bits per character, whatever its vocabulary."""
    from components.inference.perplexity import measure_file

    found = measure_file(model, file, text=text, most=pieces or None)
    table = Table("documents", "words", "characters", "pieces", "unknown", "per word", "per piece", "bits/character",
                  box=box.SIMPLE_HEAD)  # fmt: skip
    counts = (found.documents, found.words, found.characters, found.pieces, found.unknown)
    figures = (f"{found.per_word:.2f}", f"{found.per_piece:.2f}", f"{found.bits_per_character:.4f}")
    table.add_row(*map(str, counts), *figures)
    Console(width=120).print(table)


@app.command("import")
def import_(
    source: Path,
    *,
    output: Annotated[Path, typer.Option(help="The encoder directory to write.")],
    family: Annotated[str, typer.Option(help="Which family takes it; found out if not said.")] = "",
    vocabulary: Annotated[Path | None, typer.Option(help="Of a fastai file: its words as .json.")] = None,
) -> None:
    """Make an encoder of a published model: a Hugging Face folder, a fastai file, or word vectors as text."""
    from components.interchange.importing import import_encoder

    for line in import_encoder(source, output=output, family=family or None, vocabulary=vocabulary):
        print(line)


@app.command()
def export(
    encoder: Path,
    *,
    output: Annotated[Path, typer.Option(help="The folder to write.")],
    form: Annotated[str, typer.Option("--format", help="huggingface, onnx or vectors.")] = "huggingface",
) -> None:
    """Write an encoder as others open it: for transformers, as ONNX, or as a text file of word vectors."""
    from components.interchange.exporting import export_encoder

    for line in export_encoder(encoder, output=output, form=form):
        print(line)


@app.command()
def label(
    source: Path,
    output: Path,
    *,
    task: Annotated[str, typer.Option(help="Whose champion; the first of run.tasks if not said.")] = "",
    column: Annotated[
        list[str], typer.Option(help="`text=body`: what the file calls an input of the task, once for each.")
    ] = [],  # noqa: B006 -- typer reads the default and changes nothing
    params: ParamsFile = PARAMS,
) -> None:
    """Let the champion answer every row of a file in this process; `predict` does it as a Prefect flow."""
    from components.inference.prediction import named_columns, predict_file
    from components.progress import Progress
    from components.registry.champion import load_champion

    settings, columns = load_params(params), named_columns(column)
    threads.own(threads.cores())
    champion = load_champion(settings.registry, task or settings.run.tasks[0])
    with Progress("label", total=None, unit="row") as bar:
        done = predict_file(source, output=output, classifier=champion, columns=columns, progress=bar.advance)
    print(f"{output}: {done.rows} rows" + (f", {done.empty} with nothing to answer" if done.empty else ""))


@app.command()
def serve(
    *,
    task: Annotated[str, typer.Option(help="Whose champion; the first of run.tasks if not said.")] = "",
    host: str = "127.0.0.1",
    port: int = 5001,
    params: ParamsFile = PARAMS,
) -> None:
    """Serve the champion over HTTP with MLflow's server, until it is stopped."""
    from components.registry.serving import serve as serve_champion

    settings = load_params(params)
    raise typer.Exit(serve_champion(settings.registry, task or settings.run.tasks[0], host=host, port=port))


#: Verbs that are Prefect flows: a program of their own in `flows`, so that nothing here imports Prefect.
FLOWS = {
    "retrain": "Bring everything up to date, from raw data to the promoted classifier.",
    "bakeoff": "Pretrain several families at one budget and compare what each is worth.",
    "schedule": "Retrain by itself at the times of a cron line.",
    "predict": "Label a csv, jsonl or parquet file with the champion.",
    "promote": "Let the challenger stand against the champion again.",
    "rollback": "Make the champion before this one the champion again.",
}


def _hand_over(verb: str, help_text: str) -> None:
    @app.command(
        verb,
        help=help_text,
        add_help_option=False,
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    )
    def run(context: typer.Context) -> None:
        os.execv(sys.executable, [sys.executable, "-m", f"flows.{verb}", *context.args])


for _verb, _help in FLOWS.items():
    _hand_over(_verb, _help)


def main() -> None:
    """Entry point of the command `headstart`."""
    threads.prepare()
    try:
        app()
    except HeadstartError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:
        # The reader (head, less) has gone; what is left to say interests nobody.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
