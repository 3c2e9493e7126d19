"""Training time of language models in bf16 relative to float32, by family and size.

    python benchmarks/precision.py [--record precision]

Each line is a model: the number of parameters that `components.training.precision.product_size` counts, and the time of
a training step (forward and backward pass on one batch) in bf16 divided by that in float32, for pretraining and
fine-tuning. Both precisions are measured alternately; the median of the ratios of all turns is shown. On a CPU the
processor time of one thread is measured, which other processes on the machine hardly affect. `BF16_SIZE` in
`components.training.precision` is chosen from this table, because `precision: auto` must not depend on measured time.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

from components.training import threads

threads.prepare()

import numpy as np  # noqa: E402 (after the thread settings)
import torch  # noqa: E402
from numpy.typing import NDArray  # noqa: E402
from torch import Tensor  # noqa: E402

from components.models.base import Batch, LanguageModel  # noqa: E402
from components.models.encoder import build_model  # noqa: E402
from components.pretraining.samplers import sampler_for  # noqa: E402
from components.reporting.recording import add_record_option, record  # noqa: E402
from components.reporting.results import Column  # noqa: E402
from components.tokenization.special import END, FIRST_ORDINARY  # noqa: E402
from components.training.precision import Precision, computing, has_bf16, product_size  # noqa: E402

#: Family and config of each model; the vocabulary has `VOCABULARY` tokens (`CHARACTERS` for FLAIR).
MODELS: list[tuple[str, dict[str, Any]]] = [
    *[
        ("ulmfit", {"embedding": hidden // 2, "hidden": hidden, "layers": 2})
        for hidden in (16, 32, 64, 128, 256, 640, 1152)
    ],
    *[("flair", {"embedding": 64, "hidden": hidden}) for hidden in (16, 64, 128, 256, 512)],
    *[("bert", {"width": width, "heads": 4, "layers": 4}) for width in (8, 16, 32, 64, 128, 256, 512)],
    *[("gpt", {"width": width, "heads": 4, "layers": 4}) for width in (16, 64, 256)],
    ("albert", {"width": 256, "heads": 4, "layers": 4}),
    ("transformer-xl", {"width": 256, "heads": 4, "layers": 4}),
]
VOCABULARY = 8000
CHARACTERS = 200
BATCH_SIZE = 32
WINDOW = 64
#: Rows of a batch in fine-tuning.
ROWS = 16
PRECISIONS: tuple[Precision, Precision] = ("float32", "bf16")


class RandomTokens:
    """A token store (`components.training.windows.Tokens`) with random tokens, whose frequencies follow Zipf's law."""

    documents, length, sentence = 400, 200, 20

    def __init__(self, vocabulary: int) -> None:
        rng = np.random.default_rng(0)
        chances = 1 / np.arange(1, vocabulary - FIRST_ORDINARY + 1)
        self.tokens = self.documents * self.length
        self.stream = FIRST_ORDINARY + rng.choice(len(chances), size=self.tokens, p=chances / chances.sum())
        self.stream[self.length - 1 :: self.length] = END
        self.offsets = np.arange(self.documents + 1) * self.length

    def span(self, start: int, length: int) -> NDArray[np.int64]:
        return self.stream[np.arange(start, start + length) % self.tokens]

    def another(self, document: int, chance: float) -> int:
        return (document + 1 + int(chance * (self.documents - 1))) % self.documents

    def sentence_starts(self, document: int) -> NDArray[np.int64]:
        return np.arange(0, self.length, self.sentence)


def main() -> None:
    """Print one line for each model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    add_record_option(parser)
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    threads.own(1)
    print(f"{'model':<44}{'parameters':>12}{'pretraining':>13}{'fine-tuning':>13}")
    found: dict[str, dict[str, float]] = {}
    for family, sizes in MODELS:
        torch.manual_seed(0)
        vocabulary = CHARACTERS if family == "flair" else VOCABULARY
        model = build_model(family, vocabulary=vocabulary, settings=sizes).to(device)
        sampler = sampler_for(
            family,
            RandomTokens(vocabulary),
            config=model.config,
            pieces=[],
            batch_size=BATCH_SIZE,
            window=WINDOW,
            seed=0,
        )
        batch = {name: tensor.to(device) for name, tensor in sampler.batch(0).items()}
        tokens = batch["tokens"][:ROWS, :WINDOW]
        lengths = torch.full((len(tokens),), tokens.shape[1], device=device)

        def pretraining(model: LanguageModel = model, batch: Batch = batch) -> Tensor:
            return model.losses(batch).loss

        def finetuning(model: LanguageModel = model, tokens: Tensor = tokens, lengths: Tensor = lengths) -> Tensor:
            return model.hidden_states(tokens, lengths)[-1].float().square().mean()

        name = f"{family} {', '.join(f'{key} {value}' for key, value in sizes.items())}"
        size = product_size(model)
        ratios = {
            title: _ratio(model, loss, device, arguments.turns)
            for title, loss in (("pretraining", pretraining), ("finetuning", finetuning))
        }
        print(f"{name:<44}{size:>12,}" + "".join(f"{ratio:>13.2f}" for ratio in ratios.values()), flush=True)
        found[name] = {"size": size, **ratios}
    record(
        arguments.record,
        title=f"Training time in bf16 relative to float32, medians of {arguments.turns} turns",
        row_title="model",
        columns=[
            Column(name="size", title="parameters of matrix products", format=",.0f"),
            Column(name="pretraining", title="pretraining", format=".2f"),
            Column(name="finetuning", title="fine-tuning", format=".2f"),
        ],
        values=found,
        processor=torch.cuda.get_device_name(device) if device.type == "cuda" else None,
        notes=f"{'Native' if has_bf16(device) else 'No native'} bf16 instructions; one thread; processor time.",
    )


def _ratio(model: LanguageModel, loss: Callable[[], Tensor], device: torch.device, turns: int) -> float:
    """Median over the turns of the time in bf16 divided by the time in float32."""
    ratios = []
    for turn in range(1 + turns):
        float32, bf16 = (_seconds(model, loss, precision, device) for precision in PRECISIONS)
        if turn:  # the first turn is a warm-up
            ratios.append(bf16 / float32)
    return statistics.median(ratios)


def _seconds(model: LanguageModel, loss: Callable[[], Tensor], precision: Precision, device: torch.device) -> float:
    """Processor time of a forward and backward pass on the CPU, wall time on a GPU."""
    clock = time.process_time if device.type == "cpu" else time.perf_counter
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    began = clock()
    with computing(precision, device):
        value = loss()
    value.backward()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elapsed = clock() - began
    model.zero_grad(set_to_none=True)
    return elapsed


if __name__ == "__main__":
    main()
