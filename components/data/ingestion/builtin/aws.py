"""The documentation texts of botocore's service models, parsed once for all tasks.

`read_services` keeps names, types and the HTML of every text, including `code` elements and lists. Each task is a
function of the result: types from descriptions, services from documents, code spans for tagging, operation names and
descriptions for pairs.
"""

import gzip
import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from components.core.errors import DataError
from components.data.formats.textkey import text_key
from components.data.ingestion.builtin.docstrings import locate
from components.data.ingestion.cleaning import plain_text


class _Documented:
    html: str

    @cached_property
    def text(self) -> str:
        return plain_text(self.html)


@dataclass(frozen=True)
class Member(_Documented):
    """A member of a structure; `type` is the model's (string, long ...), `enum` for a fixed set of strings."""

    name: str
    type: str
    html: str


@dataclass(frozen=True)
class Shape(_Documented):
    """A structure, or a documented scalar without members."""

    name: str
    html: str
    members: tuple[Member, ...]

    @property
    def texts(self) -> list[str]:
        return [self.text, *(member.text for member in self.members)]


@dataclass(frozen=True)
class Operation(_Documented):
    """An operation of a service; `input` and `output` are names of shapes."""

    name: str
    html: str
    input: str | None
    output: str | None


@dataclass(frozen=True)
class Service:
    """A service model: `key` is the name of botocore's folder, `metadata` has the names and the endpoint prefix."""

    key: str
    metadata: dict[str, Any]
    html: str
    operations: tuple[Operation, ...]
    shapes: dict[str, Shape] = field(repr=False)


def read_services() -> list[Service]:
    """The newest version of every service model in the installed botocore, sorted by folder name.

    Raises:
        DataError: botocore is not installed or holds no service models.
    """
    root = locate("botocore") / "botocore" / "data"
    newest = {path.parts[-3]: path for path in sorted(root.glob("*/*/service-2.json.gz"), key=lambda path: path.parts)}
    if not newest:
        raise DataError(
            f"{root}: no service models (*/*/service-2.json.gz); install the version of botocore in requirements.lock"
        )
    return [read_service(key, path) for key, path in sorted(newest.items())]


def read_service(key: str, path: Path) -> Service:
    try:
        with gzip.open(path, "rb") as file:
            raw = json.load(file)
    except (OSError, EOFError, ValueError) as error:
        raise DataError(f"{path}: damaged service model ({error}); reinstall botocore") from error
    shapes = raw["shapes"]
    return Service(
        key=key,
        metadata=raw["metadata"],
        html=raw.get("documentation", ""),
        operations=tuple(
            Operation(
                name=name,
                html=operation.get("documentation", ""),
                input=operation.get("input", {}).get("shape"),
                output=operation.get("output", {}).get("shape"),
            )
            for name, operation in raw["operations"].items()
        ),
        shapes={
            name: Shape(
                name=name,
                html=shape.get("documentation", ""),
                members=tuple(
                    Member(member, _type(shapes[target["shape"]]), target.get("documentation", ""))
                    for member, target in shape.get("members", {}).items()
                ),
            )
            for name, shape in shapes.items()
        },
    )


def _type(shape: dict[str, Any]) -> str:
    """The type as documented: `enum` for strings with a fixed set of values, `document` for free-form JSON."""
    if "enum" in shape:
        return "enum"
    return "document" if shape.get("document") else str(shape["type"])


@dataclass(frozen=True)
class Document:
    """The texts of an operation and the members of its input and output, or of a shape and its members, in order."""

    service: str
    name: str
    texts: tuple[str, ...]

    @property
    def id(self) -> str:
        return f"{self.service}/{self.name}"

    @property
    def text(self) -> str:
        return "\n".join(self.texts)


def service_documents(service: Service) -> Iterator[Document]:
    """The non-empty documents of a service: overview, operations, and the structures that no operation covers."""
    shown: set[str] = set()
    if overview := plain_text(service.html):
        yield Document(service.key, "overview", (overview,))
    for operation in service.operations:
        texts = [operation.text]
        for name in (operation.input, operation.output):
            if name is not None and name not in shown:
                texts += service.shapes[name].texts
                shown.add(name)
        if texts := [text for text in texts if text]:
            yield Document(service.key, operation.name, tuple(texts))
    for shape in service.shapes.values():
        if shape.members and shape.name not in shown and (texts := [text for text in shape.texts if text]):
            yield Document(service.key, f"shapes/{shape.name}", tuple(texts))


def corpus(
    documents: list[Document], *, without: Collection[str], left_out: Collection[str] = ()
) -> Iterator[dict[str, str]]:
    for document in documents:
        if document.id not in left_out:
            texts = [text for text in document.texts if text_key(text) not in without]
            # An excluded text may also be a paragraph of a longer text.
            lines = [line for text in texts for line in text.split("\n") if text_key(line) not in without]
            if lines:
                yield {"id": document.id, "text": "\n".join(lines)}
