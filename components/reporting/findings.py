"""Findings of a study: a directory in the run's folder, which the report reads.

studies/<name>/study.json    {schema, title, lead, text, tables, figures: [{file, caption}], options, numbers}
studies/<name>/figure-N.svg
metrics/study/<name>.json    digest of the study, in the folder that the stage `report` depends on
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from components.core.artifacts import MANIFEST, read_manifest, write_atomic, writing
from components.core.errors import ArtifactError
from components.reporting.chapters import Chapter, Drawing, Table

KIND: Final = "study"
FILE: Final = "study.json"
FOLDER: Final = "studies"
SCHEMA: Final = 1


@dataclass(frozen=True)
class Findings:
    """The result of a study. `numbers`: the same numbers, unrounded, as a JSON object."""

    chapter: Chapter
    numbers: Mapping[str, Any]


def write(out: Path, name: str, result: Findings, *, options: Mapping[str, Any], inputs: Mapping[str, str]) -> Path:
    """Write the findings of a study; returns its directory."""
    directory = out / FOLDER / name
    chapter = result.chapter
    with writing(directory, kind=KIND) as draft:
        files = [f"figure-{number}.svg" for number in range(1, len(chapter.figures) + 1)]
        for file, drawing in zip(files, chapter.figures, strict=True):
            (draft.path / file).write_text(drawing.svg + "\n", encoding="utf-8")
        content = {
            "schema": SCHEMA,
            "title": chapter.title,
            "lead": chapter.lead,
            "text": chapter.text,
            "tables": [asdict(table) for table in chapter.tables],
            "figures": [
                {"file": file, "caption": drawing.caption} for file, drawing in zip(files, chapter.figures, strict=True)
            ],
            "options": options,
            "numbers": result.numbers,
        }
        text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
        (draft.path / FILE).write_text(text, encoding="utf-8")
        draft.facts |= {"study": name, "options": options, "inputs": dict(sorted(inputs.items()))}
    metrics = out / "metrics" / KIND / f"{name}.json"
    metrics.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(metrics, json.dumps({"digest": read_manifest(directory).digest}) + "\n")
    return directory


def read(directory: Path) -> Findings:
    read_manifest(directory, kind=KIND)
    try:
        content = json.loads((directory / FILE).read_text(encoding="utf-8"))
        if content["schema"] != SCHEMA:
            raise ArtifactError(
                f"{directory}: written by another version; run `headstart study {directory.name}` again"
            )
        figures = [
            Drawing((directory / figure["file"]).read_text(encoding="utf-8").rstrip("\n"), figure["caption"])
            for figure in content["figures"]
        ]
        tables = [Table(**table) for table in content["tables"]]
        return Findings(
            Chapter(content["title"], content["lead"], content["text"], tables, figures), content["numbers"]
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ArtifactError(
            f"{directory / FILE}: damaged ({error!r}); run `headstart study {directory.name}` again"
        ) from error


def read_all(out: Path) -> dict[str, Findings]:
    """The findings of all studies in a run's folder, by name."""
    return {path.parent.name: read(path.parent) for path in sorted((out / FOLDER).glob(f"[!.]*/{MANIFEST}"))}
