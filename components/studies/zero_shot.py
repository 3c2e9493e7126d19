"""Zero-shot classification: the answer that a language model finds most probable after a prompt, without training.

Causal models: Radford et al. 2019 (section 3) and Brown et al. 2020 (section 2.4). For masked models, the answer
replaces [MASK] (Petroni et al. 2019). Long answers are less probable than short ones, so three scores are compared,
computed from the same log-likelihoods l:

    sum      l(answer | prompt)
    mean     l(answer | prompt) / number of characters
    prior    l(answer | prompt) - l(answer | empty prompt)

For causal models, the text after the answer counts as a part of it, in l and in the number of characters.

With demonstrations (`--shots`), labelled rows of train precede the row that is answered (Brown et al. 2020, few-shot).
Their labels are spent, and the study counts them.

Zero-shot is a study and not a start of fine-tuning: it has no label budget and no weights to serve.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from string import Formatter
from typing import Annotated, Final, Literal

import numpy as np
import typer
from numpy.typing import NDArray

from components.errors import ConfigError, DataError
from components.inference.generate import require_output_layer
from components.inference.generation import GAP
from components.inference.likelihood import Gap, causal_log_probs, gap_between, masked_log_probs
from components.models import family as family_named
from components.models.encoder import Encoder
from components.reporting.chapters import Chapter, Table
from components.reporting.findings import Findings
from components.scoring import Scoring
from components.scoring.intervals import Interval, interval, left_out, sizes_of
from components.studies.base import Study
from components.studies.demonstrations import balanced, fitting, nearest
from components.studies.outputs import Outputs
from components.tasks.data import Fields, Split
from components.tasks.examples import read_facts, read_split
from components.tasks.kinds import find_kind, scoring_for
from components.tokenization import Tokenizer
from components.tokenization.special import UNK
from components.tokenization.words import encode_words

KINDS: Final = ("choice", "classification", "pair")
#: Objectives of language models.
OBJECTIVES: Final = ("causal", "masked", "permuted")
SCORES: Final = ("sum", "mean", "prior")

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Prompt:
    """A template: the texts before and after the answer; {text} and {second} are the parts of a row."""

    before: str
    after: str

    @classmethod
    def of(cls, template: str, *, parts: Sequence[str] = ("text", "second")) -> Prompt:
        """Parse a text. The answer replaces its [MASK], or follows the text if there is none.

        Args:
            template: the text.
            parts: allowed names in braces.

        Raises:
            ConfigError: several [MASK], or another name in braces.
        """
        before, *after = template.split(GAP)
        if len(after) > 1:
            raise ConfigError(f"--prompt: {template!r} has {len(after)} {GAP}; write one or none")
        try:
            named = {name for _, name, _, _ in Formatter().parse(template) if name is not None}
            template.format(text="", second="")
        except (LookupError, ValueError, TypeError, AttributeError):
            named = {""}
        if not named <= set(parts):
            known = " and ".join(f"{{{part}}}" for part in parts)
            raise ConfigError(f"--prompt: {template!r}: only {known} may be in braces; write {{{{ for a brace")
        return cls(before.rstrip(), after[0] if after else "")

    def fill(self, parts: Fields) -> tuple[str, str]:
        """The texts before and after the answer for a row."""
        named = {"text": parts[0], "second": parts[1] if len(parts) > 1 else ""}
        return self.before.format(**named), self.after.format(**named)


def run(
    outputs: Outputs,
    *,
    task: Annotated[str, typer.Option(help="Task; the first of run.tasks by default.")] = "",
    encoder: Annotated[str, typer.Option(help="Encoder, such as gpt-pretrained; one per family by default.")] = "",
    prompt: Annotated[
        str, typer.Option(help="Template with {text}, {second} (for pairs), and [MASK] in place of the answer.")
    ] = "{text}",
    answers: Annotated[str, typer.Option(help='Answers for labels: "label=words; label=words".')] = "",
    split: Annotated[Literal["dev", "test"], typer.Option(help="Split to answer; choose prompts on dev.")] = "dev",
    shots: Annotated[int, typer.Option(help="Demonstrations from train in the prompt.", min=0)] = 0,
    demonstrations: Annotated[
        Literal["same", "nearest"],
        typer.Option(help="The same for every row, balanced over the labels; or the nearest to the row by TF-IDF."),
    ] = "same",
    seed: Annotated[int, typer.Option(help="Of the choice of the same demonstrations.")] = 0,
) -> Findings:
    """Accuracy of every encoder for each of the three scores.

    Raises:
        ConfigError: unknown task or encoder; a kind of task without candidate answers; an encoder without a
            language model; a malformed prompt, or an unknown label in `answers`; more demonstrations than rows.
        ArtifactError: a required stage has not run.
    """
    name = outputs.task(task)
    directory = outputs.examples(name)
    facts = read_facts(directory)
    if facts.kind not in KINDS:
        raise ConfigError(f"{name}: {facts.kind} has no candidate answers; zero-shot supports {', '.join(KINDS)}")
    template = Prompt.of(prompt, parts=("text", "second") if facts.kind == "pair" else ("text",))
    words = list(label_words(facts.labels, answers).values())
    splits = {
        which: _questions(read_split(directory, which), template, words, kind=facts.kind) for which in ("dev", split)
    }
    if not len(splits["dev"].rows):
        raise ConfigError(f"{name}: prompts are chosen on dev; name a file (data.tasks.{name}.dev)")
    shown = {}
    spent = 0
    if shots:
        train = read_split(directory, "train")
        strata = find_kind(facts.kind).strata(train)
        texts = _demonstrations(train, template, words, kind=facts.kind)
        spent = shots if demonstrations == "same" else len(train)
        same = balanced(strata, len(train), shots, seed=seed)
        for which, own in splits.items():
            chosen = [same] * len(own.rows) if demonstrations == "same" else nearest(train.texts, own.rows.texts, shots)
            shown[which] = [[texts[row] for row in rows] for rows in chosen]
    scoring = scoring_for(facts.kind, facts.labels)
    confidence = outputs.params.evaluate.confidence
    numbers: dict[str, dict[str, dict[str, float]]] = {}
    on_dev: dict[tuple[str, str], float] = {}
    notes: list[str] = []
    for block, start in _chosen(outputs, encoder):
        system = f"{block}-{start}"
        loaded = outputs.encoder(block, start)
        try:
            require_answers(loaded)
        except ConfigError as error:
            if encoder:
                raise
            notes.append(f"{system} is skipped: {error}.")
            continue
        asked = splits
        if shots:
            made = {which: _with_demonstrations(loaded, own, shown[which]) for which, own in splits.items()}
            asked = {which: own for which, (own, _) in made.items()}
            if (fit := made[split][1]) < shots:
                notes.append(f"{system}: {fit:.1f} of {shots} demonstrations fit into its positions on average.")
        found = {which: _accuracy(loaded, own, scoring, confidence=confidence) for which, own in asked.items()}
        numbers[system] = {score: value.as_dict() for score, value in found[split].items()}
        on_dev |= {(system, score): value.mean for score, value in found["dev"].items()}
        notes += _unknown(system, loaded, splits[split].candidates)
    if not numbers:
        raise ConfigError(f"run.families: none has a causal or masked language model. {' '.join(notes)}")
    questions = splits[split]
    guess = float(np.mean([1 / len(row) for row in questions.candidates]))
    most = None
    if facts.kind != "choice":
        usual = scoring.constant(read_split(directory, "train").targets)[0]
        most = scoring.score(questions.rows.fields, questions.rows.targets, [usual] * len(questions.rows))["accuracy"]
    # Rows without any of the labels have no right answer.
    count = sum(target[0] >= 0 for target in questions.rows.targets)
    # Nothing is selected on test.
    best = max(on_dev, key=lambda key: on_dev[key])
    chapter = _chapter(
        name, numbers, best, split=split, rows=count, prompt=prompt, guess=guess, most=most, shots=shots, spent=spent
    )
    chapter.text += notes
    content = {"task": name, "split": split, "rows": count, "prompt": prompt, "answers": words, "accuracy": numbers}
    content |= {"shots": shots, "demonstrations": demonstrations, "labels_spent": spent, "seed": seed} if shots else {}
    return Findings(chapter, content | {"best_on_dev": list(best), "guessing": guess, "most_frequent": most})


@dataclass(frozen=True)
class _Questions:
    """The rows of a split with their prompts (before, after) and candidate answers."""

    rows: Split
    prompts: list[tuple[str, str]]
    candidates: list[Sequence[str]]


def _questions(rows: Split, template: Prompt, words: list[str], *, kind: str) -> _Questions:
    prompts = [template.fill(parts) for parts in rows.fields]
    return _Questions(rows, prompts, [parts[1:] if kind == "choice" else words for parts in rows.fields])


def _demonstrations(train: Split, template: Prompt, words: list[str], *, kind: str) -> list[str]:
    """The text of every row of train with its answer."""
    found = []
    for parts, target in zip(train.fields, train.targets, strict=True):
        before, after = template.fill(parts)
        answer = (parts[1:] if kind == "choice" else words)[int(target[0])]
        found.append(f"{before} {answer}{after}".lstrip())
    return found


def _with_demonstrations(
    encoder: Encoder, questions: _Questions, shown: Sequence[Sequence[str]]
) -> tuple[_Questions, float]:
    """The questions with demonstrations, and how many of them fit into the model's positions on average."""
    afters = [after for _, after in questions.prompts]
    ends = list(
        dict.fromkeys(
            f" {answer}{after}" for row, after in zip(questions.candidates, afters, strict=True) for answer in row
        )
    )
    sizes = {end: len(ids) for end, ids in zip(ends, encoder.tokenizer.encode_batch(ends), strict=True)}
    reserved = [
        max(sizes[f" {answer}{after}"] for answer in row)
        for row, after in zip(questions.candidates, afters, strict=True)
    ]
    befores, fit = fitting(encoder, shown, [before for before, _ in questions.prompts], reserved=reserved)
    return replace(questions, prompts=list(zip(befores, afters, strict=True))), fit


def _accuracy(encoder: Encoder, questions: _Questions, scoring: Scoring, *, confidence: float) -> dict[str, Interval]:
    """Score -> accuracy with its interval over rows."""
    found = answer_scores(encoder, questions.prompts, questions.candidates)
    accuracy = {}
    for score in SCORES:
        answered = [_probabilities(row[score]) for row in found]
        matrix = scoring.statistics(questions.rows.fields, questions.rows.targets, answered)
        value = float(scoring.scores(matrix.sum(0))["accuracy"])
        clusters = questions.rows.clusters
        without = left_out(matrix, clusters, scoring.scores)["accuracy"][None]
        sizes = sizes_of(clusters, len(questions.rows))
        around = interval(np.asarray([value]), without, sizes, confidence=confidence)
        accuracy[score] = around.within(0.0, 1.0)
    return accuracy


def _unknown(system: str, encoder: Encoder, candidates: Sequence[Sequence[str]]) -> list[str]:
    """A sentence about answers with unknown words, which all have the probability of the unknown piece."""
    distinct = list(dict.fromkeys(answer for row in candidates for answer in row))
    unknown = [
        answer
        for answer, found in zip(distinct, encode_words(encoder.tokenizer, [[one] for one in distinct]), strict=True)
        if (found.ids == UNK).any()
    ]
    if not unknown:
        return []
    named = ", ".join(map(repr, unknown[:5])) + (" ..." if len(unknown) > 5 else "")
    return [
        f"{system}: {len(unknown)} of {len(distinct)} answers have unknown words ({named}), so their probabilities are "
        "not meaningful."
    ]


def _chosen(outputs: Outputs, encoder: str) -> list[tuple[str, str]]:
    """The named encoder; by default those of run.families with a language model."""
    chosen = [
        (block, start)
        for block, start in outputs.chosen(encoder)
        if encoder or family_named(outputs.block(block).family).objective in OBJECTIVES
    ]
    if not chosen:
        raise ConfigError("run.families: none has a language model, which zero-shot needs")
    return chosen


def require_answers(encoder: Encoder) -> None:
    """Require a forward causal or a masked language model.

    Raises:
        ConfigError: the encoder has none.
    """
    objective = family_named(encoder.family).objective
    if objective not in OBJECTIVES:
        raise ConfigError(f"the family {encoder.family!r} has no language model, which zero-shot needs")
    if objective != "causal":
        require_output_layer(encoder)
    elif encoder.model.backward:
        raise ConfigError(
            f"{encoder.family}: a backward model cannot predict the answer after a prompt; use the forward model"
        )


def label_words(labels: Sequence[str], answers: str) -> dict[str, str]:
    """Label -> its answer: the words of its name, unless `answers` has another.

    Raises:
        ConfigError: an entry without "=" or with an unknown label.
    """
    found = {label: label.replace("_", " ").replace("-", " ") for label in labels}
    for entry in filter(str.strip, answers.split(";")):
        label, separator, words = (part.strip() for part in entry.partition("="))
        if not separator or not words or label not in found:
            raise ConfigError(f"--answers: {entry.strip()!r}: write label=words for labels among {', '.join(labels)}")
        found[label] = words
    return found


def answer_scores(
    encoder: Encoder, prompts: Sequence[tuple[str, str]], candidates: Sequence[Sequence[str]]
) -> list[dict[str, Floats]]:
    """The three scores of the C candidates of each prompt (before, after): score -> (C,).

    Raises:
        ConfigError: see `require_answers`.
        DataError: an answer has no piece, or exceeds the model's positions.
    """
    require_answers(encoder)
    causal = family_named(encoder.family).objective == "causal"
    inputs: dict[tuple[str, str, str], Gap] = {}
    for (before, after), words in zip(prompts, candidates, strict=True):
        for answer in words:
            for key in ((before, answer, after), ("", answer, "")):
                if key not in inputs:
                    try:
                        inputs[key] = gap_between(encoder.model, *_pieces(encoder.tokenizer, *key), causal=causal)
                    except DataError as error:
                        raise DataError(f"answer {answer!r}: {error}") from error
    measured = (causal_log_probs if causal else masked_log_probs)(encoder.model, list(inputs.values()))
    total = {key: float(values.sum()) for key, values in zip(inputs, measured, strict=True)}
    found = []
    for (before, after), words in zip(prompts, candidates, strict=True):
        sums = np.asarray([total[before, answer, after] for answer in words])
        sizes = np.asarray([max(1, len(answer) + (len(after.strip()) if causal else 0)) for answer in words])
        alone = np.asarray([total["", answer, ""] for answer in words])
        found.append({"sum": sums, "mean": sums / sizes, "prior": sums - alone})
    return found


def _pieces(tokenizer: Tokenizer, before: str, answer: str, after: str) -> tuple[list[int], list[int], list[int]]:
    """The pieces of each part. The answer and the text after it are tokenized as continuations of the text before,
    with or without a space in between as in the prompt."""
    parts = [part for part in (before, answer, after.strip()) if part]
    (joined,) = encode_words(tokenizer, [parts])
    ends = (joined.spans[:, 1] + 1).tolist()
    pieces = [joined.ids[start:end].tolist() for start, end in zip([0, *ends], ends, strict=False)]
    if before:
        # No space before the beginning of a text.
        pieces[0] = tokenizer.encode_batch([before])[0].tolist()
    else:
        pieces.insert(0, [])
    follows = [piece for part in pieces[2:] for piece in part]
    if follows and not after[0].isspace():
        space = " " if tokenizer.leads_with_space else ""
        alone, joined = (
            ids.tolist() for ids in tokenizer.encode_batch([f"{space}{answer}", f"{space}{answer}{after}"])
        )
        # Only if the pieces of the answer remain the same.
        follows = joined[len(alone) :] if joined[: len(alone)] == alone else follows
    return pieces[0], pieces[1], follows


def _probabilities(scores: Floats) -> NDArray[np.float32]:
    weights = np.exp(scores - scores.max())
    return (weights / weights.sum()).astype(np.float32)


def _chapter(
    task: str,
    numbers: Mapping[str, Mapping[str, Mapping[str, float]]],
    chosen: tuple[str, str],
    *,
    split: str,
    rows: int,
    prompt: str,
    guess: float,
    most: float | None,
    shots: int,
    spent: int,
) -> Chapter:
    best, score = chosen
    how = f"With {shots} demonstrations ({spent} labels of train)" if shots else "Without labels"
    lead = (
        f"{how}, {best} answers {numbers[best][score]['mean']:.1%} of {task} correctly on {split} ({rows} "
        f"rows, score {score}, both chosen on dev); random guessing {guess:.1%}"
        + (f", the most frequent label {most:.1%}." if most is not None else ".")
    )
    table = Table(
        ["encoder", *SCORES],
        [
            [name, *(f"{value['mean']:.3f} [{value['low']:.3f}, {value['high']:.3f}]" for value in entry.values())]
            for name, entry in numbers.items()
        ],
        f"{task}: accuracy on {split}",
    )
    text = [
        f"Prompt: {prompt!r}. Accuracy by the log-likelihood of the answer: its sum, its mean per character, and its "
        "difference to the log-likelihood without a prompt."
    ]
    return Chapter(f"Zero-shot: {task}", [lead], text, [table])


STUDY = Study("zero-shot", "How well does a language model answer without labels, or with a few in the prompt?", run)
