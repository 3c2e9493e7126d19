"""The general corpus: docstrings of installed packages, module by module, in file order."""

import ast
import gc
import inspect
import re
import warnings
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from hashlib import blake2b
from importlib import metadata
from multiprocessing import get_context
from pathlib import Path, PurePosixPath

from components.core.errors import DataError
from components.core.processors import cores
from components.core.progress import Progress

#: Distributions that are read, in this order.
PACKAGES = (
    "numpy",
    "scipy",
    "pandas",
    "scikit-learn",
    "SQLAlchemy",
    "networkx",
    "matplotlib",
    "ray",
    "mlflow",
    "prefect",
    "torch",
    "huggingface_hub",
    "hypothesis",
)
# Tests have little documentation; vendored and generated code is repetitive; the other files are written by a package's
# build and differ between the wheels of one version (CPU and CUDA builds of torch, platforms of scipy).
_SKIPPED_FOLDERS_NAMES = """
    tests test testing _testing externals extern vendor _vendor vendored thirdparty thirdparty_files third_party
    _thirdparty protos generated gapic
"""
_SKIPPED_FOLDERS = frozenset(_SKIPPED_FOLDERS_NAMES.split())
_SKIPPED_FILES = re.compile(
    r"(_?version|__config__|_version_meson|version_info|_distributor_init\w*|_build_config|torch_version|build_info"
    r"|conftest|setup|test_\w+|\w+_pb2(_grpc)?)\.py"
)
#: Minimum length of a string argument of a function such as `add_newdoc` that counts as documentation.
_CALL_CHARACTERS = 80
# A document ends at the first top-level definition after this many characters, and within a class after more.
_DOCUMENT_CHARACTERS = 8_000
_CLASS_CHARACTERS = 32_000
# Line separators that not all readers recognise (form feed, U+2028) and other control characters.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")
# Placeholders that a package substitutes at import: `{input}`, `%(params)s`.
_PLACEHOLDER = re.compile(r"^[ \t]*(?:\{\w+\}|%\([^()\n]*\)s)[ \t]*$\n?", re.MULTILINE)
# Underlines of headings and rules of tables: each character would be a token, a twentieth of all tokens.
_RULER = re.compile(r"^[ \t]*([-=~^*#+_.\"'`:])\1{2,}(?:[ \t]+\1{3,})*[ \t]*(?:\n|\Z)", re.MULTILINE)


def documents() -> Iterator[dict[str, str]]:
    """Rows {id, text}: the distinct docstrings of every module, in file order.

    A module is split into documents of about 8,000 characters at top-level definitions, so that a topic is not split; a
    class of more than 32,000 characters is split at a method.

    Raises:
        DataError: a package in `PACKAGES` is not installed.
    """
    files = [(locate(name), path) for name in PACKAGES for path in python_files(name) if _wanted(path)]
    seen: set[bytes] = set()
    with Progress("data: general text", total=len(files), unit="files") as bar:
        sources = [root / path for root, path in files]
        with ProcessPoolExecutor(cores(), mp_context=get_context("spawn"), initializer=gc.disable) as pool:
            extracted = pool.map(_extract_file, sources, chunksize=32)
            for (_, path), groups in zip(files, extracted, strict=True):
                yield from _cut(path, groups, seen)
                bar.advance()


def _wanted(path: PurePosixPath) -> bool:
    return _SKIPPED_FOLDERS.isdisjoint(path.parts[:-1]) and not _SKIPPED_FILES.fullmatch(path.name)


def _extract_file(path: Path) -> list[list[str]]:
    return extract(path.read_bytes())


def _cut(path: PurePosixPath, groups: list[list[str]], seen: set[bytes]) -> Iterator[dict[str, str]]:
    texts: list[str] = []
    number, size = 0, 0
    for group in groups:
        for text in group:
            key = blake2b(text.encode(), digest_size=16).digest()
            if key in seen:
                continue
            seen.add(key)
            if size >= (_DOCUMENT_CHARACTERS if text is group[0] else _CLASS_CHARACTERS):
                yield {"id": f"{path}#{number}", "text": "\n\n".join(texts)}
                texts, number, size = [], number + 1, 0
            texts.append(text)
            size += len(text)
    if texts:
        yield {"id": f"{path}#{number}", "text": "\n\n".join(texts)}


def extract(source: bytes) -> list[list[str]]:
    """The documentation in Python source, one list per top-level statement, in file order.

    That is: docstrings of the module and of its classes, methods and functions; strings assigned to names that contain
    `doc`; long strings passed to functions whose names contain `doc` (`add_newdoc`, decorators). The result is empty
    for source that this version of Python cannot parse.
    """
    with warnings.catch_warnings():
        # Third-party docstrings contain invalid escapes.
        warnings.simplefilter("ignore")
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError):
            return []
    groups = [[text] if (text := ast.get_docstring(tree)) else []]
    groups += [list(_texts([node])) for node in tree.body]
    return [cleaned for group in groups if (cleaned := [text for raw in group if (text := _clean(raw))])]


def _texts(nodes: Iterable[ast.stmt]) -> Iterator[str]:
    for node in nodes:
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                for decorator in node.decorator_list:
                    yield from _call_texts(decorator)
                if text := ast.get_docstring(node):
                    yield text
                if isinstance(node, ast.ClassDef):
                    yield from _texts(node.body)
            case ast.If() | ast.Try() | ast.With() | ast.For():
                yield from _texts(node.body)
                if not isinstance(node, ast.With):
                    yield from _texts(node.orelse)
            case ast.Expr(value=value):
                yield from _call_texts(value)
            case ast.Assign(targets=[target], value=value):
                if "doc" in ast.unparse(target).lower():
                    yield from _long(_string(value))
                yield from _call_texts(value)


def _call_texts(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if "doc" in name.lower():
            for argument in [*node.args, *(keyword.value for keyword in node.keywords)]:
                values = argument.elts if isinstance(argument, ast.Tuple) else [argument]
                for value in values:
                    yield from _long(_string(value))


def _long(text: str) -> Iterator[str]:
    if len(text) >= _CALL_CHARACTERS and " " in text:
        yield inspect.cleandoc(text)


def _string(node: ast.expr) -> str:
    """The constant text of an expression: literals, `+`, and the template of `%` and `.format()`."""
    match node:
        case ast.Constant(value=str(value)):
            return value
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _string(left) + _string(right)
        case ast.BinOp(left=left, op=ast.Mod()):
            return _string(left)
        case ast.Call(func=ast.Attribute(value=value, attr="format")):
            return _string(value).replace("{{", "{").replace("}}", "}")
    return ""


def _clean(text: str) -> str:
    return _RULER.sub("", _PLACEHOLDER.sub("", _CONTROL.sub(" ", text))).strip()


def _distribution(name: str) -> metadata.Distribution:
    try:
        return metadata.distribution(name)
    except metadata.PackageNotFoundError as error:
        raise DataError(
            f"built-in data: package {name!r} is not installed; install the packages of requirements.lock"
        ) from error


def locate(name: str) -> Path:
    """The folder that a distribution is installed in (site-packages).

    Raises:
        DataError: the distribution is not installed.
    """
    return Path(str(_distribution(name).locate_file("")))


def python_files(name: str) -> list[PurePosixPath]:
    """The .py files that a distribution installed, relative to `locate(name)`, sorted by their parts.

    Raises:
        DataError: the distribution is not installed or has no list of files.
    """
    files = _distribution(name).files
    if files is None:
        raise DataError(f"built-in data: package {name!r} has no list of its files (RECORD); reinstall it")
    names = {PurePosixPath(str(file)) for file in files if file.suffix == ".py"}
    return sorted((path for path in names if ".." not in path.parts), key=lambda path: path.parts)
