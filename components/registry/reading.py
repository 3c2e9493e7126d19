"""What a registry in a local database says, without MLflow, whose import takes longer than a prediction.

Answers stand in a file beside the database, `.headstart/NAME.json`, the version of each champion among them. They count
as long as the database has not changed (`state_of`), so that an alias that a person moves in MLflow is seen. The
writers of the registry renew them (`Reading.renew`).

registry: {state: numbers, answers: {call: answer}}
"""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from dataclasses import asdict
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from pydantic import TypeAdapter

from components.core.artifacts import json_of, write_atomic
from components.core.errors import ArtifactError
from components.core.masking import masked
from components.registry.version import PROVENANCE, Version
from components.settings.registry import RegistrySettings, database_of

if TYPE_CHECKING:
    from components.registry.tracking import Registry

STATE: Final = ".headstart"


#: Method of `Registry` -> its answer, which is stored as JSON.
QUESTIONS: Final[dict[str, TypeAdapter[Any]]] = {
    "alias": TypeAdapter(Version | None),
    "versions": TypeAdapter(list[Version]),
    "models": TypeAdapter(list[str]),
    "document": TypeAdapter(dict[str, Any] | None),
    "location": TypeAdapter(str),
    "read_log": TypeAdapter(tuple[dict[int, str], dict[str, str]]),
}


class Reading:
    """The questions to a registry that change nothing; MLflow is asked what the file does not answer.

    Args:
        settings: of the registry.
        registry: that is asked; None: it is opened when it is needed.
    """

    def __init__(self, settings: RegistrySettings, registry: Registry | None = None) -> None:
        self.settings, self.address = settings, masked(settings.address)
        self._database = database_of(settings) or Path()
        self._file = self._database.parent / STATE / f"{self._database.name}.json"
        self._state = state_of(self._database)
        self._answers: dict[str, Any] = self._stored()
        if registry is not None:
            self.registry = registry

    @cached_property
    def registry(self) -> Registry:
        """The registry itself."""
        from components.registry.tracking import connect

        return connect(self.settings)

    def __getattr__(self, question: str) -> Any:
        """A method of `Registry` of `QUESTIONS`."""
        if question not in QUESTIONS:
            raise AttributeError(question)
        return partial(self._ask, question)

    def find_number(self, name: str, number: str) -> Version | None:
        return next((version for version in self.versions(name) if version.number == str(number)), None)

    def download(self, version: Version, directory: Path) -> Path:
        parts = urlsplit(self.location(version))
        bundles = [*Path(unquote(parts.path)).glob("data/*/")]
        if parts.scheme not in ("", "file") or len(bundles) != 1:
            return self.registry.download(version, directory)
        return Path(shutil.copytree(bundles[0], directory / bundles[0].name))

    def renew(self) -> None:
        """Ask what commands ask: the ledger, the versions, and of each champion where it is and what it was made of."""
        self._state, self._answers = state_of(self._database), {}
        if not self._state:
            return
        self.read_log()
        for name in self.models():
            self.versions(name)
            if (version := self.alias(name, self.settings.alias)) is not None:
                self.location(version)
                self.document(version, PROVENANCE)

    def _ask(self, question: str, *arguments: Any) -> Any:
        call, answers = json.dumps([question, *arguments], default=asdict, sort_keys=True), QUESTIONS[question]
        if call not in self._answers:
            answer = getattr(self.registry, question)(*arguments)
            self._answers[call] = answers.dump_python(answer, mode="json")
            self._store()
        return answers.validate_python(self._answers[call])

    def _stored(self) -> dict[str, Any]:
        if self._state:
            with suppress(OSError, ValueError, KeyError, TypeError):
                content = json_of(self._file)
                if content["state"] == self._state:
                    return dict(content["answers"])
        return {}

    def _store(self) -> None:
        # An answer may be about a later state than the first one.
        if self._state and self._state == state_of(self._database):
            with suppress(ArtifactError):  # a folder that cannot be written
                write_atomic(self._file, json.dumps({"state": self._state, "answers": self._answers}))


def state_of(database: Path) -> list[int]:
    """What differs after every change of a SQLite file: its file change counter (bytes 24 to 27), and size, time and
    inode of it and of its journals; empty if it does not exist, as the empty path of a server."""
    try:
        with database.open("rb") as file:
            head = file.read(28)
        files = [each.stat() for each in (database, *sorted(database.parent.glob(f"{database.name}-*")))]
    except OSError:
        return []
    parts = (part for each in files for part in (each.st_size, each.st_mtime_ns, each.st_ino))
    return [int.from_bytes(head[24:28], "big"), *parts]
