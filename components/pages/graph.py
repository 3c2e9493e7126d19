"""The lineage of the run, from the versions of the data to the registered versions, as a drawing of linked boxes."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from components.core.artifacts import MANIFEST, read_manifest
from components.core.data_version import data_versions
from components.core.errors import HeadstartError
from components.pages.project import Project
from components.pipeline.jobs.results import report as jobs
from components.reporting.stage import TRAINED

#: Size of a box and distances, in units of the drawing.
WIDTH, HEIGHT, GAP_X, GAP_Y = 178, 50, 18, 44
#: Registered versions of a model that are drawn, the newest ones.
VERSIONS = 4
#: Characters of a title in a box.
TITLE = 24
#: Tags of a version that are shown.
SHOWN = ("system", "family", "start", "parent", "data", "git_commit", "run")


@dataclass(frozen=True)
class Node:
    """A version of the data, an output directory, or a registered version. `about`: what it is, in words."""

    key: str
    title: str
    digest: str
    about: str
    directory: Path | None = None
    facts: Mapping[str, str] = field(default_factory=dict)
    served: bool = False


@dataclass
class Graph:
    """The nodes, from the data to the versions, and (key of the source, key of the target) of the edges."""

    layers: list[list[Node]]
    edges: list[tuple[str, str]]


@dataclass(frozen=True)
class Box:
    """A node with its place; `related`: whether it comes from the chosen node, or the chosen node from it."""

    node: Node
    x: float
    y: float
    chosen: bool
    related: bool

    @property
    def title(self) -> str:
        """The title, shortened in the middle."""
        text = self.node.title
        return text if len(text) <= TITLE else f"{text[: TITLE - 9]}\u2026{text[-8:]}"


@dataclass(frozen=True)
class Picture:
    """The drawing of a graph; arrows are (x, y, x, y, whether both ends are related to the chosen node)."""

    boxes: Sequence[Box]
    arrows: Sequence[tuple[float, float, float, float, bool]]
    width: float
    height: float
    chosen: Node | None
    facts: Mapping[str, str]


def picture(project: Project, *, chosen: str = "") -> Picture | None:
    """The lineage of the last run and its registered versions; None before the first run. `chosen`: key of the node
    whose facts are shown; an unknown one is ignored."""
    graph = _outputs(project)
    _add_versions(graph, project)
    used = {key for edge in graph.edges for key in edge}
    layers = [[node for node in layer if node.directory is not None or node.key in used] for layer in graph.layers]
    layers = [layer for layer in layers if layer]
    nodes = {node.key: node for layer in layers for node in layer}
    if not nodes:
        return None
    node = nodes.get(chosen)
    related = _related(graph, chosen) if node is not None else set(nodes)
    width = max(map(len, layers)) * (WIDTH + GAP_X) - GAP_X
    boxes = {
        item.key: Box(
            item,
            (width - len(layer) * (WIDTH + GAP_X) + GAP_X) / 2 + column * (WIDTH + GAP_X),
            row * (HEIGHT + GAP_Y),
            chosen=item.key == chosen,
            related=item.key in related,
        )
        for row, layer in enumerate(layers)
        for column, item in enumerate(layer)
    }
    ends = [(boxes[source], boxes[target]) for source, target in graph.edges]
    arrows = [
        (above.x + WIDTH / 2, above.y + HEIGHT, below.x + WIDTH / 2, below.y, above.related and below.related)
        for above, below in ends
    ]
    facts = {} if node is None else {"digest": node.digest, **node.facts, **_facts(project, node)}
    return Picture(list(boxes.values()), arrows, width, len(layers) * (HEIGHT + GAP_Y) - GAP_Y, node, facts)


def _outputs(project: Project) -> Graph:
    """The data and the outputs of the last run, as far as they exist."""
    settings = project.settings
    job = next(iter(jobs(settings).values()))
    families, tasks, corpora, parents = (job[name] for name in ("families", "tasks", "corpora", "parents"))
    trained = [start for start, _ in TRAINED if start in settings.run.starts]
    versions = {}
    with suppress(HeadstartError):  # data that do not exist any more
        versions = data_versions(job["data"], project=project.root, out=Path(settings.run.out))
    versions = {name: item for name, item in versions.items() if (project.root / item.path).exists()}

    def node(key: str, title: str, about: str, *parts: str) -> Node:
        directory = project.out.joinpath(*parts)
        digest = read_manifest(directory).digest if (directory / MANIFEST).is_file() else ""
        return Node(key, title, digest, about, directory)

    data = [
        Node(f"data:{version.path}", str(version.path), version.digest, "a version of the raw data")
        for version in dict.fromkeys(versions.values())
    ]
    layers = [data, [node(of, f"{of} corpus", "cleaned documents without duplicates", "corpus", of) for of in corpora]]
    for start in trained:
        about = "a language model"
        layers.append([node(f"{of}-{start}", f"{of} {start}", about, "encoder", of, start) for of in families])
    last = trained[-1] if trained else "scratch"
    classifiers = [(task, family, f"{family}-{last}") for task in tasks for family in families]
    about = "a model of the task, fine-tuned from"
    layers.append(
        [
            node(f"{task}/{family}", f"{task}, {family}", f"{about} {system}", "finetuned", task, system)
            for task, family, system in classifiers
        ]
    )
    read = {output: f"data:{version.path}" for output, version in versions.items()}
    edges = [(read[f"corpus/{name}"], name) for name in corpora if f"corpus/{name}" in read]
    of_corpora = {source for source, _ in edges}
    labels = {task: source for task in tasks if (source := read.get(f"examples/{task}")) not in {None, *of_corpora}}
    edges += [(str(source), f"{task}/{family}") for task, source in labels.items() for family in families]
    for family in families:
        made = [f"{family}-{start}" for start in trained]
        if family in parents:
            edges += [(f"{of}-{start}", f"{family}-{start}") for of in parents[family] for start in trained]
        else:
            edges += [(corpora[0], name) for name in made[:1] if corpora] + list(pairwise(made))
        edges += [("domain", name) for name in made if name.endswith("-adapted")]
        edges += [(made[-1], f"{task}/{family}") for task in tasks if made]
    layers = [[node for node in layer if node.digest] for layer in layers]
    keys = {node.key for layer in layers for node in layer}
    return Graph(layers, [edge for edge in edges if keys.issuperset(edge)])


def _add_versions(graph: Graph, project: Project) -> None:
    settings = project.settings
    keys = {node.key for layer in graph.layers for node in layer}
    last: list[Node] = []
    for task in settings.run.tasks:
        with suppress(HeadstartError):
            registered = project.registry().versions(settings.registry.model_name(task))
            champion = project.champion(task).version
            served = champion.number if champion is not None else None
            for version in [each for each in registered[:-VERSIONS] if each.number == served] + registered[-VERSIONS:]:
                tags, key = version.tags, f"version:{version.label}"
                facts = {name: str(tags[name]) for name in SHOWN if tags.get(name)}
                about = "the served version" if version.number == served else "a registered version"
                title = f"{task}, version {version.number}"
                last.append(Node(key, title, version.digest, about, None, facts, version.number == served))
                sources = (f"{task}/{tags.get('family', '')}", f"data:{tags.get('data', '').partition('=')[0]}")
                graph.edges += [(source, key) for source in sources if source in keys][:1]
    graph.layers.append(last)


def _related(graph: Graph, key: str) -> set[str]:
    """A node with all that it comes from and all that comes from it."""
    reached = {key}
    for side, other in ((1, 0), (0, 1)):
        front = {key}
        while front:
            front = {edge[other] for edge in graph.edges if edge[side] in front} - reached
            reached |= front
    return reached


def _facts(project: Project, node: Node) -> dict[str, str]:
    if node.directory is None:
        return {}
    manifest = read_manifest(node.directory)
    facts: dict[str, Any] = {"directory": node.directory.relative_to(project.root).as_posix()}
    facts |= {name: value for name, value in manifest.facts.items() if isinstance(value, str | int | float)}
    return {name: str(value) for name, value in facts.items()}
