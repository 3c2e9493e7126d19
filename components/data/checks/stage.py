"""The stage `checks`, and the same comparison by `headstart check`: new data against the last accepted version.

The accepted versions are in a file of the repository (`components.data.checks.record`) that DVC does not track. The
output does not change when a version is accepted, because a version is compared with the last one of another content.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from components.core.artifacts import writing
from components.core.errors import DataError
from components.data.checks import FILE, KIND, record
from components.data.checks.compare import Finding, Names, compare, distributions, findings
from components.data.checks.measure import Unit, combine, corpus_unit, task_units
from components.settings.checks import ChecksSettings
from components.settings.cluster import ClusterSettings
from components.settings.data import CorpusSource, ParallelSource
from components.settings.section import Section
from components.settings.tasks import TaskSource


class ChecksJob(Section):
    """Inputs of the stage: name -> raw text or pairs, name -> labelled data, the rules, and the directory to write."""

    corpora: dict[str, CorpusSource | ParallelSource]
    tasks: dict[str, TaskSource]
    settings: ChecksSettings
    output: Path
    cluster: ClusterSettings = ClusterSettings()


@dataclass(frozen=True)
class Checked:
    """A unit and its violations.

    Attributes:
        before: the accepted version that it was compared with; None: there is none.
        accepted: the entry by which this content has been accepted; None: it has not.
    """

    unit: Unit
    before: record.Accepted | None
    accepted: record.Accepted | None
    findings: list[Finding]

    @property
    def stops(self) -> bool:
        """Whether it ends a run: a violation of a rule `stop` that nobody has accepted."""
        return self.accepted is None and any(finding.stops for finding in self.findings)

    def as_dict(self) -> dict[str, Any]:
        """The result as JSON; `accepted` says who accepted violations of a rule, when and why."""
        by_a_person = self.accepted is not None and self.accepted.reason != record.BY_RULE
        return {
            "digest": self.unit.digest,
            "rows": self.unit.statistics.rows,
            "compared_with": self.before and f"version of {self.before.time} ({self.before.by})",
            "accepted": f"accepted on {self.accepted.time} by {self.accepted.by}: {self.accepted.reason}"
            if self.accepted and by_a_person
            else None,
            "findings": [str(finding) for finding in self.findings],
        }


def checks(job: ChecksJob) -> Path:
    """Compare the data of a run with the last accepted version, and record it as accepted.

    The directory holds checks.json (unit -> findings).

    Raises:
        DataError: the data are invalid, or violate a rule `stop`.
    """
    checked = check_data(job)
    refuse(checked)
    with writing(job.output, kind=KIND) as draft:
        content = {each.unit.name: each.as_dict() for each in checked}
        (draft.path / FILE).write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    accept(job, checked)
    return job.output


def check_data(job: ChecksJob) -> list[Checked]:
    """Compare every corpus and split with its last accepted version.

    Raises:
        DataError: the data are invalid; the message lists the first problem of every corpus and task.
    """
    units: list[Unit] = []
    problems: list[str] = []
    for name, source in (job.tasks | job.corpora).items():
        try:
            if isinstance(source, TaskSource):
                units += task_units(name, source)
            else:
                units.append(corpus_unit(name, source, cluster=job.cluster))
        except DataError as error:
            problems.append(str(error))
    if problems:
        raise (
            DataError("\n".join(problems))
            if len(problems) == 1
            else DataError.listing(problems, what="problem(s) in the data")
        )
    versions = record.read(Path(job.settings.record))
    return [_checked(unit, versions.get(unit.name, []), job.settings, _names(unit, units, versions)) for unit in units]


def _names(unit: Unit, units: Sequence[Unit], versions: record.Record) -> Names | None:
    """The labels of all splits of the task of a unit; None if they are numbers."""
    if not unit.named:
        return None
    splits = [each for each in units if each.task == unit.task]
    # The last versions that were accepted: also of a split that has not changed since.
    before = [last for each in splits for version in versions.get(each.name, []) if (last := version.measured())]
    return Names(
        {name for last in before for name in last.classes},
        {name for each in splits for name in each.statistics.classes},
    )


def _checked(unit: Unit, accepted: Sequence[record.Accepted], settings: ChecksSettings, names: Names | None) -> Checked:
    before = record.last(accepted, other_than=unit.digest)
    old = before.measured() if before else None
    violations = compare(unit.statistics, old, settings, unit=unit.name, where=unit.where, names=names)
    if before and old:
        # New files are also compared alone: a few files in another language change the shares of a large corpus little.
        added = [(name, statistics) for name, digest, statistics in unit.parts if digest not in before.files]
        if 0 < len(added) < len(unit.parts):
            parts = ", ".join(name for name, _ in added[:3]) + (" ..." if len(added) > 3 else "")
            violations += findings(
                distributions(combine([statistics for _, statistics in added]), old),
                settings,
                unit=f"{unit.name}, new files",
                where=f"{unit.where}: {parts}",
            )
    entry = next((entry for entry in reversed(accepted) if entry.digest == unit.digest), None)
    return Checked(unit, before, entry, violations)


def refuse(checked: Sequence[Checked]) -> None:
    """Check that no rule `stop` is violated by data that nobody has accepted.

    Raises:
        DataError: lists the violations.
    """
    if stopping := [str(finding) for each in checked if each.stops for finding in each.findings if finding.stops]:
        listed = "\n".join(
            [f"{len(stopping)} violation(s) of the rules for new data", *(f"  {each}" for each in stopping)]
        )
        raise DataError(f"{listed}\ncorrect the data; if the change is intended: headstart check --accept REASON")


def accept(job: ChecksJob, checked: Sequence[Checked], *, reason: str = record.BY_RULE) -> list[str]:
    """Record the data as accepted; returns the units that were not the last accepted version already.

    Raises:
        ArtifactError: the file of the accepted versions is damaged or cannot be written.
    """
    versions = [(each.unit, [str(finding) for finding in each.findings]) for each in checked]
    return record.accept(Path(job.settings.record), versions, reason=reason)
