"""How far back does a language model look? And what does it cost to let it?

Relative effective context length (Dai et al. 2019, section 4.4 and appendix C). Of a group of models, l_i(c, t) is the
loss of model i on piece t given the c pieces before it, and b(c, t) = min_i l_i(c, t). Over the share r of positions T
at which b(c, t) is largest, for c' = c + step:

    f_i(c, c') = mean over T of min(b(c, t), l_i(c', t))       gain_i = 1 - exp(f_i(c, c') - f_i(c, c))

RECL of model i is the first c at which its gain is below 0.01. All improve on the same short context, so that a weak
model does not seem to look far only because it began badly.

Cost: with a carried state or memory every piece is read once; without it, each prediction reads its whole context anew
(section 4.5 of the paper: up to 1,874 times slower).

Shape suffixes: P positions, C contexts, K pieces of a pass that are predicted, S passes.
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

#: Gain below which a longer context no longer counts (Dai et al. 2019, appendix C), and their ratios r.
THRESHOLD = 0.01
RATIOS = (0.1, 0.5, 1.0)
#: Places of the text in which the positions lie; each takes a run of them, one step apart.
PLACES = 8
#: Numbers in the logits of one forward pass: bounds the memory.
LOGITS = 32_000_000
#: Times that a cost is taken, the shortest one counts; predictions that each time is taken over.
REPEATS = 3
TIMED = 64

Floats = NDArray[np.float64]


def run(
    outputs: Outputs,
    *,
    encoder: Annotated[str, typer.Option(help="One encoder; every causal one of run.families if not said.")] = "",
    longest: Annotated[int, typer.Option(help="Pieces of the longest context.", min=2)] = 256,
    step: Annotated[int, typer.Option(help="Pieces by which a context grows.", min=1)] = 16,
    positions: Annotated[int, typer.Option(help="Pieces that are predicted from every context.", min=16)] = 256,
) -> Findings:
    """RECL of the causal models of a run, and the cost of evaluation with and without what they carry.

    Models are compared that share a vocabulary and were trained on the same text last, on that text's held-out part.

    Raises:
        ConfigError: no such encoder; none that predicts the next piece; `longest` is less than two steps.
        ArtifactError: a stage that it needs has not run.
        DataError: too little held-out text.
    """
    if longest < 2 * step:
        raise ConfigError(f"--longest {longest}: two steps of {step} or more")
    chapter = Chapter("Effective context")
    numbers: dict[str, Any] = {"step": step, "longest": longest, "groups": []}
    costs: dict[str, dict[str, float]] = {}
    groups: dict[Any, dict[str, Encoder]] = {}
    for block, start in outputs.chosen(encoder):
        loaded = outputs.encoder(block, start)
        if not _causal(loaded):
            continue
        corpus = "domain" if start == "adapted" else "general"
        key = (corpus, outputs.params.pretrain[block].tokenizer)
        groups.setdefault(key, {})[f"{block}-{start}"] = loaded
    if not groups:
        raise ConfigError(
            f"{encoder or ', '.join(outputs.params.run.families)}: predicts no next piece; this study needs a causal "
            "family, such as ulmfit, gpt or transformer-xl"
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
        svg = figures.lines(lines, x_label=f"context, in {tokenizer} pieces", y_label="loss (nats a piece)")
        chapter.figures.append(Drawing(svg, f"{corpus} text: loss by the length of the context."))
        chapter.lead += [_sentence(one, recl, longest) for one, recl in found.items()]
        costs |= {
            one: cost(loaded.model, store, context=min(longest, store.tokens - 1)) for one, loaded in encoders.items()
        }
    numbers["cost"] = costs
    rows = [[one, *_cost_cells(entry)] for one, entry in costs.items()]
    columns = ["encoder", "context", "ms a piece, carried on", "ms a piece, read anew", "times"]
    chapter.tables.append(Table(columns, rows, "Cost of evaluation, measured side by side"))
    ratios = {one: entry["times"] for one, entry in costs.items() if "times" in entry}
    if ratios:
        svg = figures.bars(ratios, x_label="times as long without what is carried on", form="{:,.1f}")
        chapter.figures.append(Drawing(svg, "Cost of a prediction that reads its context anew."))
    chapter.text.append(
        f"RECL: the context beyond which {step} more pieces lower the perplexity by less than {THRESHOLD:.0%}, over "
        "the share r of the hardest positions (Dai et al. 2019, appendix C). It compares the models of one table. "
        "Carried on: an LSTM's state, a memory; a Transformer with learned positions cannot carry on beyond them."
    )
    return Findings(chapter, numbers)


def effective(losses: Mapping[str, Floats], name: str, contexts: Sequence[int], ratio: float) -> int:
    """RECL of one model of a group; the longest context where even that still gains.

    Args:
        losses: of each model (C, P), by context and position.
        contexts: C lengths, one step apart.
        ratio: r, the share of positions that count, at least one.
    """
    base_CP = np.min(np.stack(list(losses.values())), axis=0)
    count = max(1, round(ratio * base_CP.shape[1]))
    for place in range(len(contexts) - 1):
        hardest = np.argsort(-base_CP[place], kind="stable")[:count]
        before = base_CP[place, hardest]
        after = np.minimum(before, losses[name][place + 1, hardest])
        if 1 - math.exp(after.mean() - before.mean()) < THRESHOLD:
            return contexts[place]
    return contexts[-1]


@torch.inference_mode()
def context_losses(
    model: LanguageModel, store: TokenStore, ends: NDArray[np.int64], *, longest: int, step: int
) -> Floats:
    """(C, P) nats: the loss of each piece `ends` given exactly `step`, 2 `step` ... `longest` pieces before it.

    A pass over a window yields the losses of all pieces a multiple of the step behind its start, each with another
    context; so every pass serves as many positions as it has steps. A model with fewer positions than `longest` is
    given as many steps as it takes, whatever more was asked for.
    """
    reach = longest if model.max_tokens is None else min(longest, model.max_tokens // step * step)
    if reach < step:
        raise ConfigError(f"--step {step} is more than the model's {model.max_tokens} positions")
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
        shares = logits[:, columns].float().log_softmax(-1)
        found_SK[first : first + rows] = -shares.gather(-1, window[:, columns + 1].unsqueeze(-1)).squeeze(-1).numpy()
    losses_CP = np.empty((longest // step, len(ends)))
    for place in range(longest // step):
        used = min(place, steps - 1)
        rows_P = [row_of[int(end) - step * (used + 1)] for end in ends]
        losses_CP[place] = found_SK[rows_P, used]
    return losses_CP


def cost(model: LanguageModel, store: TokenStore, *, context: int) -> dict[str, float]:
    """Milliseconds a predicted piece with `context` pieces before it: read anew for each, and carried on.

    Both are taken in turns on the same text, batch of one; the shortest of each counts. Where nothing can be carried
    on beyond a number of positions, only the former is taken, with as many pieces as fit.
    """
    room = model.max_tokens
    context = context if room is None else min(context, room)
    text = torch.from_numpy(store.span(0, context + TIMED))
    anew: list[float] = []
    carried: list[float] = []
    with torch.inference_mode():
        if isinstance(model, TransformerXL):
            model.set_memory(context)
        for _ in range(REPEATS):
            began = time.perf_counter()
            # The windows slide by one piece; a few tell what each costs.
            windows = range(0, TIMED, 16)
            for start in windows:
                model.predict(text[None, start : start + context])
            anew.append((time.perf_counter() - began) / len(windows))
            if room is None:
                state: Carry
                _, state = model.predict(text[None, :context])
                began = time.perf_counter()
                model.predict(text[None, context:], state)
                carried.append((time.perf_counter() - began) / TIMED)
    found = {"context": float(context), "anew_ms": min(anew) * 1000}
    if carried:
        found |= {"carried_ms": min(carried) * 1000, "times": min(anew) / min(carried)}
    return found


def _causal(encoder: Encoder) -> bool:
    """Whether it says what comes next; a backward model, imported or trained here, says what comes before."""
    return family_named(encoder.family).objective == "causal" and not encoder.model.backward


def _store(path: Any, encoders: Mapping[str, Encoder]) -> TokenStore:
    """The held-out tokens that all the encoders' vocabularies belong to.

    Raises:
        ConfigError: the vocabulary of one is another.
    """
    store = TokenStore(path, "heldout")
    for name, loaded in encoders.items():
        if loaded.tokenizer.fingerprint() != store.tokenizer_fingerprint:
            raise ConfigError(
                f"{name}: does not read the tokens in {path} (its vocabulary is another, as an imported model's is); "
                "leave it out with --encoder"
            )
    return store


def _ends(store: TokenStore, *, longest: int, step: int, positions: int) -> NDArray[np.int64]:
    """Positions that are predicted: in some places of the text, one step apart in each.

    Raises:
        DataError: the text is shorter than the longest context and the positions of one place.
    """
    each = -(-positions // PLACES)
    needed = longest + each * step
    if store.tokens <= needed:
        raise DataError(
            f"{store.directory}: {store.tokens} held-out pieces, {needed} are needed; lower --longest or --positions"
        )
    gap = (store.tokens - needed) / PLACES
    firsts = [longest + round(place * gap) for place in range(PLACES)]
    return np.unique([first + step * number for first in firsts for number in range(each)])


def _length(found: int, longest: int) -> str:
    return f"{found} or more" if found == longest else str(found)


def _sentence(name: str, found: Mapping[str, int], longest: int) -> str:
    hardest, every = (_length(found[f"{ratio:g}"], longest) for ratio in (RATIOS[0], RATIOS[-1]))
    return f"{name} makes use of {hardest} pieces at the hardest tenth of the positions, of {every} over all."


def _cost_cells(found: Mapping[str, float]) -> list[str]:
    carried = [f"{found['carried_ms']:.2f}"] if "carried_ms" in found else ["cannot"]
    times = [f"{found['times']:,.1f}"] if "times" in found else [""]
    return [f"{found['context']:.0f}", *carried, f"{found['anew_ms']:.2f}", *times]


STUDY = Study("effective-context", "How far back does a language model look, and what does that cost?", run)
