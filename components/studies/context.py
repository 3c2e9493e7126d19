"""How much context does a language model use, and what does it cost? (Dai et al. 2019) Is it better than n-grams?

Effective context. The gain of a context is the mean decrease of the loss from it to the longest one. With a test, a
context is effective up to the first length from which the rest lowers the perplexity by less than 1% or not measurably.
All positions count: a choice of the hardest ones by the loss at one context takes noise at that context for a gain of
the next (the relative effective context length of section 4.4 does). A model without a carried state is not used beyond
the window of its training.

Cost: with a carried state or memory every piece is processed once; without it, each prediction processes its complete
context (section 4.5).

Shape suffixes: P positions, C contexts, K predicted pieces per pass, S passes.
"""

import math
import time
from itertools import permutations
from typing import Annotated, Any

import numpy as np
import torch
import typer
from numpy.typing import NDArray

from components.core.artifacts import read_json
from components.core.errors import ConfigError, DataError
from components.data.scoring.intervals import CONFIDENCE, Interval, interval
from components.models.base import LanguageModel
from components.models.transformer_xl import TransformerXL
from components.reporting.findings import Drawing
from components.studies.frame import EncoderName, Measured, Outputs, Row, Sheet, rate
from components.studies.ngrams import log_probs
from components.tokenization.special import MASK, PAD, START
from components.tokenization.store import TokenStore
from components.training.pretraining.perplexity import perplexity_of

#: Decrease of the perplexity below which a longer context does not count (Dai et al. 2019, appendix C).
THRESHOLD = 0.01
#: Maximum number of logits of a forward pass; limits the memory.
LOGITS = 32_000_000
#: Number of timings, and number of predictions per timing.
REPEATS, TIMED = 5, 64
#: Segments of the text that contain the positions, which are one step apart within a segment.
SEGMENTS = 8
#: Column of the difference to n-grams.
MINUS = "minus n-grams, nats per piece"
#: Special pieces that no text contains.
NEVER = (PAD, START, MASK)

Floats = NDArray[np.float64]
Longest = Annotated[int, typer.Option(help="Longest context in pieces.", min=2)]
Positions = Annotated[int, typer.Option(help="Number of predicted pieces per context.", min=16)]


@torch.inference_mode()
def context_losses(
    model: LanguageModel, store: TokenStore, ends: NDArray[np.int64], *, longest: int, step: int, window: int
) -> Floats:
    """(C, P) losses in nats of the pieces at `ends`, given exactly `step`, 2 `step` ... `longest` pieces before them;
    for a model with fewer positions, or one that was trained with a shorter `window` and carries no state, the last
    losses repeat. A pass over a window gives the losses at multiples of `step` from its start, so it serves as many
    positions as it has steps."""
    reach = longest if model.max_tokens is None else min(longest, model.max_tokens, window) // step * step
    if reach < step:
        raise ConfigError(f"--step {step} exceeds the model's {model.max_tokens} positions or its window of {window}")
    steps = reach // step
    starts = np.unique(ends[:, None] - step * np.arange(1, steps + 1))
    rows = max(1, LOGITS // (reach * model.config.vocabulary))
    losses_SK = np.empty((len(starts), steps))
    columns = torch.arange(step - 1, reach, step)
    for first in range(0, len(starts), rows):
        part = [torch.from_numpy(store.span(int(start), reach + 1)) for start in starts[first : first + rows]]
        pieces = torch.stack(part)
        logits, _ = model.predict(pieces[:, :-1])
        nats = -logits[:, columns].float().log_softmax(-1).gather(-1, pieces[:, columns + 1].unsqueeze(-1)).squeeze(-1)
        losses_SK[first : first + rows] = nats.numpy()
    used = np.minimum(np.arange(longest // step), steps - 1)[:, None]
    losses_CP: Floats = losses_SK[np.searchsorted(starts, ends - step * (used + 1)), used]
    return losses_CP


def gain(before_P: Floats, after_P: Floats) -> Interval:
    """The mean decrease of the loss from one context to another, with its interval over the segments of the text."""
    return rate(*np.asarray([(part.sum(), len(part)) for part in np.array_split(before_P - after_P, SEGMENTS)]).T)


def effective(losses_CP: Floats, step: int) -> int:
    """The shortest context from which the longest one does not lower the perplexity by 1%, or not measurably."""
    for index, before_P in enumerate(losses_CP[:-1]):
        rest = gain(before_P, losses_CP[-1])
        if rest.low <= 0 or rest.mean < -math.log(1 - THRESHOLD):
            return step * (index + 1)
    return step * len(losses_CP)


def cost(model: LanguageModel, store: TokenStore, *, context: int) -> dict[str, Any]:
    """Milliseconds per predicted piece with `context` pieces before it, recomputed and with a carried state, and their
    ratio with its interval over timings. Both are timed alternately on the same text with a batch of one. A model with
    limited positions carries no state, so only the former is timed, with as many pieces as fit."""
    room = model.max_tokens
    context = context if room is None else min(context, room)
    text = torch.from_numpy(store.span(0, context + TIMED))
    anew, carried = list[float](), list[float]()
    with torch.inference_mode():
        if isinstance(model, TransformerXL):
            model.set_memory(context)
        for _ in range(REPEATS):
            # Evaluation would move the window by one piece; a few windows are enough to time one.
            windows, began = range(0, TIMED, 16), time.perf_counter()
            for start in windows:
                model.predict(text[None, start : start + context])
            anew.append((time.perf_counter() - began) / len(windows) * 1000)
            if room is None:
                _, state = model.predict(text[None, :context])
                began = time.perf_counter()
                model.predict(text[None, context:], state)
                carried.append((time.perf_counter() - began) / TIMED * 1000)
    times = interval(np.asarray(anew) / np.asarray(carried), confidence=CONFIDENCE) if carried else None
    return {
        "context": context,
        "ms, carried state": min(carried, default=None),
        "ms, recomputed": min(anew),
        "ratio": times,
    }


def effective_context(
    outputs: Outputs,
    *,
    encoder: EncoderName = "",
    longest: Longest = 256,
    step: Annotated[int, typer.Option(help="Step between contexts in pieces.", min=1)] = 16,
    positions: Positions = 256,
    costs: Annotated[str, typer.Option(help="Contexts whose cost is timed, separated by commas.")] = "256,1024",
) -> Measured:
    """The effective context of the causal models of a run, and the cost of evaluation with and without a carried state.

    A group consists of the models with the same vocabulary that were last trained on the same corpus; they are compared
    on its held-out part.
    """
    if longest < 2 * step:
        raise ConfigError(f"--longest {longest}: must be at least two steps of {step}")
    sheets, timed, drawings = list[Sheet](), list[Row](), list[Drawing]()
    for group, models in _groups(outputs, encoder).items():
        store = TokenStore(outputs.of("tokens", group), "heldout")
        ends = _ends(store, longest=longest, step=step, positions=positions)
        losses = {
            name: context_losses(model, store, ends, longest=longest, step=step, window=window)
            for name, (model, window) in models.items()
        }
        rows = [
            {
                "encoder": name,
                "effective context": effective(of, step),
                f"loss at {step}": float(of[0].mean()),
                f"at {longest}": float(of[-1].mean()),
                "gain": gain(of[0], of[-1]),
            }
            for name, of in losses.items()
        ]
        pairs = [
            {"encoder": name, "against": other, "difference of the gain": gain(of[0] - of[-1], rival[0] - rival[-1])}
            for (name, of), (other, rival) in permutations(losses.items(), 2)
        ]
        points = [
            {"encoder": name, "context": step * n, "loss": float(loss_P.mean())}
            for name, of in losses.items()
            for n, loss_P in enumerate(of, 1)
        ]
        sheets.append(Sheet(rows, f"Held-out {group}, {len(ends)} positions"))
        if pairs:
            about = f"Gain of the longest context, {group}"
            sheets.append(Sheet(pairs, about, value="difference of the gain", reference=0.0))
        drawings += Sheet(points, f"Held-out {group}", value="loss", x="context").drawing()
        timed += [
            {"encoder": name} | cost(model, store, context=context)
            for context in (int(each) for each in costs.split(",") if each.strip())
            if context + TIMED < store.tokens
            for name, (model, _) in models.items()
        ]
    by = ("encoder", "context")
    sheets.append(Sheet(timed, "Cost of evaluation, per piece", {"ratio": ",.1f"}, "ratio" * bool(timed), by=by))
    text = (
        "Effective context: the length from which more pieces lower the perplexity by less than "
        f"{THRESHOLD:.0%} or not measurably (after Dai et al. 2019, appendix C). Intervals are over segments of the "
        "text, those of the ratio over timings. Carried state: the state of an LSTM or a memory; a Transformer with "
        "learned positions has none."
    )
    return Measured(sheets, [text], figures=drawings)


def _groups(outputs: Outputs, encoder: str) -> dict[str, dict[str, tuple[LanguageModel, int]]]:
    """Name of tokens -> encoder -> causal model and window of its training."""
    groups: dict[str, dict[str, tuple[LanguageModel, int]]] = {}
    params = outputs.params
    for name, loaded in outputs.causal(encoder).items():
        block, start = outputs.split_name(name)
        corpus = "domain" if start == "adapted" else params.pretraining_corpus
        made = params.pretrain[block]
        tokens = f"{corpus}-{made.tokenizer}"
        directory = outputs.of("tokens", tokens)
        if loaded.tokenizer.fingerprint() != TokenStore(directory, "heldout").tokenizer_fingerprint:
            raise ConfigError(
                f"{name}: has another vocabulary than the tokens in {directory} (it may be imported); name "
                "another encoder with --encoder"
            )
        groups.setdefault(tokens, {})[name] = loaded.model.eval(), made.training.window
    return groups


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


def beside_ngrams(
    outputs: Outputs,
    *,
    encoder: EncoderName = "",
    order: Annotated[int, typer.Option(help="Length of the longest n-grams, in pieces.", min=1, max=12)] = 5,
    pieces: Annotated[int, typer.Option(help="Maximum number of pieces that are counted, in memory.")] = 20_000_000,
    positions: Positions = 2048,
    longest: Longest = 64,
) -> Measured:
    """The losses of every causal model and of n-grams of as many pieces of the same text as it has read, on the same
    held-out pieces; and those of shorter n-grams and contexts."""
    rows, points = list[Row](), list[Row]()
    for tokens, models in _groups(outputs, encoder).items():
        train, heldout = (TokenStore(outputs.of("tokens", tokens), split) for split in ("train", "heldout"))
        ends = _ends(heldout, longest=longest, step=1, positions=positions)
        for name, (model, window) in models.items():
            counted = min(pieces, _tokens_read(outputs, name) or pieces, train.tokens)
            learned, vocabulary = train.span(0, counted), heldout.vocab_size - len(NEVER)
            by_order = {
                n: -log_probs(heldout.span(0, heldout.tokens), learned=learned, order=n, vocabulary=vocabulary)[ends]
                for n in range(1, order + 1)
            }
            losses_CP = context_losses(model, heldout, ends, longest=longest, step=1, window=window)
            per_word = [
                perplexity_of(float(of.mean()), len(ends), heldout).perplexity_per_word
                for of in (losses_CP[-1], by_order[order])
            ]
            rows.append(
                {
                    "encoder": name,
                    "vocabulary": tokens,
                    "parameters": sum(parameter.numel() for parameter in model.parameters()),
                    "n": order,
                    "read": counted,
                    "perplexity per word": per_word[0],
                    "of n-grams": per_word[1],
                    MINUS: gain(losses_CP[-1], by_order[order]),
                }
            )
            ngrams = [by_order[n] for n in sorted(by_order)]
            for label, first, of in ((name, 1, [*losses_CP]), (f"n-grams of {tokens}, {name}", 0, ngrams)):
                points += [
                    {"model": label, "context": n, "loss": float(loss.mean())} for n, loss in enumerate(of, first)
                ]
    text = (
        "N-grams count as many pieces of the corpus as the language model of their row has read of it (column read; "
        "interpolated modified Kneser-Ney, Chen and Goodman 1999). Both predict the same held-out pieces; the interval "
        "is over segments of the text. An adapted model has read general text before."
    )
    forms = dict.fromkeys(("perplexity per word", "of n-grams"), ",.1f")
    sheet = Sheet(rows, "Held-out text", forms, MINUS, reference=0.0)
    return Measured([sheet], [text], figures=Sheet(points, "Held-out text", value="loss", x="context").drawing())


def _tokens_read(outputs: Outputs, name: str) -> int | None:
    """Number of pieces that the last language model training of an encoder has read."""
    block, start = outputs.split_name(name)
    stage = "adapt" if start == "adapted" else "pretrain"
    metrics = read_json(outputs.out / "metrics" / stage / f"{block}.json", made_by=f"the stage {stage}")
    return int(metrics["tokens"]) if metrics.get("tokens") else None
