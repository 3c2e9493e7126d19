"""The code that a version was registered with: its digest, and whether the present code is the same."""

from __future__ import annotations

import ast
import hashlib
from pathlib import Path

from components.errors import ArtifactError
from components.registry.packaging import PACKAGE

#: Tag of a version.
CODE_DIGEST = "code_digest"


def code_digest(package: Path) -> str:
    """SHA-256 over the paths and contents of all Python files of a package."""
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        digest.update(f"{path.relative_to(package).as_posix()} {content}\n".encode())
    return digest.hexdigest()


def check_code(package: Path, *, digest: str, what: str) -> None:
    """Verify that the code of a version is the registered one. Nothing of it is imported before.

    Args:
        package: folder `components` of the version.
        digest: from the version's tags.
        what: name of the version for the message.

    Raises:
        ArtifactError: a file was changed, added or removed.
    """
    if (found := code_digest(package)) != digest:
        raise ArtifactError(
            f"{what}: its code in the artifact store is not the code that was registered (digest {found[:12]}, "
            f"registered {digest[:12]}); restore the files, or roll back: `headstart rollback`"
        )


def differing_file(package: Path, *, present: Path = PACKAGE) -> str:
    """A file of a version that the present code lacks or contains in another form; empty if there is none. Comments,
    docstrings and formatting do not count."""
    for path in sorted(package.rglob("*.py")):
        name = path.relative_to(package)
        own = present / name
        if not own.is_file():
            return name.as_posix()
        texts = path.read_bytes(), own.read_bytes()
        if texts[0] != texts[1] and len({_meaning(text) for text in texts}) > 1:
            return name.as_posix()
    return ""


def _meaning(text: bytes) -> str:
    """The syntax tree without docstrings."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [
                part for part in node.body if not (isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant))
            ]
    return ast.dump(tree)
