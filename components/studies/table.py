"""The studies. A study is one file ending in `STUDY = Study(...)` and one line here."""

from __future__ import annotations

from components.studies import benefits, label_efficiency, negative_transfer, worth
from components.studies.base import Study

STUDIES: dict[str, Study] = {
    study.name: study
    for study in (
        benefits.STUDY,
        label_efficiency.STUDY,
        negative_transfer.STUDY,
        worth.STUDY,
    )
}
