"""Label a file with the champion. The work is done by `headstart predict-file` in a process of its own."""

from __future__ import annotations

from pathlib import Path

from prefect import flow, task
from prefect.cache_policies import NO_CACHE

from components.commands.common import PARAMS, Columns, Form, Int8, Overwrite, ParamsFile, Strict, Task, Workers
from flows.command import main
from flows.dvc_tasks import RETRY_DELAYS_S, is_retriable
from flows.embedded import tie_server
from flows.execution import run_headstart
from flows.repository import find_root


@task(
    name="label",
    task_run_name="label {source}",
    cache_policy=NO_CACHE,
    retries=2,
    retry_delay_seconds=list(RETRY_DELAYS_S[:2]),
    retry_condition_fn=is_retriable,
)
def label(source: str, output: str, *, flags: list[str], root: Path) -> str:
    """Run `headstart predict-file`; returns the path of the output.

    Raises:
        StageError: there is no champion, the file is damaged, a column is missing.
    """
    run_headstart("predict-file", source, output, *flags, source="predict", root=root)
    return output


@flow(name="predict", flow_run_name="predict {source}")
def predict(
    source: str,
    output: str,
    *,
    task: str = "",
    columns: list[str] | None = None,
    overwrite: bool = False,
    strict: bool = False,
    workers: int = 0,
    form: str = "",
    int8: bool = False,
    params: str = "params.yaml",
) -> str:
    """Predict every row of `source` (csv, tsv, jsonl, parquet) with a task's champion and write the rows to `output`.

    Args:
        source: the file.
        output: its format may differ from that of `source`; a folder of parts if it has no suffix. It is written
            completely or not at all.
        task: the first of `run.tasks` if empty.
        columns: `INPUT=COLUMN` where the column of an input has another name, such as `text=body`.
        overwrite: whether an output that Headstart has written is replaced.
        strict: whether the first bad row ends the run; otherwise bad rows are written to OUTPUT.rejected.jsonl.
        workers: number of processes; 0: one per core.
        form: an annotation tool: label-studio, doccano, prodigy or datasets; empty: rows with added columns.
        int8: whether a Transformer's matrices are computed with 8-bit integers.
        params: the settings file; it names the registry.

    Raises:
        StageError: the command failed.
    """
    file = Path(params).resolve()
    flags = [flag for column in columns or [] for flag in ("--column", column)]
    flags += ["--params", str(file), *(["--task", task] if task else []), *(["--overwrite"] if overwrite else [])]
    flags += [*(["--strict"] if strict else []), *(["--workers", str(workers)] if workers else [])]
    flags += [*(["--format", form] if form else []), *(["--int8"] if int8 else [])]
    return label(str(Path(source).resolve()), str(Path(output).resolve()), flags=flags, root=find_root(file.parent))


def command(
    source: Path,
    output: Path,
    *,
    task: Task = "",
    column: Columns = [],  # noqa: B006 -- typer does not mutate the default
    overwrite: Overwrite = False,
    strict: Strict = False,
    workers: Workers = 0,
    form: Form = "",
    int8: Int8 = False,
    params: ParamsFile = PARAMS,
) -> None:
    """Predict every row of a file (csv, tsv, jsonl, parquet) with the champion.

    The input has the columns of the labelled data, or `text`; --column names others. OUTPUT without a suffix is a
    folder of parts. Bad rows are written to OUTPUT.rejected.jsonl with the reason. After a kill the same command
    continues with the first part that is missing."""
    tie_server()
    predict(
        str(source),
        str(output),
        task=task,
        columns=column,
        overwrite=overwrite,
        strict=strict,
        workers=workers,
        form=form,
        int8=int8,
        params=str(params),
    )


if __name__ == "__main__":
    main(command)
