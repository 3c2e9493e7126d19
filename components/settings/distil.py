"""`distil.<name>`: small models that learn from the predictions of large ones."""

from __future__ import annotations

from pydantic import Field

from components.settings.section import Section
from components.settings.unlabelled import TextSource


class DistilSettings(Section):
    """Distillation (Hinton et al. 2015): the teachers label text without labels, and the students learn their
    probabilities. For each label budget, seed and fold of a cross-validation, a student learns from teachers that have
    learned from the same labelled rows. The head on the student's frozen encoder, and the student's own way to learn
    without teachers, are candidates too."""

    #: Texts without labels that teachers label and students learn.
    source: TextSource = "task"
    #: Systems of the run: a block and an initialisation, as in `minilm-pretrained`. The predictions of several teachers
    #: are averaged.
    teachers: list[str] = Field(min_length=1)
    #: Systems of the run: a block and an initialisation, as in `static-pretrained`.
    students: list[str] = Field(min_length=1)
