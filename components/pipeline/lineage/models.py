"""Which registered versions have learned from a document, by their provenance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from components.core.artifacts import digest_file
from components.data.ingestion.cleaning import clean
from components.data.ingestion.dedup import exact_keys
from components.data.matching import Texts, file_holds
from components.pipeline.lineage.documents import Copy
from components.pipeline.lineage.places import Cache, holds_key
from components.registry.ledger import LEDGER
from components.registry.lineage import PROVENANCE
from components.registry.tracking import Registry, Version

#: Splits of a task that a model learns from: the labels of dev select its weights.
LEARNED = ("train", "dev")


@dataclass(frozen=True)
class Learner:
    """A version that has, or may have, learned from a document.

    Attributes:
        sources: `corpus/general`, `examples/aws-type` ... that held the document when the version was trained.
        certain: whether the provenance shows it. Otherwise the data of that time are no longer available, and the
            version counts as a learner to be safe.
    """

    version: Version
    sources: tuple[str, ...]
    certain: bool

    def __str__(self) -> str:
        how = "" if self.certain else "possibly, the data of that time are not available: "
        return f"{self.version.label}: {how}{', '.join(self.sources)}"


class Evidence:
    """The documents, their copies in the outputs of the run, the raw files that hold them, and DVC's cache; `exact`:
    keys of the documents and of their copies in corpora."""

    def __init__(
        self, texts: Texts, wanted: Sequence[str], *, copies: Sequence[Copy], files: Sequence[Path], cache: Cache
    ) -> None:
        self._texts, self._cache = texts, cache
        self.exact = {exact_keys([clean(text)]).astype("<u8").tobytes() for text in wanted}
        self.exact |= {copy.key for copy in copies if copy.key}
        self._sha256 = {digest_file(path) for path in files}
        self._answers: dict[tuple[str, str], bool | None] = {}

    def held_by(self, source: str, entry: Mapping[str, Any]) -> bool | None:
        """Whether a source (`corpus/NAME`; train or dev of `examples/NAME`), by its entry in a provenance, held a
        document; None if its data are no longer available."""
        if self._sha256.intersection((entry.get("files") or {}).values()):
            return True
        key = (source, str(entry.get("md5")))
        if key not in self._answers:
            listing = self._cache.listing(key[1]) or {}
            of_corpus = source.startswith("corpus/")
            names = entry.get("keys") or [] if of_corpus else [f"{split}.parquet" for split in LEARNED]
            paths = [path for name in names if (path := self._cache.find(listing.get(name, "-"))) is not None]
            held = (holds_key(path, self.exact) if of_corpus else file_holds(path, self._texts) for path in paths)
            self._answers[key] = None if not names or len(paths) < len(names) else any(held)
        return self._answers[key]


def learners(registry: Registry, evidence: Evidence) -> list[Learner]:
    """The versions that have, or may have, learned from the documents, over all models of the registry."""
    versions = [version for name in registry.models() if name != LEDGER for version in registry.versions(name)]
    results: list[Learner] = []
    for version in versions:
        if not version.digest:
            continue  # not registered by Headstart
        provenance = registry.document(version, PROVENANCE)
        answers: dict[str, bool | None] = {"data of an unknown version": None}
        if provenance is not None:
            sources = {f"corpus/{name}": entry for name, entry in provenance["corpora"].items()}
            sources |= {f"examples/{name}": entry for name, entry in provenance["tasks"].items()}
            answers = {source: evidence.held_by(source, entry) for source, entry in sources.items()}
        held = tuple(source for source, answer in answers.items() if answer)
        gone = tuple(source for source, answer in answers.items() if answer is None)
        if held or gone:
            results.append(Learner(version, held or gone, certain=bool(held)))
    return results
