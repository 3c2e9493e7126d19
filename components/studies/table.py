"""The table of studies. A study is a file ending in `STUDY = Study(...)` and a line in this table."""

from __future__ import annotations

from components.studies import (
    benefits,
    contextuality,
    effective_context,
    label_efficiency,
    layers,
    negative_transfer,
    neighbours,
    ngrams,
    transferability,
    vocabulary,
    which_source,
    word_order,
    worth,
    written,
    zero_shot,
)
from components.studies.base import Study

STUDIES: dict[str, Study] = {
    study.name: study
    for study in (
        benefits.STUDY,
        contextuality.STUDY,
        effective_context.STUDY,
        label_efficiency.STUDY,
        layers.STUDY,
        negative_transfer.STUDY,
        neighbours.STUDY,
        ngrams.STUDY,
        transferability.STUDY,
        vocabulary.STUDY,
        which_source.STUDY,
        word_order.STUDY,
        worth.STUDY,
        written.STUDY,
        zero_shot.STUDY,
    )
}
