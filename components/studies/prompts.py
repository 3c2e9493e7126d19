"""Prompts: a language model answers questions (`prompts`) and labels the rows of a task (`zero_shot`) by choosing among
answers by their likelihood.

The answer that counts is the most probable one after the prompt (causal models: Radford et al. 2019, section 3, and
Brown et al. 2020, section 2.4; for masked models, the answer replaces [MASK]: Petroni et al. 2019). Long answers are
less probable than short ones, and models prefer some answers whatever the text, so four scores are compared, computed
from log-likelihoods l:

    sum          l(answer | prompt)
    mean         l(answer | prompt) / number of characters
    prior        l(answer | prompt) - l(answer | empty prompt)
    calibrated   l(answer | prompt) - log of the mean of p(answer | prompt of a text without content), where p sums to 1
                 over the answers (Zhao et al. 2021, section 5: contextual calibration)

For causal models, the text after the answer counts as a part of it, in l and in the number of characters.

prompts.json    questions in the forms of GPT-2 and GPT-3 (Radford et al. 2019; Brown et al. 2020, section 3.9): general
                knowledge, translation, the last word of a sentence, scrambled letters, invented words, sums
"""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product, zip_longest
from pathlib import Path
from string import Formatter
from typing import Annotated, Any, Final, Literal

import numpy as np
import typer
from scipy.special import softmax

from components.core.errors import ConfigError, DataError, nearest
from components.data.formats.rows import open_rows
from components.data.formats.tables import as_text
from components.data.scoring.base import Floats
from components.data.scoring.intervals import Interval, Ints
from components.data.tasks.data import Fields, Split
from components.data.tasks.examples import read_facts, read_split
from components.models import family as family_named
from components.models.encoder import Encoder
from components.serving.generation import GAP, require_output_layer
from components.serving.likelihood import Gap, causal_log_probs, gap_between, masked_log_probs
from components.settings.tasks import has
from components.studies.frame import EncoderName, Measured, Outputs, Row, Sheet, Task, rate
from components.tokenization import Tokenizer
from components.tokenization.special import UNK

ITEMS: Final = Path(__file__).with_suffix(".json")
#: Texts without content (Zhao et al. 2021).
NEUTRAL: Final = ("N/A", "")
#: Column of the difference to the most frequent answer.
GAIN: Final = "calibrated minus trivial"
#: Objectives of language models.
OBJECTIVES: Final = ("causal", "masked", "permuted")
SCORES: Final = ("sum", "mean", "prior", "calibrated")
KINDS: Final = ("choice", "classification", "pair")
EXPLANATION: Final = (
    "Unknown: answers with unknown words, whose probabilities have no meaning. Trivial: the most frequent answer. Sum, "
    "mean, prior and calibrated: the most probable answer by its log-likelihood, per character, relative to no prompt, "
    "and to prompts without content (Zhao et al. 2021). Perplexity: of the correct answer."
)


@dataclass(frozen=True)
class Prompt:
    """A template: the texts before and after the answer; {text} and {second} are the parts of a row."""

    before: str
    after: str

    @classmethod
    def of(cls, template: str, *, parts: Sequence[str] = ("text", "second")) -> "Prompt":
        """Parse a text. The answer replaces its [MASK], or follows the text if there is none."""
        before, *after = template.split(GAP)
        if len(after) > 1:
            raise ConfigError(f"--prompt: {template!r} has {len(after)} {GAP}; write one or none")
        try:
            fields = [(name, form) for _, name, form, _ in Formatter().parse(template) if name is not None]
        except ValueError:
            fields = [("", "")]
        if any(name not in parts or form for name, form in fields):
            allowed = " and ".join(f"{{{part}}}" for part in parts)
            raise ConfigError(f"--prompt: {template!r}: only {allowed} may be in braces; write {{{{ for a brace")
        return cls(before.rstrip(" "), after[0] if after else "")

    def fill(self, parts: Fields) -> tuple[str, str]:
        """The texts before and after the answer for a row."""
        named = {"text": parts[0], "second": parts[1] if len(parts) > 1 else ""}
        return self.before.format(**named), self.after.format(**named)

    def lines(self, answered: Sequence[tuple[Fields, str]]) -> str:
        """Demonstrations: rows with their answers, which precede a prompt."""
        return "".join(f"{before} {answer}{after}\n" for of, answer in answered for before, after in [self.fill(of)])


def require_answers(encoder: Encoder) -> None:
    """Require a forward causal or a masked language model."""
    objective = family_named(encoder.family).objective
    if objective not in OBJECTIVES:
        raise ConfigError(f"the family {encoder.family!r} has no language model, which zero-shot needs")
    require_output_layer(encoder)
    if objective == "causal" and encoder.model.backward:
        raise ConfigError(
            f"{encoder.family}: a backward model cannot predict the answer after a prompt; use the forward model"
        )


def answer_scores(
    encoder: Encoder,
    prompts: Sequence[tuple[str, str]],
    candidates: Sequence[Sequence[str]],
    *,
    neutral: Sequence[tuple[str, str]] = (("", ""),),
) -> list[dict[str, Floats]]:
    """The scores of the C candidates of each prompt (before, after): score -> (C,)."""
    require_answers(encoder)
    causal = family_named(encoder.family).objective == "causal"
    inputs = dict[tuple[str, str, str], Gap]()
    for prompt, words in zip(prompts, candidates, strict=True):
        for answer, (before, after) in product(words, (prompt, ("", ""), *neutral)):
            if (key := (before, answer, after)) not in inputs:
                try:
                    inputs[key] = gap_between(encoder.model, *pieces(encoder.tokenizer, *key), causal=causal)
                except DataError as error:
                    raise DataError(f"answer {answer!r}: {error}") from error
    measured = (causal_log_probs if causal else masked_log_probs)(encoder.model, list(inputs.values()))
    total, scores = {key: values.sum() for key, values in zip(inputs, measured, strict=True)}, []
    for prompt, words in zip(prompts, candidates, strict=True):
        beyond = len(prompt[1].strip()) if causal else 0
        sizes = np.asarray([max(1, len(answer) + beyond) for answer in words])
        sums, alone, *without = (
            np.asarray([total[first, answer, last] for answer in words]) for first, last in (prompt, ("", ""), *neutral)
        )
        calibrated = sums - np.log(np.mean(softmax(without, axis=1), axis=0))
        scores.append({"sum": sums, "mean": sums / sizes, "prior": sums - alone, "calibrated": calibrated})
    return scores


def pieces(tokenizer: Tokenizer, before: str, answer: str, after: str) -> tuple[list[int], list[int], list[int]]:
    """The pieces of each part of the whole text, with a space between the text before and the answer. A piece of two
    parts belongs to the answer."""
    start = f"{before} " if before else ""
    ids, offsets = tokenizer.encode_with_offsets(f"{start}{answer}{after}")
    first = sum(int(end <= len(before)) for _, end in offsets)
    last = sum(int(begin < len(start) + len(answer)) for begin, _ in offsets)
    parts = ids.tolist()
    return parts[:first], parts[first:last], parts[last:]


def share(hits_N: Sequence[Any] | Floats, clusters: Ints | None = None, *, least: float = 0.0) -> Interval:
    """The mean of N values between `least` and 1, with its interval over items (`clusters`: of them)."""
    groups = np.arange(len(hits_N)) if clusters is None else clusters
    counts = [np.bincount(groups, of) for of in (np.asarray(hits_N, float), np.ones(len(hits_N)))]
    return rate(*np.asarray(counts, dtype=np.float64), within=(least, 1.0))


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
    items: Annotated[str, typer.Option(help="File with question and answer, and task; by default six kinds.")] = "",
    task: Annotated[str, typer.Option(help="Task of the file; all by default.")] = "",
    encoder: EncoderName = "",
    prompt: Annotated[str, typer.Option(help="Template with {text} and [MASK] in place of the answer.")] = "{text}",
    shots: Annotated[int, typer.Option(help="Questions that precede the others with their answers.", min=0)] = 0,
    choices: Annotated[int, typer.Option(help="Answers to choose among.", min=2, max=100)] = 4,
) -> Measured:
    """The choice of every causal language model of the run among the right answer and answers to other questions of a
    task. The first questions are the demonstrations."""
    tasks, template = read_questions(Path(items) if items else ITEMS), Prompt.of(prompt, parts=("text",))
    if task and task not in tasks:
        raise ConfigError(f"--task: unknown task {task!r}{nearest(task, tasks)}")
    encoders, rows = outputs.causal(encoder), list[Row]()
    for name, of in tasks.items() if not task else [(task, tasks[task])]:
        if len(asked := of[shots:]) < 2:
            raise DataError(f"{name}: {len(of)} questions are too few for {shots} demonstrations and 2 questions")
        shown = template.lines([((question,), answer) for question, answer in of[:shots]])
        rng, fields = np.random.default_rng(0), list[tuple[str, ...]]()
        for question, right in asked:
            others = [answer for answer in dict.fromkeys(answer for _, answer in of) if (question, answer) not in of]
            fields.append((question, right, *rng.permutation(others)[: choices - 1].tolist()))
        split = Split(fields, [np.zeros(1)] * len(fields), [None] * len(fields))
        rows += [
            {"encoder": system, "task": name} | _chosen(loaded, split, template, shown, [])
            for system, loaded in encoders.items()
        ]
    sheet = Sheet(rows, "", {"perplexity": ".4g"}, "calibrated", reference=1 / choices)
    return Measured([sheet], [f"Demonstrations: {shots}. {EXPLANATION}"])


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
    # The answers of a choice differ by row.
    words = list(label_words(facts.labels, answers).values())
    if shots and not words:
        raise ConfigError("--shots: the answers of a choice differ by row; set it to 0")
    shown = template.lines(_demonstrations(read_split(directory, "train"), words, shots)) if shots else ""
    whole = read_split(directory, split)
    # Rows without any of the labels have no right answer.
    asked = whole.take([row for row, target in enumerate(whole.targets) if target[0] >= 0])
    if not len(asked):
        raise ConfigError(f"{name}: prompts are chosen on dev; name a file (data.tasks.{name}.dev)")
    rows, notes = list[Row](), list[str]()
    for system, loaded in outputs.encoders(encoder).items():
        try:
            require_answers(loaded)
        except ConfigError as error:
            if encoder:
                raise
            notes.append(f"{system} is skipped: {error}.")
            continue
        row = {"split": split, "encoder": system, "task": name}
        rows.append(row | _chosen(loaded, asked, template, shown, words))
    if not rows:
        raise ConfigError(f"run.families: none has a causal or masked language model. {' '.join(notes)}")
    value, reference = (GAIN, 0.0) if words else ("calibrated", None)
    sheet = Sheet(rows, name, {"perplexity": ".4g"}, value, reference=reference)
    text = f"Prompt: {prompt!r}, after {shots} labelled rows. {EXPLANATION}"
    return Measured([sheet], [text, *notes])


def _demonstrations(train: Split, words: Sequence[str], shots: int) -> list[tuple[Fields, str]]:
    """Rows of train with their answers; each label in turn."""
    of_label = [np.flatnonzero(train.labels == label).tolist() for label in range(len(words))]
    turns = [row for rows in zip_longest(*of_label) for row in rows if row is not None]
    return [(train.fields[row], words[int(train.targets[row][0])]) for row in turns[:shots]]


def _chosen(encoder: Encoder, split: Split, template: Prompt, shown: str, words: Sequence[str]) -> Row:
    """The choice by each score among `words`, or the row's own choices without any, against the most frequent one."""
    rights = [int(target[0]) for target in split.targets]
    candidates = [words or fields[1:] for fields in split.fields]
    prompts, neutral = (
        [(f"{shown}{before}", after) for before, after in map(template.fill, parts)]
        for parts in (split.fields, [(text, text) for text in NEUTRAL])
    )
    scores = answer_scores(encoder, prompts, candidates, neutral=neutral)
    # A tie is wrong.
    hits = {
        name: np.asarray(
            [(np.delete(of[name], at) < of[name][at]).all() for of, at in zip(scores, rights, strict=True)]
        )
        for name in SCORES
    }
    usual, count = Counter(rights).most_common(1)[0]
    nats = -np.mean([of["sum"][right] for of, right in zip(scores, rights, strict=True)])
    distinct = dict.fromkeys(f" {answer}" for of in candidates for answer in of)
    unknown = sum(bool((ids == UNK).any()) for ids in encoder.tokenizer.encode_batch([*distinct]))
    row: Row = {"items": len(split), "unknown": unknown, "trivial": count / len(split) if words else None}
    row |= {name: share(of, split.clusters) for name, of in hits.items()}
    row |= {"guessing": float(np.mean([1 / len(of) for of in candidates])), "perplexity": math.exp(min(nats, 700.0))}
    # A score that is chosen by its hits on these items would be too good.
    gains = hits["calibrated"] - np.equal(rights, usual).astype(float)
    return row | {GAIN: share(gains, split.clusters, least=-1.0) if words else None}
