"""Which registered versions have learned from a document, by their provenance."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from components.data_version import data_versions
from components.errors import HeadstartError
from components.formats import corpus as corpora
from components.ingestion.cleaning import clean
from components.ingestion.dedup import exact_keys
from components.lineage.documents import Found
from components.lineage.matching import Texts, file_holds
from components.lineage.stores import Cache, holds_key
from components.pipeline.jobs import register
from components.registry.ledger import LEDGER
from components.registry.lineage import PROVENANCE
from components.settings.params import Params
from components.tracking import Registry, Version

#: Splits of a task that a model learns from: the labels of dev select its weights.
LEARNED = ("train", "dev")


@dataclass(frozen=True)
class Learner:
    """A version that has, or may have, learned from a document.

    Attributes:
        version: of a registered model.
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


@dataclass
class Evidence:
    """What is known about the documents at present.

    Attributes:
        texts: the documents.
        wanted: the documents as texts.
        found: their copies in the outputs of the run.
        files: raw files that hold them.
        cache: DVC's cache.
        params: settings of the run.
    """

    texts: Texts
    wanted: Sequence[str]
    found: list[Found]
    files: list[Path]
    cache: Cache
    params: Params
    sha256: set[str] = field(default_factory=set)
    _known: dict[tuple[str, str], bool | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for path in self.files:
            with path.open("rb") as file:
                self.sha256.add(hashlib.file_digest(file, "sha256").hexdigest())

    @property
    def exact(self) -> set[bytes]:
        """Keys of the documents and of their copies in corpora."""
        own = {exact_keys([clean(text)]).astype("<u8").tobytes() for text in self.wanted}
        return own | {one.key for one in self.found if one.key}

    def in_corpus(self, name: str, entry: Mapping[str, Any]) -> bool | None:
        """Whether a corpus held one of the documents; None if this is not known any more.

        Args:
            name: of the corpus.
            entry: of the corpus in a provenance.
        """
        if self.sha256.intersection((entry.get("files") or {}).values()):
            return True
        key = (name, str(entry.get("md5")))
        if key not in self._known:
            self._known[key] = self._in_shards(entry)
        return self._known[key]

    def _in_shards(self, entry: Mapping[str, Any]) -> bool | None:
        listing = self.cache.listing(str(entry.get("md5")))
        keys = [self.cache.find((listing or {}).get(name, "-")) for name in entry.get("keys") or []]
        if not keys or None in keys:
            return None
        return any(path is not None and holds_key(path, self.exact) for path in keys)

    def in_task(self, name: str, entry: Mapping[str, Any]) -> bool | None:
        """Whether train or dev of a task held one of the documents; None if this is not known any more."""
        key = (name, str(entry.get("md5")))
        if key not in self._known:
            listing = self.cache.listing(str(entry.get("md5")))
            paths = [self.cache.find((listing or {}).get(f"{split}.parquet", "-")) for split in LEARNED]
            known = None if None in paths else any(path is not None and file_holds(path, self.texts) for path in paths)
            self._known[key] = known
        return self._known[key]

    def at_present(self, source: str) -> bool:
        """Whether a corpus or the train and dev rows of a task hold one of the documents at present."""
        return any(
            one.where == source and one.split in (*corpora.SPLITS, *LEARNED) and one.similarity == 1
            for one in self.found
        )


def learners(registry: Registry, evidence: Evidence) -> list[Learner]:
    """The versions that have, or may have, learned from the documents, over all models of the registry."""
    known: list[Learner] = []
    for name in registry.models():
        if name != LEDGER:
            known += [found for version in registry.versions(name) if (found := _learner(registry, evidence, version))]
    return known


def _learner(registry: Registry, evidence: Evidence, version: Version) -> Learner | None:
    if not version.digest:
        return None  # not registered by Headstart
    provenance = registry.document(version, PROVENANCE)
    answers = dict(_answers(evidence, provenance) if provenance is not None else _by_data_version(evidence, version))
    certain = tuple(source for source, held in answers.items() if held)
    possible = tuple(source for source, held in answers.items() if held is None)
    if certain:
        return Learner(version, certain, certain=True)
    return Learner(version, possible, certain=False) if possible else None


def _answers(evidence: Evidence, provenance: Mapping[str, Any]) -> Iterator[tuple[str, bool | None]]:
    for name, entry in provenance["corpora"].items():
        yield f"corpus/{name}", evidence.in_corpus(name, entry)
    for name, entry in provenance["tasks"].items():
        yield f"examples/{name}", evidence.in_task(name, entry)


def _by_data_version(evidence: Evidence, version: Version) -> Iterator[tuple[str, bool | None]]:
    """Of a version that was registered without provenance: by the digests of its data."""
    recorded = dict(part.partition("=")[::2] for part in version.tags.get("data", "").split(", ") if "=" in part)
    job = next(iter(register(evidence.params).values()))
    try:
        present = data_versions(job["data"], project=evidence.cache.root, out=Path(evidence.params.run.out))
    except HeadstartError:
        present = {}
    used = _used(version)
    for source, data in present.items():
        if used(source):
            same = recorded.get(data.path) == data.digest
            yield source, evidence.at_present(source) if same else None
    if not present or not recorded:
        yield "data of an unknown version", None


def _used(version: Version) -> Any:
    """Which inputs a version without provenance was trained on."""
    start, task = version.tags.get("start", ""), version.tags.get("task", "")

    def used(source: str) -> bool:
        folder, _, name = source.partition("/")
        if folder == "corpus":
            general = name.startswith("general")
            return start != "scratch" if general else start not in ("scratch", "pretrained")
        return name == task or start.endswith(name)

    return used
