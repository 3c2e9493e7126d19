"""The studies. A study is one file ending in `STUDY = Study(...)` and one line here."""

from __future__ import annotations

from components.studies import (
    benefits,
    contextuality,
    effective_context,
    label_efficiency,
    negative_transfer,
    neighbours,
    vocabulary,
    worth,
)
from components.studies.base import Study

STUDIES: dict[str, Study] = {
    study.name: study
    for study in (
        benefits.STUDY,
        contextuality.STUDY,
        effective_context.STUDY,
        label_efficiency.STUDY,
        negative_transfer.STUDY,
        neighbours.STUDY,
        vocabulary.STUDY,
        worth.STUDY,
    )
}
