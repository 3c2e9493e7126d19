"""Zero-shot and few-shot classification: the answer that a language model finds most probable after a prompt
(`components.studies.answers`). With `shots`, labelled rows with their answers precede it (Brown et al. 2020, section
2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import Formatter
from typing import Annotated, Any, Final, Literal

import numpy as np
import typer

from components.core.errors import ConfigError
from components.data.scoring import Scoring
from components.data.scoring.intervals import CONFIDENCE, Interval
from components.data.tasks.data import Fields, Split
from components.data.tasks.examples import read_facts, read_split
from components.data.tasks.kinds import scoring_for
from components.models import family as family_named
from components.reporting.findings import Chapter, Findings, Table
from components.serving.generation import GAP
from components.studies.answers import NEUTRAL, OBJECTIVES, SCORES, Questions, accuracy, require_answers, unknown_words
from components.studies.frame import EncoderName, Outputs, Study, Task, bounds


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


STUDY = Study("zero-shot", "How well does a language model answer without labels?", run)
