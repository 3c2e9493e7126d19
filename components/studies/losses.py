"""The losses of the causal language models of a run on held-out text, by the length of the context.

Shape suffixes: P positions, C contexts, K predicted pieces per pass, S passes.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from components.core.errors import ConfigError, DataError
from components.data.scoring.intervals import Interval
from components.models.base import LanguageModel
from components.serving.likelihood import Gap, causal_log_probs
from components.studies.frame import CAUSAL, Outputs, is_causal, rate
from components.tokenization.store import TokenStore

#: Segments of the text that contain the positions, which are one step apart within a segment.
SEGMENTS = 8

Floats = NDArray[np.float64]


def context_losses(
    model: LanguageModel, store: TokenStore, ends: NDArray[np.int64], *, longest: int, step: int, window: int
) -> Floats:
    """(C, P) losses in nats of the pieces at `ends`, given exactly `step`, 2 `step` ... `longest` pieces before them;
    for a model with fewer positions, or one that was trained with a shorter `window` and carries no state, the last
    losses repeat. A pass over a window gives the losses at multiples of `step` from its start, so it serves as many
    positions as it has steps."""
    reach = longest if model.max_tokens is None else min(longest, model.max_tokens, window) // step * step
    if reach < step:
        raise ConfigError(f"--step {step} exceeds the model's {model.max_tokens} positions or its window of {window}")
    steps = reach // step
    starts = np.unique(ends[:, None] - step * np.arange(1, steps + 1))
    places = range(step, reach + 1, step)
    losses_SK = -np.asarray(
        causal_log_probs(model, [Gap(store.span(at, reach + 1).tolist(), places) for at in starts.tolist()])
    )
    used = np.minimum(np.arange(longest // step), steps - 1)[:, None]
    losses_CP: Floats = losses_SK[np.searchsorted(starts, ends - step * (used + 1)), used]
    return losses_CP


def gain(before_P: Floats, after_P: Floats) -> Interval:
    """The mean decrease of the loss from one context to another, with its interval over the segments of the text."""
    return rate(*np.asarray([(part.sum(), len(part)) for part in np.array_split(before_P - after_P, SEGMENTS)]).T)


class Group(NamedTuple):
    """Causal models of one vocabulary that were last trained on one corpus, and their losses (C, P) at positions of its
    held-out text."""

    tokens: str
    heldout: TokenStore
    ends: NDArray[np.int64]
    models: dict[str, LanguageModel]
    losses: dict[str, Floats]


def groups(outputs: Outputs, encoder: str, *, longest: int, step: int, positions: int) -> Iterator[Group]:
    """The groups of the causal models of a run."""
    windows, params = defaultdict[str, dict[str, int]](dict), outputs.params
    encoders = outputs.encoders(encoder, is_causal, CAUSAL)
    for name, loaded in encoders.items():
        block, start = outputs.split_name(name)
        made = params.pretrain[block]
        tokens = f"{'domain' if start == 'adapted' else params.pretraining_corpus}-{made.tokenizer}"
        directory = outputs.of("tokens", tokens)
        if loaded.tokenizer.fingerprint() != TokenStore(directory, "heldout").tokenizer_fingerprint:
            raise ConfigError(
                f"{name}: has another vocabulary than the tokens in {directory} (it may be imported); name "
                "another encoder with --encoder"
            )
        windows[tokens][name] = made.training.window
    for tokens, of in windows.items():
        heldout = TokenStore(outputs.of("tokens", tokens), "heldout")
        ends = ends_in(heldout, longest=longest, step=step, positions=positions)
        models = {name: encoders[name].model.eval() for name in of}
        losses = {
            name: context_losses(models[name], heldout, ends, longest=longest, step=step, window=window)
            for name, window in of.items()
        }
        yield Group(tokens, heldout, ends, models, losses)


def ends_in(store: TokenStore, *, longest: int, step: int, positions: int) -> NDArray[np.int64]:
    """Positions of the predicted pieces: in SEGMENTS segments of the text, one step apart."""
    each = -(-positions // SEGMENTS)
    needed = longest + each * step
    if store.tokens <= needed:
        raise DataError(
            f"{store.directory}: has {store.tokens} held-out pieces, needs {needed}; lower --longest or --positions"
        )
    firsts = [longest + round(segment * (store.tokens - needed) / SEGMENTS) for segment in range(SEGMENTS)]
    return np.unique(np.add.outer(firsts, step * np.arange(each)))
