"""Perplexity of a language model on held-out text."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

import torch

from components.cluster.distributed import World
from components.core.errors import DataError
from components.models import family as family_named
from components.models.base import Carry, LanguageModel, ModelConfig
from components.models.layers.host import to_device
from components.tokenization.store import TokenStore
from components.training.precision import Precision, computing
from components.training.pretraining.samplers import Tokens, WindowSampler, sampler_for

#: Seed of the held-out batches; independent of the run's seed, so that all runs are measured on the same batches.
SEED = 0


@dataclass(frozen=True)
class Perplexity:
    """Measurements on held-out text.

    Attributes:
        loss: mean negative log-likelihood in nats of a predicted piece: the masked pieces, or those of the translation,
            whose words and characters are then counted below. For a static family, which has no likelihood, the mean
            of its objective; the perplexities are then None.
        perplexity_per_word: e^(loss * P / W), with P pieces and W words in the whole held-out text; comparable between
            tokenizers. For a masked model, comparable with other masked models only.
        bits_per_character: loss * P / C / ln 2, with C characters in the whole held-out text.
        further: mean loss per target of each further objective: `next_sentence`, `sentence_order`.
    """

    loss: float
    pieces: int
    perplexity: float | None = None
    perplexity_per_word: float | None = None
    bits_per_character: float | None = None
    further: dict[str, float] = field(default_factory=dict)

    def named(self, prefix: str) -> dict[str, float]:
        """The values that are not None, as entries of a metrics file with `prefix` before each name."""
        values = {**asdict(self), **{f"{name}_loss": value for name, value in self.further.items()}}
        del values["further"]
        return {f"{prefix}{name}": value for name, value in values.items() if value is not None}


def heldout_sampler(
    family: str,
    store: Tokens,
    *,
    config: ModelConfig,
    pieces: Sequence[str],
    batch_size: int,
    window: int,
    workers: int,
) -> WindowSampler | None:
    """Batches of held-out text in windows of constant length; None if there is too little text."""
    rows = min(batch_size, max(1, store.tokens // (2 * window)))
    rows = max(1, rows // workers) * workers
    try:
        return sampler_for(family, store, config=config, pieces=pieces, batch_size=rows, window=window, seed=SEED)
    except DataError:
        return None


@torch.no_grad()
def measure(
    model: LanguageModel,
    sampler: WindowSampler,
    store: TokenStore,
    *,
    family: str,
    pieces: int,
    precision: Precision,
    world: World,
) -> Perplexity:
    """Measure on batches of about `pieces` held-out pieces (all, if there are fewer), the same in every call. The model
    remains in evaluation mode. All workers must call it; each computes its own rows."""
    model.eval()
    sums: dict[str, torch.Tensor] = {}
    carry: Carry = ()
    for step in range(measured_steps(sampler, min(pieces, store.tokens))):
        batch = to_device(sampler.batch(step, world.rank, world.size), world.device)
        with computing(precision, world.device):
            losses = model.losses(batch, carry)
        for name, (total, targets) in losses.sums.items():
            sums[name] = sums.get(name, 0) + torch.stack([total.double(), targets.double()])
        carry = losses.carry
    means = {}
    for name, part in sums.items():
        total_nats, predicted = world.total(part).tolist()
        means[name] = total_nats / max(1.0, predicted), round(predicted)
    loss, predicted = means.pop("tokens")
    if family_named(family).objective == "static":
        return Perplexity(loss=loss, pieces=predicted)
    further = {name: mean for name, (mean, _) in means.items()}
    return perplexity_of(loss, predicted, store, further=further)


def perplexity_of(
    loss: float, pieces: int, store: TokenStore, *, further: Mapping[str, float] | None = None
) -> Perplexity:
    """Perplexity from the mean negative log-likelihood, in nats, of a number of pieces of a store."""
    return Perplexity(
        loss=loss,
        pieces=pieces,
        perplexity=_exp(loss),
        perplexity_per_word=_exp(loss * store.predicted / max(1, store.words)),
        bits_per_character=loss * store.predicted / max(1, store.chars) / math.log(2),
        further=dict(further or {}),
    )


def measured_steps(sampler: WindowSampler, pieces: int) -> int:
    """Number of batches of a sampler with at most `pieces` tokens in total; at least 1."""
    step = 1
    while sampler.tokens_before(step + 1) <= pieces:
        step += 1
    return step


def _exp(nats: float) -> float:
    return math.exp(min(nats, 709.0))
