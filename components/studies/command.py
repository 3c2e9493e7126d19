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
from components.reporting.findings import Chapter, Findings
from components.settings.loading import load_params

#: Name -> "module:function" of (outputs, *, options) -> findings; the options become flags of the command.
STUDIES: LazyTable[Callable[..., Findings]] = LazyTable(
    {
        "ablation": "components.studies.ablation:run",
        "benefits": "components.studies.benefits:benefits_of_transfer",
        "contextuality": "components.studies.contextuality:run",
        "effective-context": "components.studies.effective_context:run",
        "label-efficiency": "components.studies.benefits:label_efficiency",
        "layers": "components.studies.layers:run",
        "negative-transfer": "components.studies.benefits:negative_transfer",
        "neighbours": "components.studies.neighbours:run",
        "ngrams": "components.studies.ngrams:run",
        "prompts": "components.studies.prompt_study:run",
        "systems": "components.studies.systems:run",
        "transferability": "components.studies.transferability:run",
        "vocabulary": "components.studies.vocabulary:run",
        "which-source": "components.studies.which_source:run",
        "word-order": "components.studies.word_order:run",
        "zero-shot": "components.studies.zero_shot:run",
    }
)
#: Name -> what the study answers.
QUESTIONS = {
    "ablation": "What is each technique of fine-tuning worth?",
    "benefits": "Does transfer give a higher start, a higher slope and a higher asymptote?",
    "contextuality": "How much does a word's vector depend on its context, in each layer?",
    "effective-context": "How much context does a language model use, and what does it cost?",
    "label-efficiency": "How many labels does transfer save, and how many do other systems need?",
    "layers": "Which layer gives the best features?",
    "negative-transfer": "Which classes and slices does transfer hurt?",
    "neighbours": "Which words are nearest to a word?",
    "ngrams": "Is the language model better than n-grams of the same text?",
    "prompts": "Which tasks does a language model answer by continuing a prompt?",
    "systems": "Which system is best, at which size and number of labels?",
    "transferability": "At which layer do features stop being general, and how far are layers co-adapted?",
    "vocabulary": "How well do the vocabularies fit the text, per script?",
    "which-source": "Which encoder or source task suits the task best, judged before fine-tuning?",
    "word-order": "Does the encoder know the order of words, and in which layer?",
    "zero-shot": "How well does a language model answer without labels?",
}
#: Minimum width of tables; a log has no fixed width.
WIDTH = 160


def study(arguments: Sequence[str]) -> None:
    """Run the study that `arguments` name, with its options."""
    if arguments and not arguments[0].startswith("-") and arguments[0] not in STUDIES:
        raise ConfigError(f"unknown study {arguments[0]!r}{nearest(arguments[0], STUDIES)}")
    application(arguments[0] if arguments else "")(args=list(arguments), prog_name="headstart study")


def application(name: str = "") -> typer.Typer:
    """The program with one command a study; only the study `name` is imported."""
    app = typer.Typer(
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        help="Studies of a finished run. Each prints tables, draws figures and adds a chapter to the report.",
    )
    for each, question in QUESTIONS.items():
        app.command(each, help=question)(_command(each) if each == name else lambda: None)
    return app


def _command(name: str) -> Callable[..., None]:
    """A function with the signature of a study, and `--params` in place of the outputs."""
    run = STUDIES[name]

    def command(*, params: Path, **options: Any) -> None:
        from components.pipeline.running import run_stage
        from components.reporting import findings
        from components.studies.frame import Outputs

        settings = load_params(params)
        outputs = Outputs(settings)
        result = run(outputs, **options)
        directory = findings.write(outputs.out, name, result, options=options, inputs=outputs.read)
        _print(result.chapter)
        print(f"numbers and figures: {directory}")
        if not (outputs.out / "report" / MANIFEST).is_file():
            print(f"report: run `headstart stage report --params {params}` to add this study")
            return
        try:
            print(f"report: {run_stage('report', settings) / 'report.html'}")
        except HeadstartError as error:
            print(f"report: not updated ({error})")

    hints = get_type_hints(run, include_extras=True)
    flags = list(inspect.signature(run).parameters.values())[1:]
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
