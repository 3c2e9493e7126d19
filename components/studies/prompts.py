"""Which questions does a language model answer after a prompt (`prompts`), and how well does it label the rows of a
task without labels, or after a few of them (`zero_shot`)? The choice among answers by their likelihood.

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
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import chain, product, zip_longest
from pathlib import Path
from string import Formatter
from typing import Literal

import numpy as np
from scipy.special import softmax

from components.core.errors import ConfigError, DataError, nearest
from components.data.formats.rows import open_rows
from components.data.formats.tables import as_text
from components.data.scoring.base import Floats
from components.data.tasks.data import Fields, Split
from components.models import family as family_named
from components.models.encoder import Encoder
from components.serving.generation import GAP, require_output_layer
from components.serving.likelihood import Gap, causal_log_probs, gap_between, masked_log_probs
from components.settings.tasks import has
from components.studies.frame import CAUSAL, Outputs, Parts, Row, Rows, Sheet, is_causal, mean_of
from components.tokenization import Tokenizer
from components.tokenization.special import UNK

ITEMS = Path(__file__).with_suffix(".json")
KINDS = ("choice", "classification", "pair")
FORMS = {"perplexity": ".4g"}
#: Why an encoder has no answers.
SILENT = "no causal or masked language model with an output layer that reads forward"
SCORES = ("sum", "mean", "prior", "calibrated")
#: Column of the difference to the most frequent answer.
GAIN = "calibrated minus trivial"
#: Texts without content (Zhao et al. 2021); the parts of a row that a template may name.
NEUTRAL, PARTS = ("N/A", ""), ("text", "second")
#: The texts before and after an answer.
Context = tuple[str, str]


def template_of(text: str, parts: Sequence[str] = PARTS) -> str:
    """A template of prompts: {text} and {second} are the parts of a row. The answer replaces [MASK], or follows the
    text if there is none. Raises a ConfigError for other braces and a second [MASK]."""
    before, *after = text.split(GAP)
    if len(after) > 1:
        raise ConfigError(f"--prompt: {text!r} has {len(after)} {GAP}; write one or none")
    try:
        fields = {(name, form) for _, name, form, _ in Formatter().parse(text) if name is not None}
    except ValueError:
        fields = {("", "")}
    if fields - {(part, "") for part in parts}:
        allowed = " and ".join(f"{{{part}}}" for part in parts)
        raise ConfigError(f"--prompt: {text!r}: only {allowed} may be in braces; write {{{{ for a brace")
    return GAP.join([before.rstrip(" "), *after])


def fill(template: str, fields: Fields) -> Context:
    """The texts before and after the answer for a row, whose text may have the [MASK] if the template has none."""
    named = dict(zip(PARTS, (*fields, ""), strict=False))
    before, *after = (part.format(**named) for part in template.split(GAP))
    if after:
        return before, after[0]
    before, gap, rest = before.partition(GAP)
    return before.rstrip(" ") if gap else before, rest


def demonstrations(template: str, answered: Sequence[tuple[Fields, str]]) -> str:
    """Rows with their answers, which precede a prompt."""
    return "".join(f"{before} {answer}{after}\n" for of, answer in answered for before, after in [fill(template, of)])


def can_answer(encoder: Encoder) -> bool:
    """Whether it is a forward causal or a masked language model with its output layer."""
    try:
        require_output_layer(encoder)
    except ConfigError:
        return False
    return is_causal(encoder) or family_named(encoder.family).objective in ("masked", "permuted")


def answer_scores(
    encoder: Encoder,
    prompts: Sequence[Context],
    candidates: Sequence[Sequence[str]],
    *,
    neutral: Sequence[Context] = (("", ""),),
) -> list[dict[str, Floats]]:
    """The scores of the C candidates of each prompt (before, after): score -> (C,)."""
    causal, inputs, scores = is_causal(encoder), list[Gap](), []
    of_prompts = [([prompt, ("", ""), *neutral], words) for prompt, words in zip(prompts, candidates, strict=True)]
    total = dict.fromkeys(chain.from_iterable(product(*of) for of in of_prompts))
    for (before, after), answer in total:
        try:
            inputs.append(gap_between(encoder.model, *pieces(encoder.tokenizer, before, answer, after), causal=causal))
        except DataError as error:
            raise DataError(f"answer {answer!r}: {error}") from error
    measured = (causal_log_probs if causal else masked_log_probs)(encoder.model, inputs)
    sums_of = {key: values.sum() for key, values in zip(total, measured, strict=True)}
    for contexts, words in of_prompts:
        beyond = len(contexts[0][1].strip()) if causal else 0
        sizes = np.asarray([max(1, len(answer) + beyond) for answer in words])
        sums, alone, *without = np.asarray([[sums_of[context, answer] for answer in words] for context in contexts])
        calibrated = sums - np.log(softmax(without, axis=1).mean(0))
        scores.append(dict(zip(SCORES, (sums, sums / sizes, sums - alone, calibrated), strict=True)))
    return scores


def pieces(tokenizer: Tokenizer, before: str, answer: str, after: str) -> tuple[list[int], list[int], list[int]]:
    """The pieces of each part of the whole text, with a space between the text before and the answer. A piece of two
    parts belongs to the answer."""
    start = f"{before} " if before else ""
    ids, offsets = tokenizer.encode_with_offsets(f"{start}{answer}{after}")
    first = sum(end <= len(before) for _, end in offsets)
    last = sum(begin < len(start) + len(answer) for begin, _ in offsets)
    parts = ids.tolist()
    return parts[:first], parts[first:last], parts[last:]


def choice(
    encoder: Encoder, split: Split, template: str, shown: str, words: Sequence[str], *, left: bool = False
) -> tuple[Row, Floats]:
    """The choice by each score among `words`, or the row's own choices without any, against the most frequent one; and
    whether the calibrated one is right for each row. `left`: only the text before the answer is read."""
    rights, candidates = split.labels.tolist(), [words or fields[1:] for fields in split.fields]
    prompts, neutral = (
        [(f"{shown}{before}", "" if left else after) for before, after in (fill(template, of) for of in parts)]
        for parts in (split.fields, [(text, text) for text in NEUTRAL])
    )
    scored = list(zip(answer_scores(encoder, prompts, candidates, neutral=neutral), rights, strict=True))
    # A tie is wrong.
    hits = {
        name: np.asarray([(of[name][right] > np.delete(of[name], right)).all() for of, right in scored], float)
        for name in SCORES
    }
    usual, count = Counter(rights).most_common(1)[0]
    nats = -np.mean([of["sum"][right] for of, right in scored])
    ids = encoder.tokenizer.encode_batch([f" {answer}" for answer in dict.fromkeys(chain(*candidates))])
    # A score that is chosen by its hits on these items would be too good.
    gains = hits["calibrated"] - np.equal(rights, usual)
    row: Row = {
        "items": len(split),
        "unknown": sum(UNK in of for of in ids),
        "trivial": count / len(split) if words else None,
        **{name: mean_of(of, split.clusters) for name, of in hits.items()},
        "guessing": float(np.mean([1 / len(of) for of in candidates])),
        "perplexity": math.exp(min(nats, 700.0)),
        GAIN: mean_of(gains, split.clusters, within=(-1.0, 1.0)) if words else None,
    }
    return row, hits["calibrated"]


def read_questions(path: Path) -> dict[str, list[tuple[str, str]]]:
    """Task -> questions with their answers, of a file with the columns question and answer, and optionally task. A
    question may have several answers, each in a row."""
    tasks = defaultdict[str, list[tuple[str, str]]](list)
    for where, row in open_rows(path).rows:
        cells = (as_text(row.get(name), where) or "" for name in ("task", "question", "answer"))
        task, question, answer = (of.rstrip(" ") for of in cells)
        if not question.strip() or not answer:
            raise DataError(f"{where}: a question or its answer is missing or empty; a row needs both")
        tasks[task or path.stem].append((question, answer))
    return tasks


def prompts(
    outputs: Outputs,
    *,
    items: str = "",
    task: str = "",
    encoder: str = "",
    prompt: str = "{text}",
    shots: int = 0,
    choices: int = 4,
) -> Parts:
    """The choice of every causal language model of the run, and for questions with a [MASK] of every one, among the
    right answer and answers to other questions of a task. The first questions are the demonstrations."""
    tasks, template = read_questions(Path(items) if items else ITEMS), template_of(prompt, PARTS[:1])
    if task and task not in tasks:
        raise ConfigError(f"--task: unknown task {task!r}{nearest(task, tasks)}")
    rows, sides, asked = Rows(), Rows(), {task: tasks[task]} if task else tasks
    gaps = {name for name, of in asked.items() if any(GAP in question for question, _ in of)}
    encoders = outputs.encoders(encoder, *((can_answer, SILENT) if gaps else (is_causal, CAUSAL)))
    for name, of in asked.items():
        if len(of) < shots + 2:
            raise DataError(f"{name}: {len(of)} questions are too few for {shots} demonstrations and 2 questions")
        shown = demonstrations(template, [((question,), answer) for question, answer in of[:shots]])
        rng, fields = np.random.default_rng(0), list[tuple[str, ...]]()
        for question, right in of[shots:]:
            others = [answer for answer in dict.fromkeys(answer for _, answer in of) if (question, answer) not in of]
            fields.append((question, right, *rng.permutation(others)[: choices - 1].tolist()))
        split = Split(fields, [np.zeros(1)] * len(fields), [None] * len(fields))
        for system, each in encoders.items():
            row, both = choice(each, split, template, shown, [])
            rows.append({"encoder": system, "task": name} | row)
            if name in gaps:
                _, left = choice(each, split, template, shown, [], left=True)
                difference = mean_of(both - left, within=(-1.0, 1.0))
                sides.append({"encoder": system, "task": name, "both minus left": difference})
    yield f"Demonstrations: {shots}."
    yield Sheet(rows, "", FORMS, "calibrated", reference=1 / choices)
    yield Sheet(sides, "Both sides of a gap", value="both minus left", reference=0.0)


def label_words(labels: Sequence[str], answers: str) -> dict[str, str]:
    """Label -> its answer: the words of its name, unless `answers` has another."""
    words = {label: re.sub("[_-]", " ", label) for label in labels}
    for entry in filter(str.strip, answers.split(";")):
        label, _, answer = (part.strip() for part in entry.partition("="))
        if not answer or label not in words:
            raise ConfigError(f"--answers: {entry.strip()!r}: write label=words for labels among {', '.join(labels)}")
        words[label] = answer
    return words


def zero_shot(
    outputs: Outputs,
    *,
    task: str = "",
    encoder: str = "",
    prompt: str = "{text}",
    answers: str = "",
    shots: int = 0,
    split: Literal["dev", "test"] = "dev",
) -> Parts:
    """Accuracy of every encoder for each of the scores. Nothing is selected on test."""
    facts, whole, train = outputs.examples(task, split, "train")
    name = facts.task
    if facts.kind not in KINDS:
        raise ConfigError(f"{name}: {facts.kind} has no candidate answers; zero-shot supports {', '.join(KINDS)}")
    template = template_of(prompt, PARTS[: 1 + has(facts.kind, "second")])
    # The answers of a choice differ by row.
    words = list(label_words(facts.labels, answers).values())
    if shots and not words:
        raise ConfigError("--shots: the answers of a choice differ by row; set it to 0")
    # Each label in turn.
    turns = zip_longest(*(np.flatnonzero(train.labels == label) for label in range(len(words) * bool(shots))))
    chosen = [row for rows in turns for row in rows if row is not None][:shots]
    shown = demonstrations(template, [(train.fields[row], words[train.labels[row]]) for row in chosen])
    # Rows without any of the labels have no right answer.
    asked = whole.take(np.flatnonzero(whole.labels >= 0))
    if not len(asked):
        raise ConfigError(f"{name}: prompts are chosen on dev; name a file (data.tasks.{name}.dev)")
    rows = [
        {"split": split, "encoder": system, "task": name} | choice(each, asked, template, shown, words)[0]
        for system, each in outputs.encoders(encoder, can_answer, SILENT).items()
    ]
    value, reference = (GAIN, 0.0) if words else ("calibrated", None)
    yield f"Prompt: {prompt!r}, after {shots} labelled rows."
    yield Sheet(rows, name, FORMS, value, reference=reference)
