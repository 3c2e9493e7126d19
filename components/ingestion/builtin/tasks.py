"""aws-type, a labelled task from the service models; deterministic shuffling and splits, which all tasks share."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from hashlib import blake2b

from components.formats.textkey import text_key
from components.ingestion.builtin.aws import Service

Row = dict[str, str]
Splits = dict[str, list[Row]]

#: Model type -> label; the other types (blob, document) are too rare to learn.
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
#: Maximum number of characters of a description; longer ones are treated as documents.
_TYPE_CHARACTERS = 500
#: Rows per class of the balanced splits of aws-type.
TYPE_ROWS = {"dev": 100, "test": 300}


def order_key(*parts: str) -> bytes:
    """A hash by which rows are sorted: a pseudo-random order that is the same on every machine."""
    return blake2b("\0".join(parts).encode(), digest_size=16).digest()


def service_split(key: str) -> str:
    """The split of a service; related services, with the same first word (`lex-models`, `lexv2-models`), share one."""
    family = re.sub(r"v?\d+$", "", key.split("-")[0])
    share = int.from_bytes(order_key("split", family)[:4], "big") / 2**32
    return "train" if share < 0.6 else "dev" if share < 0.75 else "test"


def parameter_types(services: list[Service]) -> Splits:
    """Rows {id, text, label, service} of train, dev and test of aws-type: a description and the type of its parameter.

    Splits are disjoint in services. Texts are compared by `text_key`: a text is used once per split, of the first
    service; a text with several types is dropped; a text in several splits is kept in train only. Dev and test are
    balanced; train has the other rows, shuffled, so that label budgets are nested prefixes.
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
    for split, of_split in rows.items():
        of_split.sort(key=lambda row: order_key("aws-type", row["text"]))
        if split != "train":
            rows[split] = balanced(of_split, TYPE_ROWS[split])
    return rows


def balanced(rows: list[Row], per_class: int) -> list[Row]:
    """At most `per_class` rows of every class, the same number of each, in their order.

    A service supplies at most an eighth of a class unless the class lacks rows of other services.
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
    kept = {id(row) for of_class in ranked for row in of_class[:size]}
    return [row for row in rows if id(row) in kept]
