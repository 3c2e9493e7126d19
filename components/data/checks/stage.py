"""The stage `checks`, and the same comparison by `headstart check`: new data against the last accepted version.

The accepted versions are in a file of the repository (`components.data.checks.record`) that DVC does not track. The
output does not change when a version is accepted, because a version is compared with the last one of another content.
"""

from collections.abc import Sequence
from pathlib import Path

from components.core.artifacts import write_json, writing
from components.core.errors import DataError
from components.data.checks import FILE, KIND, record
from components.data.checks.compare import compare, distributions, findings
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


def checks(job: ChecksJob) -> Path:
    """Compare the data of a run with the last accepted version, and record it as accepted.

    The directory holds checks.json (unit -> findings, and who accepted violations of a rule, when and why).

    Raises:
        DataError: the data are invalid, or violate a rule `stop`.
    """
    units = check_data(job)
    refuse(units)
    content = {}
    for unit in units:
        before, accepted = unit.before, unit.accepted
        by_a_person = accepted is not None and accepted["reason"] != record.BY_RULE
        content[unit.name] = {
            "digest": unit.digest,
            "rows": unit.statistics["rows"],
            "compared_with": before and "version of {time} ({by})".format(**before),
            "accepted": "accepted on {time} by {by}: {reason}".format(**accepted) if accepted and by_a_person else None,
            "findings": [*unit.findings],
        }
    with writing(job.output, kind=KIND) as draft:
        write_json(draft.path / FILE, content, sort_keys=False, ensure_ascii=False)
    record.accept(Path(job.settings.record), units, reason=record.BY_RULE)
    return job.output


def check_data(job: ChecksJob) -> list[Unit]:
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
    for unit in units:
        _compare(unit, units, versions, job.settings)
    return units


def _compare(unit: Unit, units: Sequence[Unit], versions: record.Record, settings: ChecksSettings) -> None:
    accepted = versions.get(unit.name, [])
    # The last accepted version of another content whose statistics are kept.
    others = [each for each in accepted if each["digest"] != unit.digest and each["statistics"]]
    before = unit.before = others[-1] if others else None
    unit.accepted = next((each for each in reversed(accepted) if each["digest"] == unit.digest), None)
    old = before and before["statistics"]
    names = None
    if unit.named:
        splits = [each for each in units if each.task == unit.task]
        # The last versions that were accepted: also of a split that has not changed since.
        last = [each["statistics"] for split in splits for each in versions.get(split.name, []) if each["statistics"]]
        labels = [
            {name for each in of for name in each["classes"]} for of in (last, [each.statistics for each in splits])
        ]
        names = labels[0], labels[1]
    compared = compare(unit.statistics, old, names)
    unit.findings = findings(compared, settings, where=f"{unit.name} ({unit.where}", first=old is None)
    # New files are also compared alone: a few files in another language change the shares of a large corpus little.
    added = [(name, each) for name, digest, each in unit.parts if before and digest not in before["files"]]
    if old and 0 < len(added) < len(unit.parts):
        parts = ", ".join(name for name, _ in added[:3]) + (" ..." if len(added) > 3 else "")
        of_new = distributions(combine([each for _, each in added]), old)
        unit.findings |= findings(of_new, settings, where=f"{unit.name}, new files ({unit.where}: {parts}", first=False)


def refuse(units: Sequence[Unit]) -> None:
    """Check that no rule `stop` is violated by data that nobody has accepted.

    Raises:
        DataError: lists the violations.
    """
    new = [finding for unit in units if unit.accepted is None for finding in unit.findings.items()]
    if stopping := [f"\n  {text}" for text, rule in new if rule == "stop"]:
        raise DataError(
            f"{len(stopping)} violation(s) of the rules for new data{''.join(stopping)}\ncorrect the data; if the "
            "change is intended: headstart check --accept REASON"
        )
