"""`checks`: comparison of new data with the last accepted version, before training."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from components.settings.section import NO_EFFECT, Section

RECORD = "data-checks.json"
#: `stop`: a violation ends the run before training; `warn`: it is reported; `off`: the check is not made.
#: YAML 1.1 reads `off` as false.
Rule = Annotated[Literal["stop", "warn", "off"], BeforeValidator(lambda value: "off" if value is False else value)]


class ChecksSettings(Section):
    """Comparison of new data with the last accepted version, per task, split and corpus. The limits are in
    `components.data.checks.compare`. A share that may have risen by chance, such as of one row of a small split, is a
    note."""

    #: The columns of the files: none of the last version is missing. Without a column that it needs, no task is read.
    columns: Rule = "warn"
    #: The labels of a task: none is new or missing. Of a label that another split had, it is a note.
    labels: Rule = "stop"
    #: Number of rows: at least half.
    rows: Rule = "stop"
    #: Share of rows without text. A task refuses them unless `data.tasks.<name>.empty` is `drop`.
    empty_rows: Rule = "stop"
    #: Share of rows whose text another row also has, apart from case, punctuation and white space.
    duplicates: Rule = "warn"
    #: Share of rows whose text also occurs with another label in the same split.
    label_conflicts: Rule = "stop"
    #: Shares of the labels. A change that comes from added rows is a note.
    class_balance: Rule = "stop"
    #: Shares of the lengths in characters, in intervals of half an octave.
    length: Rule = "warn"
    #: Shares of the writing systems (Latin, Cyrillic, Thai ...).
    language: Rule = "stop"
    #: File with the accepted versions, relative to the repository; by default next to the settings file.
    record: Annotated[str, Field(json_schema_extra=NO_EFFECT)] = RECORD
