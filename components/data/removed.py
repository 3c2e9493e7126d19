"""The documents that `headstart forget` has removed. Their record holds no text: a document is named by an HMAC-SHA256
with the key of the repository."""

import hashlib
import hmac
import json
import secrets
from collections.abc import Sequence
from pathlib import Path

from components.core.artifacts import private_folder, read_json, write_atomic
from components.data.matching import Texts, key_of

STATE = Path(".headstart/forget")
RECORDS = Path("records/forget")


def repository_key(root: Path) -> bytes:
    """The repository's key; made at the first use."""
    path = root / STATE / "key"
    if not path.is_file():
        private_folder(path.parent)
        write_atomic(path, secrets.token_hex(32), private=True)
    return bytes.fromhex(path.read_text())


def name_of(key: bytes, text: str) -> str:
    """The name of a document in certificates."""
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def pending(root: Path) -> list[str]:
    """The texts of a removal that runs or was interrupted."""
    path = root / STATE / "pending.json"
    return [str(text) for text in json.loads(path.read_text())] if path.is_file() else []


class Removed:
    """The removed documents of a repository, as they are when this is made.

    Raises:
        ArtifactError: a certificate cannot be read.
    """

    def __init__(self, root: Path) -> None:
        self._pending = Texts(pending(root))
        self._certificates = {
            document: path.stem
            for path in sorted((root / RECORDS).glob("*.json"))
            for document in read_json(path, made_by="headstart forget").get("documents", [])
        }
        self._key = repository_key(root) if self._certificates else b""

    def certificate(self, texts: Sequence[str]) -> str:
        """The certificate that names one of these texts; empty if none was removed."""
        if len(self._pending) and any(map(self._pending.held_by, texts)):
            return "a removal that is not completed"
        names = (name_of(self._key, key_of(text)) for text in texts) if self._certificates else ()
        return next((self._certificates[name] for name in names if name in self._certificates), "")
