"""The table of samplers, by the name that a model family gives."""

from __future__ import annotations

from collections.abc import Sequence

from components.models import family
from components.models.base import ModelConfig
from components.pretraining.cooccurrence import CooccurrenceSampler
from components.pretraining.negatives import NegativeSampler
from components.pretraining.permutations import PermutationSampler
from components.pretraining.rows import FullSentencesSampler
from components.pretraining.sentence_pairs import SentenceOrderSampler, SentencePairSampler
from components.pretraining.streams import BidirectionalStreamSampler, PackedSampler, StreamSampler
from components.pretraining.translation import TranslationSampler
from components.training.windows import Sampler, Tokens, WindowSampler

SAMPLERS: dict[str, type[WindowSampler]] = {
    "stream": StreamSampler,
    "bidirectional_stream": BidirectionalStreamSampler,
    "sentence_pairs": SentencePairSampler,
    "sentence_order": SentenceOrderSampler,
    "full_sentences": FullSentencesSampler,
    "packed": PackedSampler,
    "negative_sampling": NegativeSampler,
    "cooccurrences": CooccurrenceSampler,
    "translation": TranslationSampler,
    "permutation": PermutationSampler,
}

__all__ = ["SAMPLERS", "Sampler", "Tokens", "WindowSampler", "sampler_for"]


def sampler_for(
    name: str,
    store: Tokens,
    *,
    config: ModelConfig,
    pieces: Sequence[str],
    batch_size: int,
    window: int,
    seed: int,
    jitter: float = 0,
) -> WindowSampler:
    """The sampler that the family `name` learns from; arguments as for `WindowSampler`."""
    return SAMPLERS[family(name).sampler](
        store,
        batch_size=batch_size,
        window=window,
        seed=seed,
        vocabulary=config.vocabulary,
        jitter=jitter,
        config=config,
        pieces=pieces,
    )
