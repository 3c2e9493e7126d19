"""Contract 28: of Prefect, DVC, MLflow, Ray and the interpreter only public names are used, and nothing of theirs is
replaced."""

import ast
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TOOLS = ("prefect", "dvc", "dvc_data", "dvc_objects", "mlflow", "ray")
#: What of DVC is public.
DVC = ("dvc.api", "dvc.repo.Repo")


def private_names(source: str) -> Iterator[str]:
    """Line and name of what a module takes from a tool or the interpreter that is private, or replaces there.

    Followed are imported names, their attributes, and what a call of them returns if it is assigned to a name."""
    tree = ast.parse(source)
    imported, made = dict[str, str](), dict[str, str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for each in node.names:
                imported[each.asname or each.name.partition(".")[0]] = each.name
                yield from _of_import(node, each.name)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            for each in node.names:
                imported[each.asname or each.name] = f"{node.module}.{each.name}"
                yield from _of_import(node, f"{node.module}.{each.name}")
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and _root(node.value.func) in imported:
            made |= dict.fromkeys(
                (each.id for each in node.targets if isinstance(each, ast.Name)), imported[_root(node.value.func)]
            )
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and _is_private(node.attr):
            owner = imported.get(_root(node.value), "")
            of_tool = _is_tool(made.get(_root(node.value), owner))
            of_interpreter = _is_interpreter(owner) and isinstance(node.value, ast.Name)
            if of_tool or (of_interpreter and node.attr not in getattr(importlib.import_module(owner), "__all__", ())):
                yield f"{node.lineno}: {ast.unparse(node)}"
        for target, name in _assigned(node):
            module = imported.get(_root(target), "")
            function = _is_interpreter(module) and callable(getattr(importlib.import_module(module), name, None))
            if _is_tool(module) or function:
                yield f"{getattr(node, 'lineno', 0)}: {ast.unparse(target)}.{name} is replaced"


def _assigned(node: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    """Owner and name of the attributes that a statement sets."""
    targets = node.targets if isinstance(node, ast.Assign) else []
    for target in [node.target] if isinstance(node, ast.AugAssign | ast.AnnAssign) else targets:
        if isinstance(target, ast.Attribute):
            yield target.value, target.attr
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "setattr":
        yield node.args[0], ast.literal_eval(node.args[1]) if isinstance(node.args[1], ast.Constant) else ""


def _of_import(node: ast.stmt, name: str) -> Iterator[str]:
    parts = name.split(".")
    hidden = any(map(_is_private, parts)) and (_is_tool(name) or _is_interpreter(name))
    if hidden or (parts[0].startswith("dvc") and name not in DVC):
        yield f"{node.lineno}: {name}"


def _is_tool(name: str) -> bool:
    return name.partition(".")[0] in TOOLS


def _is_interpreter(name: str) -> bool:
    return name in sys.stdlib_module_names


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__")


def _root(node: ast.AST) -> str:
    """The first name of `a.b().c`."""
    while isinstance(node, ast.Attribute | ast.Call | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def packages() -> list[str]:
    folders = ["flows", "headstart", *(f"components/{each.name}" for each in (ROOT / "components").iterdir())]
    return sorted(folders)


@pytest.mark.parametrize("folder", packages())
def test_no_private_name_is_used_and_nothing_is_replaced(folder: str) -> None:
    files = sorted((ROOT / folder).rglob("*.py"))
    used = [f"{file.relative_to(ROOT)}:{name}" for file in files for name in private_names(file.read_text("utf-8"))]
    assert used == []


@pytest.mark.parametrize(
    "source",
    [
        "from dvc.repo.index import Index",
        "from dvc.exceptions import DvcException",
        "import dvc_data.hashfile",
        "import threading\nthreading._shutdown()",
        "import threading\nthreading.Thread = None",
        "import mlflow\nclient = mlflow.MlflowClient()\nclient._tracking_client",
        "import mlflow.store as store\nstore.create = None",
        "import ray\nsetattr(ray, 'init', None)",
        "from prefect._internal import something",
    ],
)
def test_a_private_name_is_noticed(source: str) -> None:
    assert list(private_names(source))


def test_public_names_are_not_noticed() -> None:
    source = "import os, ray\nfrom dvc.repo import Repo\nself._own = ray.init()\nRepo().status()\nos._exit(1)\n"
    assert list(private_names(source)) == []
