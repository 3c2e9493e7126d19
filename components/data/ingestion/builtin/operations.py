"""Names and descriptions of operations: the task aws-operation, whether both match, and translation pairs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from components.data.formats.textkey import text_key
from components.data.ingestion.builtin.aws import Service
from components.data.ingestion.builtin.services import WORDS
from components.data.ingestion.builtin.tasks import Row, Splits, order_key

#: Maximum number of operations in train; each has two rows.
TRAIN_OPERATIONS = 10_000
BELONGS, OTHER = "belongs", "other"


@dataclass(frozen=True)
class Described:
    """An operation: its name split into words, and the first paragraph of its documentation."""

    service: str
    id: str
    name: str
    description: str


def described(services: Iterable[Service]) -> Iterator[Described]:
    """The operations with a description, in model order."""
    for service in services:
        for operation in service.operations:
            if description := " ".join(operation.text.partition("\n")[0].split()):
                name = " ".join(WORDS.findall(operation.name)).lower()
                yield Described(service.key, f"{service.key}/{operation.name}", name, description)


def translations(
    services: list[Service], *, without: Collection[str], left_out: Collection[str]
) -> Iterator[dict[str, str]]:
    """Distinct rows {id, source, target} in model order: description and name of an operation ("Creates a new S3
    bucket." -> "create bucket").
    """
    seen: set[tuple[str, str]] = set()
    for operation in described(services):
        key = text_key(operation.description)
        if key not in without and operation.id not in left_out and (key, operation.name) not in seen:
            seen.add((key, operation.name))
            yield {"id": operation.id, "source": operation.description, "target": operation.name}


def names_and_descriptions(services: list[Service], documents: Splits, corpus: Iterable[str]) -> Splits:
    """Rows {id, first, second, label, service} of train, dev and test: name, description, and whether they match.

    Each operation has one row with its own name, and one with the name of another operation of its service, which
    shares a word with it if possible. Dev and test use operations whose documents are in dev and test of aws-service,
    which are excluded from the domain corpus; train uses operations of services that are not in aws-service, shuffled.
    """
    split_of = {row["id"]: split for split in ("dev", "test") for row in documents[split]}
    classified = {row["label"] for row in documents["test"]}
    by_service: dict[str, list[Described]] = defaultdict(list)
    for operation in described(services):
        by_service[operation.service].append(operation)
    candidates: dict[str, list[Described]] = {"train": [], "dev": [], "test": []}
    for service, operations in by_service.items():
        for operation in operations:
            split = split_of.get(operation.id, None if service in classified else "train")
            if split is not None and len(operations) > 1:
                candidates[split].append(operation)
    held = {text_key(operation.description) for split in ("dev", "test") for operation in candidates[split]}
    taken = {key for text in corpus for line in text.split("\n") if (key := text_key(line)) in held}
    rows: Splits = {"train": [], "dev": [], "test": []}
    for split in ("test", "dev", "train"):
        count = 0
        for operation in sorted(candidates[split], key=lambda entry: order_key("aws-operation", entry.id)):
            key = text_key(operation.description)
            other = _other(operation, by_service[operation.service])
            if key not in taken and other is not None and (split != "train" or count < TRAIN_OPERATIONS):
                taken.add(key)
                count += 1
                rows[split] += _rows(operation, other)
        rows[split].sort(key=lambda row: order_key("aws-operation", row["id"]))
    return rows


def _rows(operation: Described, other: Described) -> list[Row]:
    return [
        {
            "id": f"{operation.id}/{label}",
            "first": name,
            "second": operation.description,
            "label": label,
            "service": operation.service,
        }
        for name, label in ((operation.name, BELONGS), (other.name, OTHER))
    ]


def _other(operation: Described, operations: Collection[Described]) -> Described | None:
    """Another operation with a different description, preferably one whose name shares a word; None: there is none."""
    words, key = set(operation.name.split()), text_key(operation.description)
    others = [entry for entry in operations if entry.name != operation.name and text_key(entry.description) != key]
    near = [entry for entry in others if words & set(entry.name.split())]
    return min(near or others, key=lambda entry: order_key(operation.id, entry.id), default=None)
