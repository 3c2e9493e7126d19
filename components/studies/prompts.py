"""Which questions does a language model answer after a prompt (`prompts`), and how well does it label the rows of a
task without labels, or after a few of them (`zero_shot`)?

prompts.json    questions in the forms of GPT-2 and GPT-3 (Radford et al. 2019; Brown et al. 2020, section 3.9): general
                knowledge, translation, the last word of a sentence, scrambled letters, invented words, sums
"""

from collections import defaultdict
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Literal

import numpy as np

from components.core.errors import ConfigError, DataError, nearest
from components.data.formats.rows import open_rows
from components.data.formats.tables import as_text
from components.data.tasks.data import Split
from components.data.tasks.examples import read_facts, read_split
from components.serving.generation import GAP
from components.settings.tasks import has
from components.studies.answers import GAIN, PARTS, SILENT, can_answer, choice, demonstrations, share, template_of
from components.studies.frame import CAUSAL, Outputs, Parts, Rows, Sheet, is_causal

ITEMS = Path(__file__).with_suffix(".json")
KINDS = ("choice", "classification", "pair")
FORMS = {"perplexity": ".4g"}


def read_questions(path: Path) -> dict[str, list[tuple[str, str]]]:
    """Task -> questions with their answers, of a file with the columns question and answer, and optionally task. A
    question may have several answers, each in a row."""
    tasks = defaultdict[str, list[tuple[str, str]]](list)
    for where, row in open_rows(path).rows:
        cells = (as_text(row.get(name), where) or "" for name in ("task", "question", "answer"))
        task, question, answer = (of.rstrip(" ") for of in cells)
        if not question.strip() or not answer:
            raise DataError(f"{where}: a question or its answer is missing or empty; a row needs both")
        tasks[task or path.stem].append((question, answer))
    return tasks


def prompts(
    outputs: Outputs,
    *,
    items: str = "",
    task: str = "",
    encoder: str = "",
    prompt: str = "{text}",
    shots: int = 0,
    choices: int = 4,
) -> Parts:
    """The choice of every causal language model of the run, and for questions with a [MASK] of every one, among the
    right answer and answers to other questions of a task. The first questions are the demonstrations."""
    tasks, template = read_questions(Path(items) if items else ITEMS), template_of(prompt, PARTS[:1])
    if task and task not in tasks:
        raise ConfigError(f"--task: unknown task {task!r}{nearest(task, tasks)}")
    rows, sides, asked = Rows(), Rows(), {task: tasks[task]} if task else tasks
    gaps = {name for name, of in asked.items() if any(GAP in question for question, _ in of)}
    encoders = outputs.encoders(encoder, *((can_answer, SILENT) if gaps else (is_causal, CAUSAL)))
    for name, of in asked.items():
        if len(of) < shots + 2:
            raise DataError(f"{name}: {len(of)} questions are too few for {shots} demonstrations and 2 questions")
        shown = demonstrations(template, [((question,), answer) for question, answer in of[:shots]])
        rng, fields = np.random.default_rng(0), list[tuple[str, ...]]()
        for question, right in of[shots:]:
            others = [answer for answer in dict.fromkeys(answer for _, answer in of) if (question, answer) not in of]
            fields.append((question, right, *rng.permutation(others)[: choices - 1].tolist()))
        split = Split(fields, [np.zeros(1)] * len(fields), [None] * len(fields))
        for system, each in encoders.items():
            row, both = choice(each, split, template, shown, [])
            rows.append({"encoder": system, "task": name} | row)
            if name in gaps:
                _, left = choice(each, split, template, shown, [], left=True)
                sides.append({"encoder": system, "task": name, "both minus left": share(both - left, least=-1.0)})
    yield f"Demonstrations: {shots}."
    yield Sheet(rows, "", FORMS, "calibrated", reference=1 / choices)
    yield Sheet(sides, "Both sides of a gap", value="both minus left", reference=0.0)


def label_words(labels: Sequence[str], answers: str) -> dict[str, str]:
    """Label -> its answer: the words of its name, unless `answers` has another."""
    words = {label: label.replace("_", " ").replace("-", " ") for label in labels}
    for entry in filter(str.strip, answers.split(";")):
        label, _, answer = (part.strip() for part in entry.partition("="))
        if not answer or label not in words:
            raise ConfigError(f"--answers: {entry.strip()!r}: write label=words for labels among {', '.join(labels)}")
        words[label] = answer
    return words


def zero_shot(
    outputs: Outputs,
    *,
    task: str = "",
    encoder: str = "",
    prompt: str = "{text}",
    answers: str = "",
    shots: int = 0,
    split: Literal["dev", "test"] = "dev",
) -> Parts:
    """Accuracy of every encoder for each of the scores. Nothing is selected on test."""
    directory = outputs.of("examples", name := outputs.task(task))
    facts, whole, train = read_facts(directory), read_split(directory, split), read_split(directory, "train")
    if facts.kind not in KINDS:
        raise ConfigError(f"{name}: {facts.kind} has no candidate answers; zero-shot supports {', '.join(KINDS)}")
    template = template_of(prompt, PARTS[: 1 + has(facts.kind, "second")])
    # The answers of a choice differ by row.
    words = list(label_words(facts.labels, answers).values())
    if shots and not words:
        raise ConfigError("--shots: the answers of a choice differ by row; set it to 0")
    # Each label in turn.
    turns = zip_longest(*(np.flatnonzero(train.labels == label) for label in range(len(words) * bool(shots))))
    chosen = [row for rows in turns for row in rows if row is not None][:shots]
    shown = demonstrations(template, [(train.fields[row], words[train.labels[row]]) for row in chosen])
    # Rows without any of the labels have no right answer.
    asked = whole.take(np.flatnonzero(whole.labels >= 0))
    if not len(asked):
        raise ConfigError(f"{name}: prompts are chosen on dev; name a file (data.tasks.{name}.dev)")
    rows = [
        {"split": split, "encoder": system, "task": name} | choice(each, asked, template, shown, words)[0]
        for system, each in outputs.encoders(encoder, can_answer, SILENT).items()
    ]
    value, reference = (GAIN, 0.0) if words else ("calibrated", None)
    yield f"Prompt: {prompt!r}, after {shots} labelled rows."
    yield Sheet(rows, name, FORMS, value, reference=reference)
