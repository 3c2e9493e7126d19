"""Encoder directories."""

from pathlib import Path
from typing import Any

from components.core.artifacts import writing
from components.models.encoder import KIND, save_encoder


def stored(directory: Path, family: str, model: Any, tokenizer: Any, *, trained: bool = True) -> Path:
    """The complete directory of a model with a tokenizer, which is saved beside it, or with that of a folder."""
    if not isinstance(tokenizer, Path):
        beside = directory.with_name(f"{directory.name}-tokenizer")
        tokenizer.save(beside)
        tokenizer = beside
    with writing(directory, kind=KIND) as draft:
        save_encoder(draft.path, family=family, model=model, tokenizer=tokenizer)
        draft.facts["trained"] = trained
    return directory
