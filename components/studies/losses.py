"""The losses of the causal language models of a run on held-out text, by the length of the context.

Shape suffixes: P positions, C contexts, K predicted pieces per pass, S passes.
"""

from collections import defaultdict

import numpy as np
import torch
from numpy.typing import NDArray

from components.core.errors import ConfigError, DataError
from components.data.scoring.intervals import Interval
from components.models.base import LanguageModel
from components.studies.frame import CAUSAL, Outputs, is_causal, rate
from components.tokenization.store import TokenStore

#: Maximum number of logits of a forward pass; limits the memory.
LOGITS = 32_000_000
#: Segments of the text that contain the positions, which are one step apart within a segment.
SEGMENTS = 8

Floats = NDArray[np.float64]


@torch.inference_mode()
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
    rows = max(1, LOGITS // (reach * model.config.vocabulary))
    losses_SK = np.empty((len(starts), steps))
    columns = torch.arange(step - 1, reach, step)
    for first in range(0, len(starts), rows):
        part = [torch.from_numpy(store.span(int(start), reach + 1)) for start in starts[first : first + rows]]
        pieces = torch.stack(part)
        logits, _ = model.predict(pieces[:, :-1])
        nats = -logits[:, columns].float().log_softmax(-1).gather(-1, pieces[:, columns + 1].unsqueeze(-1)).squeeze(-1)
        losses_SK[first : first + rows] = nats.numpy()
    used = np.minimum(np.arange(longest // step), steps - 1)[:, None]
    losses_CP: Floats = losses_SK[np.searchsorted(starts, ends - step * (used + 1)), used]
    return losses_CP


def gain(before_P: Floats, after_P: Floats) -> Interval:
    """The mean decrease of the loss from one context to another, with its interval over the segments of the text."""
    return rate(*np.asarray([(part.sum(), len(part)) for part in np.array_split(before_P - after_P, SEGMENTS)]).T)


def groups(outputs: Outputs, encoder: str) -> dict[str, dict[str, tuple[LanguageModel, int]]]:
    """Name of tokens -> encoder -> causal model and window of its training: of one vocabulary and corpus."""
    models, params = defaultdict[str, dict[str, tuple[LanguageModel, int]]](dict), outputs.params
    for name, loaded in outputs.encoders(encoder, is_causal, CAUSAL).items():
        block, start = outputs.split_name(name)
        made = params.pretrain[block]
        tokens = f"{'domain' if start == 'adapted' else params.pretraining_corpus}-{made.tokenizer}"
        directory = outputs.of("tokens", tokens)
        if loaded.tokenizer.fingerprint() != TokenStore(directory, "heldout").tokenizer_fingerprint:
            raise ConfigError(
                f"{name}: has another vocabulary than the tokens in {directory} (it may be imported); name "
                "another encoder with --encoder"
            )
        models[tokens][name] = loaded.model.eval(), made.training.window
    return models


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
