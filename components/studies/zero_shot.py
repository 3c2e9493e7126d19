"""How well does a language model label the rows of a task without labels, or after a few of them?"""

from collections.abc import Sequence
from itertools import zip_longest
from typing import Final, Literal

import numpy as np

from components.core.errors import ConfigError
from components.data.tasks.examples import read_facts, read_split
from components.settings.tasks import has
from components.studies.answers import SILENT, can_answer
from components.studies.choices import GAIN, choice
from components.studies.frame import Measured, Outputs, Sheet
from components.studies.templates import Prompt

KINDS: Final = ("choice", "classification", "pair")


def label_words(labels: Sequence[str], answers: str) -> dict[str, str]:
    """Label -> its answer: the words of its name, unless `answers` has another."""
    words = {label: label.replace("_", " ").replace("-", " ") for label in labels}
    for entry in filter(str.strip, answers.split(";")):
        label, _, answer = (part.strip() for part in entry.partition("="))
        if not answer or label not in words:
            raise ConfigError(f"--answers: {entry.strip()!r}: write label=words for labels among {', '.join(labels)}")
        words[label] = answer
    return words


def measure(
    outputs: Outputs,
    *,
    task: str = "",
    encoder: str = "",
    prompt: str = "{text}",
    answers: str = "",
    shots: int = 0,
    split: Literal["dev", "test"] = "dev",
) -> Measured:
    """Accuracy of every encoder for each of the scores. Nothing is selected on test."""
    name = outputs.task(task)
    directory = outputs.of("examples", name)
    facts, whole, train = read_facts(directory), read_split(directory, split), read_split(directory, "train")
    if facts.kind not in KINDS:
        raise ConfigError(f"{name}: {facts.kind} has no candidate answers; zero-shot supports {', '.join(KINDS)}")
    template = Prompt.of(prompt, parts=("text", "second")[: 1 + has(facts.kind, "second")])
    # The answers of a choice differ by row.
    words = list(label_words(facts.labels, answers).values())
    if shots and not words:
        raise ConfigError("--shots: the answers of a choice differ by row; set it to 0")
    # Each label in turn.
    of_label = [np.flatnonzero(train.labels == label).tolist() for label in range(len(words))] if shots else []
    turns = [row for rows in zip_longest(*of_label) for row in rows if row is not None][:shots]
    shown = template.lines([(train.fields[row], words[int(train.targets[row][0])]) for row in turns])
    # Rows without any of the labels have no right answer.
    asked = whole.take([row for row, target in enumerate(whole.targets) if target[0] >= 0])
    if not len(asked):
        raise ConfigError(f"{name}: prompts are chosen on dev; name a file (data.tasks.{name}.dev)")
    rows = [
        {"split": split, "encoder": system, "task": name} | choice(each, asked, template, shown, words)[0]
        for system, each in outputs.encoders(encoder, can_answer, SILENT).items()
    ]
    value, reference = (GAIN, 0.0) if words else ("calibrated", None)
    sheet = Sheet(rows, name, {"perplexity": ".4g"}, value, reference=reference)
    return Measured([sheet], [f"Prompt: {prompt!r}, after {shots} labelled rows."])
