"""Training speed compared with other libraries, on one machine, in one run.

    python benchmarks/training.py bert                 # with transformers' BertForPreTraining
    python benchmarks/training.py gpt                  # with transformers' GPT2LMHeadModel
    python benchmarks/training.py awd-lstm             # with fastai's AWD_LSTM
    python benchmarks/training.py flair                # with flair's LanguageModel
    python benchmarks/training.py all --record NAME    # all of them; writes docs/results/NAME.json

On a CPU the models are small. On a GPU (`--device cuda`, the default if there is one) they are BERT-base with 128 and
512 tokens, GPT-2 small with 1024, AWD-LSTM as for WikiText-103, and a character language model of width 2048; `--size`
selects one. torch and transformers are required. fastai and flair are optional (`benchmarks/requirements-peers.txt`):
without them only Headstart's model is measured.

Both models have the same batches, precision (bfloat16 autocast), dropout rates, attention kernel (PyTorch's
scaled_dot_product_attention; on a CPU Headstart does not use it if attention has dropout), optimizer (fused AdamW) and
gradient clipping. On a GPU both are compiled. They are measured alternately, and medians are printed.

Utilisation is model FLOPs per second relative to the peak. Model FLOPs are three times those of the forward pass
(Chowdhery et al. 2022, PaLM, appendix B), with all of attention, without embeddings, and with the logits that are
computed. The peak is NVIDIA's figure for dense bfloat16; for other devices and for float32 it is measured with a large
matrix product.

The machine should be otherwise idle.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from components.core import threads
from components.core.processors import cores

threads.prepare()

import torch  # noqa: E402 (after the thread settings)
from torch import Tensor, nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from benchmarks.results import (  # noqa: E402
    Column,
    add_record_option,
    record,
)
from components.models.base import Batch, LanguageModel  # noqa: E402
from components.models.encoder import build_model  # noqa: E402

PIECES = 8000
CHARACTERS = 200
#: Dense bfloat16 FLOPs per second (NVIDIA's data sheets), by a part of the card's name.
PEAKS = {"H200": 989e12, "H100": 989e12, "A100": 312e12, "L40S": 362e12, "L4": 121e12, "A10": 125e12, "4090": 165e12}

Loss = Callable[[], Tensor]


@dataclass
class Pair:
    """Losses of Headstart's model and of the peer on the same batch; None if the peer is not installed.

    Attributes:
        tokens: tokens of a batch.
        flops: FLOPs of the forward pass on a batch.
    """

    model: LanguageModel
    loss: Loss
    peer: nn.Module | None
    peer_loss: Loss | None
    tokens: int
    flops: float


def transformer_flops(tokens: int, *, length: int, width: int, layers: int) -> float:
    """FLOPs of a forward pass of Transformer blocks: per token and layer 12 D^2 products, and 2 T D of attention."""
    return 2.0 * tokens * layers * (12 * width**2 + 2 * length * width)


def lstm_flops(tokens: int, *, widths: list[tuple[int, int]]) -> float:
    """FLOPs of a forward pass of LSTM layers: four gates over input and state. `widths`: (inputs, hidden) per layer."""
    return 2.0 * tokens * sum(4 * hidden * (inputs + hidden) for inputs, hidden in widths)


def bert(size: str, device: torch.device) -> Pair:
    """BERT with dropout 0.1, 15% masked tokens and next sentence; small: 4 layers of 256, 128 tokens, 32 rows."""
    from transformers import BertConfig, BertForPreTraining

    rows, length, width, layers, pieces = {
        "small": (32, 128, 256, 4, PIECES),
        "base-128": (128, 128, 768, 12, 30_522),
        "base-512": (32, 512, 768, 12, 30_522),
        "32x128": (32, 128, 768, 12, 30_522),
        "32x512": (32, 512, 768, 12, 30_522),
        "128x512": (128, 512, 768, 12, 30_522),
    }[size]
    masked = round(0.15 * length)
    ours = build_model("bert", vocabulary=pieces, preset=f"{layers}x{width}").to(device)
    peer = BertForPreTraining(
        BertConfig(
            vocab_size=pieces,
            hidden_size=width,
            num_hidden_layers=layers,
            num_attention_heads=width // 64,
            intermediate_size=4 * width,
        )
    ).to(device)
    tokens = torch.randint(5, pieces, (rows, length), device=device)
    batch: Batch = {
        "tokens": tokens,
        "segments": (torch.arange(length, device=device) > length // 2).long().expand(rows, -1).contiguous(),
        "positions": torch.rand(rows, length, device=device).topk(masked).indices.sort().values,
        "targets": torch.randint(5, pieces, (rows, masked), device=device),
        "next_sentence": torch.randint(0, 2, (rows,), device=device),
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

    flops = transformer_flops(tokens.numel(), length=length, width=width, layers=layers)
    flops += 2.0 * rows * masked * (width**2 + width * pieces)
    return Pair(ours, lambda: ours.losses(batch).loss, peer, peer_loss, tokens.numel(), flops)


def gpt(size: str, device: torch.device) -> Pair:
    """GPT-2 with dropout 0.1; small: 4 layers of 256, 128 tokens, 32 rows."""
    from transformers import GPT2Config, GPT2LMHeadModel

    rows, length, width, layers, pieces = {
        "small": (32, 128, 256, 4, PIECES),
        "gpt2-1024": (16, 1024, 768, 12, 50_257),
    }[size]
    settings = {"width": width, "layers": layers, "heads": width // 64, "positions": length}
    settings |= {"dropout": 0.1, "dropout_attention": 0.1}
    ours = build_model("gpt", vocabulary=pieces, settings=settings).to(device)
    peer = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=pieces,
            n_positions=length,
            n_embd=width,
            n_layer=layers,
            n_head=width // 64,
            bos_token_id=None,
            eos_token_id=None,
        )
    ).to(device)
    stream = torch.randint(5, pieces, (rows, length + 1), device=device)
    batch: Batch = {"tokens": stream[:, :-1].contiguous(), "targets": stream[:, 1:].contiguous()}

    def peer_loss() -> Tensor:
        logits = peer(input_ids=batch["tokens"]).logits
        return F.cross_entropy(logits.float().flatten(0, 1), batch["targets"].flatten())

    tokens = rows * length
    flops = transformer_flops(tokens, length=length, width=width, layers=layers) + 2.0 * tokens * width * pieces
    return Pair(ours, lambda: ours.losses(batch).loss, peer, peer_loss, tokens, flops)


def awd_lstm(size: str, device: torch.device) -> Pair:
    """AWD-LSTM with fastai's dropout rates and penalties; small: embedding 256, 640 wide, 64 streams of 64 tokens."""
    rows, length, embedding, hidden, pieces = {
        "small": (64, 64, 256, 640, PIECES),
        "wikitext-103": (128, 70, 400, 1152, 60_000),
    }[size]
    settings = {"embedding": embedding, "hidden": hidden, "layers": 3}
    ours = build_model("ulmfit", vocabulary=pieces, preset="awd-lstm-1152", settings=settings).to(device)
    stream = torch.randint(5, pieces, (rows, length + 1), device=device)
    batch: Batch = {"tokens": stream[:, :-1].contiguous(), "targets": stream[:, 1:].contiguous()}
    tokens = rows * length
    widths = [(embedding, hidden), (hidden, hidden), (hidden, embedding)]
    flops = lstm_flops(tokens, widths=widths) + 2.0 * tokens * embedding * pieces
    try:
        from fastai.text.models.awdlstm import AWD_LSTM, awd_lstm_lm_config
        from fastai.text.models.core import get_language_model
    except ImportError:
        return Pair(ours, carrying(ours, batch), None, None, tokens, flops)
    peer = get_language_model(
        AWD_LSTM, pieces, awd_lstm_lm_config | {"emb_sz": embedding, "n_hid": hidden, "n_layers": 3}
    ).to(device)

    def peer_loss() -> Tensor:
        # As fastai trains: CrossEntropyLossFlat and the callback RNNRegularizer(alpha=2, beta=1).
        logits, raw, dropped = peer(batch["tokens"])
        loss = F.cross_entropy(logits.float().flatten(0, 1), batch["targets"].flatten())
        loss = loss + 2.0 * dropped.float().pow(2).mean()
        return loss + 1.0 * (raw[:, 1:] - raw[:, :-1]).float().pow(2).mean()

    return Pair(ours, carrying(ours, batch), peer, peer_loss, tokens, flops)


def flair(size: str, device: torch.device) -> Pair:
    """Character language model, one LSTM per direction; small: 1024 wide, 64 streams of 128 characters."""
    rows, length, hidden = {"small": (64, 128, 1024), "2048": (100, 250, 2048)}[size]
    ours = build_model("flair", vocabulary=CHARACTERS, settings={"hidden": hidden, "dropout": 0.1}).to(device)
    texts = [torch.randint(0, CHARACTERS, (rows, length + 1), device=device) for _ in range(2)]
    batch: Batch = {
        f"{way}{name}": part.contiguous()
        for way, text in zip(("", "backward_"), texts, strict=True)
        for name, part in (("tokens", text[:, :-1]), ("targets", text[:, 1:]))
    }
    tokens = 2 * rows * length
    flops = lstm_flops(tokens, widths=[(100, hidden)]) + 2.0 * tokens * hidden * CHARACTERS
    try:
        from flair.data import Dictionary
        from flair.models.language_model import LanguageModel as PeerModel
    except ImportError:
        return Pair(ours, carrying(ours, batch), None, None, tokens, flops)
    characters = Dictionary(add_unk=False)
    for index in range(CHARACTERS):
        characters.add_item(chr(0x100 + index))
    peers = nn.ModuleList(
        PeerModel(characters, is_forward_lm=ahead, hidden_size=hidden, nlayers=1, dropout=0.1)
        for ahead in (True, False)
    ).to(device)
    state = [peer.init_hidden(rows) for peer in peers]

    def peer_loss() -> Tensor:
        # flair trains the directions one after the other; Headstart trains both in one step.
        losses = []
        for index, (peer, text) in enumerate(zip(peers, texts, strict=True)):
            logits, _, state[index] = peer(text[:, :-1].t().contiguous(), state[index])
            state[index] = peer.repackage_hidden(state[index])
            losses.append(F.cross_entropy(logits.float().flatten(0, 1), text[:, 1:].t().flatten()))
        return losses[0] + losses[1]

    return Pair(ours, carrying(ours, batch), peers, peer_loss, tokens, flops)


def carrying(model: LanguageModel, batch: Batch) -> Loss:
    """The loss on a batch as a function; each call continues from the recurrent state of the previous call."""
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


def steps_of(
    pair: Pair, device: torch.device, *, bf16: bool = True, compiled: bool = False
) -> dict[str, Callable[[], None]]:
    """Side -> one training step of its model, with an optimizer of its own. The sides are `headstart` and, if it is
    installed, `peer`."""
    result: dict[str, Callable[[], None]] = {}
    for name, loss, model in (("headstart", pair.loss, pair.model), ("peer", pair.peer_loss, pair.peer)):
        if loss is None or model is None:
            continue
        model.train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
        function = torch.compile(loss) if compiled else loss

        def run(loss: Loss = function, model: nn.Module = model, optimizer: torch.optim.Optimizer = optimizer) -> None:
            step(loss, model, optimizer, torch.autocast(device.type, torch.bfloat16, enabled=bf16))

        result[name] = run
    return result


def peak(device: torch.device, precision: torch.dtype) -> float:
    """Peak FLOPs per second of the device; see the module's docstring."""
    if device.type == "cuda" and precision == torch.bfloat16:
        name = torch.cuda.get_device_name(device)
        for part, flops in PEAKS.items():
            if part in name:
                return flops
    side = 8192 if device.type == "cuda" else 2048
    left, right = (torch.randn(side, side, device=device, dtype=precision) for _ in range(2))
    times = []
    for _ in range(7):
        began = time.perf_counter()
        torch.mm(left, right)
        synchronise(device)
        times.append(time.perf_counter() - began)
    return 2.0 * side**3 / min(times)


def synchronise(device: torch.device) -> None:
    """Wait for the device to finish."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


#: Workload -> its builder, and its sizes on a GPU; the size on a CPU is `small`.
PAIRS: dict[str, tuple[Callable[[str, torch.device], Pair], tuple[str, ...]]] = {
    "bert": (bert, ("base-128", "base-512")),
    "gpt": (gpt, ("gpt2-1024",)),
    "awd-lstm": (awd_lstm, ("wikitext-103",)),
    "flair": (flair, ("2048",)),
}


def compare(
    workload: str, size: str, device: torch.device, arguments: argparse.Namespace, flops: float
) -> dict[str, float]:
    """Measure both models alternately and print tokens per second; returns these and their ratio.

    Args:
        flops: peak FLOPs per second of the device.
    """
    torch.manual_seed(0)
    pair = PAIRS[workload][0](size, device)
    running = steps_of(pair, device, bf16=arguments.bf16, compiled=arguments.compile)
    seconds: dict[str, list[float]] = {name: [] for name in running}
    for turn in range(arguments.rounds + 1):
        for name, run in running.items():
            if not turn:
                # Compilation takes several steps, because the shape of the state changes after the first one.
                for _ in range(3):
                    run()
            synchronise(device)
            began = time.perf_counter()
            for _ in range(arguments.steps):
                run()
            synchronise(device)
            # The first turn is a warm-up: memory is allocated and kernels are chosen.
            if turn:
                seconds[name].append((time.perf_counter() - began) / arguments.steps)
    rates = {name: pair.tokens / statistics.median(times) for name, times in seconds.items()}
    label = f"{workload} {size}"
    for name, times in seconds.items():
        spread = f"{min(times) * 1000:.0f}-{max(times) * 1000:.0f} ms per step"
        used = 3 * pair.flops / statistics.median(times) / flops
        print(f"{label:22}  {name:9}  {rates[name]:11,.0f} tokens/s  {used:5.1%} of the peak  {spread}", flush=True)
    if "peer" not in rates:
        print(f"{label:22}  the peer is not installed (benchmarks/requirements-peers.txt)", flush=True)
        return rates
    rates["ratio"] = rates["headstart"] / rates["peer"]
    print(f"{label:22}  ratio      {rates['ratio']:.2f}", flush=True)
    return rates


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload", choices=[*PAIRS, "all"])
    parser.add_argument("--size", help="small, or a size of the workload on a GPU; default: all for the device")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--rounds", type=int, default=7, help="number of turns of each side")
    parser.add_argument("--steps", type=int, default=3, help="training steps per turn")
    parser.add_argument("--threads", type=int, default=cores())
    parser.add_argument("--precision", choices=("bf16", "float32"), default="bf16")
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, help="default: on a GPU")
    add_record_option(parser)
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    arguments.bf16 = arguments.precision == "bf16"
    arguments.compile = device.type == "cuda" if arguments.compile is None else arguments.compile
    threads.use(arguments.threads)
    flops = peak(device, torch.bfloat16 if arguments.bf16 else torch.float32)
    where = torch.cuda.get_device_name(device) if device.type == "cuda" else f"{arguments.threads} threads"
    print(f"{where}, {arguments.precision}, peak {flops / 1e12:,.1f} TFLOPs/s, medians of {arguments.rounds} turns")
    result: dict[str, dict[str, float]] = {}
    for workload in PAIRS if arguments.workload == "all" else [arguments.workload]:
        own_sizes = PAIRS[workload][1] if device.type == "cuda" else ("small",)
        for size in [arguments.size] if arguments.size else own_sizes:
            if size not in (*PAIRS[workload][1], "small"):
                parser.error(f"{workload} has no size {size!r}; known: small, {', '.join(PAIRS[workload][1])}")
            result[f"{workload} {size}"] = compare(workload, size, device, arguments, flops)
    record(
        arguments.record,
        title=f"Training speed relative to other libraries, {arguments.precision}, medians of {arguments.rounds} turns",
        row_title="model",
        columns=[
            Column(name="ratio", title="ratio", format=".2f", unit=" x"),
            Column(name="headstart", title="Headstart, tokens per second", format=",.0f"),
            Column(name="peer", title="the peer, tokens per second", format=",.0f"),
        ],
        values=result,
        processor=torch.cuda.get_device_name(device) if device.type == "cuda" else None,
    )


if __name__ == "__main__":
    main()
