"""The table of samplers; a model family names one of them."""

from typing import Any, Final

from components.core.tables import LazyTable
from components.models import family
from components.models.base import Batch, LanguageModel, ModelConfig
from components.settings.training import LanguageModelTraining
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

#: One of so many steps has long windows.
LONG_EVERY: Final = 10

__all__ = ["SAMPLERS", "Sampler", "Tokens", "WindowSampler", "sampler_for", "training_sampler"]


def sampler_for(name: str, store: Tokens, *, config: ModelConfig, **options: Any) -> WindowSampler:
    """The sampler of the family `name`; arguments as for `WindowSampler`."""
    return SAMPLERS[family(name).sampler](store, vocabulary=config.vocabulary, config=config, **options)


class LongWindowSampler(Sampler):
    """Batches of `short`; every `LONG_EVERY`-th step has a batch of `long`, with fewer rows and as many tokens."""

    def __init__(self, short: WindowSampler, long: WindowSampler) -> None:
        self.short, self.long = short, long

    def batch(self, step: int, rank: int = 0, world: int = 1) -> Batch:
        sampler = self.long if step % LONG_EVERY == LONG_EVERY - 1 else self.short
        return sampler.batch(step, rank, world)

    def tokens_before(self, step: int) -> int:
        return self.short.tokens_before(step)

    @property
    def has_constant_shapes(self) -> bool:
        # Two shapes, each of which is compiled once.
        return self.short.has_constant_shapes


def training_sampler(
    name: str, store: Tokens, *, model: LanguageModel, settings: LanguageModelTraining, pieces: list[str], seed: int
) -> Sampler:
    """The batches of a training of the family `name`, with long windows if the model has positions for them."""
    longest = settings.longest(model.max_tokens)

    def sampler(window: int) -> WindowSampler:
        rows = settings.batch_size * settings.window // window
        options = {"pieces": pieces, "seed": seed, "jitter": settings.window_jitter}
        return sampler_for(name, store, config=model.config, batch_size=rows, window=window, **options)

    short = sampler(settings.window)
    return short if longest == settings.window else LongWindowSampler(short, sampler(longest))
