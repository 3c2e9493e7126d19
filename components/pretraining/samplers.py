"""The table of samplers; a model family names one of them."""

from __future__ import annotations

from typing import Any

from components.models import family
from components.models.base import ModelConfig
from components.tables import LazyTable
from components.training.windows import Sampler, Tokens, WindowSampler

SAMPLERS: LazyTable[type[WindowSampler]] = LazyTable(
    {
        "stream": "components.pretraining.streams:StreamSampler",
        "bidirectional_stream": "components.pretraining.streams:BidirectionalStreamSampler",
        "sentence_pairs": "components.pretraining.rows:SentencePairSampler",
        "sentence_order": "components.pretraining.rows:SentenceOrderSampler",
        "full_sentences": "components.pretraining.rows:FullSentencesSampler",
        "packed": "components.pretraining.streams:PackedSampler",
        "negative_sampling": "components.pretraining.negatives:NegativeSampler",
        "cooccurrences": "components.pretraining.cooccurrence:CooccurrenceSampler",
        "translation": "components.pretraining.translation:TranslationSampler",
        "permutation": "components.pretraining.permutations:PermutationSampler",
    }
)

__all__ = ["SAMPLERS", "Sampler", "Tokens", "WindowSampler", "sampler_for"]


def sampler_for(name: str, store: Tokens, *, config: ModelConfig, **options: Any) -> WindowSampler:
    """The sampler of the family `name`; arguments as for `WindowSampler`."""
    return SAMPLERS[family(name).sampler](store, vocabulary=config.vocabulary, config=config, **options)
