"""Prompts of causal language models: tasks that they answer by generating a text (`components.studies.prompt_tasks`),
greedily, and with a calibrated first piece (Zhao et al. 2021, section 5, the variant for generation): the maximum of

    p(piece | prompt) - mean of p(piece | prompt of a text without content)

Where answers are short, the model also chooses among the answers of several items by their likelihood, as in
`zero-shot`. Demonstrations are items that are never asked, drawn anew by each seed; without them there is one run.

Shape suffixes: S seeds, N items, K sums, V vocabulary.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
import torch
import typer
from torch import Tensor

from components.core.errors import ConfigError, DataError, HeadstartError, nearest
from components.core.progress import Progress
from components.data.formats.rows import open_rows
from components.data.scoring import bleu
from components.data.scoring.base import Floats
from components.data.scoring.intervals import CONFIDENCE, Interval, interval
from components.models.base import LanguageModel
from components.models.encoder import Encoder
from components.reporting.findings import Chapter, Findings, Table
from components.serving.generation import Sampling, generate
from components.studies.frame import EncoderName, Outputs, bounds
from components.studies.prompt_tasks import FROM_FILE, TASKS, Item, PromptTask, Source
from components.studies.zero_shot import NEUTRAL, answer_scores, unknown_words
from components.tokenization import Tokenizer
from components.tokenization.special import END, FIRST_ORDINARY

GREEDY: Final = Sampling(temperature=0.0)


def continuations(
    encoder: Encoder, prompts: Sequence[str], neutral: Sequence[str], *, length: int
) -> list[tuple[str, str]]:
    """The continuations of prompts by at most `length` pieces: greedy, and calibrated by the prompts `neutral`. A
    prompt that exceeds the model's positions loses its beginning."""
    model, tokenizer = encoder.model, encoder.tokenizer
    without_V = torch.stack([_first_piece(model, ids) for ids in _inputs(encoder, neutral, length)]).mean(0)
    continued = []
    for ids in _inputs(encoder, prompts, length):
        first_V = _first_piece(model, ids)
        greedy, calibrated = int(first_V.argmax()), int((first_V - without_V).argmax())
        texts = {END: ""}
        for first in (greedy, calibrated):
            if first not in texts:
                rest = generate(model, [*ids, first], length=length - 1, sampling=GREEDY)
                texts[first] = tokenizer.decode([first, *rest])
        continued.append((texts[greedy], texts[calibrated]))
    return continued


def truncated(encoder: Encoder, prompts: Sequence[str], *, length: int) -> int:
    """Number of prompts that do not fit the model's positions beside an answer of `length` pieces."""
    room = _room(encoder.model, length)
    return sum(len(ids) > room for ids in encoder.tokenizer.encode_batch(prompts))


def _inputs(encoder: Encoder, prompts: Sequence[str], length: int) -> list[list[int]]:
    """The pieces of prompts after the special ones that precede a text."""
    around, room = encoder.model.special_tokens([-1]), _room(encoder.model, length)
    return [[*around[: around.index(-1)], *ids.tolist()[-room:]] for ids in encoder.tokenizer.encode_batch(prompts)]


def _room(model: LanguageModel, length: int) -> int:
    """Pieces of a prompt that fit beside an answer; at least one, because generation shifts its window."""
    if model.max_tokens is None:
        return 1 << 30
    return max(1, model.max_tokens - length - len(model.special_tokens([])))


@torch.no_grad()
def _first_piece(model: LanguageModel, ids: Sequence[int]) -> Tensor:
    """(V,) probabilities of the next piece; 0 for special pieces other than END."""
    model.eval()
    logits, _ = model.predict(torch.tensor([ids], device=next(model.parameters()).device))
    last_V = logits[0, -1].double().cpu()
    last_V[[id_ for id_ in range(FIRST_ORDINARY) if id_ != END]] = -torch.inf
    return last_V.softmax(0)


#: Pieces that an answer may have beyond the longest correct one, such as a space before it.
MARGIN: Final = 2
#: Answers that are shown for each task; of new words, all.
SAMPLES: Final = 2
COLUMNS: Final = (
    *("encoder", "task", "shots", "items", "generated", "calibrated", "trivial"),
    *("chosen", "chosen, calibrated", "guessing", "perplexity"),
)
EXPLANATION: Final = (
    "Generated: share of correct answers by greedy decoding; of translations BLEU / 100, of new-word the answers with "
    "the word. Calibrated: the first piece relative to prompts without content (Zhao et al. 2021). Trivial: the most "
    "frequent answer, or the copied source. Chosen: the most probable one of several answers, by its likelihood and "
    "calibrated. Perplexity: of the correct answer."
)


@dataclass(frozen=True)
class Asked:
    """A task with its N items, their candidate answers, the correct one first, and the demonstrations of S seeds."""

    task: PromptTask
    items: Sequence[Item]
    candidates: Sequence[Sequence[str]]
    demonstrations: Sequence[Sequence[Item]]


def run(
    outputs: Outputs,
    *,
    task: Annotated[str, typer.Option(help=f"One of {', '.join(TASKS)}; all that are possible by default.")] = "",
    encoder: EncoderName = "",
    shots: Annotated[int, typer.Option(help="Demonstrations in the prompt.", min=0, max=100)] = 0,
    items: Annotated[int, typer.Option(help="Maximum number of items of a task.", min=2, max=5000)] = 50,
    seeds: Annotated[int, typer.Option(help="Number of times that demonstrations are drawn.", min=1, max=20)] = 3,
    choices: Annotated[int, typer.Option(help="Answers to choose among; 0: only generate.", min=0, max=100)] = 4,
    pairs: Annotated[str, typer.Option(help="File with source, target (translation) or question, answer.")] = "",
) -> Findings:
    """Answers of every causal language model of the run."""
    if task and task not in TASKS:
        raise ConfigError(f"--task: unknown task {task!r}{nearest(task, TASKS)}")
    source = Source(lambda: outputs.corpus("domain"), Path(pairs) if pairs else None, items + seeds * shots)
    encoders = {f"{block}-{start}": loaded for block, start, loaded in outputs.causal(encoder)}
    asked: list[Asked] = []
    notes: list[str] = []
    for name in [task] if task else _possible(source.pairs):
        try:
            tasks = TASKS[name](source, np.random.default_rng(0))
            asked += [_asked(each, shots=shots, items=items, seeds=seeds, choices=choices) for each in tasks]
        except HeadstartError as error:
            # A task that the user names is not skipped.
            if task or name in FROM_FILE:
                raise
            notes.append(f"{name} is skipped: {error}.")
    results, samples = [], []
    with Progress("prompts", total=len(encoders) * len(asked), unit="task") as bar:
        for (system, loaded), each in product(encoders.items(), asked):
            result, shown, remarks = _measured(system, loaded, each)
            results.append(result)
            samples += shown
            notes += remarks
            bar.advance()
    numbers = {"shots": shots, "seeds": seeds if shots else 1, "results": results}
    return Findings(_chapter(numbers, samples, notes), numbers)


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


def _measured(system: str, encoder: Encoder, asked: Asked) -> tuple[dict[str, Any], list[list[str]], list[str]]:
    """The numbers of one encoder and task, rows of samples, and notes."""
    task, items, tokenizer = asked.task, asked.items, encoder.tokenizer
    statistics, score = _scoring(task, tokenizer)
    longest = tokenizer.encode_batch([item.shown or item.answers[0] for item in task.items])
    length = max(map(len, longest)) + MARGIN
    prompts = [[task.prompt(item.question, shown) for item in items] for shown in asked.demonstrations]
    neutral = [[task.prompt(text, shown) for text in NEUTRAL] for shown in asked.demonstrations]
    written = [continuations(encoder, *both, length=length) for both in zip(prompts, neutral, strict=True)]
    result: dict[str, Any] = {"encoder": system, "task": task.name, "items": len(items)}
    for number, name in enumerate(("generated", "calibrated")):
        sums_SNK = np.asarray([statistics([task.cut(pair[number]) for pair in of], items) for of in written])
        result[name] = _interval(sums_SNK, score).as_dict()
    result["trivial"] = None
    if task.right is None:
        result["trivial"] = float(score(statistics([item.question for item in items], items).sum(0)))
    elif task.closed:
        result["trivial"] = max(Counter(answer for item in items for answer in item.answers).values()) / len(items)
    notes = []
    if longer := truncated(encoder, prompts[0], length=length):
        notes.append(
            f"{system}: {longer} of {len(items)} prompts of {task.name} exceed the model's {encoder.model.max_tokens} "
            "positions and lose their beginning."
        )
    if max(map(len, asked.candidates)) > 1:
        result |= _chosen(encoder, asked, prompts, neutral)
        notes += unknown_words(f"{system}, {task.name}", encoder, asked.candidates)
    samples = [
        [system, task.name, item.question[-80:], task.cut(plain) or "(nothing)", item.shown or item.answers[0]]
        for item, (plain, _) in zip(items, written[0], strict=True)
    ]
    return result, samples[: None if task.name == "new-word" else SAMPLES], notes


def _scoring(
    task: PromptTask, tokenizer: Tokenizer
) -> tuple[Callable[[Sequence[str], Sequence[Item]], Floats], Callable[[Floats], Floats]]:
    """Functions (N answers, items) -> (N, K) sums, and (..., K) sums -> (...) score; spelled as the vocabulary does."""
    if (right := task.right) is None:
        return lambda written, items: bleu.statistics(written, [item.answers for item in items]), bleu.bleu

    def statistics(written: Sequence[str], items: Sequence[Item]) -> Floats:
        hits = []
        for text, item in zip(written, items, strict=True):
            spelled = [task.cut(tokenizer.decode(ids)) for ids in tokenizer.encode_batch(item.answers)]
            hits.append([float(bool(text) and right(text, spelled)), 1.0])
        return np.asarray(hits)

    return statistics, _share


def _share(sums: Floats) -> Floats:
    shares: Floats = sums[..., 0] / sums[..., 1]
    return shares


def _interval(sums_SNK: Floats, score: Callable[[Floats], Floats]) -> Interval:
    """The mean over seeds, with its interval over seeds and items."""
    totals_S1K = sums_SNK.sum(1, keepdims=True)
    without_SN = score(totals_S1K - sums_SNK)
    sizes = np.ones(sums_SNK.shape[1])
    return interval(score(totals_S1K)[:, 0], without_SN, sizes, confidence=CONFIDENCE, within=(0, 1))


def _chosen(
    encoder: Encoder, asked: Asked, prompts: Sequence[Sequence[str]], neutral: Sequence[Sequence[str]]
) -> dict[str, Any]:
    """Shares of items whose correct answer is the most probable candidate (a tie is wrong), and its perplexity."""
    scores = [
        answer_scores(
            encoder, [(prompt, "") for prompt in of], asked.candidates, neutral=[(text, "") for text in without]
        )
        for of, without in zip(prompts, neutral, strict=True)
    ]
    chosen = {}
    for name in ("sum", "calibrated"):
        hits = [[[float((row[name][1:] < row[name][0]).all()), 1.0] for row in of] for of in scores]
        chosen[name] = _interval(np.asarray(hits), _share).as_dict()
    nats = -float(np.mean([row["sum"][0] for of in scores for row in of]))
    guessing = float(np.mean([1 / len(row) for row in asked.candidates]))
    return {"chosen": chosen, "guessing": guessing, "perplexity": math.exp(min(nats, 700.0))}


def _chapter(numbers: Mapping[str, Any], samples: Sequence[Sequence[str]], notes: Sequence[str]) -> Chapter:
    results, shots = numbers["results"], numbers["shots"]
    lead = []
    for system in dict.fromkeys(of["encoder"] for of in results):
        scored = [of for of in results if of["encoder"] == system and of["trivial"] is not None]
        better = [of["task"] for of in scored if of["generated"]["low"] > of["trivial"]]
        named = f": {', '.join(better)}" if better else ""
        lead.append(
            f"{system}, demonstrations: {shots}: generated answers are better than trivial ones in {len(better)} of "
            f"{len(scored)} tasks{named}."
        )
    rows = []
    for of in results:
        row = [of["encoder"], of["task"], str(shots), str(of["items"]), bounds(of["generated"])]
        row += [bounds(of["calibrated"]), "" if of["trivial"] is None else f"{of['trivial']:.3f}"]
        chosen = of.get("chosen", {})
        row += [bounds(chosen[name]) if chosen else "" for name in ("sum", "calibrated")]
        rows.append([*row, *([f"{of['guessing']:.3f}", f"{of['perplexity']:.4g}"] if chosen else ["", ""])])
    shown = Table(["encoder", "task", "end of the question", "generated", "answer"], samples, "Samples")
    return Chapter("Prompts", lead, [EXPLANATION, *notes], [Table(COLUMNS, rows), shown])
