"""The table of samplers; a model family names one of them."""

from __future__ import annotations

from typing import Any

from components.core.tables import LazyTable
from components.models import family
from components.models.base import ModelConfig
from components.training.windows import Sampler, Tokens, WindowSampler

SAMPLERS: LazyTable[type[WindowSampler]] = LazyTable(
    {
        "stream": "components.training.pretraining.streams:StreamSampler",
        "bidirectional_stream": "components.training.pretraining.streams:BidirectionalStreamSampler",
        "sentence_pairs": "components.training.pretraining.rows:SentencePairSampler",
        "sentence_order": "components.training.pretraining.rows:SentenceOrderSampler",
        "full_sentences": "components.training.pretraining.rows:FullSentencesSampler",
        "packed": "components.training.pretraining.streams:PackedSampler",
        "negative_sampling": "components.training.pretraining.negatives:NegativeSampler",
        "cooccurrences": "components.training.pretraining.cooccurrence:CooccurrenceSampler",
        "translation": "components.training.pretraining.translation:TranslationSampler",
        "permutation": "components.training.pretraining.permutations:PermutationSampler",
    }
)

__all__ = ["SAMPLERS", "Sampler", "Tokens", "WindowSampler", "sampler_for"]


def sampler_for(name: str, store: Tokens, *, config: ModelConfig, **options: Any) -> WindowSampler:
    """The sampler of the family `name`; arguments as for `WindowSampler`."""
    return SAMPLERS[family(name).sampler](store, vocabulary=config.vocabulary, config=config, **options)
