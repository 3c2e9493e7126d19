"""The studies as commands: `headstart study NAME`. The flags come from the signature of the study's function."""

import inspect
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from components.core.artifacts import json_of
from components.core.errors import ConfigError, HeadstartError, nearest
from components.settings.loading import load_params


@dataclass(frozen=True)
class Study:
    """A question about a run.

    Attributes:
        needs: what the run must have.
        function: "module:function", a generator of tables, figures and sentences (`components.studies.frame.Part`) from
            (outputs, *, options). The options become flags of the command. The module is imported when the study is
            used.
        text: explanations that follow those of the function.
        options: name -> settings of `typer.Option`, beside those of all studies.
    """

    name: str
    question: str
    needs: str
    function: str
    text: Sequence[str] = ()
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def measure(self) -> Callable[..., Any]:
        function: Callable[..., Any] = pkgutil.resolve_name(f"components.studies.{self.function}")
        return function


_TABLE = json_of(Path(__file__).with_name("studies.json"))
STUDIES = {name: Study(name, **of) for name, of in _TABLE["studies"].items()}


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
        from pandas import DataFrame

        from components.pipeline.running import run_stage
        from components.reporting import findings
        from components.studies.frame import Outputs, find

        settings = load_params(params)
        outputs = Outputs(settings)
        result = find(study, outputs, **options)
        directory = findings.write(outputs.out, study.name, result, options=options, inputs=outputs.read)
        for sentence in (*result.chapter.lead, *result.chapter.text):
            print(sentence)
        for part in result.chapter.tables:
            print(
                "",
                *filter(None, [part.title]),
                DataFrame(part.rows, columns=part.columns).to_string(index=False),
                sep="\n",
            )
        print(f"numbers and figures: {directory}")
        if not outputs.exists("report"):
            print(f"report: run `headstart stage report --params {params}` to add this study")
            return
        try:
            print(f"report: {run_stage('report', settings) / 'report.html'}")
        except HeadstartError as error:
            print(f"report: not updated ({error})")

    hints, table = get_type_hints(study.measure), {**_TABLE["options"], **study.options}
    _, *flags = inspect.signature(study.measure).parameters.values()
    file = Annotated[Path, typer.Option("--params", help="Settings file.")]
    parameters = [
        *(flag.replace(annotation=Annotated[hints[name := flag.name], typer.Option(**table[name])]) for flag in flags),
        inspect.Parameter("params", inspect.Parameter.KEYWORD_ONLY, default=Path("params.yaml"), annotation=file),
    ]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command
