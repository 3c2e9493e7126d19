"""`headstart trace`: from a model to its documents, and from a document to the models that have learned from it."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import yaml

from components.core.artifacts import MANIFEST, digest_file, read_manifest
from components.core.errors import ConfigError, RegistryError
from components.data.matching import Texts
from components.pipeline.lineage.documents import Copy, holders, near_copies, texts_of
from components.pipeline.lineage.places import Cache, Item, raw_holders
from components.registry.explain import CLASSIFIER
from components.registry.reading import Reading
from components.registry.version import LEDGER, PROVENANCE, Version, numbered
from components.settings.params import Params
from components.settings.registry import RegistrySettings, with_models

#: Entries of a mapping, such as raw files, that are shown; and keys that are not.
_SHOWN = 20
_DETAILS = ("schema", "stages", "settings")


def trace_model(params: Params, model: str) -> dict[str, Any]:
    """The provenance of a model and of the models that it was initialised from: {model, tags, provenance, parents,
    teachers}, where parents and teachers are the same objects.

    The model is named as in `find_version`, or by its path in the run's folder.

    Raises:
        ConfigError: the path is no trained model.
        RegistryError: there is no such model, version or alias.
    """
    registry, path = Reading(with_models(params.registry)), Path(model)
    if path.exists() or len(path.parts) > 2:
        return _trace_version(registry, _registered(registry, path, params.run.out))
    return _trace_version(registry, find_version(registry, params.registry, model))


def _registered(registry: Reading, path: Path, out: str) -> Version:
    """The version of the model in a directory."""
    from components.registry.register import model_content  # imports MLflow

    folder = next((each for each in (path / CLASSIFIER, path) if (each / MANIFEST).is_file()), None)
    if folder is None:
        raise ConfigError(f"{path}: not the output of a training; name a directory below {out}")
    digest = model_content(folder, kind=read_manifest(folder).kind).digest
    if (version := next((each for each in _versions(registry) if each.digest == digest), None)) is None:
        raise RegistryError(f"{path}: is not registered; run the stage register first")
    return version


def find_version(registry: Reading, settings: RegistrySettings, model: str) -> Version:
    """A version by NAME, NAME:VERSION, NAME/VERSION or NAME@ALIAS; NAME may be the name of a task.

    Raises:
        RegistryError: there is no such model, version or alias.
    """
    name, at, alias = model.partition("@")
    number = ""
    if not at:
        name, _, number = model.replace("/", ":").partition(":")
    names = registry.models()
    full = name if name in names else settings.model_name(name)
    if full not in names:
        shown = ", ".join(sorted(model for model in names if model.startswith(f"{settings.prefix}-"))) or "none"
        raise RegistryError(f"{name}: no registered model or task with this name; registered: {shown}")
    if number:
        return numbered(registry, full, number)
    result = registry.alias(full, alias or settings.alias)
    if result is None and not at and (versions := registry.versions(full)):
        result = versions[-1]
    if result is None:
        raise RegistryError(f"{full}: has no alias {alias or settings.alias}")
    return result


def _trace_version(registry: Reading, version: Version) -> dict[str, Any]:
    return {
        "model": version.label,
        "tags": dict(version.tags),
        "provenance": registry.document(version, PROVENANCE),
        "parents": _traced(registry, version.tags.get("parent", "")),
        "teachers": _traced(registry, version.tags.get("teacher", "")),
    }


def _traced(registry: Reading, labels: str) -> list[dict[str, Any]]:
    """The traces of the versions in a tag, NAME/NUMBER with commas between."""
    versions = (registry.find_number(*label.split("/")) for label in labels.split(", ") if label)
    return [_trace_version(registry, version) for version in versions if version is not None]


def tree(value: Any) -> list[str]:
    """Lines of YAML, without the inputs and settings of every stage; of long lists and mappings the first `_SHOWN`
    entries."""
    return yaml.safe_dump(_shortened(value), sort_keys=False, allow_unicode=True, width=1000).splitlines()


def _shortened(value: Any) -> Any:
    if not isinstance(value, Mapping | list):
        return value
    rest = len(value) - _SHOWN
    if isinstance(value, list):
        return [*map(_shortened, value[:_SHOWN]), *([f"... {rest} more"] if rest > 0 else [])]
    shown = {key: _shortened(inner) for key, inner in islice(value.items(), _SHOWN) if key not in _DETAILS}
    return shown | ({"...": f"{rest} more (all with --json)"} if rest > 0 else {})


def trace_document(params: Params, document: str, *, where: str = "") -> dict[str, Any]:
    """Where a document is, and which versions have learned from it: {by_id, files, copies, near, versions}. `document`
    is an id or a position in the corpus or task `where` or in all, else a text, and `by_id` is false."""
    named = texts_of(params, document, where=where)
    result = search(params, named or [document])
    if not result.texts:
        raise ConfigError("--document: has no words")
    return {
        "by_id": bool(named),
        "files": [*map(os.path.relpath, result.raw)],
        "copies": list(map(asdict, result.copies)),
        "near": list(map(asdict, result.near)),
        "versions": [match.facts for match in result.learners],
    }


def document_lines(result: Mapping[str, Any]) -> list[str]:
    """The trace of a document in words."""
    lines = {**result, "versions": result["versions"] or "no registered version has learned from it"}
    if not result["files"] and not result["copies"]:
        what = "" if result["by_id"] else "no document has this id; as a text: "
        lines["files"] = f"{what}no copy in the raw data, the corpora and the labelled data of this run"
    return tree(lines)


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

    @property
    def facts(self) -> dict[str, Any]:
        sources = {"sources": list(self.sources), "certain": self.certain}
        return {"version": self.version.label, "digest": self.version.digest, **sources}


@dataclass(frozen=True)
class Search:
    """Where documents are. `raw`: files of raw data; `near`: near copies, which are other documents."""

    texts: Texts
    copies: list[Copy]
    near: list[Copy]
    raw: list[Path]
    objects: list[Item]
    learners: list[Learner]


def search(params: Params, wanted: Sequence[str]) -> Search:
    """Search the raw data, the corpora and labelled data, DVC's cache and the registry for texts.

    Raises:
        DataError: a file cannot be read.
        RegistryError: the registry cannot be reached.
    """
    texts, cache = Texts(wanted), Cache()
    copies, raw, objects = holders(params, texts), raw_holders(params, texts), cache.affected(texts)
    learned = learners(Reading(params.registry), cache, files=raw, items=objects) if texts else []
    return Search(texts, copies, near_copies(params, wanted, without=copies), raw, objects, learned)


def learners(registry: Reading, cache: Cache, *, files: Sequence[Path], items: Sequence[Item]) -> list[Learner]:
    """The versions that have, or may have, learned from documents, over all models of the registry.

    Args:
        files: raw files that hold the documents; `items`: objects of DVC's cache (`Cache.affected`).
    """
    raw = {digest_file(path) for path in files}
    held = {item.md5 for item in items if item.what == "text"}

    def held_by(entry: Mapping[str, Any]) -> bool | None:
        """Whether a corpus, or the rows of a task, held a document; None if the data are no longer available."""
        listing = cache.listing(str(entry.get("md5")))
        shards = [name for names in (entry.get("shards") or {}).values() for name in names]
        objects = [listing.get(name, "-") for name in shards or [f"{split}.parquet" for split in LEARNED]]
        if raw.intersection((entry.get("files") or {}).values()) or held.intersection(objects):
            return True
        return False if all(cache.object(md5).is_file() for md5 in objects) else None

    results: list[Learner] = []
    for version in (version for version in _versions(registry) if version.digest):
        provenance = registry.document(version, PROVENANCE)
        answers: dict[str, bool | None] = {"data of an unknown version": None}
        if provenance is not None:
            folders = {"corpus": provenance["corpora"], "examples": provenance["tasks"]}
            answers = {f"{top}/{name}": held_by(of) for top, each in folders.items() for name, of in each.items()}
        certain, gone = (tuple(source for source, answer in answers.items() if answer is was) for was in (True, None))
        if certain or gone:
            results.append(Learner(version, certain or gone, certain=bool(certain)))
    return results


def _versions(registry: Reading) -> Iterator[Version]:
    """All versions of all models but the ledger of early versions of Headstart."""
    return (version for name in registry.models() if name != LEDGER for version in registry.versions(name))
