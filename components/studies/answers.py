"""The choice of a language model among answers by their likelihood, against the most frequent one.

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
"""

import math
from collections import Counter
from collections.abc import Sequence
from itertools import chain, product
from string import Formatter

import numpy as np
from scipy.special import softmax

from components.core.errors import ConfigError, DataError
from components.data.scoring.base import Floats
from components.data.scoring.intervals import Interval, Ints
from components.data.tasks.data import Fields, Split
from components.models import family as family_named
from components.models.encoder import Encoder
from components.serving.generation import GAP, require_output_layer
from components.serving.likelihood import Gap, causal_log_probs, gap_between, masked_log_probs
from components.studies.frame import Row, is_causal, rate
from components.tokenization import Tokenizer
from components.tokenization.special import UNK

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
    total = dict.fromkeys(key for of_prompt in of_prompts for key in product(*of_prompt))
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


def share(hits_N: Floats, clusters: Ints | None = None, *, least: float = 0.0) -> Interval:
    """The mean of N values between `least` and 1, with its interval over items (`clusters`: of them)."""
    groups = np.arange(len(hits_N)) if clusters is None else clusters
    return rate(np.bincount(groups, hits_N), np.bincount(groups), within=(least, 1.0))


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
    row: Row = {"items": len(split), "unknown": sum(UNK in of for of in ids)}
    row |= {"trivial": count / len(split) if words else None}
    row |= {name: share(of, split.clusters) for name, of in hits.items()}
    row |= {"guessing": float(np.mean([1 / len(of) for of in candidates])), "perplexity": math.exp(min(nats, 700.0))}
    # A score that is chosen by its hits on these items would be too good.
    gains = hits["calibrated"] - np.equal(rights, usual)
    return row | {GAIN: share(gains, split.clusters, least=-1.0) if words else None}, hits["calibrated"]
