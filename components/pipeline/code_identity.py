"""The identity of the code that a stage can reach: the import closure of its module, with a digest of each module.

The closure starts at the module of the stage's function and follows every import, those inside functions included;
imports for type checkers are left out. Of a `LazyTable`, only the entries that the stage's settings name are followed.
The digest of a module is that of its syntax tree without comments, docstrings, messages of raised errors, entries of
tables, defaults of settings, and the order of definitions: the resolved settings of a stage contain the defaults.
"""

from __future__ import annotations

import ast
import functools
import importlib.metadata
import importlib.util
import json
import re
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from components.core.artifacts import digest_text

#: Folder that contains the package `components`.
ROOT = Path(__file__).parents[2]
PACKAGE = "components"
LOCK = "requirements.lock"
#: Modules of settings: class attributes there are defaults.
SETTINGS = f"{PACKAGE}.settings."
#: Import name -> distribution, where they differ.
DISTRIBUTIONS = {"pycrfsuite": "python-crfsuite", "sklearn": "scikit-learn", "yaml": "pyyaml", "google": "protobuf"}
#: Libraries without effect on the result of a stage: command line, progress, process control, storage, checks.
WITHOUT_EFFECT = frozenset(("boto3", "mlflow", "prefect", "psutil", "pydantic", "ray", "rich", "tqdm", "typer"))
#: Modules without effect on a result: they only display progress, write measurements for monitoring, or decide where
#: the steps of a stage run.
NEUTRAL = frozenset((f"{PACKAGE}.core.progress", f"{PACKAGE}.core.measurements", f"{PACKAGE}.cluster.shards"))
#: Hexadecimal digits of the digest of a module.
SHORT = 12
#: Name in `Module.tables` of the sampler that the file of a family names.
SAMPLER = "sampler="

#: Table as "module:NAME" -> names of the entries that a stage uses; of other tables, all entries are used.
Entries = Mapping[str, Collection[str]]


class Module(NamedTuple):
    """Contribution of a module to an identity.

    Attributes:
        imported: modules of `components` and members of them.
        libraries: top-level packages that are neither of `components` nor of the standard library.
        tables: name of a `LazyTable` -> its entries, name -> module.
    """

    digest: str
    imported: list[str]
    libraries: list[str]
    tables: dict[str, dict[str, str]]


class Closure(NamedTuple):
    """All code that a stage can reach: path of a module -> digest; distribution -> locked version."""

    modules: dict[str, str]
    libraries: dict[str, str]


class Sources:
    """The modules of `components` below a folder."""

    def __init__(self, root: Path = ROOT) -> None:
        self.root = root
        self.path, self.module = functools.cache(self._path), functools.cache(self._module)

    def _path(self, name: str) -> Path | None:
        """The file of a module; None if there is no such module."""
        path = self.root.joinpath(*name.split("."))
        return next((file for file in (path / "__init__.py", path.with_suffix(".py")) if file.is_file()), None)

    def _module(self, name: str) -> Module:
        """A module, parsed once per process, and once per version of its text: parsing all takes 2 seconds.

        Raises:
            FileNotFoundError: there is no such module.
        """
        path = self.path(name)
        if path is None:
            raise FileNotFoundError(f"{self.root}: no module {name}")
        text = path.read_text(encoding="utf-8")
        stored, key = Path(importlib.util.cache_from_source(str(path))).with_suffix(".json"), digest_text(_own() + text)
        with suppress(OSError, ValueError, TypeError):  # none, or half of one by another process
            before, *module = json.loads(stored.read_text(encoding="utf-8"))
            if before == key:
                return Module(*module)
        parsed = parse(text, settings=name.startswith(SETTINGS))
        with suppress(OSError):  # an installation that is read only
            stored.parent.mkdir(exist_ok=True)
            stored.write_text(json.dumps([key, *parsed]), encoding="utf-8")
        return parsed

    def closure(self, entry: str, *, entries: Entries | None = None, without: Collection[str] = ()) -> Closure:
        """The code that a module can reach: the modules of `components` that it imports, directly or not, and itself.

        Args:
            entries: the entries of tables that are used; of other tables, all entries are used.
            without: modules that are left out, because the stage's settings exclude their use.

        Raises:
            FileNotFoundError: there is no such module.
        """
        left_out = tuple(f"{name}." for name in (*without, *NEUTRAL))
        collected: dict[str, Module] = {}
        waiting = [entry, *self._packages(entry)]
        while waiting:
            name = waiting.pop()
            if name in collected:
                continue
            module = collected[name] = self.module(name)
            imported = [each for each in module.imported if not f"{each}.".startswith(left_out)]
            for table, lines in module.tables.items():
                used = (entries or {}).get(f"{name}:{table}", lines)
                imported += [lines[key] for key in used if key in lines]
            waiting += [target for each in imported for target in self._packages(each)]
        libraries = {library for module in collected.values() for library in module.libraries} - WITHOUT_EFFECT
        paths = {name: self.path(name) for name in sorted(collected)}
        return Closure(
            {path.relative_to(self.root).as_posix(): collected[name].digest for name, path in paths.items() if path},
            dict(map(self._version, sorted(libraries))),
        )

    def _packages(self, name: str) -> Iterator[str]:
        """The module of `name`, which is a module or a member of one, and its parent packages."""
        parts = name.split(".")
        names = (".".join(parts[:length]) for length in range(1, len(parts) + 1))
        return (each for each in names if self.path(each) is not None)

    @functools.cached_property
    def locked(self) -> dict[str, str]:
        """Distribution -> version in requirements.lock; empty where the package is installed without the file."""
        return locked_versions(self.root / LOCK)

    def _version(self, library: str) -> tuple[str, str]:
        name = normal(DISTRIBUTIONS.get(library, library))
        with suppress(importlib.metadata.PackageNotFoundError):
            return name, self.locked.get(name) or importlib.metadata.version(name).partition("+")[0]
        return name, "not installed"


@functools.cache
def installed() -> Sources:
    """The sources of this package."""
    return Sources()


@functools.cache
def _own() -> str:
    """Digest of this file, which decides how others are read."""
    return digest_text(Path(__file__).read_text(encoding="utf-8"))


def locked_versions(lock: Path) -> dict[str, str]:
    """Distribution -> version in a requirements file; empty if there is no such file."""
    text = lock.read_text(encoding="utf-8") if lock.is_file() else ""
    return {normal(name): version for name, version in re.findall(r"(?m)^([\w.-]+)(?:\[.*\])?==([^\s;]+)", text)}


def normal(name: str) -> str:
    """The normalised name of a distribution (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def parse(text: str, *, settings: bool = False) -> Module:
    """A module from its source; `settings`: the attributes of its classes are defaults."""
    module = _Module(settings)
    tree = module.visit(ast.parse(text))
    digest = digest_text(ast.dump(tree))[:SHORT]
    return Module(digest, sorted(module.imported), sorted(module.libraries), module.tables)


class _Module(ast.NodeTransformer):
    """Collects imports and tables, and removes what cannot change a result."""

    def __init__(self, settings: bool) -> None:
        self.settings = settings
        self.imported: set[str] = set()
        self.libraries: set[str] = set()
        self.tables: dict[str, dict[str, str]] = {}

    def visit_Import(self, node: ast.Import) -> ast.AST:
        self._imports(alias.name for alias in node.names)
        return node

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST:
        # Each imported name may be a module of its own.
        self._imports([str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)])
        return node

    def _imports(self, names: Iterator[str] | list[str]) -> None:
        for name in names:
            top = name.partition(".")[0]
            if top == PACKAGE:
                self.imported.add(name)
            elif top not in sys.stdlib_module_names:
                self.libraries.add(top)

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        is_text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return None if is_text else self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        if isinstance(node.exc, ast.Call):
            node.exc = node.exc.func
        return node

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return [self.visit(each) for each in node.orelse]
        return self.generic_visit(node)

    def visit_Module(self, node: ast.Module) -> ast.AST:
        self.generic_visit(node)
        node.body.sort(key=_order)
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        if self.settings:
            node.body = [member for member in node.body if not isinstance(member, (ast.Assign, ast.AnnAssign))]
        self.generic_visit(node)
        node.body.sort(key=_order)
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        return self._table(node, node.targets[0])

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        return self._table(node, node.target)

    def _table(self, node: ast.Assign | ast.AnnAssign, target: ast.expr) -> ast.AST:
        match target, node.value:
            case ast.Name(id=name), ast.Call(func=ast.Name(id="LazyTable"), args=[entries]) as call:
                lines = ast.literal_eval(entries).items()
                self.tables[name] = {key: value.partition(":")[0] for key, value in lines}
                # They belong to the closures of the stages that use them.
                call.args = []
            case ast.Name(id="FAMILY"), ast.Call(func=ast.Name(id="ModelFamily")) as call:
                call.keywords = [keyword for keyword in call.keywords if keyword.arg != "tiny"]
                names = [each.value for each in call.keywords if each.arg == "sampler"]
                self.tables[SAMPLER] = {str(each.value): "" for each in names if isinstance(each, ast.Constant)}
        return self.generic_visit(node)


def _order(statement: ast.stmt) -> tuple[bool, str]:
    """Functions and classes by name, after all other statements."""
    is_definition = isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
    return is_definition, statement.name if is_definition else ""  # type: ignore[attr-defined]
