"""`checks`: comparison of new data with the last accepted version, before training."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from components.settings.registry import find_repository
from components.settings.section import NO_EFFECT, Fraction, Section

RECORD = "data-checks.json"
#: `stop`: a violation ends the run before training; `warn`: it is reported; `off`: the check is not made.
Rule = Literal["stop", "warn", "off"]


class Check(Section):
    """One check. The rule alone may be given instead of the section: `length: warn`."""

    #: What a violation does.
    rule: Rule

    @model_validator(mode="before")
    @classmethod
    def _rule_alone(cls, value: Any) -> Any:
        # YAML 1.1 reads `off` as false.
        if isinstance(value, dict):
            return {key: "off" if key == "rule" and inner is False else inner for key, inner in value.items()}
        return {"rule": "off" if value is False else value}


class ColumnsCheck(Check):
    """The columns of the files: none of the last version is missing."""

    rule: Rule = "stop"


class LabelsCheck(Check):
    """The labels of a task: none is new or missing."""

    rule: Rule = "stop"


class RowsCheck(Check):
    """Number of rows."""

    rule: Rule = "stop"
    #: Maximum share of the rows that may be missing.
    loss: Fraction = 0.5


class EmptyRowsCheck(Check):
    """Rows without text. A task refuses them unless `data.tasks.<name>.empty` is `drop`."""

    rule: Rule = "stop"
    #: Maximum increase of their share.
    increase: Fraction = 0.01


class DuplicatesCheck(Check):
    """Rows whose text is also that of another row, apart from case, punctuation and white space."""

    rule: Rule = "warn"
    #: Maximum increase of their share.
    increase: Fraction = 0.1


class LabelConflictsCheck(Check):
    """Rows whose text also occurs with another label in the same split."""

    rule: Rule = "stop"
    #: Maximum increase of their share.
    increase: Fraction = 0.02


class DistributionCheck(Check):
    """A distribution over categories, compared by its total variation distance (half the sum of the differences of the
    shares) and a G-test."""

    rule: Rule = "stop"
    #: Maximum distance; a larger one is a violation if it is significant.
    distance: Fraction = 0.1


class ClassBalanceCheck(DistributionCheck):
    """Shares of the labels."""


class LengthCheck(DistributionCheck):
    """Shares of the lengths in characters, in intervals of half an octave."""

    rule: Rule = "warn"
    distance: Fraction = 0.2


class LanguageCheck(DistributionCheck):
    """Shares of the writing systems (Latin, Cyrillic, Thai ...)."""

    distance: Fraction = 0.05


class ChecksSettings(Section):
    """Comparison of new data with the last accepted version, per task, split and corpus."""

    columns: ColumnsCheck = ColumnsCheck()
    labels: LabelsCheck = LabelsCheck()
    rows: RowsCheck = RowsCheck()
    empty_rows: EmptyRowsCheck = EmptyRowsCheck()
    duplicates: DuplicatesCheck = DuplicatesCheck()
    label_conflicts: LabelConflictsCheck = LabelConflictsCheck()
    class_balance: ClassBalanceCheck = ClassBalanceCheck()
    length: LengthCheck = LengthCheck()
    language: LanguageCheck = LanguageCheck()
    #: Probability that one comparison of two samples of the same distribution is significant.
    error: Annotated[float, Field(gt=0, lt=0.5)] = 1e-4
    #: File with the accepted versions, relative to the repository; by default next to the settings file.
    record: Annotated[str, Field(json_schema_extra=NO_EFFECT)] = RECORD


def default_record(params: Path) -> str:
    """The file of the accepted versions next to a settings file, relative to the repository."""
    folder = Path(params).resolve().parent
    root = find_repository(folder)
    return RECORD if root is None else (folder.relative_to(root) / RECORD).as_posix()
