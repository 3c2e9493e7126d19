"""The built-in data, extracted from the documentation of the locked dependencies.

`build` extracts a general corpus (docstrings of the installed packages), and a domain corpus, labelled tasks and pairs
of texts (service models of botocore). The same lock file gives the same bytes on every machine: packages are listed by
name, files are read in sorted order, and nothing depends on paths, time or hash seeds.
"""

import gc
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from components.core.artifacts import partial_path, unwritable, write_atomic
from components.core.errors import ArtifactError, DataError
from components.core.progress import Progress
from components.data.formats.textkey import text_key
from components.data.ingestion.builtin import aws, docstrings, tasks
from components.data.ingestion.builtin import services as services_task

#: Megabytes per raw file of a corpus, so that a corpus has several files and a change affects some of them.
FILE_MEGABYTES = 6


def build(directory: Path) -> dict[str, int]:
    """Write general/, domain/aws/, parallel/aws/, and aws-type, aws-service, aws-code and aws-operation in tasks/.

    The folder is complete or absent. Texts of the dev and test splits of the tasks are excluded from the domain corpus
    and the pairs. Returns folder or split -> number of rows.

    Raises:
        ArtifactError: the folder contains files, or cannot be written.
        DataError: a required package is not installed.
    """
    directory = directory.resolve()
    if directory.is_dir() and any(directory.iterdir()):
        raise ArtifactError(f"{directory}: contains files; delete it to make the built-in data anew, or choose another")
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        # Millions of small objects that live to the end: collections would cost half of the time.
        gc.disable()
        with partial_path(directory, folder=True) as partial:
            counts = _build(partial)
            partial.rename(directory)
    except OSError as error:
        raise unwritable(directory, error) from error
    finally:
        gc.enable()
    return counts


def _build(directory: Path) -> dict[str, int]:
    counts: dict[str, int] = {}
    with Progress("data: domain and tasks", total=8, unit="part") as bar:
        services = aws.read_services()
        bar.advance()
        types = tasks.parameter_types(services)
        counts |= _write_task(directory, "aws-type", types)
        bar.advance()
        held = {text_key(row["text"]) for split in ("dev", "test") for row in types[split]}
        documents = [document for service in services for document in aws.service_documents(service)]
        by_service, left_out = services_task.service_of_documents(services, documents)
        counts |= _write_task(directory, "aws-service", by_service)
        bar.advance()
        texts = list(aws.corpus(documents, without=held, left_out=left_out))
        counts["domain/aws"] = write_corpus(directory / "domain" / "aws", texts, megabytes=FILE_MEGABYTES)
        bar.advance()
        translated = services_task.translations(services, without=held, left_out=left_out)
        counts["parallel/aws"] = write_corpus(directory / "parallel" / "aws", translated, megabytes=FILE_MEGABYTES)
        bar.advance()
        # The dev and test texts of these two tasks are also in aws-type or aws-service, so they are excluded already.
        spans = tasks.code_spans(services, types, (row["text"] for row in texts))
        counts |= _write_task(directory, "aws-code", spans)
        bar.advance()
        names = services_task.names_and_descriptions(services, by_service, (row["text"] for row in texts))
        counts |= _write_task(directory, "aws-operation", names)
        bar.advance()
    counts["general"] = write_corpus(directory / "general", docstrings.documents(), megabytes=FILE_MEGABYTES)
    return counts


def _write_task(directory: Path, name: str, splits: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, int]:
    return {
        f"tasks/{name}/{split}": write_rows(directory / "tasks" / name / f"{split}.jsonl", rows)
        for split, rows in splits.items()
    }


# One call in one thread: the bytes depend on the text, the level and the locked library only.
_LEVEL = 9


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> int:
    """Write one JSON object per line; returns the number of rows."""
    lines = [_line(row) for row in rows]
    _make(path.parent)
    write_atomic(path, "".join(lines).encode())
    return len(lines)


def write_corpus(directory: Path, documents: Iterable[Mapping[str, Any]], *, megabytes: float) -> int:
    """Write part-000.jsonl.zst, part-001 ..., of about `megabytes` uncompressed; returns the number of documents."""
    count, size, part = 0, 0, 0
    lines: list[str] = []
    _make(directory)

    def flush() -> None:
        nonlocal part, size
        name = f"part-{part:03d}.jsonl.zst"
        buffer = pa.Codec("zstd", compression_level=_LEVEL).compress("".join(lines).encode(), asbytes=True)
        write_atomic(directory / name, buffer)
        part, size = part + 1, 0
        lines.clear()

    for document in documents:
        lines.append(_line(document))
        count, size = count + 1, size + len(lines[-1])
        if size >= megabytes * 1e6:
            flush()
    if lines:
        flush()
    return count


def _line(row: Mapping[str, Any]) -> str:
    return json.dumps(row, ensure_ascii=False) + "\n"


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{folder}: cannot be written ({error.strerror}); choose another folder") from error
