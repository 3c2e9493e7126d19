"""The graph from the versions of the data to the classifiers of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from components.core.artifacts import MANIFEST, read_manifest
from components.core.data_version import DataVersion

CORPORA = ("general", "domain")


@dataclass(frozen=True)
class Node:
    """A version of the data, or an output directory."""

    key: str
    title: str
    digest: str
    directory: Path | None
    about: str


@dataclass(frozen=True)
class Ancestry:
    """The graph of a run."""

    layers: Sequence[Sequence[Node]]
    edges: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Outputs:
    """Which outputs a run has."""

    out: Path
    families: Sequence[str]
    tasks: Sequence[str]
    trained: Sequence[str]
    parents: Mapping[str, Sequence[str]] = field(default_factory=dict)
    versions: Mapping[str, DataVersion] = field(default_factory=dict)
    corpora: Sequence[str] = CORPORA


def ancestry(run: Outputs, *, missing_ok: bool = False) -> Ancestry:
    """The graph of a run."""

    def node(key: str, title: str, about: str, *parts: str) -> Node:
        directory = run.out.joinpath(*parts)
        missing = missing_ok and not (directory / MANIFEST).is_file()
        return Node(key, title, "" if missing else read_manifest(directory).digest, directory, about)

    raw = [
        Node(f"data:{version.path}", str(version.path), version.digest, None, "a version of the raw data")
        for version in dict.fromkeys(run.versions.values())
    ]
    cleaned = "cleaned documents without duplicates"
    corpora = [node(name, f"{name} corpus", cleaned, "corpus", name) for name in run.corpora]
    starts = [
        [node(f"{of}-{start}", f"{of} {start}", "a language model", "encoder", of, start) for of in run.families]
        for start in run.trained
    ]
    last = run.trained[-1] if run.trained else "scratch"
    classifiers = [
        node(
            f"{task}/{family}",
            f"{task}, {family}",
            f"models of the task {task}, fine-tuned from {family} {last}",
            *("finetuned", task, f"{family}-{last}"),
        )
        for task in run.tasks
        for family in run.families
    ]
    kept = [[node for node in layer if node.digest] for layer in (raw, corpora, *starts, classifiers)]
    keys = {node.key for layer in kept for node in layer}
    edges = [edge for edge in _edges(run) if keys.issuperset(edge)]
    return Ancestry([layer for layer in kept if layer], edges)


def _edges(run: Outputs) -> list[tuple[str, str]]:
    """(key of the source, key of the target) of all outputs that a run may have."""
    read = {output: f"data:{version.path}" for output, version in run.versions.items()}
    edges = [(read[f"corpus/{name}"], name) for name in run.corpora if f"corpus/{name}" in read]
    of_corpora = {source for source, _ in edges}
    for task in run.tasks:
        source = read.get(f"examples/{task}")
        if source is not None and source not in of_corpora:
            edges += [(source, f"{task}/{family}") for family in run.families]
    for family in run.families:
        made = [f"{family}-{start}" for start in run.trained]
        if family in run.parents:
            origins = [origin for origin in run.parents[family] if origin in run.families]
            edges += [(f"{origin}-{start}", f"{family}-{start}") for origin in origins for start in run.trained]
        else:
            edges += [(run.corpora[0], name) for name in made[:1] if run.corpora] + list(pairwise(made))
        edges += [("domain", name) for name in made if name.endswith("-adapted") and "domain" in run.corpora]
        edges += [(made[-1], f"{task}/{family}") for task in run.tasks if made]
    return edges
