"""`headstart forget`: removal of documents from raw data, labels, outputs, caches, DVC's cache and local remotes.

The order makes an interruption harmless: what is wanted is written to `.headstart/forget/pending.json`, tainted
versions are recorded, then files are removed, then everything is searched again, then the certificate is written. The
next `headstart forget` completes what an interrupted one has left. The certificate and the ledger hold no text and no
id: a document is named by an HMAC-SHA256 with the key of the repository (`.headstart/forget/key`).
"""

import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from components.cluster.entries import entries, feature_tables
from components.cluster.inputs import CACHES, node_cache
from components.cluster.shards import LOCAL
from components.cluster.storage import remove_objects
from components.core.artifacts import changing_data, private_folder, write_atomic
from components.core.environment import who
from components.core.errors import ConfigError, DataError, StorageError
from components.core.masking import masked
from components.data.formats.jsontables import parse_object
from components.data.matching import Texts, key_of
from components.data.removed import RECORDS, STATE, name_of, pending, repository_key
from components.pipeline.lineage.documents import texts_of
from components.pipeline.lineage.editing import remove_records
from components.pipeline.lineage.places import (
    Cache,
    Item,
    data_folders,
    holds,
    local_folder,
    output_of,
    project_files,
    raw_holders,
    remotes,
    tracked_by_git,
    walk,
)
from components.pipeline.lineage.trace import Search, search, tree
from components.registry.drift.traffic import traffic_folder
from components.registry.ledger import record_taints
from components.registry.tracking import connect
from components.settings.imports import is_local_copy
from components.settings.params import Params

SCHEMA = 1


@dataclass
class Plan:
    """What a removal does.

    Attributes:
        side: files outside of the raw data that hold them (predictions, rejected rows, logs).
        outputs: directories of stages that hold them or were made from them.
        caches: folders of checkpoints, features and inputs.
        checkpoints: address of checkpoints in a bucket; empty: there are none.
        elsewhere: what this command does not remove, and what to do, in words.
        fixed: files that hold them and cannot be edited: under git, or of MLflow.
    """

    search: Search
    side: list[Path]
    outputs: list[Path]
    fixed: list[Path]
    caches: list[Path]
    checkpoints: str = ""
    elsewhere: list[str] = field(default_factory=list)


def wanted_texts(
    params: Params,
    documents: Sequence[str],
    *,
    texts: Sequence[str] = (),
    file: Path | None = None,
    where: str = "",
) -> list[str]:
    """The texts to remove: by ids or positions, as given, by a list (ids or positions, one per line, or
    jsonl with `id` or `text`), and by a removal that was interrupted. Ids are looked up in the corpus or task
    `where`, by default in all.

    Raises:
        DataError: an id names nothing, or different documents.
        ConfigError: nothing is named.
    """
    ids, wanted = list(documents), list(texts)
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines() if file is not None else (), 1):
        row: dict[str, Any] = {"id": line.strip()}
        if line.lstrip().startswith("{"):
            row, _ = parse_object(line, f"{file}, line {number}")
        if text := row.get("text"):
            wanted.append(str(text))
        elif row.get("id"):
            ids.append(str(row["id"]))
    for document in ids:
        copies = texts_of(params, document, where=where)
        if not copies:
            raise DataError(
                f"{document!r}: no document of a corpus and no labelled row has this id or position; give an id, "
                "FILE:LINE, FILE#ROW for Parquet, or the text itself with --text"
            )
        wanted += copies
    wanted += pending(Path())
    if not any(map(key_of, wanted)):
        raise ConfigError("nothing to forget: name an id, --text TEXT or --file LIST")
    return list(dict.fromkeys(wanted))


def make_plan(params: Params, wanted: Sequence[str]) -> Plan:
    """Search the repository, DVC's cache and the registry for documents; changes nothing.

    Raises:
        DataError: a file cannot be read.
        RegistryError: the registry cannot be reached.
    """
    result, tracked = search(params, wanted), tracked_by_git()
    folders, caches = data_folders(params), _caches(params)
    kept = [Path(name).absolute() for name in ("mlruns", "mlflow.db")]
    fixed, held, side = list[Path](), list[Path](), list[Path]()
    places = [*project_files(), *walk(traffic_folder())]
    for path in dict.fromkeys(path.absolute() for path in places):
        above = {path, *path.parents}
        if above.intersection((*folders, *caches)) or not holds(path, result.texts):
            continue
        if path in tracked or above.intersection(kept) or path.suffix == ".db":
            fixed.append(path)
        elif (output := output_of(path, params)) is not None:
            held.append(output)
        else:
            side.append(path)
    made, derived = Cache().derived([*result.raw, *held], result.objects)
    outputs = sorted({*held, *made})
    # Those with the text last: the others are found by them, also after an interruption.
    plan = Plan(replace(result, objects=[*derived, *result.objects]), side, outputs, fixed, caches=[])
    if outputs or result.raw or result.learners:
        plan.caches = [path for path in [*caches, *(node_cache() / name for name in CACHES)] if path.exists()]
        plan.checkpoints = params.cluster.storage if "://" in params.cluster.storage else ""
    if any((side, plan.caches, outputs, result.raw, result.objects, fixed, result.learners)):
        plan.elsewhere = list(_elsewhere(params, plan, tracked))
    return plan


def _caches(params: Params) -> list[Path]:
    """Local folders of checkpoints and features: those below `.headstart` whole, of others what Headstart wrote."""
    named = (params.cluster.storage, params.cluster.features, LOCAL)
    places = [Path(path).absolute() for path in named if "://" not in path]
    whole = [each for each in dict.fromkeys(places) if each.resolve().is_relative_to(Path(LOCAL).parent.resolve())]
    others = [each for each in dict.fromkeys(places) if each not in whole]
    written = {each / entry.name for each in others for entry in entries(str(each))}
    return [*whole, *sorted(written | {table for each in others for table in feature_tables(each)})]


def _elsewhere(params: Params, plan: Plan, tracked: set[Path]) -> Iterator[str]:
    """Places that can hold the documents and are not searched."""
    if params.cluster.launcher == "ray" and params.cluster.address != "local":
        cluster = masked(params.cluster.address)
        yield f"input caches on the nodes of the Ray cluster {cluster}: remove {node_cache()} on each of them"
    where = params.registry.address.removeprefix("sqlite:///")
    if "://" in where or not Path(where).resolve().is_relative_to(Path.cwd()):
        yield f"MLflow at {masked(where)}: delete the tainted versions, and files of runs that quote a text"
    elif plan.search.learners:
        yield "files of the tainted versions: delete the versions in MLflow once a clean model replaces them"
    if plan.search.learners:
        yield (
            "vocabularies and adapted encoders of earlier versions in DVC's cache, whose runs DVC does not record: "
            "`dvc gc --workspace` removes what dvc.lock does not name"
        )
    changed = [*plan.search.raw, *plan.side, *plan.fixed]
    if not tracked.isdisjoint(changed):
        yield "earlier commits of git: rewrite the history (git filter-repo), and ask for it in every clone"
    for path in changed:
        if is_local_copy(name := os.path.relpath(path)):
            yield f"the source of {name}: remove the text at its address, which the next run copies again"


def plan_lines(plan: Plan) -> list[str]:
    result = plan.search
    sections: dict[str, list[Any]] = {
        "records to remove from raw files": _relative(result.raw),
        "records to remove from other files": _relative(plan.side),
        "copies in corpora and labelled data": list(map(asdict, result.copies)),
        "outputs to remove, which a retraining makes again": _relative(plan.outputs),
        "caches to remove": [*_relative(plan.caches), *filter(None, [masked(plan.checkpoints)])],
        "objects to remove from DVC's cache": [f"{item.md5} ({item.what})" for item in result.objects],
        "near copies, which stay; name their ids to remove them too": list(map(asdict, result.near)),
        "files that stay and have to be edited by hand": _relative(plan.fixed),
        "not removed, and what to do": plan.elsewhere,
        "versions that have learned from them": [learner.facts for learner in result.learners],
    }
    shown = {title: items for title, items in sections.items() if items}
    nothing = {"result": ["nothing holds them, and no registered version has learned from them"]}
    return tree({"texts": len(result.texts), **(shown or nothing)})


def _relative(paths: Sequence[Path]) -> list[str]:
    return [*map(os.path.relpath, paths)]


def forget(params: Params, plan: Plan, wanted: Sequence[str], *, reason: str = "") -> Path:
    """Remove documents as planned; returns the path of the certificate.

    Raises:
        DataError: a file cannot be edited. What was removed stays removed; the next `headstart forget` goes on.
        RegistryError: the registry cannot be reached; nothing was removed.
    """
    now = datetime.now(UTC)
    name = f"{now:%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"
    left = private_folder(STATE) / "pending.json"
    write_atomic(left, json.dumps(list(wanted)), private=True)
    result = plan.search
    versions = [learner.version for learner in result.learners]
    record_taints(connect(params.registry), versions, certificate=name, documents=len(result.texts), reason=reason)
    # What is derived goes before the data that it is found by, for the next command if this one is interrupted.
    for path in [*plan.outputs, *plan.caches]:
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    stored = _purge_checkpoints(plan)
    with changing_data(Path(), data_folders(params)):
        # Labels may have been written since the plan was made; from now on `merge` refuses these texts.
        holders = [*raw_holders(params, result.texts), *plan.side]
        removed = {os.path.relpath(path): remove_records(path, result.texts) for path in holders}
    objects = [{"md5": item.md5, "bytes": item.path.stat().st_size, "held": item.what} for item in result.objects]
    stores = {remote: _purge_remote(url, result.objects) for remote, url in remotes().items() if objects}
    for item in result.objects:
        item.path.unlink(missing_ok=True)
    certificate = {
        "schema": SCHEMA,
        "certificate": name,
        "time": now.isoformat(timespec="seconds"),
        "by": who(),
        "reason": reason,
        "documents": [name_of(repository_key(Path()), text) for text in result.texts.keys],
        "records": removed,
        "checkpoints": stored,
        "not_removed": plan.elsewhere,
        "outputs": _relative(plan.outputs),
        "caches": _relative(plan.caches),
        "dvc_cache": objects,
        "remotes": stores,
        "near_copies": len(result.near),
        "versions": [learner.facts for learner in result.learners],
        "searched_again": _left(result.texts),
    }
    path = (RECORDS / f"{name}.json").absolute()
    write_atomic(path, json.dumps(certificate, indent=1) + "\n")
    left.unlink()
    return path


def _left(texts: Texts) -> dict[str, Any]:
    """The result of a second search: number of files, and those that hold a document still."""
    files = {os.path.relpath(path): path for path in project_files()}
    files |= {f"DVC object {md5}": path for md5, path in Cache().objects().items()}
    return {"files": len(files), "still_held_by": [name for name, path in files.items() if holds(path, texts)]}


def _purge_checkpoints(plan: Plan) -> dict[str, Any]:
    """Remove checkpoints from a bucket. Returns where, and the number of objects."""
    if not plan.checkpoints:
        return {}
    where = masked(plan.checkpoints)
    try:
        names = "|".join(re.escape(entry.name) for entry in entries(plan.checkpoints))
        # A pattern that matches nothing still reports a bucket that does not answer.
        pattern = rf"({names})/.*" if names else "(?!)"
        return {"url": where, "removed": remove_objects(plan.checkpoints, pattern=pattern)}
    except StorageError as error:
        plan.elsewhere.append(f"checkpoints in {where} ({error}): aws s3 rm --recursive {where}")
        return {}


def _purge_remote(url: str, objects: Sequence[Item]) -> dict[str, Any]:
    """Remove objects from a remote that is a folder of this machine; for others, say how."""
    folder, address, keys = local_folder(url), masked(url), [item.key for item in objects]
    command = "aws s3 rm" if url.startswith("s3://") else "remove"
    there = [f"{command} {address.rstrip('/')}/{key}" for key in keys if folder is None]
    removed = [key for key in keys if folder is not None and (folder / key).is_file()]
    for path in [folder / key for key in removed if folder is not None]:
        path.unlink()
    return {"removed": removed, "to_remove": there, "url": address}
