"""Training speed beside the libraries that people use, on one machine, in one run.

    python benchmarks/training.py bert                 # beside transformers' BertForPreTraining
    python benchmarks/training.py awd-lstm             # beside fastai's AWD_LSTM
    python benchmarks/training.py flair                # beside flair's LanguageModel

The peers of the last two stand in `benchmarks/requirements-peers.txt`. Both sides see the same batches, number type
(bfloat16 autocast), dropouts, optimizer (AdamW, fused) and gradient clipping, and take turns; what is printed are
medians. Run it on a machine with nothing else to do.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

from components.training import threads

threads.prepare()

import torch  # noqa: E402 (after the thread settings)
from torch import Tensor, nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from components.models.base import Batch, LanguageModel  # noqa: E402
from components.models.encoder import build_model  # noqa: E402

PIECES = 8000
CHARACTERS = 200

Loss = Callable[[], Tensor]
#: Losses of our model and of the peer on the same batch, the two models, and the tokens of a batch.
Pair = tuple[Loss, Loss, nn.Module, nn.Module, int]


def bert() -> Pair:
    """4 layers of 256, sequences of 128 in batches of 32, dropout 0.1 everywhere, 15% masked, next sentence."""
    from transformers import BertConfig, BertForPreTraining

    rows, length, masked = 32, 128, 19
    own = build_model("bert", vocabulary=PIECES, preset="4x256")
    peer = BertForPreTraining(
        BertConfig(
            vocab_size=PIECES, hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024
        )
    )
    tokens = torch.randint(5, PIECES, (rows, length))
    batch: Batch = {
        "tokens": tokens,
        "segments": (torch.arange(length) > length // 2).long().expand(rows, -1).contiguous(),
        "positions": torch.rand(rows, length).topk(masked).indices.sort().values,
        "targets": torch.randint(5, PIECES, (rows, masked)),
        "next_sentence": torch.randint(0, 2, (rows,)),
    }
    labels = torch.full_like(tokens, -100).scatter(1, batch["positions"], batch["targets"])

    def peer_loss() -> Tensor:
        loss: Tensor = peer(
            input_ids=tokens,
            token_type_ids=batch["segments"],
            labels=labels,
            next_sentence_label=batch["next_sentence"],
        ).loss
        return loss

    return lambda: own.losses(batch).loss, peer_loss, own, peer, tokens.numel()


def awd_lstm() -> Pair:
    """Embedding 256, three layers of 640, fastai's default dropouts and penalties, 64 lanes, windows of 64."""
    from fastai.text.models.awdlstm import AWD_LSTM, awd_lstm_lm_config
    from fastai.text.models.core import get_language_model

    rows, length = 64, 64
    own = build_model(
        "ulmfit", vocabulary=PIECES, preset="awd-lstm-1152", settings={"embedding": 256, "hidden": 640, "layers": 3}
    )
    peer = get_language_model(AWD_LSTM, PIECES, awd_lstm_lm_config | {"emb_sz": 256, "n_hid": 640, "n_layers": 3})
    stream = torch.randint(5, PIECES, (rows, length + 1))
    batch: Batch = {"tokens": stream[:, :-1].contiguous(), "targets": stream[:, 1:].contiguous()}

    def peer_loss() -> Tensor:
        # fastai's training: CrossEntropyLossFlat, then the callback RNNRegularizer(alpha=2, beta=1).
        logits, raw, dropped = peer(batch["tokens"])
        loss = F.cross_entropy(logits.float().flatten(0, 1), batch["targets"].flatten())
        loss = loss + 2.0 * dropped.float().pow(2).mean()
        return loss + 1.0 * (raw[:, 1:] - raw[:, :-1]).float().pow(2).mean()

    return carrying(own, batch), peer_loss, own, peer, stream[:, 1:].numel()


def flair() -> Pair:
    """Characters: embedding 100, LSTM of 1024 in each direction, 64 lanes, windows of 128."""
    from flair.data import Dictionary
    from flair.models.language_model import LanguageModel as PeerModel

    rows, length = 64, 128
    own = build_model("flair", vocabulary=CHARACTERS, settings={"hidden": 1024, "dropout": 0.1})
    characters = Dictionary(add_unk=False)
    for index in range(CHARACTERS):
        characters.add_item(chr(0x100 + index))
    peers = nn.ModuleList(
        PeerModel(characters, is_forward_lm=ahead, hidden_size=1024, nlayers=1, dropout=0.1) for ahead in (True, False)
    )
    texts = [torch.randint(0, CHARACTERS, (rows, length + 1)) for _ in peers]
    batch: Batch = {
        f"{way}{name}": part.contiguous()
        for way, text in zip(("", "backward_"), texts, strict=True)
        for name, part in (("tokens", text[:, :-1]), ("targets", text[:, 1:]))
    }
    hidden = [peer.init_hidden(rows) for peer in peers]

    def peer_loss() -> Tensor:
        # flair trains the directions one after the other; a step of ours is a step of each.
        losses = []
        for index, (peer, text) in enumerate(zip(peers, texts, strict=True)):
            logits, _, hidden[index] = peer(text[:, :-1].t().contiguous(), hidden[index])
            hidden[index] = peer.repackage_hidden(hidden[index])
            losses.append(F.cross_entropy(logits.float().flatten(0, 1), text[:, 1:].t().flatten()))
        return losses[0] + losses[1]

    return carrying(own, batch), peer_loss, own, peers, 2 * rows * length


def carrying(model: LanguageModel, batch: Batch) -> Loss:
    """The loss on a batch, each time from the state that the time before left."""
    carry: tuple[Tensor, ...] = ()

    def loss() -> Tensor:
        nonlocal carry
        result = model.losses(batch, carry)
        carry = result.carry
        return result.loss

    return loss


def step(
    loss: Loss, model: nn.Module, optimizer: torch.optim.Optimizer, precision: AbstractContextManager[None]
) -> None:
    optimizer.zero_grad(set_to_none=True)
    with precision:
        value = loss()
    value.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


PAIRS: dict[str, Callable[[], Pair]] = {"bert": bert, "awd-lstm": awd_lstm, "flair": flair}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pair", choices=PAIRS)
    parser.add_argument("--rounds", type=int, default=7, help="how often each side has its turn")
    parser.add_argument("--steps", type=int, default=3, help="training steps a turn")
    parser.add_argument("--threads", type=int, default=threads.cores())
    parser.add_argument("--precision", choices=("bf16", "float32"), default="bf16")
    arguments = parser.parse_args()
    threads.own(arguments.threads)
    torch.manual_seed(0)
    *losses, own, peer, tokens = PAIRS[arguments.pair]()
    sides = [
        (loss, model.train(), torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True))
        for loss, model in zip(losses, (own, peer), strict=True)
    ]
    seconds: tuple[list[float], list[float]] = ([], [])
    for turn in range(arguments.rounds + 1):
        for times, (loss, model, optimizer) in zip(seconds, sides, strict=True):
            began = time.perf_counter()
            for _ in range(arguments.steps):
                precision = torch.autocast("cpu", torch.bfloat16, enabled=arguments.precision == "bf16")
                step(loss, model, optimizer, precision)
            # The first turn warms up: memory is not yet at hand, kernels are chosen.
            if turn:
                times.append((time.perf_counter() - began) / arguments.steps)
    rates = [tokens / statistics.median(times) for times in seconds]
    for name, rate, times in zip(("headstart", "peer"), rates, seconds, strict=True):
        spread = f"{min(times) * 1000:.0f}-{max(times) * 1000:.0f} ms a step"
        print(f"{arguments.pair:8}  {name:9}  {rate:9,.0f} tokens/s  {spread}")
    setting = f"medians; {arguments.threads} threads, {arguments.precision}"
    print(f"{arguments.pair:8}  ratio      {rates[0] / rates[1]:.2f} ({setting})")


if __name__ == "__main__":
    main()
