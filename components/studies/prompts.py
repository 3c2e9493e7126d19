"""Which questions does a language model answer after a prompt?

prompts.json    questions in the forms of GPT-2 and GPT-3 (Radford et al. 2019; Brown et al. 2020, section 3.9): general
                knowledge, translation, the last word of a sentence, scrambled letters, invented words, sums
"""

from collections import defaultdict
from pathlib import Path
from typing import Final

import numpy as np

from components.core.errors import ConfigError, DataError, nearest
from components.data.formats.rows import open_rows
from components.data.formats.tables import as_text
from components.data.tasks.data import Split
from components.serving.generation import GAP
from components.studies.answers import SILENT, can_answer
from components.studies.choices import choice, share
from components.studies.frame import CAUSAL, Measured, Outputs, Row, Sheet, is_causal
from components.studies.templates import Prompt

ITEMS: Final = Path(__file__).with_suffix(".json")


def read_questions(path: Path) -> dict[str, list[tuple[str, str]]]:
    """Task -> questions with their answers, of a file with the columns question and answer, and optionally task. A
    question may have several answers, each in a row."""
    tasks = defaultdict[str, list[tuple[str, str]]](list)
    for where, row in open_rows(path).rows:
        task, question, answer = (
            (as_text(row.get(name), where) or "").rstrip(" ") for name in ("task", "question", "answer")
        )
        if not question.strip() or not answer:
            raise DataError(f"{where}: a question or its answer is missing or empty; a row needs both")
        tasks[task or path.stem].append((question, answer))
    return tasks


def measure(
    outputs: Outputs,
    *,
    items: str = "",
    task: str = "",
    encoder: str = "",
    prompt: str = "{text}",
    shots: int = 0,
    choices: int = 4,
) -> Measured:
    """The choice of every causal language model of the run, and for questions with a [MASK] of every one, among the
    right answer and answers to other questions of a task. The first questions are the demonstrations."""
    tasks, template = read_questions(Path(items) if items else ITEMS), Prompt.of(prompt, parts=("text",))
    if task and task not in tasks:
        raise ConfigError(f"--task: unknown task {task!r}{nearest(task, tasks)}")
    names, rows, sides = [task] if task else list(tasks), list[Row](), list[Row]()
    gaps = {name for name in names if any(GAP in question for question, _ in tasks[name])}
    encoders = outputs.encoders(encoder, *((can_answer, SILENT) if gaps else (is_causal, CAUSAL)))
    for name in names:
        of = tasks[name]
        if len(asked := of[shots:]) < 2:
            raise DataError(f"{name}: {len(of)} questions are too few for {shots} demonstrations and 2 questions")
        shown = template.lines([((question,), answer) for question, answer in of[:shots]])
        rng, fields = np.random.default_rng(0), list[tuple[str, ...]]()
        for question, right in asked:
            others = [answer for answer in dict.fromkeys(answer for _, answer in of) if (question, answer) not in of]
            fields.append((question, right, *rng.permutation(others)[: choices - 1].tolist()))
        split = Split(fields, [np.zeros(1)] * len(fields), [None] * len(fields))
        for system, each in encoders.items():
            row, both = choice(each, split, template, shown, [])
            rows.append({"encoder": system, "task": name} | row)
            if name in gaps:
                _, left = choice(each, split, template, shown, [], left=True)
                sides.append({"encoder": system, "task": name, "both minus left": share(both - left, least=-1.0)})
    sheets = [Sheet(rows, "", {"perplexity": ".4g"}, "calibrated", reference=1 / choices)]
    sheets += [Sheet(sides, "Both sides of a gap", value="both minus left", reference=0.0)] if sides else []
    return Measured(sheets, [f"Demonstrations: {shots}."])
