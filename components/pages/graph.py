"""The lineage of the run, from the versions of the data to the registered versions, as a drawing of linked boxes."""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grandalf.graphs
import networkx
from grandalf.layouts import SugiyamaLayout

from components.core.artifacts import MANIFEST, read_json, read_manifest
from components.core.data_version import data_versions
from components.core.errors import HeadstartError
from components.pages.project import Project
from components.pipeline.jobs import WHOLE
from components.pipeline.stages import STAGES
from components.registry.register import REGISTERED
from components.reporting.stage import TRAINED

#: Size of a box, width of the lane of an edge between boxes, and distances, in units of the drawing.
WIDTH, HEIGHT, LANE, GAP_X, GAP_Y = 178, 50, 16, 18, 44
#: Registered versions of a model that are drawn, the newest ones.
VERSIONS = 4
#: Tags of a version that are shown.
SHOWN = ("system", "parent", "data", "git_commit")
#: Prefix of the keys of the data.
DATA = "data:"
#: Digests, of which seven characters are shown.
_DIGEST = re.compile(r"\b([0-9a-f]{7})[0-9a-f]{13,}(\.dir)?")
Point = tuple[float, float]


@dataclass(frozen=True)
class Node:
    """A version of the data, an output directory, or a registered version. `about`: what it is, in words."""

    key: str
    title: str
    digest: str
    about: str
    directory: Path | None = None
    facts: Mapping[str, str] = field(default_factory=dict)
    current: bool = False


@dataclass
class Graph:
    """The nodes, from the data to the versions, and (key of the source, key of the target) of the edges."""

    nodes: dict[str, Node]
    edges: list[tuple[str, str]]


def picture(project: Project, *, chosen: str = "") -> dict[str, Any] | None:
    """The lineage of the last run and its registered versions: boxes (node, x, y, whether it is chosen, and whether it
    comes from the chosen node or this one from it), arrows (path of SVG, whether both ends are related to the chosen
    node), width, height, the chosen node and its facts; None before the first run. `chosen`: key of the node whose
    facts are shown; an unknown one is ignored."""
    graph = _outputs(project)
    _add_versions(graph, project)
    used = {key for edge in graph.edges for key in edge}
    graph.nodes = {key: node for key, node in graph.nodes.items() if key in used or not key.startswith(DATA)}
    if not graph.nodes:
        return None
    node = graph.nodes.get(chosen)
    related = set(graph.nodes)
    if node is not None:
        drawn = networkx.DiGraph(graph.edges)
        drawn.add_node(chosen)
        related = {chosen} | networkx.ancestors(drawn, chosen) | networkx.descendants(drawn, chosen)
    corners, lines = placed(list(graph.nodes), graph.edges)
    boxes = [(graph.nodes[key], *corner, key == chosen, key in related) for key, corner in corners.items()]
    arrows = [(path_of(points), {source, target} <= related) for (source, target), points in lines.items()]
    facts = {} if node is None else _facts(project, node)
    every = [*corners.values(), *(point for points in lines.values() for point in points)]
    width = max(WIDTH + max(x for x, _ in corners.values()), *(x for x, _ in every))
    height = HEIGHT + max(y for _, y in corners.values())
    return {"boxes": boxes, "arrows": arrows, "width": width, "height": height, "chosen": node, "facts": facts}


def placed(
    keys: Sequence[str], edges: Sequence[tuple[str, str]]
) -> tuple[dict[str, Point], dict[tuple[str, str], list[Point]]]:
    """The left upper corner of each box, and the points of each edge, from the bottom of its source to the top of its
    target, by the layered layout of Sugiyama et al. (1981). An edge that passes a layer has a lane between its boxes:
    two points with one x, at the layer's top and bottom."""
    vertices = {key: grandalf.graphs.Vertex(key) for key in keys}
    for vertex in vertices.values():
        vertex.view = SimpleNamespace(w=WIDTH, h=HEIGHT, xy=(0.0, 0.0))
    links = [grandalf.graphs.Edge(vertices[source], vertices[target]) for source, target in dict.fromkeys(edges)]
    corners: dict[str, Point] = {}
    lines: dict[tuple[str, str], list[Point]] = {}
    left = 0.0
    for part in grandalf.graphs.Graph(list(vertices.values()), links).C:
        layout = SugiyamaLayout(part)
        layout.xspace, layout.yspace, layout.dw = GAP_X, GAP_Y, LANE
        layout.init_all()
        layout.draw()
        views = [vertex.view for layer in layout.layers for vertex in layer]
        shift = left - min(view.xy[0] - view.w / 2 for view in views)
        left = GAP_X + max(view.xy[0] + shift + view.w / 2 for view in views)
        corners |= {
            vertex.data: (vertex.view.xy[0] + shift - WIDTH / 2, vertex.view.xy[1] - HEIGHT / 2) for vertex in part.V()
        }
        for edge in part.E():
            ends = [vertex.view.xy for vertex in edge.v]
            between = [lane.view.xy for rank, lane in sorted(layout.ctrls.get(edge, {}).items())][1:-1]
            middle = [(x, y + side * HEIGHT / 2) for x, y in between for side in (-1, 1)]
            points = [(ends[0][0], ends[0][1] + HEIGHT / 2), *middle, (ends[1][0], ends[1][1] - HEIGHT / 2)]
            lines[edge.v[0].data, edge.v[1].data] = [(x + shift, y) for x, y in points]
    return corners, lines


def path_of(points: Sequence[Point]) -> str:
    """The points as a path of SVG: a curve between two layers, which stays between them, and a line past a layer."""
    path = "M{:g} {:g}".format(*points[0])
    for number, ((x, y), (to_x, to_y)) in enumerate(pairwise(points)):
        middle = (y + to_y) / 2
        path += f" L{to_x:g} {to_y:g}" if number % 2 else f" C{x:g} {middle:g} {to_x:g} {middle:g} {to_x:g} {to_y:g}"
    return path


def _outputs(project: Project) -> Graph:
    """The data and the outputs of the last run, as far as they exist."""
    settings = project.settings
    job = STAGES["report"].items(settings)[WHOLE]
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

    nodes = [_data(version.path, version.digest) for version in dict.fromkeys(versions.values())]
    nodes += [node(of, f"{of} corpus", "cleaned documents without duplicates", "corpus", of) for of in corpora]
    nodes += [
        node(f"{of}-{start}", f"{of} {start}", "a language model", "encoder", of, start)
        for start in trained
        for of in families
    ]
    last = trained[-1] if trained else "scratch"
    about = "a model of the task, fine-tuned from"
    nodes += [
        node(_of_task(task, of), f"{task}, {of}", f"{about} {of}-{last}", "finetuned", task, f"{of}-{last}")
        for task in tasks
        for of in families
    ]
    read = {output: _data(version.path, version.digest).key for output, version in versions.items()}
    edges = [(read[f"corpus/{name}"], name) for name in corpora if f"corpus/{name}" in read]
    of_corpora = {source for source, _ in edges}
    labels = {task: source for task in tasks if (source := read.get(f"examples/{task}")) not in {None, *of_corpora}}
    edges += [(str(source), _of_task(task, family)) for task, source in labels.items() for family in families]
    for family in families:
        made = [f"{family}-{start}" for start in trained]
        if family in parents:
            edges += [(f"{of}-{start}", f"{family}-{start}") for of in parents[family] for start in trained]
        else:
            edges += [(corpora[0], name) for name in made[:1] if corpora] + list(pairwise(made))
        edges += [("domain", name) for name in made if name.endswith("-adapted")]
        edges += [(made[-1], _of_task(task, family)) for task in tasks if made]
    present = {each.key: each for each in nodes if each.digest}
    return Graph(present, [edge for edge in edges if present.keys() >= set(edge)])


def _data(path: str, digest: str) -> Node:
    return Node(f"{DATA}{path}={digest}", path, digest, "a version of the raw data")


def _of_task(task: str, family: str) -> str:
    return f"{task}/{family}"


def _add_versions(graph: Graph, project: Project) -> None:
    """The newest registered versions and the current one: each below the output of the last run that it holds or was
    initialised from, otherwise below the versions of the data that it has learned from."""
    settings = project.settings
    models = read_json(project.out / "registry" / REGISTERED, made_by="the stage register", missing_ok=True)
    boxes = {box.directory: box.key for box in graph.nodes.values()}
    made = {
        f"{model['name']}/{model['version']}": boxes[directory]
        for model in models.get("models", [])
        if (directory := project.root / model["directory"]) in boxes
    }
    for task in settings.run.tasks:
        with suppress(HeadstartError):
            registered = project.registry().versions(settings.registry.model_name(task))
            current = project.champion(task).version
            number = current.number if current is not None else None
            for version in [each for each in registered[:-VERSIONS] if each.number == number] + registered[-VERSIONS:]:
                tags, key = version.tags, f"version:{version.label}"
                about = "the current model" if version.number == number else "a registered version"
                facts = {name: tags[name] for name in SHOWN if tags.get(name)}
                title = f"{task}, version {version.number}"
                graph.nodes[key] = Node(key, title, version.digest, about, None, facts, version.number == number)
                if source := made.get(version.label) or made.get(tags.get("parent", "")):
                    graph.edges.append((source, key))
                    continue
                for part in tags.get("data", "").split(", "):
                    path, _, digest = part.partition("=")
                    data = _data(path, digest)
                    if digest:
                        graph.nodes.setdefault(data.key, data)
                        graph.edges.append((data.key, key))


def _facts(project: Project, node: Node) -> dict[str, str]:
    facts: dict[str, Any] = {"digest": node.digest, **node.facts}
    if node.directory is not None:
        facts |= {"directory": node.directory.relative_to(project.root).as_posix()}
        facts |= read_manifest(node.directory).facts
    return {name: _fact(value) for name, value in facts.items() if isinstance(value, str | int | float)}


def _fact(value: str | float) -> str:
    if isinstance(value, str):
        return _DIGEST.sub(r"\1", value.replace("=", ", version "))
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
