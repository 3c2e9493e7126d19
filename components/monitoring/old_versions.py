"""Versions of registered models that can be deleted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from components.monitoring.garbage import Garbage
from components.registry.ledger import Ledger
from components.registry.ledger_entries import State
from components.settings.params import Params
from components.tracking import Registry, Version, connect

#: Tags that keep a version: it was marked by a person or by a command, such as `headstart forget`.
MARKS = ("tainted", "keep")


def old_versions(params: Params) -> Iterator[Garbage]:
    """Versions that the rule of `params.gc` does not keep, of the models that `params.run` names, oldest first.

    Raises:
        RegistryError: the registry cannot be reached.
    """
    registry = connect(params.registry)
    ledger = Ledger(registry)
    run, prefix = params.run, params.registry.prefix
    tasks = [params.registry.model_name(task) for task in run.tasks]
    encoders = [f"{prefix}-{family}-{start}" for family in run.families for start in ("pretrained", "adapted")]
    versions = {name: registry.versions(name) for name in [*tasks, *encoders]}
    kept: dict[str, set[str]] = {}
    for name in tasks:
        state = ledger.state(name, params.registry.alias)
        kept[name] = keep(versions[name], state, registry.aliased(name), newest=params.gc.keep_versions,
                          champions=params.gc.keep_champions)  # fmt: skip
    parents = {
        version.tags.get("parent", "") for name in tasks for version in versions[name] if version.number in kept[name]
    }
    # An encoder's parent is an encoder: the adapted ones are judged first.
    for name in reversed(encoders):
        own = keep(versions[name], None, registry.aliased(name), newest=params.gc.keep_versions, champions=0)
        own |= {version.number for version in versions[name] if version.label in parents}
        parents |= {version.tags.get("parent", "") for version in versions[name] if version.number in own}
        kept[name] = own
    for name in [*tasks, *encoders]:
        for version in versions[name]:
            if version.number not in kept[name]:
                reason = f"not among the newest {params.gc.keep_versions}, never chosen by a person, no recent champion"
                yield Garbage("versions", version.label, registry.size(version), reason, _deleting(registry, version))


def keep(
    versions: Sequence[Version], state: State | None, aliased: set[str], *, newest: int, champions: int
) -> set[str]:
    """Numbers of the versions that are kept.

    Args:
        versions: of one model, oldest first.
        state: of the alias of the model; None for encoders.
        aliased: numbers with any alias.
        newest: number of the newest versions that are kept.
        champions: number of the last champions that are kept.
    """
    numbers = {version.number for version in versions[-newest:]} | aliased
    numbers |= {version.number for version in versions if any(version.tags.get(mark) for mark in MARKS)}
    if state is None:
        return numbers
    numbers |= {number for number, _ in state.champions[-champions:]}
    for change in state.changes:
        if change.by_person:
            # Both the version that a person chose and the one that it replaced.
            numbers |= {number for number in (change.before, change.after) if number is not None}
    return numbers | {version.number for version in versions if version.digest in state.vetoes}


def _deleting(registry: Registry, version: Version) -> Callable[[], None]:
    return lambda: registry.delete(version)
