"""What a language model writes after a prompt, scored against references: numbers, or answers to questions.

    arithmetic  generated problems, `Q: What is 48 plus 76?`, `A:` (Brown et al. 2020, section 3.9.1); exact match of
                the number
    questions   the answerable rows of a task of kind questions, the context before the question; F1 and exact match by
                SQuAD's rules (Radford et al. 2019, section 3; Brown et al. 2020, section 3.2)

Answers are decoded greedily; they end at a line break or at the next question. With demonstrations (`--shots`),
answered prompts precede the prompt, from the problems that are not asked or from train. For causal families.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

import numpy as np
import typer

from components.errors import ConfigError
from components.models import family as family_named
from components.reporting.chapters import Chapter, Table
from components.reporting.findings import Findings
from components.scoring import title
from components.studies import arithmetic
from components.studies.frame import EncoderName, Outputs, Study, bounds
from components.studies.generated import Item, of_number, of_question, scored, write
from components.studies.prompts import balanced
from components.tasks.data import Split
from components.tasks.examples import read_facts, read_split
from components.tokenization.special import UNK
from components.training.rng import counter_rng

#: Pieces that are generated.
LENGTHS: Final = {"arithmetic": 12, "questions": 24}
#: Examples in the chapter, and characters of a cell.
SHOWN, CELL = 5, 120


def run(
    outputs: Outputs,
    *,
    what: Annotated[Literal["arithmetic", "questions"], typer.Option(help="What the model writes.")] = "arithmetic",
    task: Annotated[str, typer.Option(help="Questions: a task of kind questions.")] = "",
    encoder: EncoderName = "",
    shots: Annotated[int, typer.Option(help="Demonstrations in the prompt.", min=0)] = 0,
    rows: Annotated[int, typer.Option(help="Maximum number of prompts; of arithmetic, per operation.", min=1)] = 100,
    split: Annotated[Literal["dev", "test"], typer.Option(help="Questions: split to answer.")] = "dev",
    seed: Annotated[int, typer.Option(help="Of problems and demonstrations.")] = 0,
) -> Findings:
    """Scores of every causal language model, with examples of what it writes.

    Raises:
        ConfigError: a task of another kind; too few rows for the demonstrations; no causal language model.
    """
    if what == "arithmetic":
        items, score = _problems(rows=rows, shots=shots, seed=seed), of_number
    else:
        name = outputs.task(task)
        directory = outputs.examples(name)
        if (kind := read_facts(directory).kind) != "questions":
            raise ConfigError(f"--task: {name} is of kind {kind}; name a task of kind questions")
        train = read_split(directory, "train")
        items = _questions(read_split(directory, split), train, rows=rows, shots=shots, seed=seed)
        score = of_question
    scores: dict[str, dict[str, dict[str, dict[str, float]]]] = {}
    examples: dict[str, list[list[str]]] = {}
    notes: list[str] = []
    for block, start in outputs.chosen(encoder):
        system, loaded = f"{block}-{start}", outputs.encoder(block, start)
        if family_named(loaded.family).objective != "causal" or loaded.model.backward:
            notes.append(f"{system} is skipped: it is not a forward causal language model, so it writes no text.")
            continue
        written, fit = write(loaded, items, length=LENGTHS[what], seed=seed)
        scores[system] = scored(items, written, score, confidence=outputs.params.evaluate.confidence)
        examples[system] = [
            [item.prompt[-CELL:], answer[:CELL], item.references[0][:CELL]]
            for item, answer in list(zip(items, written, strict=True))[:: max(1, len(items) // SHOWN)][:SHOWN]
        ]
        if unknown := sum((ids == UNK).any() for ids in loaded.tokenizer.encode_batch([item.prompt for item in items])):
            notes.append(f"{system}: {unknown} of {len(items)} prompts have words that its vocabulary lacks.")
        if fit < shots:
            notes.append(f"{system}: {fit:.1f} of {shots} demonstrations fit into its positions on average.")
    if not scores:
        raise ConfigError(f"run.families: none is a causal language model. {' '.join(notes)}")
    content = {"what": what, "rows": len(items), "shots": shots, "seed": seed, "scores": scores, "examples": examples}
    return Findings(_chapter(content, notes), content)


def _asked(question: str, context: str = "") -> str:
    """The prompt of a question."""
    return f"{context}\nQ: {question}\nA:".lstrip()


def _problems(*, rows: int, shots: int, seed: int) -> list[Item]:
    items = []
    for operation in arithmetic.OPERATIONS:
        asked, shown = arithmetic.asked_and_shown(operation, rows=rows, shots=shots, seed=seed)
        before = tuple(f"{_asked(question)} {answer}" for question, answer in shown)
        items += [Item(operation, _asked(question), (str(answer),), before) for question, answer in asked]
    return items


def _questions(split: Split, train: Split, *, rows: int, shots: int, seed: int) -> list[Item]:
    answered = _items(train) if shots else []
    before = tuple(
        f"{answered[row].prompt} {answered[row].references[0]}"
        for row in balanced(None, len(answered), shots, seed=seed)
    )
    items = _items(split, before)
    if not items:
        raise ConfigError("--split: it has no answerable question")
    return [items[row] for row in np.sort(counter_rng(seed, "questions").permutation(len(items))[:rows])]


def _items(split: Split, shown: tuple[str, ...] = ()) -> list[Item]:
    """The answerable questions of a split."""
    items = []
    for (question, context), target in zip(split.fields, split.targets, strict=True):
        spans = target.astype(np.int64).reshape(-1, 2)
        references = tuple(dict.fromkeys(context[start:end] for start, end in spans))
        items += [Item("all", _asked(question, context), references, shown)] if references else []
    return items


def _chapter(content: Mapping[str, Any], notes: list[str]) -> Chapter:
    scores, examples, what = content["scores"], content["examples"], content["what"]
    metrics = list(next(iter(next(iter(scores.values())).values())))
    means = {
        system: float(np.mean([group[metrics[0]]["mean"] for group in groups.values()]))
        for system, groups in scores.items()
    }
    best = max(means, key=lambda system: means[system])
    lead = (
        f"{best} reaches {title(metrics[0])} {means[best]:.3f} on {what} ({content['rows']} prompts, "
        f"{content['shots']} demonstrations each)."
    )
    rows = [
        [system, group, *(bounds(entry[name]) for name in metrics)]
        for system, groups in scores.items()
        for group, entry in groups.items()
    ]
    tables = [
        Table(["system", "group", *map(title, metrics)], rows, f"{what}: means over prompts"),
        Table(["end of the prompt", "written", "reference"], examples[best], f"{best} writes"),
    ]
    return Chapter(f"Written after a prompt: {what}", [lead], notes, tables)


STUDY = Study("written", "What does a language model write after a prompt: right numbers, answers to questions?", run)
