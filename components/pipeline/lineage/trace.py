"""`headstart trace`: from a model to its documents, and from a document to the models that have learned from it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from components.core.artifacts import MANIFEST, digest_file, read_manifest
from components.core.errors import ConfigError, RegistryError
from components.data.ingestion.cleaning import clean
from components.data.ingestion.dedup import exact_keys
from components.data.matching import Texts, file_holds
from components.pipeline.jobs import WHOLE
from components.pipeline.lineage.documents import Copy, holders, near_copies, texts_of
from components.pipeline.lineage.places import Cache, holds_key, raw_holders
from components.pipeline.stages import STAGES
from components.registry.ledger import TAINTED
from components.registry.lineage import provenance, read_lineage
from components.registry.reading import LEDGER, PROVENANCE, Reading
from components.registry.version import Version
from components.settings.params import Params
from components.settings.registry import RegistrySettings, with_models


def trace_model(params: Params, model: str, *, root: Path) -> dict[str, Any]:
    """The provenance of a model and of the models that it was initialised from: {model, registered, tags, parameters,
    provenance, parents, teachers}, where parents and teachers are the same objects.

    The model is named as in `find_version`, or by its path in the run's folder.

    Raises:
        ConfigError: the path is no trained model of the run.
        RegistryError: there is no such model, version or alias.
    """
    path = Path(model)
    if path.exists() or len(path.parts) > 2:
        return _trace_path(params, path, root=root)
    registry = Reading(with_models(params.registry))
    return _trace_version(registry, find_version(registry, params.registry, model))


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
        result = registry.find_number(full, number)
    else:
        result = registry.alias(full, alias or settings.alias)
        if result is None and not at and (versions := registry.versions(full)):
            result = versions[-1]
    if result is None:
        numbers = ", ".join(version.number for version in registry.versions(full))
        raise RegistryError(
            f"{full}: has no {f'version {number}' if number else f'alias {alias}'}; versions: {numbers}"
        )
    return result


def _trace_version(registry: Reading, version: Version) -> dict[str, Any]:
    return {
        "model": version.label,
        "registered": True,
        "tags": dict(version.tags),
        "parameters": registry.parameters(version),
        "provenance": registry.document(version, PROVENANCE),
        "parents": _traced(registry, version.tags.get("parent", "")),
        "teachers": _traced(registry, version.tags.get("teacher", "")),
    }


def _traced(registry: Reading, labels: str) -> list[dict[str, Any]]:
    """The traces of the versions in a tag, NAME/NUMBER with commas between."""
    pairs = [label.rpartition("/") for label in labels.split(", ") if label]
    result = [registry.find_number(name, number) for name, _, number in pairs]
    return [_trace_version(registry, version) for version in result if version is not None]


def _trace_path(params: Params, path: Path, *, root: Path) -> dict[str, Any]:
    while not (path / MANIFEST).is_file() or path.name in ("classifier", "classifier-frozen"):
        if path == path.parent or not path.parts:
            raise ConfigError(f"{path}: not the output of a training; name a directory below {params.run.out}")
        path = path.parent
    job = STAGES["register"].items(params)[WHOLE]
    out = Path(params.run.out)
    absolute = path.resolve()
    if not absolute.is_relative_to((root / out).resolve()):
        raise ConfigError(f"{path}: is not below {out}; name a directory of this run, or a registered model")
    output = out / absolute.relative_to((root / out).resolve())
    lineage = read_lineage(root, out=out, data=job["data"])
    return {
        "model": output.as_posix(),
        "registered": False,
        "tags": {
            "digest": read_manifest(absolute).digest,
            "teacher_system": ", ".join(job["students"].get(output.name, [])),
            **lineage.tags(output),
        },
        "parameters": {},
        "provenance": provenance(lineage, out=out, output=output, parent=None),
        "parents": [],
        "teachers": [],
    }


def model_lines(result: Mapping[str, Any], *, level: int = 0) -> Iterator[str]:
    """A trace as an indented tree."""
    indent = "  " * level
    tags, made = result["tags"], result["provenance"]
    what = " ".join(part for part in (tags.get("kind"), tags.get("family"), tags.get("start")) if part)
    yield f"{indent}{result['model']}" + (f": {what}" if what else "")
    if TAINTED in tags:
        yield f"{indent}  TAINTED: has learned from a document that was removed since (certificate {tags[TAINTED]})"
    yield f"{indent}  content   {tags.get('digest', 'unknown')}"
    dirty = ", with uncommitted changes" if tags.get("git_dirty") == "true" else ""
    commit, stage = tags.get("git_commit", "unknown"), tags.get("dvc_stage", "unknown")
    yield f"{indent}  code      git {commit}{dirty}; stage {stage}"
    if made is None:
        yield f"{indent}  data      {tags.get('data', 'unknown')}"
        yield f"{indent}  registered without a provenance, by an earlier version of Headstart"
    else:
        yield from (f"{indent}  {line}" for line in _made_lines(made))
        yield f"{indent}  teacher   {tags.get('teacher_system') or 'none'}"
    if result["parameters"]:
        yield f"{indent}  settings  {len(result['parameters'])} of its stage (all with --json)"
    for key, how in (("parents", "initialised from"), ("teachers", "has learned the predictions of")):
        for other in result[key]:
            yield f"{indent}  {how}"
            yield from model_lines(other, level=level + 2)


def _made_lines(made: Mapping[str, Any]) -> Iterator[str]:
    codes = made["code"]["stages"]
    yield "stages    " + (", ".join(f"{name} ({digest[:8]})" for name, digest in codes.items()) or "not recorded")
    for path, digest in made["data"].items():
        yield f"data      {path}, DVC version {digest}"
    for name, corpus in made["corpora"].items():
        if "files" not in corpus:
            yield f"corpus    {name}: {corpus.get('md5')}"
            continue
        rows = sum(count for shards in corpus["shards"].values() for count in shards.values())
        yield (
            f"corpus    {name}: {rows:,} documents in {sum(map(len, corpus['shards'].values()))} shard(s) from "
            f"{len(corpus['files'])} raw file(s); DVC {corpus['md5']}"
        )
        for title, digest in list(corpus["files"].items())[:10]:
            yield f"            {title}  SHA-256 {digest[:16]}"
        if len(corpus["files"]) > 10:
            yield f"            ... {len(corpus['files']) - 10} more (all with --json)"
    for name, task in made["tasks"].items():
        rows = ", ".join(f"{split} {count:,}" for split, count in task.get("rows", {}).items())
        yield f"labels    {name}: {rows}; DVC {task['md5']}"
    for name, published in made["published"].items():
        yield (
            f"imported  {name} from {published.get('source')} ({published.get('digest')}): its training text is unknown"
        )
    yield "libraries " + (", ".join(f"{name} {version}" for name, version in made["libraries"].items()) or "unknown")
    host = made["machine"]
    yield f"machine   {host['host']}: {host['processor']}, {host['cores']} core(s), Python {host['python']}"


def trace_document(params: Params, document: str, *, root: Path, where: str = "") -> dict[str, Any]:
    """Where a document is, and which versions have learned from it: {by_id, files, copies, near, versions}. `document`
    is an id or a position in the corpus or task `where` or in all, else a text, and `by_id` is false."""
    named = texts_of(params, document, where=where)
    wanted = named or [document]
    texts = Texts(wanted)
    if not texts:
        raise ConfigError("--document: has no words")
    result = holders(params, texts)
    files = raw_holders(params, texts, root=root)
    evidence = Evidence(texts, wanted, copies=result, files=files, cache=Cache(root))
    learned = learners(Reading(params.registry), evidence)
    return {
        "by_id": bool(named),
        "files": [path.relative_to(root).as_posix() for path in files],
        "copies": [match.as_json() for match in result],
        "near": [match.as_json() for match in near_copies(params, wanted, without=result)],
        "versions": [
            {"version": match.version.label, "sources": list(match.sources), "certain": match.certain}
            for match in learned
        ],
    }


def document_lines(result: Mapping[str, Any]) -> Iterator[str]:
    """The trace of a document in words."""
    if not result["files"] and not result["copies"]:
        what = "" if result["by_id"] else "no document has this id; as a text: "
        yield f"{what}no copy in the raw data, the corpora and the labelled data of this run"
    yield from (f"raw file  {path}" for path in result["files"])
    yield from (str(Copy(**copy)) for copy in (*result["copies"], *result["near"]))
    if not result["versions"]:
        yield "no registered version has learned from it"
    for version in result["versions"]:
        how = "learned from it in" if version["certain"] else "may have learned from it (data not available) in"
        yield f"{version['version']} {how} {', '.join(version['sources'])}"


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


def learners(registry: Reading, evidence: Evidence) -> list[Learner]:
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
