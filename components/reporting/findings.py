"""Chapters of the report (sentences, tables and figures), and the findings of a study, which the report reads:

studies/<name>/study.json    {schema, title, lead, text, tables, figures: [{file, caption}], options, numbers}
studies/<name>/figure-N.svg
metrics/study/<name>.json    digest of the study, in the folder that the stage `report` depends on
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from components.core.artifacts import MANIFEST, read_manifest, write_atomic, writing
from components.core.errors import ArtifactError

_NUMBER = re.compile(r"[+\-\u2212<>~]?\d")


@dataclass
class Table:
    """A table of text cells."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""

    @property
    def alignments(self) -> list[str]:
        """`left` or `right` for each column: the first column and columns without numbers are aligned left."""
        numeric = [any(_NUMBER.match(row[index]) for row in self.rows) for index in range(len(self.columns))]
        return ["right" if index and right else "left" for index, right in enumerate(numeric)]


@dataclass
class Drawing:
    """A figure with its caption."""

    svg: str
    caption: str


@dataclass
class Chapter:
    """A heading with highlighted sentences (`lead`), other sentences, tables and figures."""

    title: str
    lead: list[str] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    figures: list[Drawing] = field(default_factory=list)


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
