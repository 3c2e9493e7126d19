"""FLAIR: character language models, one per direction.

Akbik, Blythe and Vollgraf 2018 (Contextual String Embeddings for Sequence Labeling):

    forward:  p(x_{t+1} | x_1 .. x_t) = softmax(W h_t + b)     backward: p(x_{t-1} | x_t .. x_T), by a model of its own

A word's embedding is [forward state after its last character; backward state before its first]. With `static`, it is
stacked with a vector of the word from a file, [GloVe(w); forward; backward] (section 3.2), at each of its characters.

The threads of a recurrent layer synchronise at every step, so on the CPU both directions are computed in parallel, each
with half of the threads.

Shape suffixes: B batch rows, T characters, D embedding width, H hidden width, N = T B, V characters.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
import torch
from pydantic import NonNegativeInt
from torch import Tensor, nn
from torch.nn import functional as F

from components.models.base import Batch, Carry, Losses, ModelConfig, ModelFamily, Rate, Size
from components.models.bidirectional import BidirectionalModel
from components.models.layers.chunks import State, Texts, joined, turned
from components.models.layers.dropout import Dropout, sampling_from
from components.models.layers.host import move, on_host
from components.models.layers.lstm import LSTM
from components.models.layers.softmax import linear_cross_entropy, looked_up
from components.models.layers.text_words import LONGEST, TextWords
from components.tokenization import Tokenizer

#: A function that returns a loss and a detached state.
Part = Callable[[], tuple[Tensor, State]]


def losses_in_parallel(
    parts: tuple[Part, Part], modules: tuple[nn.Module, nn.Module]
) -> tuple[tuple[Tensor, State], tuple[Tensor, State]]:
    """The losses of two parts, with only the parameters of their `modules`, and their states after the window.

    On the CPU the gradient is computed together with the loss, both parts in parallel if torch has two or more threads.
    Each part samples dropout masks from its own generator, so one thread gives the same bits as two."""
    device = next(modules[0].parameters()).device
    if device.type != "cpu" or not torch.is_grad_enabled():
        return parts[0](), parts[1]()
    threads = torch.get_num_threads()
    first, second = (
        _Work(
            part,
            [parameter for parameter in module.parameters() if parameter.requires_grad],
            seed=int(torch.randint(2**62, ())),
            threads=max(1, threads // 2),
            autocast=torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None,
        )
        for part, module in zip(parts, modules, strict=True)
    )
    if threads == 1:
        return first(), second()
    future = _second_thread(os.getpid()).submit(second)
    try:
        return first(), future.result()
    finally:
        wait([future])
        torch.set_num_threads(threads)


@dataclass
class _Work:
    """A part with its thread's state: autocast and the number of threads are thread-local in torch."""

    part: Part
    parameters: Sequence[nn.Parameter]
    seed: int
    threads: int
    autocast: torch.dtype | None

    def __call__(self) -> tuple[Tensor, State]:
        if torch.get_num_threads() != self.threads:
            torch.set_num_threads(self.threads)
        with (
            torch.enable_grad(),
            torch.autocast("cpu", dtype=self.autocast, enabled=self.autocast is not None),
            sampling_from(torch.Generator().manual_seed(self.seed)),
        ):
            loss, state = self.part()
        if not self.parameters:
            return loss, state
        gradients = torch.autograd.grad(loss, self.parameters, allow_unused=True)
        differentiable: Tensor = _Precomputed.apply(loss.detach(), gradients, *self.parameters)
        return differentiable, state


class _Precomputed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, loss: Tensor, gradients: Sequence[Tensor | None], *parameters: Tensor) -> Tensor:
        ctx.gradients = gradients
        return loss.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor | None, ...]:
        scale = gradients[0]
        return (None, None, *(None if grad is None else grad * scale.to(grad.dtype) for grad in ctx.gradients))


@lru_cache(maxsize=1)
def _second_thread(process: int) -> ThreadPoolExecutor:
    # A forked process, which has another number, has a thread of its own.
    return ThreadPoolExecutor(1, "parallel")


class FLAIRConfig(ModelConfig):
    """Sizes of each direction.

    Attributes:
        embedding: width of the character embedding.
        hidden: width of the LSTM.
        layers: number of LSTM layers; the paper has one.
        dropout: rate on the embedding and on the outputs of the LSTMs.
        static: width of the word vectors of `pretrain.<name>.vectors`, not trained, joined to the states of every layer
            and not read by the language models. 0: none.
        words: number of words that have such a vector, the first ones of the file.
    """

    embedding: Size = 100
    hidden: Size = 512
    layers: Size = 1
    dropout: Rate = 0.1
    static: NonNegativeInt = 0
    words: Size = 100_000


class Direction(nn.Module):
    """The language model of one direction; the backward one reads the reversed text."""

    def __init__(self, config: FLAIRConfig) -> None:
        super().__init__()
        self.embedding = nn.Parameter(torch.empty(config.vocabulary, config.embedding))
        self.lstms = nn.ModuleList(
            LSTM(config.hidden if layer else config.embedding, config.hidden) for layer in range(config.layers)
        )
        self.output = nn.Parameter(torch.empty(config.vocabulary, config.hidden))
        self.bias = nn.Parameter(torch.zeros(config.vocabulary))
        self.drop = Dropout(config.dropout)
        # With small output rows the bias (log unigram frequencies) determines the first predictions.
        nn.init.normal_(self.embedding, std=0.1)
        nn.init.normal_(self.output, std=0.1 / config.hidden**0.5)

    def forward(self, tokens_TB: Tensor, carry: Carry, texts: Texts | None = None) -> tuple[list[Tensor], Carry]:
        """Outputs (T, B, .) of the embedding and of every LSTM, and the state after the window."""
        x_TBD = self.drop(looked_up(tokens_TB, self.embedding))
        outputs, states = [x_TBD], []
        for index, lstm in enumerate(self.lstms):
            x_TBD, state = lstm(x_TBD, carry[2 * index : 2 * index + 2], texts=texts)
            states += state
            outputs.append(self.drop(x_TBD))
        return outputs, tuple(states)

    def loss_sum(self, tokens_BT: Tensor, targets_BT: Tensor, carry: Carry) -> tuple[Tensor, Carry]:
        """Negative log-likelihood of the next characters, in nats, summed, and the state after the window."""
        outputs, carry = self(tokens_BT.t(), carry)
        x_ND = outputs[-1].flatten(0, 1)
        return linear_cross_entropy(x_ND, self.output, self.bias, targets_BT.t().reshape(-1)), carry


class FLAIR(BidirectionalModel):
    """Two character language models; `BidirectionalModel` describes batches. The carry is h and c (B, H) per layer."""

    config: FLAIRConfig
    words: Tensor | None
    piece_parameters = tuple(
        f"{direction}.{name}" for direction in ("forwards", "backwards") for name in ("embedding", "output", "bias")
    )

    def __init__(self, config: FLAIRConfig) -> None:
        super().__init__()
        self.config = config
        self.forwards = Direction(config)
        self.backwards = Direction(config)
        static, words = None, None
        if config.static:
            static = torch.zeros(config.words, config.static)
            words = torch.zeros(config.words, LONGEST, dtype=torch.uint8)
        self.register_buffer("static", static)
        self.register_buffer("words", words)
        self._pieces: list[str] = []
        #: Made when a text is read, because the words may be set after `bind`.
        self._text_words: TextWords | None = None

    def bind(self, tokenizer: Tokenizer) -> None:
        self._pieces, self._text_words = tokenizer.pieces, None

    def losses(self, batch: Batch, carry: Carry = ()) -> Losses:
        half = len(carry) // 2
        forward, backward = losses_in_parallel(
            (
                partial(self.forwards.loss_sum, batch["tokens"], batch["targets"], carry[:half]),
                partial(self.backwards.loss_sum, batch["backward_tokens"], batch["backward_targets"], carry[half:]),
            ),
            (self.forwards, self.backwards),
        )
        return self.joint_losses(forward, backward, batch["targets"])

    def hidden_states(self, tokens: Tensor, lengths: Tensor, segments: Tensor | None = None) -> list[Tensor]:
        turned_BT = turned(lengths, tokens.shape[1])
        forward, _ = self.forwards(tokens.t(), (), self.texts(lengths))
        backward, _ = self.backwards(tokens.gather(1, turned_BT).t(), (), self.texts(lengths))
        states = [
            joined(ahead_TBD.transpose(0, 1), back_TBD.transpose(0, 1), turned_BT)
            for ahead_TBD, back_TBD in zip(forward, backward, strict=True)
        ]
        if self.words is None:
            return states
        if self._text_words is None:
            assert self._pieces, "static word vectors need a tokenizer: call bind()"
            self._text_words = TextWords(self.words, self._pieces)
        rows_BT = np.stack([self._text_words.rows(row) for row in on_host(tokens).tolist()])
        return self.beside_static(move(torch.from_numpy(rows_BT), tokens.device), states)

    def static_words(self) -> Tensor | None:
        return self.words

    def layer_groups(self) -> list[list[nn.Parameter]]:
        directions = (self.forwards, self.backwards)
        embeddings = [direction.embedding for direction in directions]
        layers = [
            [parameter for direction in directions for parameter in direction.lstms[layer].parameters()]
            for layer in range(self.config.layers)
        ]
        return [embeddings, *layers]

    def predict(self, tokens: Tensor, carry: Carry = ()) -> tuple[Tensor, Carry]:
        outputs, carry = self.forwards(tokens.t(), carry)
        return F.linear(outputs[-1].transpose(0, 1).float(), self.forwards.output, self.forwards.bias), carry

    def predict_backward(self, tokens: Tensor) -> Tensor:
        outputs, _ = self.backwards(tokens.flip(1).t(), ())
        logits_BTV = F.linear(outputs[-1].transpose(0, 1).float(), self.backwards.output, self.backwards.bias)
        return logits_BTV.flip(1)


FAMILY = ModelFamily(
    name="flair",
    config=FLAIRConfig,
    build=FLAIR,
    objective="causal",
    sampler="bidirectional_stream",
    tokenizers=("char",),
    tiny={"embedding": 16, "hidden": 48},
    presets={
        # Akbik et al. 2018, section 3.1; the published "fast" models are half as wide.
        "flair": {"embedding": 100, "hidden": 2048},
        "flair-fast": {"embedding": 100, "hidden": 1024},
    },
)
