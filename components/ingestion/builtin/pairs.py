"""Translation pairs: the description of an operation, and its name split into words."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from components.formats.textkey import text_key
from components.ingestion.builtin.aws import Service
from components.ingestion.builtin.masking import WORDS


def operations(
    services: list[Service], *, without: Collection[str], left_out: Collection[str]
) -> Iterator[dict[str, str]]:
    """Distinct rows {id, source, target} in model order: the first paragraph of an operation's documentation, and its
    name ("Creates a new S3 bucket." -> "create bucket").

    Args:
        services: parsed models.
        without: `text_key`s of excluded texts (dev and test rows of a task).
        left_out: ids of excluded documents; an operation's row has the id of its document.
    """
    seen: set[tuple[str, str]] = set()
    for service in services:
        for operation in service.operations:
            source = " ".join(operation.text.partition("\n")[0].split())
            target = " ".join(WORDS.findall(operation.name)).lower()
            key = text_key(source)
            row_id = f"{service.key}/{operation.name}"
            if source and key not in without and row_id not in left_out and (key, target) not in seen:
                seen.add((key, target))
                yield {"id": row_id, "source": source, "target": target}
