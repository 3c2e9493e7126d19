"""How much context does a language model use, and what does it cost? (Dai et al. 2019)

The gain of a context is the mean decrease of the loss from it to the longest one. A context is effective up to the
first length from which the rest lowers the perplexity by less than 1% or not measurably. All positions count: the
hardest ones by the loss at one context (section 4.4) would take noise for a gain of the next.
"""

import math
import time
from itertools import permutations

import torch

from components.core.errors import ConfigError
from components.models.base import LanguageModel
from components.models.transformer_xl import TransformerXL
from components.reporting.findings import Drawing
from components.studies.frame import Measured, Outputs, Row, Sheet, over
from components.studies.losses import Floats, gain, groups
from components.tokenization.store import TokenStore

#: Decrease of the perplexity below which a longer context does not count (Dai et al. 2019, appendix C).
THRESHOLD = 0.01
#: Number of timings, and number of predictions per timing.
REPEATS, TIMED = 5, 64
#: Column of the comparison of two models.
DIFFERENCE = "difference of the gain"


def effective(losses_CP: Floats, step: int) -> int:
    """The shortest context from which the longest one does not lower the perplexity by 1%, or not measurably."""
    for index, before_P in enumerate(losses_CP[:-1]):
        rest = gain(before_P, losses_CP[-1])
        if rest.low <= 0 or rest.mean < -math.log(1 - THRESHOLD):
            return step * (index + 1)
    return step * len(losses_CP)


@torch.inference_mode()
def cost(model: LanguageModel, store: TokenStore, *, context: int) -> Row:
    """Milliseconds per predicted piece with `context` pieces before it: recomputed, or with a carried state or memory,
    by which each piece is processed once (section 4.5); and their ratio over timings, which alternate. A model with
    limited positions carries no state, and is timed with as many pieces as fit."""
    context, carries = min(context, model.max_tokens or context), model.max_tokens is None
    text = torch.from_numpy(store.span(0, context + TIMED))[None]
    if isinstance(model, TransformerXL):
        model.set_memory(context)
    # A few windows are enough to time one.
    windows, times = range(0, TIMED, 16), list[tuple[float, float]]()
    for _ in range(REPEATS):
        began = time.perf_counter()
        for start in windows:
            model.predict(text[:, start : start + context])
        anew, carried = (time.perf_counter() - began) / len(windows) * 1000, math.inf
        if carries:
            _, state = model.predict(text[:, :context])
            began = time.perf_counter()
            model.predict(text[:, context:], state)
            carried = (time.perf_counter() - began) / TIMED * 1000
        times.append((carried, anew))
    fastest, recomputed = map(min, zip(*times, strict=True))
    shown = {"ms, carried state": fastest if carries else None, "ms, recomputed": recomputed}
    return {"context": context} | shown | {"ratio": over([anew / of for of, anew in times]) if carries else None}


def measure(
    outputs: Outputs,
    *,
    encoder: str = "",
    longest: int = 256,
    step: int = 16,
    positions: int = 256,
    costs: str = "256,1024",
) -> Measured:
    """The effective context of the causal models of a run, and the cost of evaluation with and without a carried state.
    Models of one vocabulary that were last trained on the same corpus are compared on its held-out part."""
    if longest < 2 * step:
        raise ConfigError(f"--longest {longest}: must be at least two steps of {step}")
    sheets, timed, drawings = list[Sheet](), list[Row](), list[Drawing]()
    for group in groups(outputs, encoder, longest=longest, step=step, positions=positions):
        rows, pairs, points, about = list[Row](), list[Row](), list[Row](), f"Held-out {group.tokens}"
        for name, of in group.losses.items():
            row: Row = {"encoder": name, "effective context": effective(of, step), f"loss at {step}": of[0].mean()}
            rows.append(row | {f"at {longest}": of[-1].mean(), "gain": gain(of[0], of[-1])})
            points += [{"encoder": name, "context": step * n, "loss": loss.mean()} for n, loss in enumerate(of, 1)]
        for (name, of), (other, rival) in permutations(group.losses.items(), 2):
            pairs.append({"encoder": name, "against": other, DIFFERENCE: gain(of[0] - of[-1], rival[0] - rival[-1])})
        sheets.append(Sheet(rows, f"{about}, {len(group.ends)} positions"))
        if pairs:
            sheets.append(Sheet(pairs, f"Gain of the longest context, {group.tokens}", value=DIFFERENCE, reference=0.0))
        drawings += Sheet(points, about, value="loss", x="context").drawing()
        timed += [
            {"encoder": name} | cost(model, group.heldout, context=context)
            for context in map(int, filter(str.strip, costs.split(",")))
            if context + TIMED < group.heldout.tokens
            for name, model in group.models.items()
        ]
    by = ("encoder", "context")
    sheets.append(Sheet(timed, "Cost of evaluation, per piece", {"ratio": ",.1f"}, "ratio" * bool(timed), by=by))
    return Measured(sheets, figures=drawings)
