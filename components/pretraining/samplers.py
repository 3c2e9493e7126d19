"""The table of samplers; a model family names one of them."""

from __future__ import annotations

from collections.abc import Sequence

from components.models import family
from components.models.base import ModelConfig
from components.tables import LazyTable
from components.training.windows import Sampler, Tokens, WindowSampler

SAMPLERS: LazyTable[type[WindowSampler]] = LazyTable(
    {
        "stream": "components.pretraining.streams:StreamSampler",
        "bidirectional_stream": "components.pretraining.streams:BidirectionalStreamSampler",
        "sentence_pairs": "components.pretraining.sentence_pairs:SentencePairSampler",
        "sentence_order": "components.pretraining.sentence_pairs:SentenceOrderSampler",
        "full_sentences": "components.pretraining.rows:FullSentencesSampler",
        "packed": "components.pretraining.streams:PackedSampler",
        "negative_sampling": "components.pretraining.negatives:NegativeSampler",
        "cooccurrences": "components.pretraining.cooccurrence:CooccurrenceSampler",
        "translation": "components.pretraining.translation:TranslationSampler",
        "permutation": "components.pretraining.permutations:PermutationSampler",
    }
)

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
    """The sampler of the family `name`; arguments as for `WindowSampler`."""
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
