"""Losses of a language model by the length of its context, and the cost of a prediction.

Relative effective context length (RECL; Dai et al. 2019, section 4.4 and appendix C). For a group of models, l_i(c, t)
is the loss of model i on piece t given the c pieces before it, and b(c, t) = min_i l_i(c, t). T is the fraction r of
the positions with the largest b(c, t). For c' = c + step:

    f_i(c, c') = mean over T of min(b(c, t), l_i(c', t))       gain_i = 1 - exp(f_i(c, c') - f_i(c, c))

The RECL of model i is the first c at which its gain is below 0.01. All models are compared with the same baseline b, so
a weak model does not seem to use a long context only because its loss with a short one is high.

Shape suffixes: P positions, C contexts, K predicted pieces per pass, S passes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from components.core.errors import ConfigError
from components.models.base import LanguageModel
from components.models.transformer_xl import TransformerXL
from components.tokenization.store import TokenStore

#: Gain below which a longer context does not count (Dai et al. 2019, appendix C).
THRESHOLD = 0.01
#: Maximum number of logits of a forward pass; limits the memory.
LOGITS = 32_000_000
#: Number of timings, of which the shortest is reported, and number of predictions per timing.
REPEATS, TIMED = 3, 64

Floats = NDArray[np.float64]


def effective(losses: Mapping[str, Floats], name: str, contexts: Sequence[int], ratio: float) -> int:
    """RECL of one model of a group; the longest context if the gain never falls below the threshold. `losses`: model ->
    (C, P) losses by context and position. `contexts`: C lengths, one step apart. `ratio`: r, the fraction of positions
    that count (at least one position)."""
    base_CP = np.min(np.stack(list(losses.values())), axis=0)
    count = max(1, round(ratio * base_CP.shape[1]))
    for index in range(len(contexts) - 1):
        hardest = np.argsort(-base_CP[index], kind="stable")[:count]
        before = base_CP[index, hardest]
        after = np.minimum(before, losses[name][index + 1, hardest])
        if 1 - math.exp(after.mean() - before.mean()) < THRESHOLD:
            return contexts[index]
    return contexts[-1]


@torch.inference_mode()
def context_losses(
    model: LanguageModel, store: TokenStore, ends: NDArray[np.int64], *, longest: int, step: int
) -> Floats:
    """(C, P) losses in nats of the pieces at `ends`, given exactly `step`, 2 `step` ... `longest` pieces before them.

    A pass over a window gives the losses of all pieces at multiples of `step` from its start, each with a different
    context, so a pass serves as many positions as it has steps. For a model with fewer positions than `longest`, the
    losses of longer contexts equal the losses of the longest one that fits.
    """
    reach = longest if model.max_tokens is None else min(longest, model.max_tokens // step * step)
    if reach < step:
        raise ConfigError(f"--step {step} exceeds the model's {model.max_tokens} positions")
    steps = reach // step
    starts = np.unique(ends[:, None] - step * np.arange(1, steps + 1))
    rows = max(1, LOGITS // (reach * model.config.vocabulary))
    losses_SK = np.empty((len(starts), steps))
    columns = torch.arange(step - 1, reach, step)
    for first in range(0, len(starts), rows):
        part = [torch.from_numpy(store.span(int(start), reach + 1)) for start in starts[first : first + rows]]
        window = torch.stack(part)
        logits, _ = model.predict(window[:, :-1])
        log_probs = logits[:, columns].float().log_softmax(-1)
        losses_SK[first : first + rows] = (
            -log_probs.gather(-1, window[:, columns + 1].unsqueeze(-1)).squeeze(-1).numpy()
        )
    used = np.minimum(np.arange(longest // step), steps - 1)[:, None]
    losses_CP: Floats = losses_SK[np.searchsorted(starts, ends - step * (used + 1)), used]
    return losses_CP


def cost(model: LanguageModel, store: TokenStore, *, context: int) -> dict[str, float]:
    """Milliseconds per predicted piece with `context` pieces before it, recomputed and with a carried state.

    Both are timed alternately on the same text with a batch of one; the shortest time of each counts. A model with
    limited positions carries no state, so only the former is timed, with as many pieces as fit.

    Returns context, anew_ms, and for models that carry a state carried_ms and times (their ratio).
    """
    room = model.max_tokens
    context = context if room is None else min(context, room)
    text = torch.from_numpy(store.span(0, context + TIMED))
    recomputed: list[float] = []
    carried: list[float] = []
    with torch.inference_mode():
        if isinstance(model, TransformerXL):
            model.set_memory(context)
        for _ in range(REPEATS):
            began = time.perf_counter()
            # Evaluation would move the window by one piece; a few windows are enough to time one.
            windows = range(0, TIMED, 16)
            for start in windows:
                model.predict(text[None, start : start + context])
            recomputed.append((time.perf_counter() - began) / len(windows))
            if room is None:
                _, state = model.predict(text[None, :context])
                began = time.perf_counter()
                model.predict(text[None, context:], state)
                carried.append((time.perf_counter() - began) / TIMED)
    measured = {"context": float(context), "anew_ms": min(recomputed) * 1000}
    if carried:
        measured |= {"carried_ms": min(carried) * 1000, "times": min(recomputed) / min(carried)}
    return measured
