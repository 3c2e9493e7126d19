"""Defaults of the families, read from the source of their files, because importing them loads torch."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

_FOLDER = Path(__file__).resolve().parents[1] / "models"
#: Rate of families whose file names none.
_RATE = 0.001


class FamilyDefaults(NamedTuple):
    """What `pretrain.<name>` leaves out (`components.models.base.ModelFamily`)."""

    tokenizer: str = "wordpiece"
    rate: float = _RATE
    is_causal: bool = False


@cache
def all_families() -> dict[str, FamilyDefaults]:
    """Family -> its defaults: the literals in `FAMILY = ModelFamily(...)` of each file in components/models."""
    result: dict[str, FamilyDefaults] = {}
    for path in sorted(_FOLDER.glob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            match node:
                case ast.Assign(targets=[ast.Name(id="FAMILY")], value=ast.Call(keywords=keywords)):
                    given = {entry.arg: entry.value for entry in keywords}
                    result[_literal(given, "name")] = FamilyDefaults(
                        _literal(given, "tokenizer") or _literal(given, "tokenizers")[0],
                        _literal(given, "rate") or _RATE,
                        _literal(given, "objective") == "causal",
                    )
    return result


def _literal(given: dict[str | None, ast.expr], name: str) -> Any:
    return ast.literal_eval(given[name]) if name in given else None
