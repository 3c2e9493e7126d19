"""Imports: no cycle, any module can be imported first, and packages import from lower layers only."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from graphlib import TopologicalSorter
from pathlib import Path

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
    result = {}
    for file in (file for top in ("components", "flows", "headstart") for file in (ROOT / top).rglob("*.py")):
        parts = file.relative_to(ROOT).with_suffix("").parts
        result[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file.read_text(encoding="utf-8")
    return result


def test_no_import_goes_round_in_a_circle():
    graph = imports(sources())
    assert graph["components.learners.finetuning.stage"] > {
        "components.learners.task_models.classifier",
        "components.core.artifacts",
    }
    TopologicalSorter(graph).prepare()


#: Packages of components from the bottom up. A package imports from those before it.
LAYERS = (
    "core", "settings", "cluster", "data", "builtin_data", "tokenization", "models", "interchange", "training",
    "learners", "evaluation", "registry", "reporting", "labelling", "serving", "pipeline", "studies", "pages", "cli",
)  # fmt: skip
#: Libraries that one module or package imports.
OWNERS = {
    "ray": "components.cluster",
    "mlflow": "components.registry.tracking",
    "boto3": "components.cluster.storage",
}


def every_import(text: str) -> set[str]:
    """All that a module imports, inside functions and for type checkers too."""
    result: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            result |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            result |= {str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)}
    return result


def package_imports(sources: Mapping[str, str]) -> dict[str, set[str]]:
    """Package of components -> packages that it imports."""
    graph: dict[str, set[str]] = {}
    for module, text in sources.items():
        parts = module.split(".")
        if parts[0] == "components" and len(parts) > 1:
            names = [name.split(".") for name in every_import(text)]
            targets = {name[1] for name in names if name[0] == "components" and len(name) > 1} - {parts[1]}
            graph.setdefault(parts[1], set()).update(targets)
    return graph


def wrong_imports(graph: Mapping[str, set[str]]) -> list[str]:
    """Imports from a lower to a higher layer."""
    return sorted(
        f"{package} imports {target}"
        for package, targets in graph.items()
        for target in targets
        if LAYERS.index(target) > LAYERS.index(package)
    )


def test_packages_import_downwards():
    graph = package_imports(sources())
    assert set(graph) == set(LAYERS)
    assert wrong_imports(graph) == []


def test_modules_have_no_cycle_through_imports_in_functions():
    text_of = sources()
    graph = {
        module: (every_import(text) & text_of.keys()) - packages_of(module) - {module}
        for module, text in text_of.items()
    }
    TopologicalSorter(graph).prepare()


def test_one_module_imports_each_outside_system():
    result: dict[str, set[str]] = {}
    for module, text in sources().items():
        for name in every_import(text):
            result.setdefault(name.partition(".")[0], set()).add(module)
    for library, owner in OWNERS.items():
        # A package counts as its submodules.
        owners = {owner if module.startswith(f"{owner}.") else module for module in result[library]}
        assert owners == {owner}
    assert all(module.startswith("flows.") for library in ("prefect", "dvc") for module in result[library])
