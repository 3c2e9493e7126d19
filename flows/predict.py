"""Label a file with the champion, batch by batch, in a process of its own: this one imports Prefect only."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from prefect import flow, task
from prefect.cache_policies import NO_CACHE

from flows.command import PARAMS, ParamsFile, main
from flows.dvc_tasks import RETRY_DELAYS_S, run_headstart, worth_another_try
from flows.repository import find_root


@task(
    name="label",
    task_run_name="label {source}",
    cache_policy=NO_CACHE,
    retries=2,
    retry_delay_seconds=list(RETRY_DELAYS_S[:2]),
    retry_condition_fn=worth_another_try,
)
def label(source: str, output: str, *, flags: list[str], root: Path) -> str:
    """Run `headstart label` (the same without Prefect); returns the path that it wrote.

    Raises:
        StageError: with the command's message: no champion, a damaged file, a missing column.
    """
    run_headstart("label", source, output, *flags, source="predict", root=root)
    return output


@flow(name="predict", flow_run_name="predict {source}")
def predict(
    source: str, output: str, *, task: str = "", columns: list[str] | None = None, params: str = "params.yaml"
) -> str:
    """Answer every row of `source` (csv, tsv, jsonl, parquet) with a task's champion and write it to `output`.

    Args:
        source: the file; `output` may have another of the formats.
        output: written whole or not at all.
        task: whose champion; empty for the first of `run.tasks`.
        columns: `text=body`: what the file calls an input of the task.
        params: the file that names the registry.

    Raises:
        StageError: with the message of what is wrong.
    """
    file = Path(params).resolve()
    flags = [flag for column in columns or [] for flag in ("--column", column)]
    flags += ["--params", str(file), *(["--task", task] if task else [])]
    return label(str(Path(source).resolve()), str(Path(output).resolve()), flags=flags, root=find_root(file.parent))


def command(
    source: Path,
    output: Path,
    *,
    task: Annotated[str, typer.Option(help="Whose champion; the first of run.tasks if not said.")] = "",
    column: Annotated[
        list[str], typer.Option(help="`text=body`: what the file calls an input of the task, once for each.")
    ] = [],  # noqa: B006 -- typer reads the default and changes nothing
    params: ParamsFile = PARAMS,
) -> None:
    """Let the champion answer every row of a file (csv, tsv, jsonl, parquet)."""
    predict(str(source), str(output), task=task, columns=column, params=str(params))


if __name__ == "__main__":
    main(command)
