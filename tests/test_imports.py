"""Every module can be the first that is imported: no import, through whichever package, comes round to itself."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def imported(body: Iterable[ast.AST]) -> Iterator[str]:
    """What is imported when the statements run: nothing inside of functions or for type checkers only."""
    for node in body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                pass
            case ast.If(test=ast.Name(id="TYPE_CHECKING"), orelse=otherwise):
                yield from imported(otherwise)
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                assert module and not level, "a relative import; name the package"
                yield module
                yield from (f"{module}.{alias.name}" for alias in names)
            case _:
                yield from imported(ast.iter_child_nodes(node))


def packages_of(module: str) -> set[str]:
    parts = module.split(".")
    return {".".join(parts[:length]) for length in range(1, len(parts))}


def imports(sources: Mapping[str, str]) -> dict[str, set[str]]:
    """For each module the modules that must have run before it: with what it imports the packages that holds, but not
    those it stands in itself, which have begun already."""
    graph = {}
    for module, text in sources.items():
        wanted = set(imported(ast.parse(text).body))
        wanted |= {package for name in wanted for package in packages_of(name)}
        graph[module] = (wanted & sources.keys()) - packages_of(module) - {module}
    return graph


def sources() -> dict[str, str]:
    found = {}
    for file in (file for top in ("components", "flows") for file in (ROOT / top).rglob("*.py")):
        parts = file.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file.read_text(encoding="utf-8")
    return found


def test_no_import_goes_round_in_a_circle() -> None:
    graph = imports(sources())
    assert graph["components.finetuning.stage"] > {"components.task_models.classifier", "components.artifacts"}
    TopologicalSorter(graph).prepare()


def test_circles_are_found() -> None:
    through_a_package = {
        "a": "",
        "a.tasks": "from a.tasks import questions",
        "a.tasks.base": "",
        "a.tasks.questions": "from a import answering",
        "a.answering": "from a.tasks.base import Task",
    }
    with pytest.raises(CycleError):
        TopologicalSorter(imports(through_a_package)).prepare()
    late = {**through_a_package, "a.answering": "def f():\n    from a.tasks.base import Task"}
    TopologicalSorter(imports(late)).prepare()
    typed = {**through_a_package, "a.answering": "if TYPE_CHECKING:\n    from a.tasks.base import Task"}
    TopologicalSorter(imports(typed)).prepare()
    nested = {**through_a_package, "a.answering": "try:\n    import a.tasks.base\nexcept ImportError:\n    pass"}
    with pytest.raises(CycleError):
        TopologicalSorter(imports(nested)).prepare()
