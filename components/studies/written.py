"""What a language model writes after a prompt, scored against references: numbers, answers to questions, summaries.

    arithmetic  generated problems, `Q: What is 48 plus 76?`, `A:` (Brown et al. 2020, section 3.9.1); exact match of
                the number
    questions   the answerable rows of a task of kind questions, the context before the question; F1 and exact match by
                SQuAD's rules (Radford et al. 2019, section 3; Brown et al. 2020, section 3.2)
    summaries   a file with texts and summaries, `TL;DR:` after the text; ROUGE-L of the first three sentences of 100
                pieces by top-k sampling with k = 2 (Radford et al. 2019, section 3.6), beside the first three
                sentences of the text

Numbers and answers are decoded greedily; they end at a line break or at the next question. With demonstrations
(`--shots`), answered prompts precede the prompt, from the problems that are not asked, from train, or from the rest of
the file. For causal families; small models write little that is right.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

import numpy as np
import typer

from components.errors import ConfigError, DataError
from components.formats.rows import READERS, open_rows
from components.formats.words import words
from components.inference.generation import Sampling, generate
from components.models import family as family_named
from components.models.encoder import Encoder
from components.reporting.chapters import Chapter, Table
from components.reporting.findings import Findings
from components.scoring import title
from components.scoring.intervals import interval
from components.scoring.questions import answer_scores
from components.scoring.rouge import rouge_l
from components.studies import arithmetic
from components.studies.base import Study
from components.studies.demonstrations import balanced, fitting
from components.studies.outputs import Outputs
from components.tasks.data import Split
from components.tasks.examples import read_facts, read_split
from components.tokenization.special import UNK
from components.training.rng import counter_rng, counter_seed
from components.words.text import spaced

#: Pieces that are generated.
LENGTHS: Final = {"arithmetic": 12, "questions": 24, "summaries": 100}
#: How many sentences are a summary.
SENTENCES: Final = 3
#: Examples in the chapter, and characters of a cell.
SHOWN, CELL = 5, 120
_END: Final = re.compile(r"\n|\bQ ?:")
_SENTENCE: Final = re.compile(r"(?<=[.!?])\s+")
_NUMBER: Final = re.compile(r"\s*(-?\s*\d[\d\s,]*)")

Score = Callable[[str, Sequence[str]], dict[str, float]]


@dataclass(frozen=True)
class Item:
    """A prompt and what is right after it.

    Attributes:
        group: rows of a group have a score of their own.
        prompt: without demonstrations.
        references: right answers.
        shown: demonstrations.
    """

    group: str
    prompt: str
    references: tuple[str, ...]
    shown: tuple[str, ...] = ()


def run(
    outputs: Outputs,
    *,
    what: Annotated[
        Literal["arithmetic", "questions", "summaries"], typer.Option(help="What the model has to write.")
    ] = "arithmetic",
    task: Annotated[str, typer.Option(help="Questions: a task of kind questions.")] = "",
    file: Annotated[
        str, typer.Option(help="Summaries: csv, tsv, jsonl or parquet with columns text and summary.")
    ] = "",
    encoder: Annotated[str, typer.Option(help="Encoder, such as gpt-pretrained; one per family by default.")] = "",
    shots: Annotated[int, typer.Option(help="Demonstrations in the prompt.", min=0)] = 0,
    rows: Annotated[int, typer.Option(help="Maximum number of prompts; of arithmetic, per operation.", min=1)] = 100,
    split: Annotated[Literal["dev", "test"], typer.Option(help="Questions: split to answer.")] = "dev",
    seed: Annotated[int, typer.Option(help="Of problems, demonstrations and sampling.")] = 0,
) -> Findings:
    """Scores of every causal language model, with examples of what it writes.

    Raises:
        ConfigError: an unknown task or encoder; a task of another kind; no file; too few rows for the demonstrations;
            no causal language model.
        DataError: the file is damaged, or a row has no text or summary.
        ArtifactError: a required stage has not run.
    """
    match what:
        case "arithmetic":
            items = _problems(rows=rows, shots=shots, seed=seed)
        case "questions":
            name = outputs.task(task)
            directory = outputs.examples(name)
            if (kind := read_facts(directory).kind) != "questions":
                raise ConfigError(f"--task: {name} is of kind {kind}; name a task of kind questions")
            train = read_split(directory, "train") if shots else None
            items = _questions(read_split(directory, split), train, rows=rows, shots=shots, seed=seed)
        case _:
            items = _summaries(file, rows=rows, shots=shots, seed=seed)
    numbers: dict[str, dict[str, dict[str, dict[str, float]]]] = {}
    examples: dict[str, list[list[str]]] = {}
    notes: list[str] = []
    confidence = outputs.params.evaluate.confidence
    for block, start in outputs.chosen(encoder):
        system, loaded = f"{block}-{start}", outputs.encoder(block, start)
        if family_named(loaded.family).objective != "causal" or loaded.model.backward:
            notes.append(f"{system} is skipped: it is not a forward causal language model, so it writes no text.")
            continue
        written, fit = write(loaded, items, what=what, seed=seed)
        numbers[system] = scored(items, written, SCORES[what], confidence=confidence)
        examples[system] = [
            [item.prompt[-CELL:], answer[:CELL], item.references[0][:CELL]]
            for item, answer in list(zip(items, written, strict=True))[:: max(1, len(items) // SHOWN)][:SHOWN]
        ]
        if unknown := sum((ids == UNK).any() for ids in loaded.tokenizer.encode_batch([item.prompt for item in items])):
            notes.append(f"{system}: {unknown} of {len(items)} prompts have words that its vocabulary lacks.")
        if fit < shots:
            notes.append(f"{system}: {fit:.1f} of {shots} demonstrations fit into its positions on average.")
    if not numbers:
        raise ConfigError(f"run.families: none is a causal language model. {' '.join(notes)}")
    if what == "summaries":
        first = [_summary(item.prompt.rpartition("\n")[0]) for item in items]
        numbers["first three sentences"] = scored(items, first, SCORES[what], confidence=confidence)
    chapter = _chapter(what, numbers, examples, rows=len(items), shots=shots)
    chapter.text += notes
    content = {"what": what, "rows": len(items), "shots": shots, "seed": seed, "scores": numbers, "examples": examples}
    return Findings(chapter, content)


def _asked(question: str, context: str = "") -> str:
    """The prompt of a question."""
    return f"{context}\nQ: {question}\nA:".lstrip()


def _problems(*, rows: int, shots: int, seed: int) -> list[Item]:
    items = []
    for operation in arithmetic.OPERATIONS:
        asked, shown = arithmetic.asked_and_shown(operation, rows=rows, shots=shots, seed=seed)
        before = tuple(f"{_asked(one.question)} {one.answer}" for one in shown)
        items += [Item(operation, _asked(one.question), (str(one.answer),), before) for one in asked]
    return items


def _questions(split: Split, train: Split | None, *, rows: int, shots: int, seed: int) -> list[Item]:
    before: tuple[str, ...] = ()
    if train is not None:
        answered = [item for item in _items(train) if item.references]
        before = tuple(
            f"{answered[row].prompt} {answered[row].references[0]}"
            for row in balanced(None, len(answered), shots, seed=seed)
        )
    found = [item for item in _items(split) if item.references]
    if not found:
        raise ConfigError("--split: it has no answerable question")
    chosen = np.sort(counter_rng(seed, "questions").permutation(len(found))[:rows])
    return [Item("all", found[row].prompt, found[row].references, before) for row in chosen]


def _items(split: Split) -> list[Item]:
    found = []
    for (question, context), target in zip(split.fields, split.targets, strict=True):
        spans = target.astype(np.int64).reshape(-1, 2)
        answers = dict.fromkeys(context[start:end] for start, end in spans)
        found.append(Item("all", _asked(question, context), tuple(answers)))
    return found


def _summaries(file: str, *, rows: int, shots: int, seed: int) -> list[Item]:
    path = Path(file)
    if not file or path.suffix not in READERS:
        raise ConfigError(f"--file: {file or 'missing'}; name a {', '.join(READERS)} file with text and summary")
    found = []
    with ExitStack() as stack:
        for where, row in open_rows(path, stack).rows:
            text, summary = (str(row.get(column) or "").strip() for column in ("text", "summary"))
            if not text or not summary:
                raise DataError(f"{where}: has no {'summary' if text else 'text'}; fill it, or remove the row")
            found.append(Item("all", f"{text}\nTL;DR:", (summary,)))
    if len(found) <= shots:
        raise ConfigError(f"--shots: {shots} demonstrations leave none of the {len(found)} rows to summarise; lower it")
    order = counter_rng(seed, "summaries").permutation(len(found)).tolist()
    before = tuple(f"{found[row].prompt} {found[row].references[0]}" for row in order[:shots])
    chosen = sorted(order[shots : shots + rows])
    return [Item("all", found[row].prompt, found[row].references, before) for row in chosen]


def write(encoder: Encoder, items: Sequence[Item], *, what: str, seed: int) -> tuple[list[str], float]:
    """What a causal model writes after each prompt, and the mean number of demonstrations that fit into its positions.
    Of a longer prompt the beginning is cut off."""
    model, tokenizer, length = encoder.model, encoder.tokenizer, LENGTHS[what]
    around = model.special_tokens([-1])
    lead = around[: around.index(-1)]
    if model.max_tokens is not None:
        # Half of the positions at most, so that a short model reads some of the prompt.
        length = min(length, max(1, (model.max_tokens - len(lead)) // 2))
    shown, prompts = [item.shown for item in items], [item.prompt for item in items]
    texts, fit = fitting(encoder, shown, prompts, reserved=[length] * len(items))
    sampling = Sampling(temperature=1, top_k=2) if what == "summaries" else Sampling(temperature=0)
    found = []
    for row, pieces in enumerate(tokenizer.encode_batch(texts)):
        room = len(pieces) if model.max_tokens is None else model.max_tokens - length - len(lead)
        prompt = [*lead, *pieces[max(0, len(pieces) - room) :].tolist()]
        ids = generate(model, prompt, length=length, sampling=sampling, seed=counter_seed(seed, "written", row))
        text = tokenizer.decode(ids)
        found.append(_summary(text) if what == "summaries" else _END.split(text.strip())[0].strip())
    return found, fit


def _summary(text: str) -> str:
    return " ".join(_SENTENCE.split(text.strip())[:SENTENCES])


def of_number(answer: str, references: Sequence[str]) -> dict[str, float]:
    """Exact match of the number at the beginning of an answer, spaces and commas aside."""
    found = _NUMBER.match(answer)
    digits = re.sub(r"[\s,]", "", found[1]) if found else ""
    return {"exact_match": float(any(digits and int(digits) == int(reference) for reference in references))}


def of_question(answer: str, references: Sequence[str]) -> dict[str, float]:
    """F1 and exact match by SQuAD's rules, the best over the references."""
    f1, exact, *_ = answer_scores(answer, references)
    return {"f1": f1, "exact_match": exact}


def of_summary(answer: str, references: Sequence[str]) -> dict[str, float]:
    """ROUGE-L of lower-case words, the best over the references."""
    written = words(spaced(answer))
    return {"rouge_l": max(rouge_l(written, words(spaced(reference))) for reference in references)}


SCORES: Final[Mapping[str, Score]] = {"arithmetic": of_number, "questions": of_question, "summaries": of_summary}


def scored(
    items: Sequence[Item], written: Sequence[str], score: Score, *, confidence: float
) -> dict[str, dict[str, dict[str, float]]]:
    """Group -> metric -> mean with its interval over the rows."""
    values = [score(answer, item.references) for item, answer in zip(items, written, strict=True)]
    found: dict[str, dict[str, dict[str, float]]] = {}
    for group in dict.fromkeys(item.group for item in items):
        own = [value for item, value in zip(items, values, strict=True) if item.group == group]
        table = np.asarray([list(value.values()) for value in own])
        without = (table.sum(0) - table) / max(len(own) - 1, 1)
        found[group] = {
            name: interval(
                table[:, index].mean(keepdims=True), without[None, :, index], np.ones(len(own)), confidence=confidence
            )
            .within(0.0, 1.0)
            .as_dict()
            for index, name in enumerate(own[0])
        }
    return found


def _chapter(
    what: str,
    numbers: Mapping[str, Mapping[str, Mapping[str, Mapping[str, float]]]],
    examples: Mapping[str, Sequence[Sequence[str]]],
    *,
    rows: int,
    shots: int,
) -> Chapter:
    metrics = list(next(iter(next(iter(numbers.values())).values())))
    main = metrics[0]

    def mean(system: str) -> float:
        return float(np.mean([group[main]["mean"] for group in numbers[system].values()]))

    best = max(examples, key=mean)
    lead = f"{best} reaches {title(main)} {mean(best):.3f} on {what} ({rows} prompts, {shots} demonstrations each)."
    table = Table(
        ["system", "group", *(title(name) for name in metrics)],
        [
            [
                system,
                group,
                *(f"{entry[n]['mean']:.3f} [{entry[n]['low']:.3f}, {entry[n]['high']:.3f}]" for n in metrics),
            ]
            for system, groups in numbers.items()
            for group, entry in groups.items()
        ],
        f"{what}: means over prompts",
    )
    shown = Table(
        ["end of the prompt", "written", "reference"], [list(row) for row in examples[best]], f"{best} writes"
    )
    return Chapter(f"Written after a prompt: {what}", [lead], [], [table, shown])


STUDY = Study(
    "written", "What does a language model write after a prompt: right numbers, answers to questions, summaries?", run
)
