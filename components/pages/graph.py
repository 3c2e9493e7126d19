"""The lineage of the run as a drawing whose boxes are links."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from components.core.artifacts import read_manifest
from components.core.data_version import data_versions
from components.core.errors import HeadstartError
from components.pages.project import Project
from components.pipeline.jobs.results import report as jobs
from components.reporting.ancestry import Ancestry, Node, Outputs, ancestry
from components.reporting.stage import TRAINED

#: Size of a box and distances, in units of the drawing.
WIDTH, HEIGHT, GAP_X, GAP_Y = 178, 50, 18, 44
#: Registered versions of a model that are drawn, the newest ones.
VERSIONS = 4
#: Characters of a title in a box.
TITLE = 24


@dataclass(frozen=True)
class Box:
    """A node with its place."""

    node: Node
    x: float
    y: float
    chosen: bool = False
    marked: bool = False
    #: Whether the chosen node comes from it, or it comes from the chosen node.
    related: bool = True

    @property
    def title(self) -> str:
        """The title, shortened in the middle."""
        text = self.node.title
        return text if len(text) <= TITLE else f"{text[: TITLE - 9]}\u2026{text[-8:]}"


@dataclass(frozen=True)
class Picture:
    """The drawing of a graph."""

    boxes: Sequence[Box]
    arrows: Sequence[tuple[float, float, float, float, bool]]
    width: float
    height: float
    chosen: Node | None
    facts: Mapping[str, str]


def picture(project: Project, *, chosen: str = "") -> Picture | None:
    """The lineage of the last run and its registered versions; None before the first run."""
    graph, champions, facts = _graph(project)
    nodes = {node.key: node for layer in graph.layers for node in layer}
    if not nodes:
        return None
    node = nodes.get(chosen)
    related = _related(graph, chosen) if node is not None else set(nodes)
    width = max(len(layer) for layer in graph.layers) * (WIDTH + GAP_X) - GAP_X
    boxes = {
        item.key: Box(
            item,
            (width - len(layer) * (WIDTH + GAP_X) + GAP_X) / 2 + column * (WIDTH + GAP_X),
            row * (HEIGHT + GAP_Y),
            chosen=item.key == chosen,
            marked=item.key in champions,
            related=item.key in related,
        )
        for row, layer in enumerate(graph.layers)
        for column, item in enumerate(layer)
    }
    arrows = [
        (
            boxes[source].x + WIDTH / 2,
            boxes[source].y + HEIGHT,
            boxes[target].x + WIDTH / 2,
            boxes[target].y,
            source in related and target in related,
        )
        for source, target in graph.edges
    ]
    height = len(graph.layers) * (HEIGHT + GAP_Y) - GAP_Y
    described = {} if node is None else {"digest": node.digest, **facts.get(node.key, {}), **_facts(project, node)}
    return Picture(list(boxes.values()), arrows, width, height, node, described)


def _graph(project: Project) -> tuple[Ancestry, set[str], dict[str, dict[str, str]]]:
    """The graph with the registered versions, the keys of the champions, and facts of versions."""
    settings = project.settings
    job = next(iter(jobs(settings).values()))
    try:
        versions = data_versions(job["data"], project=project.root, out=Path(settings.run.out))
    except HeadstartError:  # data that do not exist any more
        versions = {}
    versions = {name: item for name, item in versions.items() if (project.root / item.path).exists()}
    trained = [start for start, _ in TRAINED if start in settings.run.starts]
    outputs = Outputs(project.out, job["families"], job["tasks"], trained, job["parents"], versions)
    graph = ancestry(outputs, missing_ok=True)
    layers, edges = [list(layer) for layer in graph.layers], list(graph.edges)
    champions: set[str] = set()
    facts: dict[str, dict[str, str]] = {}
    last: list[Node] = []
    keys = {node.key for layer in layers for node in layer}
    for task in settings.run.tasks:
        model = settings.registry.model_name(task)
        with suppress(HeadstartError):
            registry = project.registry()
            champion = project.champion(task).version
            versions_of = registry.versions(model)
            shown = versions_of[-VERSIONS:]
            if champion is not None and champion.number not in {item.number for item in shown}:
                shown = [champion, *shown]
            for version in shown:
                is_champion = champion is not None and version.number == champion.number
                title = f"{task}, version {version.number}"
                node = Node(f"version:{version.label}", title, version.digest, None, "a registered version")
                if is_champion:
                    champions.add(node.key)
                    node = replace(node, about="the served version")
                last.append(node)
                facts[node.key] = {name: str(version.tags[name]) for name in SHOWN if version.tags.get(name)}
                family = version.tags.get("family", "")
                if f"{task}/{family}" in keys:
                    edges.append((f"{task}/{family}", node.key))
                elif f"data:{version.tags.get('data', '').partition('=')[0]}" in keys:
                    edges.append((f"data:{version.tags['data'].partition('=')[0]}", node.key))
    if last:
        layers.append(last)
    used = {key for edge in edges for key in edge}
    layers = [[node for node in layer if node.directory is not None or node.key in used] for layer in layers]
    layers = [layer for layer in layers if layer]
    return Ancestry(layers, edges), champions, facts


#: Tags of a version that are shown.
SHOWN = ("system", "family", "start", "parent", "data", "git_commit", "run")


def _related(graph: Ancestry, key: str) -> set[str]:
    """A node with all that it comes from and all that comes from it."""
    reached = {key}
    for side, other in ((1, 0), (0, 1)):
        front = {key}
        while front:
            front = {edge[other] for edge in graph.edges if edge[side] in front} - reached
            reached |= front
    return reached


def _facts(project: Project, node: Node) -> dict[str, str]:
    """What the manifest of a directory says."""
    if node.directory is None:
        return {}
    manifest = read_manifest(node.directory)
    facts: dict[str, Any] = {"directory": node.directory.relative_to(project.root).as_posix()}
    facts |= {name: value for name, value in manifest.facts.items() if isinstance(value, str | int | float)}
    return {name: str(value) for name, value in facts.items()}
