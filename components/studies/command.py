"""The studies as commands: `headstart study NAME`. The flags come from the signature of the study's function."""

import importlib
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast, get_type_hints

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from components.core.errors import ConfigError, HeadstartError, nearest
from components.settings.loading import load_params

if TYPE_CHECKING:  # the help of a command needs no numpy
    from components.reporting.findings import Chapter, Findings


@dataclass(frozen=True)
class Study:
    """A question about a run. `needs`: what the run must have; `function`: "module:function" of (outputs, *, options)
    -> what it measures, whose options become flags of the command. The module is imported when the study is used."""

    name: str
    question: str
    needs: str
    function: str

    @property
    def measure(self) -> Callable[..., Any]:
        module, _, name = self.function.partition(":")
        return cast(Callable[..., Any], getattr(importlib.import_module(f"components.studies.{module}"), name))

    def findings(self, outputs: Any, **options: Any) -> "Findings":
        """What the study finds in the outputs of a run (`components.studies.frame.Outputs`)."""
        result: Findings = self.measure(outputs, **options).findings(self.name, self.question)
        return result


EVALUATED = "the stage evaluate"
ENCODERS = "trained encoders"
STUDIES = {
    study.name: study
    for study in (
        Study("ablation", "What is each technique of fine-tuning worth?", ENCODERS, "tuned:ablation"),
        Study(
            "benefits",
            "Does transfer give a higher start, a higher slope and a higher asymptote?",
            EVALUATED,
            "evaluated:benefits",
        ),
        Study(
            "contextuality",
            "How much does a word's vector depend on its context, in each layer?",
            ENCODERS,
            "contextuality:measure",
        ),
        Study(
            "effective-context",
            "How much context does a language model use, and what does it cost?",
            "causal encoders and held-out tokens",
            "context:effective_context",
        ),
        Study(
            "label-efficiency",
            "How many labels does transfer save, and how many do other systems need?",
            EVALUATED,
            "evaluated:label_efficiency",
        ),
        Study("layers", "Which layer gives the best features?", ENCODERS, "tuned:layers"),
        Study(
            "negative-transfer",
            "Which classes and slices does transfer hurt?",
            EVALUATED,
            "evaluated:negative_transfer",
        ),
        Study("neighbours", "Which words are nearest to a word?", ENCODERS, "neighbours:measure"),
        Study(
            "ngrams",
            "Is the language model better than n-grams of the same text?",
            "causal encoders and tokens",
            "context:beside_ngrams",
        ),
        Study(
            "prompts",
            "Which questions does a language model answer after a prompt?",
            "causal encoders",
            "prompts:measure",
        ),
        Study("systems", "Which system is best, at which size and number of labels?", EVALUATED, "evaluated:systems"),
        Study(
            "transferability",
            "At which layer do features stop being general, and how far are layers co-adapted?",
            "two tasks",
            "transferability:measure",
        ),
        Study(
            "vocabulary", "How well do the vocabularies fit the text, per script?", "tokenizers", "vocabulary:measure"
        ),
        Study(
            "which-source",
            "Which encoder or source task suits the task best, judged before fine-tuning?",
            ENCODERS,
            "transferability:which_source",
        ),
        Study(
            "word-order",
            "Does the encoder know the order of words, and in which layer?",
            ENCODERS,
            "word_order:measure",
        ),
        Study(
            "zero-shot",
            "How well does a language model answer without labels?",
            "language models and a task",
            "prompts:zero_shot",
        ),
    )
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
    for each in STUDIES.values():
        shown = f"{each.question} Needs: {each.needs}."
        app.command(each.name, help=shown)(_command(each) if each.name == name else lambda: None)
    return app


def _command(study: Study) -> Callable[..., None]:
    """A function with the signature of a study, and `--params` in place of the outputs."""

    def command(*, params: Path, **options: Any) -> None:
        from components.pipeline.running import run_stage
        from components.reporting import findings
        from components.studies.frame import Outputs

        settings = load_params(params)
        outputs = Outputs(settings)
        result = study.findings(outputs, **options)
        directory = findings.write(outputs.out, study.name, result, options=options, inputs=outputs.read)
        _print(result.chapter)
        print(f"numbers and figures: {directory}")
        if not outputs.exists("report"):
            print(f"report: run `headstart stage report --params {params}` to add this study")
            return
        try:
            print(f"report: {run_stage('report', settings) / 'report.html'}")
        except HeadstartError as error:
            print(f"report: not updated ({error})")

    hints = get_type_hints(study.measure, include_extras=True)
    flags = list(inspect.signature(study.measure).parameters.values())[1:]
    file = Annotated[Path, typer.Option("--params", help="Settings file.")]
    parameters = [
        *(flag.replace(annotation=hints[flag.name]) for flag in flags),
        inspect.Parameter("params", inspect.Parameter.KEYWORD_ONLY, default=Path("params.yaml"), annotation=file),
    ]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


def _print(chapter: "Chapter") -> None:
    for sentence in (*chapter.lead, *chapter.text):
        print(sentence)
    for part in chapter.tables:
        table = Table(*part.columns, box=box.SIMPLE_HEAD, title=part.title or None, title_justify="left")
        for row in part.rows:
            table.add_row(*map(escape, row))
        Console(width=max(WIDTH, 18 * len(part.columns))).print(table)
