"""Names of labels as training texts (`finetune.<name>.label_names`).

The name of a label says what its texts have in common. As one more training text of its class it is worth most where
there are few others. A name such as `HUM` says little, so `auto` compares the score with and without the names.
"""

from __future__ import annotations

from collections.abc import Sequence

from components.finetuning.self_training import rounds_of
from components.finetuning.specs import RunSpec
from components.task_models.kinds import find_task
from components.tasks.data import Fields
from components.tasks.examples import TaskFacts, read_facts
from components.tasks.label_texts import are_words, text_of


def label_fields(facts: TaskFacts) -> list[Fields]:
    """The text of each label, as an input of the model."""
    return [(facts.label_texts.get(label) or text_of(label),) for label in facts.labels]


def names_of(spec: RunSpec) -> Sequence[bool | None]:
    """Whether a run learns from names: [True], or [True, False] if both are compared. [None]: the settings ask for no
    names, or the run cannot use them."""
    facts, wanted = read_facts(spec.examples), spec.settings.label_names
    task = find_task(facts.kind)
    if wanted == "none" or not (task.single and task.labels_rows) or rounds_of(spec):
        return [None]
    if wanted == "always":
        return [True]
    return [True, False] if are_words(text for (text,) in label_fields(facts)) else [None]
