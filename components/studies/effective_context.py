"""How much context does a language model use, and what does it cost?

Relative effective context length (RECL; Dai et al. 2019, section 4.4 and appendix C). For a group of models, l_i(c, t)
is the loss of model i on piece t given the c pieces before it, and b(c, t) = min_i l_i(c, t). T is the fraction r of
the positions with the largest b(c, t). For c' = c + step:

    f_i(c, c') = mean over T of min(b(c, t), l_i(c', t))       gain_i = 1 - exp(f_i(c, c') - f_i(c, c))

The RECL of model i is the first c at which its gain is below 0.01. All models are compared with the same baseline b, so
a weak model does not seem to use a long context only because its loss with a short one is high.

Cost: with a carried state or memory every piece is processed once. Without it, each prediction processes its complete
context (section 4.5 of the paper: up to 1,874 times slower).

Shape suffixes: P positions, C contexts, K predicted pieces per pass, S passes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np
import torch
import typer
from numpy.typing import NDArray

from components.errors import ConfigError, DataError
from components.models import family as family_named
from components.models.base import Carry, LanguageModel
from components.models.encoder import Encoder
from components.models.transformer_xl import TransformerXL
from components.reporting import figures
from components.reporting.chapters import Chapter, Drawing, Table
from components.reporting.figures import Line
from components.reporting.findings import Findings
from components.studies.base import Study
from components.studies.outputs import Outputs
from components.tokenization.store import TokenStore

#: Gain below which a longer context does not count, and the fractions r (Dai et al. 2019, appendix C).
THRESHOLD = 0.01
RATIOS = (0.1, 0.5, 1.0)
#: Segments of the text that contain the positions, which are one step apart within a segment.
SEGMENTS = 8
#: Maximum number of logits of a forward pass; limits the memory.
LOGITS = 32_000_000
#: Number of timings, of which the shortest is reported, and number of predictions per timing.
REPEATS = 3
TIMED = 64

Floats = NDArray[np.float64]


def run(
    outputs: Outputs,
    *,
    encoder: Annotated[str, typer.Option(help="Encoder; every causal one of run.families by default.")] = "",
    longest: Annotated[int, typer.Option(help="Longest context in pieces.", min=2)] = 256,
    step: Annotated[int, typer.Option(help="Step between contexts in pieces.", min=1)] = 16,
    positions: Annotated[int, typer.Option(help="Number of predicted pieces per context.", min=16)] = 256,
) -> Findings:
    """RECL of the causal models of a run, and the cost of evaluation with and without a carried state.

    A group consists of the models with the same vocabulary that were last trained on the same corpus; they are compared
    on its held-out part.

    Raises:
        ConfigError: unknown encoder; no causal encoder; `longest` is less than two steps.
        ArtifactError: a required stage has not run.
        DataError: too little held-out text.
    """
    if longest < 2 * step:
        raise ConfigError(f"--longest {longest}: must be at least two steps of {step}")
    chapter = Chapter("Effective context")
    numbers: dict[str, Any] = {"step": step, "longest": longest, "groups": []}
    costs: dict[str, dict[str, float]] = {}
    groups: dict[Any, dict[str, Encoder]] = {}
    for block, start in outputs.chosen(encoder):
        loaded = outputs.encoder(block, start)
        if not _causal(loaded):
            continue
        corpus = "domain" if start == "adapted" else "general"
        key = (corpus, outputs.block(block).tokenizer)
        groups.setdefault(key, {})[f"{block}-{start}"] = loaded
    if not groups:
        raise ConfigError(
            f"{encoder or ', '.join(outputs.params.run.families)}: not a causal language model; this study needs a "
            "causal family, such as ulmfit, gpt or transformer-xl"
        )
    for (corpus, tokenizer), encoders in groups.items():
        name = f"{corpus}-{tokenizer}"
        path = outputs.directory("tokens", name, stage=f"tokenize --item {name}")
        store = _store(path, encoders)
        ends = _ends(store, longest=longest, step=step, positions=positions)
        contexts = list(range(step, longest + 1, step))
        losses = {
            one: context_losses(loaded.model, store, ends, longest=longest, step=step)
            for one, loaded in encoders.items()
        }
        found = {one: {f"{ratio:g}": effective(losses, one, contexts, ratio) for ratio in RATIOS} for one in losses}
        curves = {one: [float(value) for value in array.mean(1)] for one, array in losses.items()}
        group = {"tokens": name, "positions": len(ends), "contexts": contexts, "recl": found, "loss": curves}
        numbers["groups"].append(group)
        rows = [
            [
                one,
                *(_length(recl[f"{ratio:g}"], longest) for ratio in RATIOS),
                f"{curves[one][0]:.3f}",
                f"{curves[one][-1]:.3f}",
            ]
            for one, recl in found.items()
        ]
        columns = [
            "encoder",
            *(f"RECL, r = {ratio:g}" for ratio in RATIOS),
            f"loss at {contexts[0]}",
            f"at {contexts[-1]}",
        ]
        chapter.tables.append(
            Table(columns, rows, f"Held-out {corpus} text, {len(ends)} positions, in {tokenizer} pieces")
        )
        lines = {one: Line(contexts, values) for one, values in curves.items()}
        svg = figures.lines(lines, x_label=f"context, in {tokenizer} pieces", y_label="loss (nats per piece)")
        chapter.figures.append(Drawing(svg, f"{corpus} text: loss against the length of the context."))
        chapter.lead += [_sentence(one, recl, longest) for one, recl in found.items()]
        costs |= {
            one: cost(loaded.model, store, context=min(longest, store.tokens - 1)) for one, loaded in encoders.items()
        }
    numbers["cost"] = costs
    rows = [[one, *_cost_cells(entry)] for one, entry in costs.items()]
    columns = ["encoder", "context", "ms per piece, carried state", "ms per piece, recomputed", "ratio"]
    chapter.tables.append(Table(columns, rows, "Cost of evaluation"))
    ratios = {one: entry["times"] for one, entry in costs.items() if "times" in entry}
    if ratios:
        svg = figures.bars(ratios, x_label="ratio of the costs without and with a carried state", form="{:,.1f}")
        chapter.figures.append(Drawing(svg, "Cost of a prediction that recomputes its context."))
    chapter.text.append(
        f"RECL: the context beyond which {step} more pieces lower the perplexity by less than {THRESHOLD:.0%}, over "
        "the fraction r of the hardest positions (Dai et al. 2019, appendix C). It is comparable within a table. "
        "Carried state: the state of an LSTM or a memory; a Transformer with learned positions has none."
    )
    return Findings(chapter, numbers)


def effective(losses: Mapping[str, Floats], name: str, contexts: Sequence[int], ratio: float) -> int:
    """RECL of one model of a group; the longest context if the gain never falls below the threshold.

    Args:
        losses: model -> (C, P) losses by context and position.
        name: of the model.
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
    """(C, P) losses in nats of the pieces at `ends`, given exactly `step`, 2 `step` ... `longest` pieces before them.

    A pass over a window gives the losses of all pieces at multiples of `step` from its start, each with a different
    context, so a pass serves as many positions as it has steps. For a model with fewer positions than `longest`, the
    losses of longer contexts are those of the longest one that fits.

    Raises:
        ConfigError: the model has fewer positions than `step`.
    """
    reach = longest if model.max_tokens is None else min(longest, model.max_tokens // step * step)
    if reach < step:
        raise ConfigError(f"--step {step} exceeds the model's {model.max_tokens} positions")
    steps = reach // step
    starts = np.unique(ends[:, None] - step * np.arange(1, steps + 1))
    row_of = {int(start): row for row, start in enumerate(starts)}
    rows = max(1, LOGITS // (reach * model.config.vocabulary))
    found_SK = np.empty((len(starts), steps))
    columns = torch.arange(step - 1, reach, step)
    for first in range(0, len(starts), rows):
        part = [torch.from_numpy(store.span(int(start), reach + 1)) for start in starts[first : first + rows]]
        window = torch.stack(part)
        logits, _ = model.predict(window[:, :-1])
        log_probs = logits[:, columns].float().log_softmax(-1)
        found_SK[first : first + rows] = -log_probs.gather(-1, window[:, columns + 1].unsqueeze(-1)).squeeze(-1).numpy()
    losses_CP = np.empty((longest // step, len(ends)))
    for index in range(longest // step):
        used = min(index, steps - 1)
        rows_P = [row_of[int(end) - step * (used + 1)] for end in ends]
        losses_CP[index] = found_SK[rows_P, used]
    return losses_CP


def cost(model: LanguageModel, store: TokenStore, *, context: int) -> dict[str, float]:
    """Milliseconds per predicted piece with `context` pieces before it, recomputed and with a carried state.

    Both are timed alternately on the same text with a batch of one; the shortest time of each counts. A model with
    limited positions carries no state, so only the former is timed, with as many pieces as fit.

    Returns:
        context, anew_ms, and for models that carry a state carried_ms and times (their ratio).
    """
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
                state: Carry
                _, state = model.predict(text[None, :context])
                began = time.perf_counter()
                model.predict(text[None, context:], state)
                carried.append((time.perf_counter() - began) / TIMED)
    found = {"context": float(context), "anew_ms": min(recomputed) * 1000}
    if carried:
        found |= {"carried_ms": min(carried) * 1000, "times": min(recomputed) / min(carried)}
    return found


def _causal(encoder: Encoder) -> bool:
    """Whether an encoder predicts the next piece; a backward model predicts the previous one."""
    return family_named(encoder.family).objective == "causal" and not encoder.model.backward


def _store(path: Any, encoders: Mapping[str, Encoder]) -> TokenStore:
    """The held-out tokens, checked against the encoders' vocabularies.

    Raises:
        ConfigError: an encoder has another vocabulary.
    """
    store = TokenStore(path, "heldout")
    for name, loaded in encoders.items():
        if loaded.tokenizer.fingerprint() != store.tokenizer_fingerprint:
            raise ConfigError(
                f"{name}: has another vocabulary than the tokens in {path} (it may be imported); name another encoder "
                "with --encoder"
            )
    return store


def _ends(store: TokenStore, *, longest: int, step: int, positions: int) -> NDArray[np.int64]:
    """Positions of the predicted pieces: in SEGMENTS segments of the text, one step apart.

    Raises:
        DataError: the text is shorter than the longest context and the positions of one segment.
    """
    each = -(-positions // SEGMENTS)
    needed = longest + each * step
    if store.tokens <= needed:
        raise DataError(
            f"{store.directory}: has {store.tokens} held-out pieces, needs {needed}; lower --longest or --positions"
        )
    gap = (store.tokens - needed) / SEGMENTS
    firsts = [longest + round(segment * gap) for segment in range(SEGMENTS)]
    return np.unique([first + step * number for first in firsts for number in range(each)])


def _length(found: int, longest: int) -> str:
    return f"{found} or more" if found == longest else str(found)


def _sentence(name: str, found: Mapping[str, int], longest: int) -> str:
    hardest, every = (_length(found[f"{ratio:g}"], longest) for ratio in (RATIOS[0], RATIOS[-1]))
    return f"{name} uses {hardest} pieces of context at the hardest 10% of the positions, {every} at all positions."


def _cost_cells(found: Mapping[str, float]) -> list[str]:
    carried = [f"{found['carried_ms']:.2f}"] if "carried_ms" in found else ["none"]
    times = [f"{found['times']:,.1f}"] if "times" in found else [""]
    return [f"{found['context']:.0f}", *carried, f"{found['anew_ms']:.2f}", *times]


STUDY = Study("effective-context", "How much context does a language model use, and what does it cost?", run)
