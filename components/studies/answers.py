"""The choice of a language model among answers by their likelihood.

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
from components.studies.frame import is_causal
from components.studies.templates import Context
from components.tokenization import Tokenizer

#: Why an encoder has no answers.
SILENT: Final = "no causal or masked language model with an output layer that reads forward"
SCORES: Final = ("sum", "mean", "prior", "calibrated")


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
    causal, scores = is_causal(encoder), list[dict[str, Floats]]()
    of_prompts = [([prompt, ("", ""), *neutral], words) for prompt, words in zip(prompts, candidates, strict=True)]
    total = dict.fromkeys(key for of_prompt in of_prompts for key in product(*of_prompt))
    inputs = list[Gap]()
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
    first = sum(int(end <= len(before)) for _, end in offsets)
    last = sum(int(begin < len(start) + len(answer)) for begin, _ in offsets)
    parts = ids.tolist()
    return parts[:first], parts[first:last], parts[last:]
