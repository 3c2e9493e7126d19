"""Prompts: tasks that a language model answers by generating a text, greedily (`components.studies.prompt_tasks`), or
by choosing among answers by their likelihood (`components.studies.likelihood`); and zero-shot and few-shot
classification, where the answers are the names of labels. Demonstrations are items that are never asked.

Shape suffixes: S seeds, N items, K sums.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Annotated, Final, Literal

import numpy as np
import typer
from scipy import sparse

from components.core.errors import ConfigError, DataError, HeadstartError, nearest
from components.core.progress import Progress
from components.data.formats.rows import open_rows
from components.data.scoring import bleu
from components.data.scoring.base import Floats
from components.data.scoring.intervals import Interval, Ints, sizes_of
from components.data.tasks.data import Split
from components.data.tasks.examples import read_facts, read_split
from components.evaluation.aggregates import Scores, measured
from components.models import family as family_named
from components.models.encoder import Encoder
from components.serving.generation import Sampling, generate
from components.settings.tasks import has
from components.studies.frame import EncoderName, Measured, Outputs, Row, Sheet, Task
from components.studies.likelihood import OBJECTIVES, SCORES, answer_scores, require_answers, unknown_words
from components.studies.prompt_tasks import FROM_FILE, TASKS, Item, Prompt, PromptTask, Source

GREEDY: Final = Sampling(temperature=0.0)
#: Texts without content (Zhao et al. 2021).
NEUTRAL: Final = ("N/A", "")
#: Pieces that an answer may have beyond the longest correct one, such as a space before it.
MARGIN: Final = 2
#: Answers that are shown for each task; of new words, all.
SAMPLES: Final = 2
#: Columns of the differences to trivial answers.
GENERATED, GAIN = "generated minus trivial", "calibrated minus trivial"
KINDS: Final = ("choice", "classification", "pair")
EXPLANATION: Final = (
    "Generated: share of correct answers by greedy decoding; of translations BLEU / 100, of new-word the answers with "
    "the word. Trivial: the most frequent answer, or the copied source. Sum, mean, prior and calibrated: the most "
    "probable one of several answers by its log-likelihood, per character, relative to no prompt, and to prompts "
    "without content (Zhao et al. 2021). Perplexity: of the correct answer."
)


@dataclass(frozen=True)
class Asked:
    """A task with its N items, the candidate answers of each, the correct one first (none: only generate), and the
    demonstrations of S seeds. `clusters`: of the items."""

    task: PromptTask
    items: Sequence[Item]
    candidates: Sequence[Sequence[str]]
    demonstrations: Sequence[Sequence[Item]]
    clusters: Ints | None = None


def continuations(encoder: Encoder, prompts: Sequence[str], *, length: int) -> list[str]:
    """The greedy continuations of prompts by at most `length` pieces. A prompt that exceeds the model's positions loses
    its beginning."""
    model, texts = encoder.model, []
    around = model.special_tokens([-1])
    for ids in encoder.tokenizer.encode_batch(prompts):
        start = [*around[: around.index(-1)], *ids.tolist()[-_room(encoder, length) :]]
        texts.append(encoder.tokenizer.decode(generate(model, start, length=length, sampling=GREEDY)))
    return texts


def _room(encoder: Encoder, length: int) -> int:
    """Pieces of a prompt that fit beside an answer; at least one, because generation shifts its window."""
    model = encoder.model
    return 1 << 30 if model.max_tokens is None else max(1, model.max_tokens - length - len(model.special_tokens([])))


def around(
    sums_SNK: Sequence[Floats], task: PromptTask | None = None, clusters: Ints | None = None, *, least: float = 0.0
) -> Interval:
    """The mean over seeds of a task's score (default: a share), with its interval over seeds and items. `least`: the
    smallest possible score."""
    score = task.score if task else lambda sums: sums[..., 0] / sums[..., 1]
    matrices = [sparse.csr_array(of) for of in sums_SNK]
    values = measured(matrices, clusters, lambda sums: {"": score(sums)})[""]
    return Scores(range(len(values)), values, sizes_of(clusters, len(sums_SNK[0])), within=(least, 1.0)).interval()


def answered(system: str, encoder: Encoder, asked: Asked, *, generates: bool) -> tuple[Row, list[Row], list[str]]:
    """The row of one encoder and task, samples, and notes."""
    task, items = asked.task, asked.items
    prompts = [[task.prompt(item.question, shown) for item in items] for shown in asked.demonstrations]
    most = Counter(answer for item in items for answer in item.answers).most_common(1)[0]
    row: Row = {"encoder": system, "task": task.name, "items": len(items)}
    row |= dict.fromkeys(("generated", "trivial", GENERATED, *SCORES, "guessing", "perplexity", GAIN))
    row["trivial"], samples, notes = most[1] / len(items) if task.closed else None, list[Row](), list[str]()
    if generates:
        longest = encoder.tokenizer.encode_batch([item.shown or item.answers[0] for item in task.items])
        length = max(map(len, longest)) + MARGIN
        written = [
            [task.cut(text) for text in continuations(encoder, [before for before, _ in of], length=length)]
            for of in prompts
        ]
        of = row["generated"] = around([_sums(task, encoder, texts, items) for texts in written], task)
        if task.right is None:
            row["trivial"] = float(task.score(_sums(task, encoder, [item.question[0] for item in items], items).sum(0)))
        if (usual := row["trivial"]) is not None:
            row[GENERATED] = Interval(of.mean - usual, of.low - usual, of.high - usual)
        asking = encoder.tokenizer.encode_batch([before for before, _ in prompts[0]])
        if longer := sum(len(ids) > _room(encoder, length) for ids in asking):
            notes.append(
                f"{system}: {longer} of {len(items)} prompts of {task.name} exceed the model's "
                f"{encoder.model.max_tokens} positions and lose their beginning."
            )
        samples = [
            {
                "encoder": system,
                "task": task.name,
                "end of the question": item.question[0][-80:],
                "generated": text or "(nothing)",
                "answer": item.shown or item.answers[0],
            }
            for item, text in zip(items, written[0], strict=True)
        ]
    if max(map(len, asked.candidates)) > 1:
        row |= _chosen(encoder, asked, prompts, most[0])
        notes += unknown_words(f"{system}, {task.name}", encoder, asked.candidates)
    return row, samples[: None if task.name == "new-word" else SAMPLES], notes


def _chosen(encoder: Encoder, asked: Asked, prompts: Sequence[Sequence[tuple[str, str]]], usual: str) -> Row:
    """The choice among the candidates by each score, against the most frequent answer `usual`."""
    hits, nats, ones = list[Floats](), list[float](), np.ones(len(asked.items))
    for of, shown in zip(prompts, asked.demonstrations, strict=True):
        neutral = [asked.task.prompt((text, text), shown) for text in NEUTRAL]
        scores = answer_scores(encoder, of, asked.candidates, neutral=neutral)
        # A tie is wrong.
        hits.append(np.asarray([[(each[name][1:] < each[name][0]).all() for each in scores] for name in SCORES], float))
        nats += [-each["sum"][0] for each in scores]
    row: Row = {
        name: around([np.stack([of[place], ones], 1) for of in hits], clusters=asked.clusters)
        for place, name in enumerate(SCORES)
    }
    row["guessing"] = float(np.mean([1 / len(each) for each in asked.candidates]))
    row["perplexity"] = math.exp(min(float(np.mean(nats)), 700.0))
    if asked.task.closed:
        most = np.asarray([item.answers[0] == usual for item in asked.items])
        # A score that is chosen by its hits on these items would be too good.
        gains = [np.stack([of[SCORES.index("calibrated")] - most, ones], 1) for of in hits]
        row[GAIN] = around(gains, clusters=asked.clusters, least=-1.0)
    return row


def _sums(task: PromptTask, encoder: Encoder, written: Sequence[str], items: Sequence[Item]) -> Floats:
    """(N, K) sums of the score of answers; correct ones are spelled as the vocabulary does."""
    if (right := task.right) is None:
        return bleu.statistics(written, [item.answers for item in items])
    hits = []
    for text, item in zip(written, items, strict=True):
        spelled = [task.cut(encoder.tokenizer.decode(ids)) for ids in encoder.tokenizer.encode_batch(item.answers)]
        hits.append([float(bool(text) and right(text, spelled)), 1.0])
    return np.asarray(hits)


def measure(
    outputs: Outputs,
    *,
    task: Annotated[str, typer.Option(help=f"One of {', '.join(TASKS)}; all that are possible by default.")] = "",
    encoder: EncoderName = "",
    shots: Annotated[int, typer.Option(help="Demonstrations in the prompt.", min=0, max=100)] = 0,
    items: Annotated[int, typer.Option(help="Maximum number of items of a task.", min=2, max=5000)] = 50,
    seeds: Annotated[int, typer.Option(help="Number of times that demonstrations are drawn.", min=1, max=20)] = 3,
    choices: Annotated[int, typer.Option(help="Answers to choose among; 0: only generate.", min=0, max=100)] = 4,
    pairs: Annotated[str, typer.Option(help="File with source, target (translation) or question, answer.")] = "",
) -> Measured:
    """Answers of every causal language model of the run."""
    if task and task not in TASKS:
        raise ConfigError(f"--task: unknown task {task!r}{nearest(task, TASKS)}")
    source = Source(lambda: outputs.of("corpus", "domain"), Path(pairs) if pairs else None, items + seeds * shots)
    encoders = {f"{block}-{start}": loaded for (block, start), loaded in outputs.causal(encoder).items()}
    asked, notes, rows, samples = list[Asked](), list[str](), list[Row](), list[Row]()
    for name in [task] if task else _possible(source.pairs):
        try:
            tasks = TASKS[name](source, np.random.default_rng(0))
            asked += [_asked(each, shots=shots, items=items, seeds=seeds, choices=choices) for each in tasks]
        except HeadstartError as error:
            # A task that the user names is not skipped.
            if task or name in FROM_FILE:
                raise
            notes.append(f"{name} is skipped: {error}.")
    with Progress("prompts", total=len(encoders) * len(asked), unit="task") as bar:
        for (system, loaded), each in product(encoders.items(), asked):
            row, shown, remarks = answered(system, loaded, each, generates=True)
            rows, samples, notes = [*rows, row], [*samples, *shown], [*notes, *remarks]
            bar.advance()
    sheets = [Sheet(rows, "", {"perplexity": ".4g"}, GENERATED, reference=0.0), Sheet(samples, "Samples")]
    return Measured(sheets, [f"Demonstrations: {shots}. {EXPLANATION}", *notes])


def _possible(pairs: Path | None) -> list[str]:
    """The tasks that need no file, and the one whose columns the file has."""
    columns = open_rows(pairs).names if pairs else []
    names = [name for name in TASKS if name not in FROM_FILE or FROM_FILE[name] in columns]
    if pairs and not FROM_FILE.keys() & names:
        raise DataError(
            f"{pairs}: has the columns {', '.join(columns)}; needs source and target, or question and answer"
        )
    return names


def _asked(task: PromptTask, *, shots: int, items: int, seeds: int, choices: int) -> Asked:
    """Demonstrations from the first items, questions from the others, and candidate answers from all."""
    count = len(task.items)
    shown = min(shots * seeds, max(count - items, count // 2))
    asked = task.items[shown : shown + items]
    if shown < shots or len(asked) < 2:
        raise DataError(f"{task.name}: {count} items are too few for {shots} demonstrations and 2 questions")
    rngs = [np.random.default_rng(seed) for seed in range(seeds if shots else 1)]
    demonstrations = [[task.items[index] for index in rng.permutation(shown)[:shots]] for rng in rngs]
    answers = list(dict.fromkeys(item.answers[0] for item in task.items)) if task.closed and choices > 1 else []
    candidates = []
    for item in asked:
        others = [answer for answer in answers if answer not in item.answers]
        drawn = rngs[0].permutation(len(others))[: choices - 1]
        candidates.append([item.answers[0], *(others[index] for index in drawn)])
    return Asked(task, asked, candidates, demonstrations)


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
    task: Task = "",
    encoder: EncoderName = "",
    prompt: Annotated[
        str, typer.Option(help="Template with {text}, {second} (for pairs), and [MASK] in place of the answer.")
    ] = "{text}",
    answers: Annotated[str, typer.Option(help='Answers for labels: "label=words; label=words".')] = "",
    shots: Annotated[int, typer.Option(help="Rows of train that precede the prompt with their answers.", min=0)] = 0,
    split: Annotated[Literal["dev", "test"], typer.Option(help="Split to answer; choose prompts on dev.")] = "dev",
) -> Measured:
    """Accuracy of every encoder for each of the scores. Nothing is selected on test."""
    name = outputs.task(task)
    directory = outputs.of("examples", name)
    facts = read_facts(directory)
    if facts.kind not in KINDS:
        raise ConfigError(f"{name}: {facts.kind} has no candidate answers; zero-shot supports {', '.join(KINDS)}")
    template = Prompt.of(prompt, parts=("text", "second")[: 1 + has(facts.kind, "second")])
    words = [*label_words(facts.labels, answers).values()]
    if shots and not words:
        raise ConfigError("--shots: the answers of a choice differ by row; set it to 0")
    asked = {}
    shown = _demonstrations(read_split(directory, "train"), words, shots)
    for part in sorted({"dev", split}):
        asked[part] = _rows_asked(read_split(directory, part), name, template, words or None, shown)
        if not asked[part].items:
            raise ConfigError(f"{name}: prompts are chosen on dev; name a file (data.tasks.{name}.dev)")
    rows, notes = list[Row](), list[str]()
    for system, loaded in outputs.encoders(encoder).items():
        if not encoder and family_named(loaded.family).objective not in OBJECTIVES:
            continue
        try:
            require_answers(loaded)
        except ConfigError as error:
            if encoder:
                raise
            notes.append(f"{system} is skipped: {error}.")
            continue
        for part, of in asked.items():
            row, _, remarks = answered(system, loaded, of, generates=False)
            rows.append({"split": part} | {key: value for key, value in row.items() if "generated" not in key})
        notes += remarks
    if not rows:
        raise ConfigError(f"run.families: none has a causal or masked language model. {' '.join(notes)}")
    value, reference = (GAIN, 0.0) if words else ("calibrated", None)
    return Measured(
        [Sheet(rows, name, {"perplexity": ".4g"}, value, reference=reference)],
        [f"Prompt: {prompt!r}, after {shots} labelled rows. {EXPLANATION}", *notes],
    )


def _rows_asked(split: Split, task: str, template: Prompt, words: Sequence[str] | None, shown: Sequence[Item]) -> Asked:
    """The rows of a split with the `words` of the labels as answers, or with their own choices. Rows without any of the
    labels have no right answer."""
    kept = split.take(np.flatnonzero(split.labels >= 0))
    candidates = []
    for fields, target in zip(kept.fields, kept.targets, strict=True):
        possible, right = words or fields[1:], int(target[0])
        candidates.append([possible[right], *(other for at, other in enumerate(possible) if at != right)])
    items = [Item(tuple(fields), (of[0],)) for fields, of in zip(kept.fields, candidates, strict=True)]
    asked = PromptTask(task, items, template, closed=words is not None)
    return Asked(asked, items, candidates, [shown], kept.clusters)


def _demonstrations(train: Split, words: Sequence[str], shots: int) -> list[Item]:
    """Rows of train with their answers; each label in turn."""
    order = np.random.default_rng(0).permutation(len(train))
    of_label = [[row for row in order if train.targets[row][0] == label] for label in range(len(words))]
    turns = [rows[turn] for turn in range(shots) for rows in of_label if turn < len(rows)]
    return [Item(tuple(train.fields[row]), (words[int(train.targets[row][0])],)) for row in turns[:shots]]
