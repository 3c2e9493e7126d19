"""Zero-shot and few-shot classification: the answer that a language model finds most probable after a prompt (causal
models: Radford et al. 2019, section 3, and Brown et al. 2020, section 2.4; for masked models, the answer replaces
[MASK]: Petroni et al. 2019). With `shots`, labelled rows with their answers precede it.

Long answers are less probable than short ones, and models prefer some answers whatever the text, so four scores are
compared, computed from log-likelihoods l:

    sum          l(answer | prompt)
    mean         l(answer | prompt) / number of characters
    prior        l(answer | prompt) - l(answer | empty prompt)
    calibrated   l(answer | prompt) - log of the mean of p(answer | prompt of a text without content), where p sums to 1
                 over the answers (Zhao et al. 2021, section 5: contextual calibration)

For causal models, the text after the answer counts as a part of it, in l and in the number of characters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import Formatter
from typing import Annotated, Any, Final, Literal

import numpy as np
import typer
from numpy.typing import NDArray
from scipy.special import softmax

from components.core.errors import ConfigError, DataError
from components.data.scoring import Scoring
from components.data.scoring.intervals import CONFIDENCE, Interval, interval, left_out, sizes_of
from components.data.tasks.data import Fields, Split
from components.data.tasks.examples import read_facts, read_split
from components.data.tasks.kinds import scoring_for
from components.models import family as family_named
from components.models.encoder import Encoder
from components.reporting.findings import Chapter, Findings, Table
from components.serving.generation import GAP, require_output_layer
from components.serving.likelihood import Gap, causal_log_probs, gap_between, masked_log_probs
from components.studies.frame import EncoderName, Outputs, Task, bounds
from components.tokenization import Tokenizer
from components.tokenization.special import UNK
from components.tokenization.words import encode_words

#: Objectives of language models.
OBJECTIVES: Final = ("causal", "masked", "permuted")
SCORES: Final = ("sum", "mean", "prior", "calibrated")
#: Texts without content (Zhao et al. 2021).
NEUTRAL: Final = ("N/A", "")

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Questions:
    """The rows of a split with their prompts (before, after) and candidate answers; `neutral` are prompts of texts
    without content."""

    rows: Split
    prompts: Sequence[tuple[str, str]]
    candidates: Sequence[Sequence[str]]
    neutral: Sequence[tuple[str, str]]


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
    inputs: dict[tuple[str, str, str], Gap] = {}
    for (before, after), words in zip(prompts, candidates, strict=True):
        for answer in words:
            for key in ((before, answer, after), ("", answer, ""), *((first, answer, last) for first, last in neutral)):
                if key not in inputs:
                    try:
                        inputs[key] = gap_between(encoder.model, *pieces(encoder.tokenizer, *key), causal=causal)
                    except DataError as error:
                        raise DataError(f"answer {answer!r}: {error}") from error
    measured = (causal_log_probs if causal else masked_log_probs)(encoder.model, list(inputs.values()))
    total = {key: float(values.sum()) for key, values in zip(inputs, measured, strict=True)}
    scores = []
    for (before, after), words in zip(prompts, candidates, strict=True):
        sums = np.asarray([total[before, answer, after] for answer in words])
        sizes = np.asarray([max(1, len(answer) + (len(after.strip()) if causal else 0)) for answer in words])
        alone = np.asarray([total["", answer, ""] for answer in words])
        shares = [softmax([total[first, answer, last] for answer in words]) for first, last in neutral]
        calibrated = sums - np.log(np.mean(shares, 0))
        scores.append({"sum": sums, "mean": sums / sizes, "prior": sums - alone, "calibrated": calibrated})
    return scores


def pieces(tokenizer: Tokenizer, before: str, answer: str, after: str) -> tuple[list[int], list[int], list[int]]:
    """The pieces of each part. The answer and the text after it are tokenized as continuations of the text before,
    with or without a space in between as in the prompt."""
    parts = [part for part in (before, answer, after.strip()) if part]
    (joined,) = encode_words(tokenizer, [parts])
    ends = (joined.spans[:, 1] + 1).tolist()
    encoded = [joined.ids[start:end].tolist() for start, end in zip([0, *ends], ends, strict=False)]
    if before:
        # No space before the beginning of a text.
        encoded[0] = tokenizer.encode_batch([before])[0].tolist()
    else:
        encoded.insert(0, [])
    follows = [piece for part in encoded[2:] for piece in part]
    if follows and not after[0].isspace():
        space = " " if tokenizer.leads_with_space else ""
        alone, whole = (ids.tolist() for ids in tokenizer.encode_batch([f"{space}{answer}", f"{space}{answer}{after}"]))
        # Only if the pieces of the answer remain the same.
        follows = whole[len(alone) :] if whole[: len(alone)] == alone else follows
    return encoded[0], encoded[1], follows


def accuracy(encoder: Encoder, questions: Questions, scoring: Scoring, *, confidence: float) -> dict[str, Interval]:
    """Score -> accuracy with its interval over rows."""
    rows, clusters = questions.rows, questions.rows.clusters
    of_prompts = answer_scores(encoder, questions.prompts, questions.candidates, neutral=questions.neutral)
    intervals = {}
    for score in SCORES:
        shares = [softmax(row[score]).astype(np.float32) for row in of_prompts]
        matrix = scoring.statistics(rows.fields, rows.targets, shares)
        value = np.atleast_1d(scoring.scores(matrix.sum(0))["accuracy"])
        without = left_out(matrix, clusters, scoring.scores)["accuracy"][None]
        sizes = sizes_of(clusters, len(rows))
        intervals[score] = interval(value, without, sizes, confidence=confidence, within=(0, 1))
    return intervals


def unknown_words(system: str, encoder: Encoder, candidates: Sequence[Sequence[str]]) -> list[str]:
    """A sentence about answers with unknown words, which all have the probability of the unknown piece."""
    distinct = list(dict.fromkeys(answer for row in candidates for answer in row))
    encoded = encode_words(encoder.tokenizer, [[answer] for answer in distinct])
    unknown = [answer for answer, of in zip(distinct, encoded, strict=True) if (of.ids == UNK).any()]
    if not unknown:
        return []
    named = ", ".join(map(repr, unknown[:5])) + (" ..." if len(unknown) > 5 else "")
    return [
        f"{system}: {len(unknown)} of {len(distinct)} answers have unknown words ({named}), so their probabilities are "
        "not meaningful."
    ]


@dataclass(frozen=True)
class Prompt:
    """A template: the texts before and after the answer; {text} and {second} are the parts of a row."""

    before: str
    after: str

    @classmethod
    def of(cls, template: str, *, parts: Sequence[str] = ("text", "second")) -> Prompt:
        """Parse a text. The answer replaces its [MASK], or follows the text if there is none."""
        before, *after = template.split(GAP)
        if len(after) > 1:
            raise ConfigError(f"--prompt: {template!r} has {len(after)} {GAP}; write one or none")
        try:
            named = {name for _, name, _, _ in Formatter().parse(template) if name is not None}
            template.format(text="", second="")
        except (LookupError, ValueError, TypeError, AttributeError):
            named = {""}
        if not named <= set(parts):
            allowed = " and ".join(f"{{{part}}}" for part in parts)
            raise ConfigError(f"--prompt: {template!r}: only {allowed} may be in braces; write {{{{ for a brace")
        return cls(before.rstrip(), after[0] if after else "")

    def fill(self, parts: Fields) -> tuple[str, str]:
        """The texts before and after the answer for a row."""
        named = {"text": parts[0], "second": parts[1] if len(parts) > 1 else ""}
        return self.before.format(**named), self.after.format(**named)


def label_words(labels: Sequence[str], answers: str) -> dict[str, str]:
    """Label -> its answer: the words of its name, unless `answers` has another."""
    words = {label: label.replace("_", " ").replace("-", " ") for label in labels}
    for entry in filter(str.strip, answers.split(";")):
        label, _, answer = (part.strip() for part in entry.partition("="))
        if not answer or label not in words:
            raise ConfigError(f"--answers: {entry.strip()!r}: write label=words for labels among {', '.join(labels)}")
        words[label] = answer
    return words


KINDS: Final = ("choice", "classification", "pair")


def run(
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
) -> Findings:
    """Accuracy of every encoder for each of the scores."""
    name = outputs.task(task)
    directory = outputs.examples(name)
    facts = read_facts(directory)
    if facts.kind not in KINDS:
        raise ConfigError(f"{name}: {facts.kind} has no candidate answers; zero-shot supports {', '.join(KINDS)}")
    template = Prompt.of(prompt, parts=("text", "second") if facts.kind == "pair" else ("text",))
    words = list(label_words(facts.labels, answers).values())
    if shots and facts.kind == "choice":
        raise ConfigError("--shots: the answers of a choice differ by row; set it to 0")
    shown = _demonstrations(read_split(directory, "train"), template, words, shots) if shots else ""
    splits: dict[str, Questions] = {}
    for part in ("dev", split):
        splits[part] = _questions(read_split(directory, part), template, words, facts.kind, shown)
    if not len(splits["dev"].rows):
        raise ConfigError(f"{name}: prompts are chosen on dev; name a file (data.tasks.{name}.dev)")
    scoring = scoring_for(facts.kind, facts.labels)
    measured, notes = _measured(outputs, encoder, splits, scoring)
    asked, most = splits[split], None
    if facts.kind != "choice":
        usual = scoring.constant(read_split(directory, "train").targets)[0]
        most = scoring.score(asked.rows.fields, asked.rows.targets, [usual] * len(asked.rows))["accuracy"]
    # Nothing is selected on test.
    on_dev = {(system, score): of["dev"][score].mean for system, of in measured.items() for score in SCORES}
    numbers: dict[str, Any] = {
        "task": name,
        "split": split,
        # Rows without any of the labels have no right answer.
        "rows": sum(target[0] >= 0 for target in asked.rows.targets),
        "prompt": prompt,
        "shots": shots,
        "answers": words,
        "accuracy": {
            system: {score: of[split][score].as_dict() for score in SCORES} for system, of in measured.items()
        },
        "best_on_dev": [*max(on_dev, key=on_dev.__getitem__)],
        "guessing": float(np.mean([1 / len(row) for row in asked.candidates])),
        "most_frequent": most,
    }
    return Findings(_chapter(numbers, notes), numbers)


def _demonstrations(train: Split, template: Prompt, words: Sequence[str], shots: int) -> str:
    """The text before a prompt: rows of train with their answers, one a line; each label in turn."""
    order = np.random.default_rng(0).permutation(len(train))
    of_label = [[row for row in order.tolist() if train.targets[row][0] == label] for label in range(len(words))]
    turns = [rows[turn] for turn in range(shots) for rows in of_label if turn < len(rows)]
    lines = []
    for row in turns[:shots]:
        before, after = template.fill(train.fields[row])
        lines.append(f"{before} {words[int(train.targets[row][0])]}{after}\n")
    return "".join(lines)


def _questions(rows: Split, template: Prompt, words: list[str], kind: str, shown: str) -> Questions:
    def fill(parts: Fields) -> tuple[str, str]:
        before, after = template.fill(parts)
        return shown + before, after

    candidates = [parts[1:] if kind == "choice" else words for parts in rows.fields]
    neutral = [fill((text, text)) for text in NEUTRAL]
    return Questions(rows, [fill(parts) for parts in rows.fields], candidates, neutral)


def _measured(
    outputs: Outputs, encoder: str, splits: Mapping[str, Questions], scoring: Scoring
) -> tuple[dict[str, dict[str, dict[str, Interval]]], list[str]]:
    """System -> split -> score -> accuracy, of the named encoder or the language models of run.families; and notes."""
    notes: list[str] = []
    measured: dict[str, dict[str, dict[str, Interval]]] = {}
    for block, start in outputs.chosen(encoder):
        if not encoder and family_named(outputs.block(block).family).objective not in OBJECTIVES:
            continue
        system, loaded = f"{block}-{start}", outputs.encoder(block, start)
        try:
            require_answers(loaded)
        except ConfigError as error:
            if encoder:
                raise
            notes.append(f"{system} is skipped: {error}.")
            continue
        measured[system] = {}
        for part, questions in splits.items():
            measured[system][part] = accuracy(loaded, questions, scoring, confidence=CONFIDENCE)
        notes += unknown_words(system, loaded, questions.candidates)
    if not measured:
        raise ConfigError(f"run.families: none has a causal or masked language model. {' '.join(notes)}")
    return measured, notes


def _chapter(numbers: Mapping[str, Any], notes: Sequence[str]) -> Chapter:
    task, split, scores, most = (numbers[key] for key in ("task", "split", "accuracy", "most_frequent"))
    best, score = numbers["best_on_dev"]
    shown = f"After {numbers['shots']} labelled rows in the prompt" if numbers["shots"] else "Without labels"
    lead = (
        f"{shown}, {best} answers {scores[best][score]['mean']:.1%} of "
        f"{task} correctly on {split} ({numbers['rows']} rows, score {score}, both chosen on dev); random guessing "
        f"{numbers['guessing']:.1%}" + (f", the most frequent label {most:.1%}." if most is not None else ".")
    )
    text = (
        f"Prompt: {numbers['prompt']!r}. Accuracy by the log-likelihood of the answer: its sum, its mean per "
        "character, its difference to the log-likelihood without a prompt, and calibrated by prompts of texts without "
        "content (Zhao et al. 2021)."
    )
    rows = [[name, *(bounds(of[score]) for score in SCORES)] for name, of in scores.items()]
    table = Table(["encoder", *SCORES], rows, f"{task}: accuracy on {split}")
    return Chapter(f"Zero-shot: {task}", [lead], [text, *notes], [table])
