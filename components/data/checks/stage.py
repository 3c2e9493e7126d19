"""The stage `checks`, and the same comparison by `headstart check`: new data against the last accepted version.

The accepted versions are in a file of the repository (`components.data.checks.record`) that DVC does not track. The
output does not change when a version is accepted, because a version is compared with the last one of another content.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from components.core.artifacts import writing
from components.core.errors import DataError
from components.data.checks import FILE, KIND, record
from components.data.checks.compare import Finding, compare, distributions, findings
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
    before: record.Version | None
    accepted: record.Version | None
    findings: list[Finding]


def checks(job: ChecksJob) -> Path:
    """Compare the data of a run with the last accepted version, and record it as accepted.

    The directory holds checks.json (unit -> findings, and who accepted violations of a rule, when and why).

    Raises:
        DataError: the data are invalid, or violate a rule `stop`.
    """
    checked = check_data(job)
    refuse(checked)
    content = {}
    for each in checked:
        before, accepted = each.before, each.accepted
        by_a_person = accepted is not None and accepted["reason"] != record.BY_RULE
        content[each.unit.name] = {
            "digest": each.unit.digest,
            "rows": each.unit.statistics["rows"],
            "compared_with": before and "version of {time} ({by})".format(**before),
            "accepted": "accepted on {time} by {by}: {reason}".format(**accepted) if accepted and by_a_person else None,
            "findings": [str(finding) for finding in each.findings],
        }
    with writing(job.output, kind=KIND) as draft:
        (draft.path / FILE).write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    accept(job, checked)
    return job.output


def check_data(job: ChecksJob) -> list[Checked]:
    """Compare every corpus and split with its last accepted version.

    Raises:
        DataError: the data are invalid; the message lists the first problem of every corpus and task.
    """
    units: list[Unit] = []
    problems: list[DataError] = []
    for name, source in (job.tasks | job.corpora).items():
        try:
            if isinstance(source, TaskSource):
                units += task_units(name, source)
            else:
                units.append(corpus_unit(name, source, cluster=job.cluster))
        except DataError as error:
            problems.append(error)
    if problems:
        many = DataError.listing(list(map(str, problems)), what="problem(s) in the data")
        raise many if len(problems) > 1 else problems[0]
    versions = record.read(Path(job.settings.record))
    return [_checked(unit, units, versions, job.settings) for unit in units]


def _checked(unit: Unit, units: Sequence[Unit], versions: record.Record, settings: ChecksSettings) -> Checked:
    accepted = versions.get(unit.name, [])
    # The last accepted version of another content whose statistics are kept.
    before = next((each for each in reversed(accepted) if each["digest"] != unit.digest and each["statistics"]), None)
    old = before and before["statistics"]
    names = None
    if unit.named:
        splits = [each for each in units if each.task == unit.task]
        # The last versions that were accepted: also of a split that has not changed since.
        last = [each["statistics"] for split in splits for each in versions.get(split.name, []) if each["statistics"]]
        names = (
            {name for each in last for name in each["classes"]},
            {name for split in splits for name in split.statistics["classes"]},
        )
    compared = compare(unit.statistics, old, names)
    violations = findings(compared, settings, where=f"{unit.name} ({unit.where}", first=old is None)
    # New files are also compared alone: a few files in another language change the shares of a large corpus little.
    added = [(name, each) for name, digest, each in unit.parts if before and digest not in before["files"]]
    if old and 0 < len(added) < len(unit.parts):
        parts = ", ".join(name for name, _ in added[:3]) + (" ..." if len(added) > 3 else "")
        of_new = distributions(combine([each for _, each in added]), old)
        violations += findings(of_new, settings, where=f"{unit.name}, new files ({unit.where}: {parts}", first=False)
    entry = next((each for each in reversed(accepted) if each["digest"] == unit.digest), None)
    return Checked(unit, before, entry, violations)


def refuse(checked: Sequence[Checked]) -> None:
    """Check that no rule `stop` is violated by data that nobody has accepted.

    Raises:
        DataError: lists the violations.
    """
    new = [finding for each in checked if each.accepted is None for finding in each.findings]
    if stopping := [f"\n  {finding}" for finding in new if finding.rule == "stop"]:
        raise DataError(
            f"{len(stopping)} violation(s) of the rules for new data{''.join(stopping)}\ncorrect the data; if the "
            "change is intended: headstart check --accept REASON"
        )


def accept(job: ChecksJob, checked: Sequence[Checked], *, reason: str = record.BY_RULE) -> list[str]:
    """Record the data as accepted; returns the units that were not the last accepted version already.

    Raises:
        ArtifactError: the file of the accepted versions is damaged or cannot be written.
    """
    versions = [(each.unit, [str(finding) for finding in each.findings]) for each in checked]
    return record.accept(Path(job.settings.record), versions, reason=reason)
