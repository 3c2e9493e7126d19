"""In words: which model is served and why, what the stages before have found of it, who has changed the alias."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from components.core.artifacts import read_json
from components.core.errors import ArtifactError, ConfigError, RegistryError
from components.registry.ledger import ABANDONED, Entry, Ledger, State, none_promoted, taint_in_words
from components.registry.reading import Reading
from components.settings.registry import RegistrySettings, with_models
from components.settings.section import BASELINE, BASELINES
from components.settings.systems import System

if TYPE_CHECKING:
    from components.registry.decide import Decision
    from components.registry.version import Version

#: Folders of classifiers in the results of a system; the second is the head on the frozen encoder.
CLASSIFIER, FROZEN_CLASSIFIER = "classifier", "classifier-frozen"


def because_of(decision: Decision, version: Version, challenger: Version, *, ahead: bool) -> str:
    """Why a version is the first champion after the decision on the challenger; `ahead`: whether the challenger has the
    higher score on test."""
    other = "it" if version == challenger else f"{challenger.label} ({challenger.system})"
    if decision.verdict == "reject":
        shown = f"{other} is rejected: {decision.reasons[0]}"
    elif decision.gain is None:
        shown = f"{other} is not shown to be better than {decision.against}"
    else:
        shown = f"{other} is not shown to be better: {decision.figures}"
    if version == challenger and ahead:
        return f"it is ahead in selection and on test: {shown}"
    return f"nothing better is shown: {shown}"


def results_of(finetuned: Path, system: str) -> Path:
    """The folder of a system's results in the results of its task. A system with a frozen encoder shares the folder of
    the fine-tuned system, systems without a language model share one."""
    directory = finetuned / str(System.named(system).tuned)
    return directory if directory.is_dir() else finetuned / BASELINES


def read_leakage(out: Path, task: str, system: str) -> dict[str, Any]:
    """What the stage `leakage` has found for a system: {sources, unknown, exact, near, refused}; empty if it has not
    run."""
    value = System.named(system).tuned
    path = out / "leakage" / (f"{task}-with-{value.group}" if value.way == "with" else task) / "leakage.json"
    systems = read_json(path, made_by="the stage leakage", missing_ok=True).get("systems", {})
    # All systems without a language model have seen the same rows.
    return dict(systems.get(str(value)) or systems.get(BASELINES, {}))


@dataclass(frozen=True)
class Evaluated:
    """The evaluation of a task, as in evaluation.json; empty if there is none.

    Attributes:
        challenger: the system with the best score of selection.
        candidates: the best system of each class of cost.
    """

    content: Mapping[str, Any]
    challenger: str = ""
    candidates: Sequence[str] = ()

    @classmethod
    def read(cls, folder: Path, challenger: str = "", candidates: Sequence[str] = ()) -> Evaluated:
        """Raises ArtifactError if the file is damaged."""
        path = folder / "evaluation.json"
        evaluated = cls(read_json(path, made_by="the stage evaluate", missing_ok=True), challenger, candidates)
        try:
            for system in evaluated.systems:
                evaluated.warnings(system)
        except (ValueError, KeyError, IndexError, TypeError) as error:
            raise ArtifactError(f"{path}: damaged ({error!r}); run the stage evaluate again") from error
        return evaluated

    @property
    def systems(self) -> dict[str, dict[str, Any]]:
        """Name -> entry."""
        return {each["system"]: each for each in self.content.get("systems", [])}

    @property
    def artifacts(self) -> dict[str, dict[str, Any]]:
        """System -> the scores of its stored model, if that was evaluated."""
        return {name: each["artifact"] for name, each in self.systems.items() if "artifact" in each}

    def _is_baseline(self, system: str) -> bool:
        return bool(self.systems.get(system, {}).get("family") == BASELINE)

    def warnings(self, system: str) -> list[str]:
        """One sentence for all rows, each class and each slice on which a system is significantly worse than its family
        from scratch at the largest label budget (`components.evaluation.compare`). Empty if not evaluated."""
        if system not in self.systems:
            return []
        lines = []
        family, start = (self.systems[system][key] for key in ("family", "start"))
        for part in self.content["transfer"][family][-1]["parts"] if family in self.content["transfer"] else ():
            if (of := part["starts"].get(start, {"hurts": False}))["hurts"]:
                what = "all rows" if part["part"] == "all" else f"{part['part']} {part['name']!r} ({part['rows']} rows)"
                lines.append(
                    f"transfer hurts on {what}: {of['score']['mean']:.3f} against {part['scratch']['mean']:.3f} from "
                    "scratch, difference {mean:+.3f} [{low:+.3f}, {high:+.3f}]".format_map(of["difference"])
                )
        return lines

    def recipe_difference(self, system: str, other: str) -> str:
        """Whether the recipe of a system is better than another one, as a sentence: the mean difference over the seeds
        at the largest label budget, with an interval that covers training too. The gate asks another question, whether
        this artifact is better than the one that is served. Empty if the two are one recipe, or were not compared."""
        recipes: dict[str, dict[str, Any]] = next(reversed(self.content.get("differences", {}).values()), {})
        bounds = recipes.get(system, {}).get(other)
        if bounds is None:
            if (turned := recipes.get(other, {}).get(system)) is None:
                return ""
            bounds = {"mean": -turned["mean"], "low": -turned["high"], "high": -turned["low"]}
        seeds = len(self.content["seeds"])
        figures = "{mean:+.4f} [{low:+.4f}, {high:+.4f}]".format_map(bounds)
        title = self.content["titles"][self.content["main"]]
        return (
            f"as recipes, {system} minus {other}: {title} {figures}, mean over {seeds} seed{'s' if seeds > 1 else ''}"
        )

    def story(self, decision: Decision, system: str, served: Mapping[str, Any] | None) -> str:
        """Which model is the current one and why, in one sentence with the figures of the decision.

        Args:
            system: that the decision is about; `served`: {version, system} of the champion, if there is one.
        """
        if served is None:
            return f"there is no current model: {decision.reasons[0]}"
        name = f"{served['system'] or 'a model'} (version {served['version']})"
        mentioned = {system, served["system"]}
        number = (decision.candidate or {}).get("version")
        other = f"version {number}" if number and system == served["system"] else system
        compared = decision.gain is not None
        if decision.first:
            text = decision.reasons[0]
            mentioned.add(self.challenger)
        elif decision.verdict == "promote":
            text = f"{name} is the current model: {decision.figures}"
        elif decision.verdict == "reject":
            text = f"{name} stays: {other} is rejected, {decision.reasons[0]}"
            text += f" ({decision.figures})" if compared else ""
        elif decision.verdict == "unchanged" or not compared:
            text = f"{name} stays: {decision.reasons[0]}"
        else:
            text = f"{name} stays: {other} is not shown to be better, {decision.figures}"
        return text + self._better(served["system"], mentioned)

    def _better(self, served: str, mentioned: set[str]) -> str:
        """Why the model with the best score on test is not the served one, unless the sentence says it already."""
        means = {name: each["scores"][self.content["main"]]["mean"] for name, each in self.artifacts.items()}
        best = max(means, key=lambda name: means[name], default=served)
        if best in mentioned or (served in means and means[best] <= means[served]):
            return ""
        against = f" against {means[served]:.4f}" if served in means else ""
        return f"; {best} has a higher score on test ({means[best]:.4f}{against}), but {self._why(best)}"

    def _why(self, system: str) -> str:
        """Why a system is not the challenger."""
        selection = {name: each["selection"] for name, each in self.artifacts.items()}
        kept, chosen = next(filter(self._is_baseline, self.candidates), system), self.challenger
        if self._is_baseline(system) and selection.get(kept, math.inf) < selection.get(system, -math.inf):
            return (
                f"of the words models {kept} is registered, the simplest one whose score of selection is within one "
                f"standard error of the best ({selection[kept]:.4f}, and {selection[system]:.4f} of {system})"
            )
        if chosen == system or chosen not in selection:
            return "models are chosen by their score of selection, not on test"
        return (
            f"the challenger is chosen by its score of selection, which is {selection[chosen]:.4f} of {chosen} and "
            f"{selection[system]:.4f} of {system}"
        )


def in_words(entry: Entry, *, reasons: bool = True) -> str:
    """An entry as a sentence, without its time; `reasons`: whether the reasons of a change are given."""
    by = f"by {entry.by}" + (f" in run {entry.run}" if entry.run else "")
    subject = f"{entry.model}@{entry.alias}"
    if entry.event == "decision":
        decision = entry["decision"]
        candidate, champion = (decision.get(key) or {} for key in ("candidate", "champion"))
        against = f"version {champion['version']}" if champion else decision.get("against", "no champion")
        what = f"version {candidate.get('version', '?')} against {against}: {decision['verdict']}"
        return f"{subject}: {what}, decided {by}: {'; '.join(decision.get('reasons', []))}"
    if entry.event == "taint":
        what = f"{entry['reason']} {by} (certificate {entry['certificate']})"
        return f"{what}; tainted: {', '.join(entry['tainted']) or 'no version'}"
    before, after = entry["before"], entry["after"]
    over = f"over version {before}" if before is not None else "as the first one"
    what = {
        "promote": f"version {after} promoted {over}",
        "rollback": f"version {after} restored, version {before} rolled back",
        "assign": f"version {after} chosen {over}",
        "hand": f"version {after} set by hand in MLflow {over}, found",
    }.get(entry["action"], f"version {after} set {over}")
    lost = "a change was not applied: " if entry.mark == ABANDONED else ""
    because = "; ".join(entry["reasons"]) if reasons else ""
    return ": ".join(filter(None, [subject, f"{lost}{what} {by}", because]))


def describe_champion(settings: RegistrySettings, task: str, *, at: str = "") -> list[str]:
    """Which version is or was the champion, since when, by whom and why; lines for the user. `at`: date or time in ISO
    8601, UTC unless it has an offset; a date stands for its end. By default now."""
    registry = Reading(with_models(settings))
    model, alias = settings.model_name(task), settings.alias
    state, present = Ledger(registry).state(model), registry.alias(model, alias)
    moment = parse_time(at) if at else datetime.now(UTC)
    change = state.at(moment)
    if not at and present is None and state.last is None:
        raise RegistryError(none_promoted(registry, model, task))
    if change is None and (at or present is None):
        first = f"; the first one is of {_time(state.changes[0])}" if state.changes else ""
        raise RegistryError(f"{model}@{alias}: had no champion at {moment:%Y-%m-%d %H:%M:%S} UTC{first}")
    lines = _described(registry, state, change) if change is not None else []
    if at:
        return lines
    number = present.number if present is not None else None
    if number != (state.last["after"] if state.last is not None else None):  # the next decision or command records it
        what = f"now points to version {number}, set by hand" if number else "the alias or its version was deleted"
        lines.append(f"{model}@{alias}: {what} in MLflow")
    if present is not None and (taint := state.tainted.get(present.digest)) is not None:
        what = f"the champion, version {number}, {taint_in_words(taint)}"
        lines.append(f"warning: {what}; retrain, so that a clean model replaces it")
    return lines


def _described(registry: Reading, state: State, change: Entry) -> list[str]:
    index = state.changes.index(change)
    until = f" until {_time(state.changes[index + 1])}" if index + 1 < len(state.changes) else ""
    deleted = "" if registry.find_number(state.model, change["after"]) else " (deleted since)"
    subject = f"{state.model}@{state.alias}: version {change['after']}{deleted}"
    lines = [f"{subject} since {_time(change)}{until}", f"  {in_words(change)}"]
    if change["action"] == "hand":
        earliest = f"after {_time(state.changes[index - 1])} and " if index else ""
        lines.append(f"  the move itself took place {earliest}before {_time(change)}, when it was found")
    return lines


def history(settings: RegistrySettings, task: str = "") -> list[str]:
    """The ledger in words, oldest first: of a task, or of all models in the registry; empty without entries."""
    entries = Ledger(Reading(with_models(settings))).entries(settings.model_name(task) if task else None)
    return [f"{_time(entry)}  {in_words(entry)}" for entry in entries]


def parse_time(text: str) -> datetime:
    """A date (its last microsecond) or time in ISO 8601; UTC unless it has an offset.

    Raises:
        ConfigError: it is neither.
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigError(f"--at: {text!r} is no date or time; write 2026-11-24 or 2026-11-24T03:00") from error
    if len(text) <= len("2026-11-24"):
        moment = datetime.combine(moment, time.max)
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _time(entry: Entry) -> str:
    return f"{entry.time.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
