"""The table of samplers, by the name that a model family gives."""

from __future__ import annotations

from components.training.pairs import SentencePairSampler
from components.training.streams import BidirectionalStreamSampler, StreamSampler
from components.training.windows import Sampler, Tokens, WindowSampler

SAMPLERS: dict[str, type[WindowSampler]] = {
    "stream": StreamSampler,
    "bidirectional_stream": BidirectionalStreamSampler,
    "sentence_pairs": SentencePairSampler,
}

__all__ = ["SAMPLERS", "Sampler", "Tokens", "WindowSampler"]
