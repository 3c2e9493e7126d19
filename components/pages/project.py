"""The project that the pages show: settings, outputs of the last run, registry."""

import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from components.core.artifacts import read_json, read_manifest
from components.core.errors import HeadstartError, RegistryError
from components.data.scoring.base import title
from components.data.tasks.examples import TaskFacts, read_facts
from components.registry.decide import Decision, read_decisions
from components.registry.explain import in_words
from components.registry.ledger import Ledger, State
from components.registry.tracking import Registry, Version, connect
from components.settings.loading import load_params
from components.settings.params import Params
from components.settings.registry import SQLITE

#: Verdict of a decision -> what became of the candidate.
VERDICTS = {
    "promote": "promoted",
    "reject": "not promoted: it is worse or not better",
    "inconclusive": "not promoted: the test rows do not decide",
    "unchanged": "the current model again",
}


@dataclass(frozen=True)
class Link:
    """Another page of the project, such as MLflow's."""

    title: str
    address: str


@dataclass(frozen=True)
class Champion:
    """The served version of a task, or why there is none."""

    version: Version | None = None
    since: str = ""
    change: str = ""
    reasons: tuple[str, ...] = ()
    problem: str = ""

    @property
    def system(self) -> str:
        """The system that the version was made by."""
        tags = self.version.tags if self.version is not None else {}
        return tags.get("system") or "-".join(filter(None, (tags.get("family"), tags.get("start"))))


class Project:
    """Reads what the stages have written. Nothing is kept but the connection to the registry."""

    def __init__(self, file: Path, *, root: Path, write: bool = False, links: Sequence[Link] = ()) -> None:
        self.file, self.root, self.write, self.links = file.resolve(), root.resolve(), write, links
        self._registry: Registry | None = None
        self._lock = threading.Lock()

    @property
    def settings(self) -> Params:
        """The settings, as they are now."""
        return load_params(self.file)

    @property
    def out(self) -> Path:
        return self.root / self.settings.run.out

    @property
    def flags(self) -> str:
        """What commands need in addition, so that they use the same settings file."""
        default = self.file == self.root / "params.yaml"
        return "" if default else f" --params {self._relative}"

    @property
    def _relative(self) -> str:
        return self.file.relative_to(self.root).as_posix() if self.file.is_relative_to(self.root) else str(self.file)

    def evaluation(self, task: str) -> dict[str, Any]:
        """The result of the stage evaluate; empty before the first run."""
        path = self.out / "evaluation" / task / "evaluation.json"
        return read_json(path, made_by="the stage evaluate", missing_ok=True)

    def decision(self, task: str) -> Decision:
        """The last decision about a task's challenger."""
        return read_decisions(self.out / "registry" / "decision.json").get(task, Decision())

    def facts(self, task: str) -> TaskFacts | None:
        """The facts of a task; None before the stage examples has run."""
        with suppress(HeadstartError):
            return read_facts(self.examples(task))
        return None

    def examples(self, task: str) -> Path:
        return self.out / "examples" / task

    def registry(self) -> Registry:
        settings = self.settings.registry
        path = settings.address.removeprefix(SQLITE)
        if path != settings.address and not (self.root / path).is_file():
            # Connecting would create the database.
            raise RegistryError("no model is registered yet")
        with self._lock:
            if self._registry is None or self._registry.settings != settings:
                self._registry = connect(settings)
            return self._registry

    def state(self, task: str) -> State:
        """The ledger's state of the champion's alias."""
        return Ledger(self.registry()).state(self.settings.registry.model_name(task))

    def champion(self, task: str) -> Champion:
        settings = self.settings.registry
        try:
            version = self.registry().alias(settings.model_name(task), settings.alias)
            last = self.state(task).last
        except HeadstartError as error:
            return Champion(problem=str(error))
        if version is None:
            return Champion(problem="no version is promoted")
        if last is None or last["after"] != version.number:
            return Champion(version, change="set by hand in MLflow")
        since = f"{last.time:%Y-%m-%d %H:%M} UTC"
        return Champion(version, since=since, change=in_words(last, reasons=False), reasons=tuple(last["reasons"]))

    def challenger(self, task: str) -> Version | None:
        """The version that the last decision was about, unless it is the champion; None if there is none."""
        number = (self.decision(task).candidate or {}).get("version")
        if number is None:
            return None
        with suppress(HeadstartError):
            return self.registry().find_number(self.settings.registry.model_name(task), str(number))
        return None

    def learned_from(self, task: str, version: Version) -> tuple[int, list[int]]:
        """Label budget and seeds of a version; (0, []) unless it is a classifier in the outputs of the run."""
        for folder in sorted((self.out / "finetuned" / task).glob("[!.]*/classifier*")):
            with suppress(HeadstartError):
                manifest = read_manifest(folder)
                if manifest.digest == version.digest:
                    return int(manifest.facts.get("budget", 0)), manifest.facts.get("seeds", [])
        return 0, []

    def results(self) -> dict[str, dict[str, str]]:
        """Id of a retraining -> task -> score of the candidate on test and what became of it, by the last decision."""
        registry, settings = self.registry(), self.settings
        tasks = {settings.registry.model_name(task): task for task in settings.run.tasks}
        results: dict[str, dict[str, str]] = {}
        for entry in Ledger(registry).entries():
            if entry.event == "decision" and entry.model in tasks:
                decision = entry["decision"]
                text, score = VERDICTS[decision["verdict"]], decision.get("candidate_score")
                if score is not None:
                    text = f"{title(decision['metric'])} {score:.3f}, {text}"
                results.setdefault(entry.run, {})[tasks[entry.model]] = text
        return results

    def history(self, task: str) -> list[str]:
        """The changes of the champion and the decisions, newest first."""
        with suppress(HeadstartError):
            state = self.state(task)
            newest = sorted([*state.changes, *state.decisions], key=lambda entry: entry.position, reverse=True)
            return [f"{entry.time:%Y-%m-%d %H:%M} UTC: {in_words(entry)}" for entry in newest]
        return []
