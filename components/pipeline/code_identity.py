"""The identity of the code that a stage can reach: the import closure of its module, with a digest of each module.

The closure starts at the module of the stage's function and follows every import, those inside functions included;
imports for type checkers are left out. Of a `LazyTable`, only the entries that the stage's settings name are followed;
readers of formats, which the settings name, where `reader_of` is imported.
The digest of a module is that of its syntax tree without comments, docstrings, entries of tables and defaults of
settings: the resolved settings of a stage contain the defaults.
"""

from __future__ import annotations

import ast
import functools
import importlib.metadata
import importlib.util
import json
import re
import sys
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from components.core.artifacts import digest_text, json_of, text_in

#: Folder that contains the package `components`.
ROOT = Path(__file__).parents[2]
PACKAGE = "components"
#: Modules of settings: class attributes there are defaults.
SETTINGS = f"{PACKAGE}.settings."
#: Import name -> distribution, where they differ.
DISTRIBUTIONS = {"pycrfsuite": "python-crfsuite", "sklearn": "scikit-learn", "yaml": "pyyaml", "google": "protobuf"}
#: Libraries without effect on the result of a stage: command line, progress, process control, storage, checks.
WITHOUT_EFFECT = frozenset(("boto3", "mlflow", "prefect", "psutil", "pydantic", "ray", "rich", "tqdm", "typer"))
#: Modules without effect on a result: they only display progress, write measurements for monitoring, or decide where
#: the steps of a stage run.
NEUTRAL = tuple(f"{PACKAGE}.{name}" for name in ("core.progress", "core.measurements", "cluster.shards"))
#: Hexadecimal digits of the digest of a module.
SHORT = 12
#: Name in `Module.tables` of the sampler that the file of a family names.
SAMPLER = "sampler="
#: Name in `Module.tables` of the readers that formats name, and of the function that imports them.
READERS = "reader_of"

#: Table as "module:NAME" -> names of the entries that a stage uses; of other tables, all entries are used.
Entries = Mapping[str, Collection[str]]


class Module(NamedTuple):
    """Contribution of a module to an identity: its digest, what it imports (modules and members of them), and the
    entries of its `LazyTable`s (name of the table -> entry -> module)."""

    digest: str
    imported: list[str]
    tables: dict[str, dict[str, str]]


class Closure(NamedTuple):
    """All code that a stage can reach: path of a module -> digest; distribution -> locked version."""

    modules: dict[str, str]
    libraries: dict[str, str]


class Sources:
    """The modules of `components` below a folder."""

    def __init__(self, root: Path = ROOT) -> None:
        self.root, self.locked = root, locked_versions(root / "requirements.lock")
        self.path, self.module = functools.cache(self._path), functools.cache(self._module)

    def _path(self, name: str) -> Path | None:
        """The file of a module; None if there is no such module."""
        path = self.root.joinpath(*name.split("."))
        return next((file for file in (path / "__init__.py", path.with_suffix(".py")) if file.is_file()), None)

    def _module(self, name: str) -> Module:
        """A module, parsed once per process, and once per version of its text: parsing all takes 2 seconds."""
        path = self.path(name)
        assert path is not None
        text = path.read_text(encoding="utf-8")
        stored, key = Path(importlib.util.cache_from_source(str(path))).with_suffix(".json"), digest_text(_own() + text)
        with suppress(OSError, ValueError, TypeError):  # none, or half of one by another process
            before, *module = json_of(stored)
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
            without: modules that are left out, because the stage's settings exclude their use.

        Raises:
            FileNotFoundError: there is no such module.
        """
        if self.path(entry) is None:
            raise FileNotFoundError(f"{self.root}: no module {entry}")
        left_out = tuple(f"{name}." for name in (*without, *NEUTRAL))
        code, libraries, waiting = dict[str, str](), set[str](), [entry]
        seen = set[str]()
        while waiting:
            if (name := waiting.pop()) in seen:
                continue
            seen.add(name)
            if name.partition(".")[0] != PACKAGE:
                libraries.add(name.partition(".")[0])
                continue
            # A name is that of a module, or of a member of one; with a module its packages are imported.
            waiting += [name.rpartition(".")[0]] if "." in name else []
            if (path := self.path(name)) is not None:
                module = self.module(name)
                code[path.relative_to(self.root).as_posix()] = module.digest
                waiting += [each for each in module.imported if not f"{each}.".startswith(left_out)]
                for table, lines in module.tables.items():
                    used = (entries or {}).get(f"{name}:{table}", lines)
                    waiting += [lines[key] for key in used if lines.get(key)]
            elif name.endswith(f".{READERS}"):
                waiting += self.module(name.rpartition(".")[0]).tables[READERS]
        libraries -= WITHOUT_EFFECT | sys.stdlib_module_names
        return Closure(dict(sorted(code.items())), dict(map(self._version, sorted(libraries))))

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
    pinned = re.findall(r"(?m)^([\w.-]+)(?:\[.*\])?==([^\s;]+)", text_in(lock))
    return {normal(name): version for name, version in pinned}


def normal(name: str) -> str:
    """The normalised name of a distribution (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def parse(text: str, *, settings: bool = False) -> Module:
    """A module from its source; `settings`: the attributes of its classes are defaults."""
    tree, imported, tables = ast.parse(text), set[str](), dict[str, dict[str, str]]()
    for node in ast.walk(tree):
        if isinstance(body := getattr(node, "body", None), list):
            defaults = (ast.Assign, ast.AnnAssign) if settings and isinstance(node, ast.ClassDef) else ()
            node.body = [  # type: ignore[attr-defined]
                each
                for each in body
                if not isinstance(each, defaults)
                and not (isinstance(each, ast.Expr) and isinstance(getattr(each.value, "value", None), str))
            ]
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and isinstance(child.test, ast.Name) and child.test.id == "TYPE_CHECKING":
                child.body = []
        match node:
            case ast.Import():
                imported |= {alias.name for alias in node.names}
            case ast.ImportFrom():
                # Each imported name may be a module of its own.
                imported |= {str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)}
            case ast.keyword(arg="sampler", value=ast.Constant(value=sampler)):
                tables[SAMPLER] = {str(sampler): ""}
            case ast.Call(func=ast.Name(id="Format"), args=[ast.Constant(value=str(reader)), *_]):
                tables.setdefault(READERS, {})[f"{PACKAGE}.data.formats.{reader.partition(':')[0]}"] = ""
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as call)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.Call() as call)
            ) if isinstance(call.func, ast.Name) and call.func.id == "LazyTable":
                entries = ast.literal_eval(call.args[0])
                tables[name] = {key: value.partition(":")[0] for key, value in entries.items()}
                # They belong to the closures of the stages that use them.
                call.args = []
    return Module(digest_text(ast.dump(tree))[:SHORT], sorted(imported), tables)
