"""How much context does a language model use, and what does it cost? (Dai et al. 2019)

Relative effective context length (RECL; section 4.4 and appendix C). For a group of models, l_i(c, t) is the loss of
model i on piece t given the c pieces before it, and b(c, t) = min_i l_i(c, t). T is the fraction r of the positions
with the largest b(c, t). For c' = c + step:

    f_i(c, c') = mean over T of min(b(c, t), l_i(c', t))       gain_i = 1 - exp(f_i(c, c') - f_i(c, c))

The RECL of model i is the first c at which its gain is below 0.01. With the common baseline b, a weak model does not
seem to use a long context only because its loss with a short one is high.

Cost: with a carried state or memory every piece is processed once; without it, each prediction processes its complete
context (section 4.5).

Shape suffixes: P positions, C contexts, K predicted pieces per pass, S passes.
"""

import math
import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np
import torch
import typer
from numpy.typing import NDArray

from components.core.errors import ConfigError, DataError
from components.models.base import LanguageModel
from components.models.encoder import Encoder
from components.models.transformer_xl import TransformerXL
from components.reporting import figures
from components.reporting.figures import Line
from components.reporting.findings import Chapter, Drawing, Findings, Table
from components.studies.frame import EncoderName, Outputs
from components.tokenization.store import TokenStore

#: Gain below which a longer context does not count (Dai et al. 2019, appendix C).
THRESHOLD = 0.01
#: Maximum number of logits of a forward pass; limits the memory.
LOGITS = 32_000_000
#: Number of timings, of which the shortest is reported, and number of predictions per timing.
REPEATS, TIMED = 3, 64

Floats = NDArray[np.float64]


def effective(losses: Mapping[str, Floats], name: str, contexts: Sequence[int], ratio: float) -> int:
    """RECL of one model of a group; the longest context if the gain never falls below the threshold.

    Args:
        losses: model -> (C, P) losses by context and position.
        contexts: C lengths, one step apart.
        ratio: r, the fraction of positions that count (at least one position).
    """
    base_CP = np.min(np.stack(list(losses.values())), axis=0)
    count = max(1, round(ratio * base_CP.shape[1]))
    for index in range(len(contexts) - 1):
        hardest = np.argsort(-base_CP[index], kind="stable")[:count]
        before = base_CP[index, hardest]
        after = np.minimum(before, losses[name][index + 1, hardest])
        if 1 - math.exp(after.mean() - before.mean()) < THRESHOLD:
            return contexts[index]
    return contexts[-1]


@torch.inference_mode()
def context_losses(
    model: LanguageModel, store: TokenStore, ends: NDArray[np.int64], *, longest: int, step: int
) -> Floats:
    """(C, P) losses in nats of the pieces at `ends`, given exactly `step`, 2 `step` ... `longest` pieces before them;
    for a model with fewer positions, the last losses repeat. A pass over a window gives the losses at multiples of
    `step` from its start, so it serves as many positions as it has steps."""
    reach = longest if model.max_tokens is None else min(longest, model.max_tokens // step * step)
    if reach < step:
        raise ConfigError(f"--step {step} exceeds the model's {model.max_tokens} positions")
    steps = reach // step
    starts = np.unique(ends[:, None] - step * np.arange(1, steps + 1))
    rows = max(1, LOGITS // (reach * model.config.vocabulary))
    losses_SK = np.empty((len(starts), steps))
    columns = torch.arange(step - 1, reach, step)
    for first in range(0, len(starts), rows):
        part = [torch.from_numpy(store.span(int(start), reach + 1)) for start in starts[first : first + rows]]
        window = torch.stack(part)
        logits, _ = model.predict(window[:, :-1])
        log_probs = logits[:, columns].float().log_softmax(-1)
        losses_SK[first : first + rows] = (
            -log_probs.gather(-1, window[:, columns + 1].unsqueeze(-1)).squeeze(-1).numpy()
        )
    used = np.minimum(np.arange(longest // step), steps - 1)[:, None]
    losses_CP: Floats = losses_SK[np.searchsorted(starts, ends - step * (used + 1)), used]
    return losses_CP


def cost(model: LanguageModel, store: TokenStore, *, context: int) -> dict[str, float]:
    """Milliseconds per predicted piece with `context` pieces before it, recomputed and with a carried state. Both are
    timed alternately on the same text with a batch of one; the shortest time of each counts. A model with limited
    positions carries no state, so only the former is timed, with as many pieces as fit. Returns context, anew_ms, and
    for models that carry a state carried_ms and times (their ratio)."""
    room = model.max_tokens
    context = context if room is None else min(context, room)
    text = torch.from_numpy(store.span(0, context + TIMED))
    recomputed: list[float] = []
    carried: list[float] = []
    with torch.inference_mode():
        if isinstance(model, TransformerXL):
            model.set_memory(context)
        for _ in range(REPEATS):
            began = time.perf_counter()
            # Evaluation would move the window by one piece; a few windows are enough to time one.
            windows = range(0, TIMED, 16)
            for start in windows:
                model.predict(text[None, start : start + context])
            recomputed.append((time.perf_counter() - began) / len(windows))
            if room is None:
                _, state = model.predict(text[None, :context])
                began = time.perf_counter()
                model.predict(text[None, context:], state)
                carried.append((time.perf_counter() - began) / TIMED)
    measured = {"context": float(context), "anew_ms": min(recomputed) * 1000}
    if carried:
        measured |= {"carried_ms": min(carried) * 1000, "times": min(recomputed) / min(carried)}
    return measured


#: Fractions r of the positions (Dai et al. 2019, appendix C).
RATIOS = ("0.1", "0.5", "1")
#: Segments of the text that contain the positions, which are one step apart within a segment.
SEGMENTS = 8


def run(
    outputs: Outputs,
    *,
    encoder: EncoderName = "",
    longest: Annotated[int, typer.Option(help="Longest context in pieces.", min=2)] = 256,
    step: Annotated[int, typer.Option(help="Step between contexts in pieces.", min=1)] = 16,
    positions: Annotated[int, typer.Option(help="Number of predicted pieces per context.", min=16)] = 256,
) -> Findings:
    """RECL of the causal models of a run, and the cost of evaluation with and without a carried state.

    A group consists of the models with the same vocabulary that were last trained on the same corpus; they are compared
    on its held-out part.
    """
    if longest < 2 * step:
        raise ConfigError(f"--longest {longest}: must be at least two steps of {step}")
    chapter = Chapter("Effective context")
    contexts = list(range(step, longest + 1, step))
    groups: list[dict[str, Any]] = []
    costs: dict[str, dict[str, float]] = {}
    for (corpus, tokenizer), encoders in _groups(outputs, encoder).items():
        store = _store(outputs, f"{corpus}-{tokenizer}", encoders)
        ends = _ends(store, longest=longest, step=step, positions=positions)
        losses = {
            name: context_losses(loaded.model, store, ends, longest=longest, step=step)
            for name, loaded in encoders.items()
        }
        recl = {name: {r: effective(losses, name, contexts, float(r)) for r in RATIOS} for name in losses}
        curves = {name: of.mean(1).tolist() for name, of in losses.items()}
        group = {"tokens": store.directory.name, "positions": len(ends), "contexts": contexts, "recl": recl}
        groups.append(group | {"loss": curves})
        shown = {
            name: {r: f"{length} or more" if length == longest else str(length) for r, length in of.items()}
            for name, of in recl.items()
        }
        rows = [[name, *of.values(), f"{curves[name][0]:.3f}", f"{curves[name][-1]:.3f}"] for name, of in shown.items()]
        columns = ["encoder", *(f"RECL, r = {r}" for r in RATIOS), f"loss at {contexts[0]}", f"at {contexts[-1]}"]
        heading = f"Held-out {corpus} text, {len(ends)} positions, in {tokenizer} pieces"
        chapter.tables.append(Table(columns, rows, heading))
        lines = {name: Line(contexts, values) for name, values in curves.items()}
        svg = figures.lines(lines, x_label=f"context, in {tokenizer} pieces", y_label="loss (nats per piece)")
        chapter.figures.append(Drawing(svg, f"{corpus} text: loss against the length of the context."))
        chapter.lead += [
            f"{name} uses {of['0.1']} pieces of context at the hardest 10% of the positions, {of['1']} at all."
            for name, of in shown.items()
        ]
        costs |= {name: cost(of.model, store, context=min(longest, store.tokens - 1)) for name, of in encoders.items()}
    _add_costs(chapter, costs)
    chapter.text.append(
        f"RECL: the context beyond which {step} more pieces lower the perplexity by less than {THRESHOLD:.0%}, over "
        "the fraction r of the hardest positions (Dai et al. 2019, appendix C). It is comparable within a table. "
        "Carried state: the state of an LSTM or a memory; a Transformer with learned positions has none."
    )
    return Findings(chapter, {"step": step, "longest": longest, "groups": groups, "cost": costs})


def _groups(outputs: Outputs, encoder: str) -> dict[tuple[str, str], dict[str, Encoder]]:
    """(corpus, tokenizer) -> the causal encoders."""
    groups: dict[tuple[str, str], dict[str, Encoder]] = {}
    for block, start, loaded in outputs.causal(encoder):
        key = ("domain" if start == "adapted" else "general", outputs.block(block).tokenizer)
        groups.setdefault(key, {})[f"{block}-{start}"] = loaded
    return groups


def _store(outputs: Outputs, tokens: str, encoders: dict[str, Encoder]) -> TokenStore:
    store = TokenStore(outputs.directory("tokens", tokens, stage=f"tokenize --item {tokens}"), "heldout")
    for name, loaded in encoders.items():
        if loaded.tokenizer.fingerprint() != store.tokenizer_fingerprint:
            raise ConfigError(
                f"{name}: has another vocabulary than the tokens in {store.directory} (it may be imported); name "
                "another encoder with --encoder"
            )
    return store


def _ends(store: TokenStore, *, longest: int, step: int, positions: int) -> NDArray[np.int64]:
    """Positions of the predicted pieces: in SEGMENTS segments of the text, one step apart."""
    each = -(-positions // SEGMENTS)
    needed = longest + each * step
    if store.tokens <= needed:
        raise DataError(
            f"{store.directory}: has {store.tokens} held-out pieces, needs {needed}; lower --longest or --positions"
        )
    gap = (store.tokens - needed) / SEGMENTS
    firsts = [longest + round(segment * gap) for segment in range(SEGMENTS)]
    return np.unique([first + step * number for first in firsts for number in range(each)])


def _add_costs(chapter: Chapter, costs: dict[str, dict[str, float]]) -> None:
    rows = [
        [
            name,
            f"{of['context']:.0f}",
            f"{of['carried_ms']:.2f}" if "times" in of else "none",
            f"{of['anew_ms']:.2f}",
            f"{of['times']:,.1f}" if "times" in of else "",
        ]
        for name, of in costs.items()
    ]
    columns = ["encoder", "context", "ms per piece, carried state", "ms per piece, recomputed", "ratio"]
    chapter.tables.append(Table(columns, rows, "Cost of evaluation"))
    if ratios := {name: of["times"] for name, of in costs.items() if "times" in of}:
        svg = figures.bars(ratios, x_label="ratio of the costs without and with a carried state", form="{:,.1f}")
        chapter.figures.append(Drawing(svg, "Cost of a prediction that recomputes its context."))
