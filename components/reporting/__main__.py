"""`python -m components.reporting`: measured numbers in the documents of this repository."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from components.core.errors import ConfigError
from components.reporting import results

app = typer.Typer(add_completion=False)


@app.command()
def main(
    *,
    check: Annotated[bool, typer.Option("--check", help="Write nothing; exit with 1 if a document differs.")] = False,
    record: Annotated[str, typer.Option(help="Write the scores of --evaluation to docs/results/NAME.json.")] = "",
    evaluation: Annotated[Path | None, typer.Option(help="Directory that the stage `evaluate` has written.")] = None,
    command: Annotated[str, typer.Option(help="With --record: command whose run is recorded.")] = "make run",
    score: Annotated[str, typer.Option(help="With --record: metric; the primary metric by default.")] = "",
    title: Annotated[str, typer.Option(help="With --record: title; metric, task and rows by default.")] = "",
) -> None:
    """Render the measured numbers of docs/results in README.md, docs/ and experiments/README.md; or record some."""
    if bool(record) != bool(evaluation):
        raise ConfigError("--record NAME and --evaluation DIR belong together")
    if evaluation is not None:
        result = results.of_evaluation(evaluation, record, command=command, score=score, title=title)
        print(results.write_result(result, Path()))
        return
    lines = results.differences(Path()) if check else results.render(Path())
    for line in lines:
        print(line, file=sys.stderr if check else sys.stdout)
    raise typer.Exit(1 if check and lines else 0)


if __name__ == "__main__":
    app()
