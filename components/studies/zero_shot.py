"""Zero-shot: which of several answers a language model finds most probable after a prompt; nothing is learned.

Radford et al. 2019 (section 3) and Brown et al. 2020 (section 2.4) for models that say what comes next; for models that
fill gaps the answer stands in place of [MASK] (Petroni et al. 2019). Long answers are less probable than short ones, so
three scores are compared, all from the same log-likelihoods l:

    sum      l(answer | prompt)
    mean     l(answer | prompt) / its characters
    prior    l(answer | prompt) - l(answer | nothing)

What a prompt has behind the answer counts as a part of it for models that say what comes next, in l and in characters.

It is a study and no way to fine-tune: it draws no labels, has no budget and no weights to serve, and its figures stand
beside those of the systems that learned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import Formatter
from typing import Annotated, Final, Literal

import numpy as np
import typer
from numpy.typing import NDArray

from components.errors import ConfigError, DataError
from components.evaluation.intervals import Interval, interval
from components.inference.generate import require_output_layer
from components.inference.generation import GAP
from components.inference.likelihood import Gap, causal_log_probs, gap_between, masked_log_probs
from components.models import family as family_named
from components.models.encoder import Encoder
from components.reporting.chapters import Chapter, Table
from components.reporting.findings import Findings
from components.scoring import Scoring, resampled
from components.studies.base import Study
from components.studies.outputs import Outputs
from components.tasks.data import Fields, Split
from components.tasks.examples import read_facts, read_split
from components.tasks.kinds import scoring_for
from components.tokenization import Tokenizer
from components.tokenization.special import UNK
from components.tokenization.words import encode_words

KINDS: Final = ("choice", "classification", "pair")
#: Families that give pieces a probability.
OBJECTIVES: Final = ("causal", "masked", "permuted")
SCORES: Final = ("sum", "mean", "prior")
RESAMPLES: Final = 1000

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Prompt:
    """How a row becomes a text: `before` and `after` surround the answer; {text} and {second} are the row's parts."""

    before: str
    after: str

    @classmethod
    def of(cls, template: str, *, parts: Sequence[str] = ("text", "second")) -> Prompt:
        """From a text with at most one [MASK], where the answer stands; at the end, if there is none.

        Args:
            parts: what may stand in braces.

        Raises:
            ConfigError: more than one; braces around something else.
        """
        before, *after = template.split(GAP)
        if len(after) > 1:
            raise ConfigError(f"--prompt: {template!r} has {len(after)} places for one answer; write one {GAP} or none")
        try:
            named = {name for _, name, _, _ in Formatter().parse(template) if name is not None}
            template.format(text="", second="")
        except (LookupError, ValueError, TypeError, AttributeError):
            named = {""}
        if not named <= set(parts):
            known = " and ".join(f"{{{part}}}" for part in parts)
            raise ConfigError(f"--prompt: {template!r}: only {known} may stand in braces; write {{{{ for a brace")
        return cls(before.rstrip(), after[0] if after else "")

    def fill(self, parts: Fields) -> tuple[str, str]:
        """The texts before and after the answer."""
        named = {"text": parts[0], "second": parts[1] if len(parts) > 1 else ""}
        return self.before.format(**named), self.after.format(**named)


def run(
    outputs: Outputs,
    *,
    task: Annotated[str, typer.Option(help="One task; the first of run.tasks if not said.")] = "",
    encoder: Annotated[str, typer.Option(help="Such as gpt-pretrained; one a family if not said.")] = "",
    prompt: Annotated[
        str, typer.Option(help="{text}, {second} (of pairs), and [MASK] where the answer stands.")
    ] = "{text}",
    answers: Annotated[str, typer.Option(help='What is said for a label: "label=words; label=words".')] = "",
    split: Annotated[Literal["dev", "test"], typer.Option(help="Prompts are chosen on dev.")] = "dev",
) -> Findings:
    """Accuracy of every encoder by each of the three scores.

    Raises:
        ConfigError: no such task or encoder; a kind of task without candidate answers; an encoder that predicts no
            pieces; a wrong prompt, or a label in `answers` that there is not.
        ArtifactError: a stage that it needs has not run.
    """
    name = outputs.task(task)
    directory = outputs.examples(name)
    facts = read_facts(directory)
    if facts.kind not in KINDS:
        raise ConfigError(f"{name}: {facts.kind} has no answers to choose from; zero-shot takes {', '.join(KINDS)}")
    template = Prompt.of(prompt, parts=("text", "second") if facts.kind == "pair" else ("text",))
    said = list(said_for(facts.labels, answers).values())
    splits = {which: _asked(read_split(directory, which), template, said, kind=facts.kind) for which in ("dev", split)}
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
            notes.append(f"{system} is left out: {error}.")
            continue
        found = {which: _accuracy(loaded, asked, scoring, confidence=confidence) for which, asked in splits.items()}
        numbers[system] = {score: value.as_dict() for score, value in found[split].items()}
        on_dev |= {(system, score): value.mean for score, value in found["dev"].items()}
        notes += _unknown(system, loaded, splits[split].candidates)
    if not numbers:
        raise ConfigError(f"run.families: none of them can answer without learning to. {' '.join(notes)}")
    asked = splits[split]
    guess = float(np.mean([1 / len(row) for row in asked.candidates]))
    most = None
    if facts.kind != "choice":
        usual = scoring.constant(read_split(directory, "train").targets)[0]
        most = scoring.score(asked.rows.fields, asked.rows.targets, [usual] * len(asked.rows))["accuracy"]
    # Rows that belong to none of the labels have no right answer.
    count = sum(target[0] >= 0 for target in asked.rows.targets)
    # The test split chooses nothing.
    best = max(on_dev, key=lambda key: on_dev[key])
    chapter = _chapter(name, numbers, best, split=split, rows=count, prompt=prompt, guess=guess, most=most)
    chapter.text += notes
    told = {"task": name, "split": split, "rows": count, "prompt": prompt, "answers": said, "accuracy": numbers}
    return Findings(chapter, told | {"best_on_dev": list(best), "guessing": guess, "most_frequent": most})


@dataclass(frozen=True)
class _Asked:
    """A split's rows, the texts before and after the answer of each, and its candidates."""

    rows: Split
    prompts: list[tuple[str, str]]
    candidates: list[Sequence[str]]


def _asked(rows: Split, template: Prompt, said: list[str], *, kind: str) -> _Asked:
    prompts = [template.fill(parts) for parts in rows.fields]
    return _Asked(rows, prompts, [parts[1:] if kind == "choice" else said for parts in rows.fields])


def _accuracy(encoder: Encoder, asked: _Asked, scoring: Scoring, *, confidence: float) -> dict[str, Interval]:
    """Of each of `SCORES`, with its interval over rows."""
    found = answer_scores(encoder, asked.prompts, asked.candidates)
    accuracy = {}
    for score in SCORES:
        answered = [_probabilities(row[score]) for row in found]
        matrix = scoring.statistics(asked.rows.fields, asked.rows.targets, answered)
        (draws,) = resampled([matrix], resamples=RESAMPLES)
        value = float(scoring.scores(np.asarray(matrix.sum(0)).ravel())["accuracy"])
        around = interval(np.asarray([value]), scoring.scores(draws)["accuracy"], confidence=confidence)
        accuracy[score] = around.within(0.0, 1.0)
    return accuracy


def _unknown(system: str, encoder: Encoder, candidates: Sequence[Sequence[str]]) -> list[str]:
    """A sentence about answers that the vocabulary does not know: they are all as probable as any unknown word."""
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
        f"{system} does not know all of {len(unknown)} of {len(distinct)} answers ({named}): how probable it finds "
        "them says little."
    ]


def _chosen(outputs: Outputs, encoder: str) -> list[tuple[str, str]]:
    """The encoder named, or of run.families those that predict pieces."""
    blocks = outputs.params.pretrain
    chosen = [
        (block, start)
        for block, start in outputs.chosen(encoder)
        if encoder or family_named(blocks[block].family or block).objective in OBJECTIVES
    ]
    if not chosen:
        raise ConfigError("run.families: none of them predicts pieces, so none can answer without learning to")
    return chosen


def require_answers(encoder: Encoder) -> None:
    """What says which answer is probable has to predict pieces, and those that come next rather than those before.

    Raises:
        ConfigError: this encoder does not.
    """
    objective = family_named(encoder.family).objective
    if objective not in OBJECTIVES:
        raise ConfigError(f"the family {encoder.family!r} predicts no pieces: it cannot answer without learning to")
    if objective != "causal":
        require_output_layer(encoder)
    elif encoder.model.backward:
        raise ConfigError(
            f"{encoder.family}: a backward model says what stands before a text, not what follows; use the forward one"
        )


def said_for(labels: Sequence[str], answers: str) -> dict[str, str]:
    """Label -> what is said for it: its own name in words, unless `answers` has another.

    Raises:
        ConfigError: an entry without "=", or for a label that there is not.
    """
    said = {label: label.replace("_", " ").replace("-", " ") for label in labels}
    for entry in filter(str.strip, answers.split(";")):
        label, separator, words = (part.strip() for part in entry.partition("="))
        if not separator or not words or label not in said:
            raise ConfigError(f"--answers: {entry.strip()!r}: write label=words for labels among {', '.join(labels)}")
        said[label] = words
    return said


def answer_scores(
    encoder: Encoder, prompts: Sequence[tuple[str, str]], candidates: Sequence[Sequence[str]]
) -> list[dict[str, Floats]]:
    """For each prompt (before, after) the three scores of its candidates: name -> (C,).

    Raises:
        ConfigError: as `require_answers`.
        DataError: an answer without a piece, or longer than what the model reads at once.
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
    """Each part as its own pieces, the answer and what follows as they stand behind other words; a mark that follows
    without a space, as it stands there."""
    parts = [part for part in (before, answer, after.strip()) if part]
    (joined,) = encode_words(tokenizer, [parts])
    ends = (joined.spans[:, 1] + 1).tolist()
    pieces = [joined.ids[start:end].tolist() for start, end in zip([0, *ends], ends, strict=False)]
    if before:
        # A text begins without a space.
        pieces[0] = tokenizer.encode_batch([before])[0].tolist()
    else:
        pieces.insert(0, [])
    follows = [piece for part in pieces[2:] for piece in part]
    if follows and not after[0].isspace():
        space = " " if tokenizer.leads_with_space else ""
        alone, joined = (
            ids.tolist() for ids in tokenizer.encode_batch([f"{space}{answer}", f"{space}{answer}{after}"])
        )
        # Where the answer's own pieces are others then, what follows stays behind a space.
        follows = joined[len(alone) :] if joined[: len(alone)] == alone else follows
    return pieces[0], pieces[1], follows


def _probabilities(scores: Floats) -> NDArray[np.float32]:
    shares = np.exp(scores - scores.max())
    return (shares / shares.sum()).astype(np.float32)


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
) -> Chapter:
    best, score = chosen
    lead = (
        f"Without learning anything from labels {best} answers {numbers[best][score]['mean']:.1%} of {task} right on "
        f"{split} ({rows} rows, score {score}, both chosen on dev); guessing answers {guess:.1%}"
        + (f", the most frequent label {most:.1%}." if most is not None else ".")
    )
    table = Table(
        ["encoder", *SCORES],
        [
            [name, *(f"{value['mean']:.3f} [{value['low']:.3f}, {value['high']:.3f}]" for value in entry.values())]
            for name, entry in numbers.items()
        ],
    )
    text = [
        f"Prompt: {prompt!r}. Accuracy by the log-likelihood of the answer: its sum, its mean a character, and what "
        "the prompt adds to it."
    ]
    return Chapter(f"Zero-shot: {task}", [lead], text, [table])


STUDY = Study("zero-shot", "How well does a language model answer without learning from labels?", run)
