"""Tables of interchangeable parts: one line per entry, each imported when it is first used."""

import importlib
from collections.abc import Iterator, Mapping
from typing import TypeVar

T = TypeVar("T")


class LazyTable(Mapping[str, T]):
    """A mapping whose values are imported on first access.

    `LazyTable({"bert": "components.models.bert:FAMILY"})["bert"]` imports the module and returns its attribute. A
    process imports only the entries that it uses, and a stage depends only on the entries that its settings name
    (`components.pipeline.code_identity`), so a new entry does not make other entries' stages out of date.

    Args:
        entries: name -> "module:attribute". A literal: the import closure is read from the source.
    """

    def __init__(self, entries: Mapping[str, str]) -> None:
        self._entries = dict(entries)
        self._loaded: dict[str, T] = {}

    def __getitem__(self, name: str) -> T:
        if name not in self._loaded:
            module, _, attribute = self._entries[name].partition(":")
            self._loaded[name] = getattr(importlib.import_module(module), attribute)
        return self._loaded[name]

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)
