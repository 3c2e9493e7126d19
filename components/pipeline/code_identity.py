"""The identity of the code that a stage can reach: the import closure of its module, and a digest of it.

The closure starts at the module of the stage's function and follows every import, those inside functions included;
imports for type checkers are left out. Of a `LazyTable`, only the entries that the stage's settings name are followed.
Digests are taken over the syntax tree without comments, docstrings, messages of raised errors and the order of
definitions. So an edit changes the identity of exactly those stages whose result it could change.

The defaults of settings are not part of the code: the resolved settings of a stage contain them.
"""

from __future__ import annotations

import ast
import copy
import functools
import importlib.metadata
import importlib.util
import json
import re
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from components.core.artifacts import digest_text, write_atomic

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
#: Hexadecimal digits of the digest of one definition.
SHORT = 12
#: Tables whose entries depend on the settings, as "module:NAME".
FAMILIES = f"{PACKAGE}.models:FAMILIES"
SAMPLERS = f"{PACKAGE}.training.pretraining.samplers:SAMPLERS"
CONVERTERS = f"{PACKAGE}.interchange.huggingface:CONVERTERS"
TOKENIZERS = f"{PACKAGE}.tokenization.base:KINDS"
TASK_KINDS = (
    f"{PACKAGE}.data.tasks.kinds:KINDS",
    f"{PACKAGE}.learners.task_models.kinds:TASKS",
    f"{PACKAGE}.learners.baselines:BASELINES",
    f"{PACKAGE}.learners.words.classifier:MODELS",
)
#: Module that imports published models; used only if `pretrain.<name>.source` is set.
IMPORTING = f"{PACKAGE}.interchange.importing"
#: Modules without effect on a result: they only display progress, write measurements for monitoring, or decide where
#: the steps of a stage run.
NEUTRAL = frozenset((f"{PACKAGE}.core.progress", f"{PACKAGE}.core.measurements", f"{PACKAGE}.cluster.shards"))
#: File of the parsed modules.
_PARSED = Path(importlib.util.cache_from_source(__file__)).with_suffix(".json")
IMPORTS = "imports"
STATEMENTS = "statements"

#: Table as "module:NAME" -> names of the entries that a stage uses; of other tables, all entries are used.
Entries = Mapping[str, Collection[str]]


class Sources:
    """The source text of the modules of `components`.

    Args:
        changed: module -> source text that replaces the file.
        like: sources with the same root, whose parsed modules are reused unless their text is replaced.
    """

    def __init__(
        self, root: Path = ROOT, *, changed: Mapping[str, str] | None = None, like: Sources | None = None
    ) -> None:
        self.root = root
        self.changed = dict(changed or {})
        parsed: dict[str, Module] = like._modules if like else {}
        self._modules: dict[str, Module] = {name: each for name, each in parsed.items() if name not in self.changed}
        self._files: dict[str, Path | None] = like._files if like else {}

    def path(self, module: str) -> Path | None:
        """The file of a module; None if there is no such module."""
        if module not in self._files:
            path = self.root.joinpath(*module.split("."))
            files = (path / "__init__.py", path.with_suffix(".py"))
            self._files[module] = next((file for file in files if file.is_file()), None)
        return self._files[module]

    def relative_path(self, module: str) -> str:
        """The path of a module's file relative to the root."""
        file = self.path(module)
        return file.relative_to(self.root).as_posix() if file else f"{module.replace('.', '/')}.py"

    def text(self, module: str) -> str:
        """The source of a module.

        Raises:
            FileNotFoundError: there is no such module.
        """
        if module in self.changed:
            return self.changed[module]
        file = self.path(module)
        if file is None:
            raise FileNotFoundError(f"{self.root}: no module {module}")
        return file.read_text(encoding="utf-8")

    def module(self, name: str) -> Module:
        """A module with its imports and digests; parsed once."""
        if name not in self._modules:
            parse = _parse if self.changed or self.root != ROOT else _parse_installed
            self._modules[name] = parse(name, self.text(name))
        return self._modules[name]

    def exists(self, module: str) -> bool:
        """Whether there is a module of that name."""
        return module in self.changed or self.path(module) is not None

    @functools.cached_property
    def locked(self) -> dict[str, str]:
        """Distribution -> version in requirements.lock; empty where the package is installed without the file."""
        return locked_versions(self.root / LOCK)


@dataclass(frozen=True)
class Module:
    """Contribution of a module to an identity.

    Attributes:
        definitions: name of a function, class, method or constant -> digest; under `imports` and `statements` the
            digests of all imports and of all other top-level statements.
        tables: name of a `LazyTable` -> its entries, name -> module.
    """

    definitions: Mapping[str, str]
    imported: frozenset[str]
    libraries: frozenset[str]
    tables: Mapping[str, Mapping[str, str]]


@dataclass(frozen=True)
class Closure:
    """All code that a stage can reach."""

    modules: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    libraries: Mapping[str, str] = field(default_factory=dict)


def closure(
    entry: str, *, entries: Entries | None = None, without: Collection[str] = (), sources: Sources | None = None
) -> Closure:
    """The code that a module can reach: the modules of `components` that it imports, directly or not, and itself.

    Args:
        entries: the entries of tables that are used; of other tables, all entries are used.
        without: modules that are left out, because the stage's settings exclude their use.

    Raises:
        FileNotFoundError: there is no such module.
    """
    sources, entries = sources or installed(), entries or {}
    left_out = tuple(f"{name}." for name in (*without, *NEUTRAL))
    collected: dict[str, Module] = {}
    waiting = [entry, *_with_packages(entry, sources)]
    while waiting:
        name = waiting.pop()
        if name in collected:
            continue
        module = collected[name] = sources.module(name)
        imported = [each for each in module.imported if not f"{each}.".startswith(left_out)]
        waiting += [target for each in imported for target in _with_packages(each, sources)]
        for table, lines in module.tables.items():
            used = entries.get(f"{name}:{table}", lines)
            waiting += [target for key in used if key in lines for target in _with_packages(lines[key], sources)]
    _write_parsed()
    return Closure(
        modules={sources.relative_path(name): collected[name].definitions for name in sorted(collected)},
        libraries=_versions({library for module in collected.values() for library in module.libraries}, sources),
    )


def entries_of(
    *,
    families: Collection[str] | None = None,
    tokenizers: Collection[str] | None = None,
    task_kinds: Collection[str] | None = None,
    sources: Sources | None = None,
) -> Entries:
    """The entries of tables that a stage uses, from the names in its settings; None: the stage may use all."""
    sources = sources or installed()
    collected: dict[str, Collection[str]] = {}
    if families is not None:
        collected |= {FAMILIES: families, CONVERTERS: families}
        samplers = [_sampler(family, sources) for family in families]
        if None not in samplers:
            collected[SAMPLERS] = {str(sampler) for sampler in samplers}
    if tokenizers is not None:
        collected |= {TOKENIZERS: tokenizers}
    if task_kinds is not None:
        collected |= dict.fromkeys(TASK_KINDS, task_kinds)
    return collected


def _sampler(family: str, sources: Sources) -> str | None:
    """The sampler in `FAMILY = ModelFamily(..., sampler="...")` of a family's file; None if it is not a literal
    there."""
    module, _, table = FAMILIES.partition(":")
    file = sources.module(module).tables.get(table, {}).get(family)
    for node in ast.walk(ast.parse(sources.text(file))) if file else ():
        if isinstance(node, ast.keyword) and node.arg == "sampler" and isinstance(node.value, ast.Constant):
            return str(node.value.value)
    return None


@functools.cache
def installed() -> Sources:
    """The sources of this package; each module is parsed once per process."""
    return Sources()


def _with_packages(name: str, sources: Sources) -> Iterator[str]:
    """The module of `name`, which is a module or a member of one, and its parent packages, which are imported first."""
    parts = name.split(".")
    for length in range(1, len(parts) + 1):
        if sources.exists(candidate := ".".join(parts[:length])):
            yield candidate


def _versions(libraries: Collection[str], sources: Sources) -> dict[str, str]:
    versions = {}
    for library in sorted(set(libraries) - WITHOUT_EFFECT):
        name = normal(DISTRIBUTIONS.get(library, library))
        try:
            versions[name] = sources.locked.get(name) or importlib.metadata.version(name).partition("+")[0]
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "not installed"
    return versions


def locked_versions(lock: Path) -> dict[str, str]:
    """Distribution -> version in a requirements file; empty if there is no such file."""
    text = lock.read_text(encoding="utf-8") if lock.is_file() else ""
    return {normal(name): version for name, version in re.findall(r"(?m)^([\w.-]+)(?:\[.*\])?==([^\s;]+)", text)}


def normal(name: str) -> str:
    """The normalised name of a distribution (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


# -- parsed modules, stored beside the compiled ones: parsing takes 2 seconds ------------------------------------------


@functools.cache
def _parsed() -> dict[str, list[Any]]:
    """Module -> digest of its text, and the arguments of `Module`; empty if none are stored."""
    with suppress(OSError, ValueError):
        stored = json.loads(_PARSED.read_text(encoding="utf-8"))
        if stored.get("") == [_file_digest()]:
            return dict(stored)
    return {}


@functools.cache
def _file_digest() -> str:
    return digest_text(Path(__file__).read_text(encoding="utf-8"))


def _parse_installed(name: str, text: str) -> Module:
    digest = digest_text(text)
    before, *arguments = _parsed().get(name, [""])
    if before != digest:
        module = _parse(name, text)
        arguments = [module.definitions, sorted(module.imported), sorted(module.libraries), module.tables]
        _parsed()[name] = [digest, *arguments]
        # Marks what has to be written.
        _parsed().pop("", None)
    definitions, imported, libraries, tables = arguments
    return Module(definitions, frozenset(imported), frozenset(libraries), tables)


def _write_parsed() -> None:
    if "" not in _parsed():
        _parsed()[""] = [_file_digest()]
        with suppress(OSError):  # an installation that is read only
            _PARSED.parent.mkdir(exist_ok=True)
            write_atomic(_PARSED, json.dumps(_parsed()))


# -- reading a module -------------------------------------------------------------------------------------------------


def _parse(name: str, text: str) -> Module:
    tree = _Stripped().visit(ast.parse(text))
    imported, libraries, lines = set(), set(), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            # Each imported name may be a module of its own.
            names = [str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            continue
        lines.add(ast.unparse(node))
        for target in names:
            top = target.partition(".")[0]
            if top == PACKAGE:
                imported.add(target)
            elif top not in sys.stdlib_module_names:
                libraries.add(top)
    tables: dict[str, dict[str, str]] = {}
    parts: dict[str, list[str]] = {IMPORTS: sorted(lines)}
    for statement in tree.body:
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            continue
        if table := _table(statement):
            tables[table[0]] = table[1]
        for part, node in _definitions(statement, settings=name.startswith(SETTINGS)):
            parts.setdefault(part, []).append(ast.dump(node))
    definitions = {part: digest_text("\n".join(dumped))[:SHORT] for part, dumped in parts.items() if dumped}
    return Module(definitions, frozenset(imported), frozenset(libraries), tables)


class _Stripped(ast.NodeTransformer):
    """Removes what cannot change a result: bare strings, arguments of raised errors, imports for type checkers, test
    sizes."""

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            return None
        return self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        if isinstance(node.exc, ast.Call):
            node.exc = node.exc.func
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if isinstance(node.func, ast.Name) and node.func.id == "ModelFamily":
            node.keywords = [keyword for keyword in node.keywords if keyword.arg != "tiny"]
        return self.generic_visit(node)

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        self.generic_visit(node)
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return node.orelse
        return node


def _table(statement: ast.stmt) -> tuple[str, dict[str, str]] | None:
    """NAME and entries of `NAME = LazyTable({"key": "module:attribute", ...})`; None for any other statement."""
    match statement:
        case (
            ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=ast.Name(id="LazyTable"), args=[entries]))
            | ast.AnnAssign(target=ast.Name(id=name), value=ast.Call(func=ast.Name(id="LazyTable"), args=[entries]))
        ):
            return name, {key: value.partition(":")[0] for key, value in ast.literal_eval(entries).items()}
    return None


def _definitions(statement: ast.stmt, *, settings: bool) -> Iterator[tuple[str, ast.AST]]:
    """(name, syntax tree) of each definition in a top-level statement."""
    match statement:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            yield name, statement
        case ast.ClassDef(name=name):
            shell = copy.copy(statement)
            shell.body = []
            for member in statement.body:
                if isinstance(member, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    yield f"{name}.{member.name}", member
                elif not (settings and isinstance(member, (ast.Assign, ast.AnnAssign))):
                    shell.body.append(member)
            yield name, shell
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            # The entries of a table belong to the closures of the stages that use them.
            yield name, ast.Constant("LazyTable") if _table(statement) else statement
        case _:
            yield STATEMENTS, statement
