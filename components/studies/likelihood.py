"""The answer that a language model finds most probable after a prompt (causal models: Radford et al. 2019, section 3,
and Brown et al. 2020, section 2.4; for masked models, the answer replaces [MASK]: Petroni et al. 2019).

Long answers are less probable than short ones, and models prefer some answers whatever the text, so four scores are
compared, computed from log-likelihoods l:

    sum          l(answer | prompt)
    mean         l(answer | prompt) / number of characters
    prior        l(answer | prompt) - l(answer | empty prompt)
    calibrated   l(answer | prompt) - log of the mean of p(answer | prompt of a text without content), where p sums to 1
                 over the answers (Zhao et al. 2021, section 5: contextual calibration)

For causal models, the text after the answer counts as a part of it, in l and in the number of characters.
"""

from collections.abc import Sequence
from itertools import product
from typing import Final

import numpy as np
from scipy.special import softmax

from components.core.errors import ConfigError, DataError
from components.data.scoring.base import Floats
from components.models import family as family_named
from components.models.encoder import Encoder
from components.serving.generation import require_output_layer
from components.serving.likelihood import Gap, causal_log_probs, gap_between, masked_log_probs
from components.tokenization import Tokenizer

#: Objectives of language models.
OBJECTIVES: Final = ("causal", "masked", "permuted")
SCORES: Final = ("sum", "mean", "prior", "calibrated")


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
