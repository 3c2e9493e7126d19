"""Documents that show the measured numbers of `docs/results`.

`python -m components.reporting` renders the content of their blocks:

<!-- results:NAME -->           the table, followed by a line on how it was measured
<!-- results:NAME figure -->    the figure, docs/figures/NAME.svg
<!-- /results -->
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from components.core.artifacts import write_atomic
from components.core.errors import ArtifactError, nearest
from components.reporting.results import RESULTS, Result, literal, read_result

FIGURES = Path("docs/figures")
# A block begins at the beginning of a line; an indented one is an example.
_BLOCK = re.compile(r"(?ms)(^<!-- results:(?P<name>\S+)(?P<figure> figure)? -->\n)(?P<body>.*?)(^<!-- /results -->)")
_MARKER = re.compile(r"(?m)^<!-- (results:.*|/results) -->")


def documents(root: Path) -> list[Path]:
    """The documents that may show results."""
    if not (root / "README.md").is_file():
        raise ArtifactError(f"{root.resolve()}: no README.md; run the command in the repository's root")
    return [root / "README.md", *sorted((root / "docs").glob("*.md")), root / "experiments" / "README.md"]


def rendered(root: Path) -> dict[Path, tuple[str, list[str]]]:
    """What every document and figure should contain. Returns Path -> (content, names of the blocks whose current
    content differs). For an outdated figure, the list holds the name of its result. Raises ArtifactError: a block names
    a file that does not exist, is not closed, or a file is damaged."""
    results = {path.stem: read_result(path) for path in sorted((root / RESULTS).glob("*.json"))}
    contents: dict[Path, tuple[str, list[str]]] = {}
    for path in documents(root):
        text = path.read_text(encoding="utf-8")
        contents[path] = _render(text, path, root, results)
    for name, result in results.items():
        if result.figure is not None:
            path, drawn = root / FIGURES / f"{name}.svg", result.drawing()
            same = path.is_file() and path.read_text(encoding="utf-8") == drawn
            contents[path] = (drawn, [] if same else [name])
    return contents


def _render(text: str, path: Path, root: Path, results: Mapping[str, Result]) -> tuple[str, list[str]]:
    stale: list[str] = []

    def replace(match: re.Match[str]) -> str:
        name = match["name"]
        if name not in results:
            raise ArtifactError(f"{path}: block results:{name}: no file {RESULTS / name}.json{nearest(name, results)}")
        if match["figure"]:
            image = f"![{literal(results[name].title)}]({os.path.relpath(root / FIGURES / name, path.parent)}.svg)"
            body = f"{image}\n\n<sub>{results[name].provenance()}</sub>\n"
        else:
            body = results[name].table()
        if body != match["body"]:
            stale.append(name)
        return f"{match[1]}{body}{match[5]}"

    new = _BLOCK.sub(replace, text)
    if 2 * len(_BLOCK.findall(text)) != len(_MARKER.findall(text)):
        raise ArtifactError(f"{path}: a block of results is not closed; each needs a line <!-- /results -->")
    return new, stale


def render(root: Path) -> list[str]:
    """Update documents and figures; returns a line for each that changed."""
    lines = []
    for path, (content, stale) in rendered(root).items():
        if stale:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(path, content)
            lines.append(f"{path.relative_to(root)}: {', '.join(stale)}")
    return lines


def differences(root: Path) -> list[str]:
    """A line for each document or figure that differs from its data; empty if none does."""
    return [
        f"{path.relative_to(root)}: {', '.join(stale)} differ(s) from {RESULTS}; run `python -m components.reporting`"
        for path, (_, stale) in rendered(root).items()
        if stale
    ]
