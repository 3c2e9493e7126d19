"""Labelled tasks from the service models, each a function from parsed services to splits of rows."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from hashlib import blake2b

from components.formats.textkey import text_key
from components.ingestion.builtin.aws import Service

Row = dict[str, str]
Splits = dict[str, list[Row]]

#: Label of each model type; others (blob, document) are too rare to learn.
TYPE_LABELS = {
    "boolean": "boolean",
    "integer": "integer",
    "long": "integer",
    "double": "double",
    "float": "double",
    "string": "string",
    "enum": "enum",
    "timestamp": "timestamp",
    "list": "list",
    "map": "map",
    "structure": "structure",
}
#: Descriptions longer than this are documents of their own.
_TYPE_CHARACTERS = 500
#: Rows a class in the balanced splits of aws-type.
TYPE_ROWS = {"dev": 100, "test": 300}


def order_key(*parts: str) -> bytes:
    """A fixed pseudo-random order: sorting by it shuffles, the same way everywhere."""
    return blake2b("\0".join(parts).encode(), digest_size=16).digest()


def service_split(key: str) -> str:
    """The split of a service and its kin: those with one first word (`lex-models`, `lexv2-models`) stay together."""
    family = re.sub(r"v?\d+$", "", key.split("-")[0])
    share = int.from_bytes(order_key("split", family)[:4], "big") / 2**32
    return "train" if share < 0.6 else "dev" if share < 0.75 else "test"


def parameter_types(services: list[Service]) -> Splits:
    """aws-type: the type of a parameter from its description; rows {text, label, service, id}.

    Services are divided between train, dev and test. A text (compared by `text_key`) counts once, under the first
    service that has it; one that stands with several types anywhere is dropped, and one that stands in several
    splits stays in train only. Dev and test hold the same number of rows of every class, train holds everything
    else, shuffled, so that the first n rows of a class are a set nested in the first m > n.
    """
    labels: dict[str, set[str]] = defaultdict(set)
    splits: dict[str, set[str]] = defaultdict(set)
    first: dict[tuple[str, str], Row] = {}
    for service in services:
        split = service_split(service.key)
        for shape in service.shapes.values():
            for member in shape.members:
                if text := " ".join(member.text.split()):
                    key = text_key(text)
                    label = TYPE_LABELS.get(member.type, "")
                    labels[key].add(label)
                    splits[key].add(split)
                    row_id = f"{service.key}/{shape.name}/{member.name}"
                    row = {"id": row_id, "text": text, "label": label, "service": service.key}
                    first.setdefault((split, key), row)
    rows: Splits = {"train": [], "dev": [], "test": []}
    for (split, key), row in first.items():
        usable = len(labels[key]) == 1 and row["label"] and len(row["text"]) <= _TYPE_CHARACTERS
        if usable and (split == "train" or len(splits[key]) == 1):
            rows[split].append(row)
    for split, found in rows.items():
        found.sort(key=lambda row: order_key("aws-type", row["text"]))
        if split != "train":
            rows[split] = balanced(found, TYPE_ROWS[split])
    return rows


def balanced(rows: list[Row], per_class: int) -> list[Row]:
    """Rows with the same number of every class: `per_class`, or as many as the rarest class has; order is kept.

    One service gives at most an eighth of a class, unless the class has no more of others.
    """
    classes: dict[str, list[Row]] = defaultdict(list)
    overflow: dict[str, list[Row]] = defaultdict(list)
    taken: Counter[tuple[str, str]] = Counter()
    for row in rows:
        taken[row["label"], row["service"]] += 1
        within = taken[row["label"], row["service"]] <= max(1, per_class // 8)
        (classes if within else overflow)[row["label"]].append(row)
    ranked = [classes[label] + overflow[label] for label in sorted(classes)]
    size = min([per_class, *map(len, ranked)])
    kept = {id(row) for found in ranked for row in found[:size]}
    return [row for row in rows if id(row) in kept]
