"""The studies as commands: `headstart study NAME`. The flags come from the study's signature."""

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from components.core.artifacts import MANIFEST
from components.core.errors import ConfigError, HeadstartError, nearest
from components.core.tables import LazyTable
from components.pipeline.running import run_stage
from components.reporting import findings
from components.reporting.findings import Chapter
from components.settings.loading import load_params
from components.studies.frame import Outputs, Study

#: Name -> "module:attribute". A study is an entry `Study(...)` at the end of a file, and a line of this table.
STUDIES: LazyTable[Study] = LazyTable(
    {
        "ablation": "components.studies.ablation:STUDY",
        "benefits": "components.studies.benefits:BENEFITS",
        "contextuality": "components.studies.contextuality:STUDY",
        "effective-context": "components.studies.effective_context:STUDY",
        "label-efficiency": "components.studies.benefits:LABEL_EFFICIENCY",
        "layers": "components.studies.layers:STUDY",
        "negative-transfer": "components.studies.benefits:NEGATIVE_TRANSFER",
        "neighbours": "components.studies.neighbours:STUDY",
        "ngrams": "components.studies.ngrams:STUDY",
        "prompts": "components.studies.prompt_study:STUDY",
        "systems": "components.studies.systems:STUDY",
        "transferability": "components.studies.transferability:STUDY",
        "vocabulary": "components.studies.vocabulary:STUDY",
        "which-source": "components.studies.which_source:STUDY",
        "word-order": "components.studies.word_order:STUDY",
        "zero-shot": "components.studies.zero_shot:STUDY",
    }
)
#: Minimum width of tables; a log has no fixed width.
WIDTH = 160


def study(arguments: Sequence[str]) -> None:
    """Run the study that `arguments` name, with its options."""
    if arguments and not arguments[0].startswith("-") and arguments[0] not in STUDIES:
        raise ConfigError(f"unknown study {arguments[0]!r}{nearest(arguments[0], STUDIES)}")
    application()(args=list(arguments), prog_name="headstart study")


def application() -> typer.Typer:
    """The program with one command a study."""
    app = typer.Typer(
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        help="Studies of a finished run. Each prints tables, draws figures and adds a chapter to the report.",
    )
    for entry in STUDIES.values():
        app.command(entry.name, help=entry.question)(_command(entry))
    return app


def _command(entry: Study) -> Callable[..., None]:
    """A function with the signature of the study, and `--params` in place of the outputs."""

    def command(*, params: Path, **options: Any) -> None:
        settings = load_params(params)
        outputs = Outputs(settings)
        result = entry.run(outputs, **options)
        directory = findings.write(outputs.out, entry.name, result, options=options, inputs=outputs.read)
        _print(result.chapter)
        print(f"numbers and figures: {directory}")
        if not (outputs.out / "report" / MANIFEST).is_file():
            print(f"report: run `headstart stage report --params {params}` to add this study")
            return
        try:
            print(f"report: {run_stage('report', settings) / 'report.html'}")
        except HeadstartError as error:
            print(f"report: not updated ({error})")

    hints = get_type_hints(entry.run, include_extras=True)
    flags = list(inspect.signature(entry.run).parameters.values())[1:]
    file = Annotated[Path, typer.Option("--params", help="Settings file.")]
    parameters = [
        *(flag.replace(annotation=hints[flag.name]) for flag in flags),
        inspect.Parameter("params", inspect.Parameter.KEYWORD_ONLY, default=Path("params.yaml"), annotation=file),
    ]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


def _print(chapter: Chapter) -> None:
    for sentence in (*chapter.lead, *chapter.text):
        print(sentence)
    for part in chapter.tables:
        table = Table(*part.columns, box=box.SIMPLE_HEAD, title=part.title or None, title_justify="left")
        for row in part.rows:
            table.add_row(*map(escape, row))
        Console(width=max(WIDTH, 18 * len(part.columns))).print(table)
