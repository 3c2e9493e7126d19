"""The losses of the causal language models of a run on held-out text, by the length of the context: how much context
does a model use, and what does it cost (Dai et al. 2019; `effective_context`), and is it better than n-grams of the
same text (`ngrams`)?

The gain of a context is the mean decrease of the loss from it to the longest one. A context is effective up to the
first length from which the rest lowers the perplexity by less than 1% or not measurably. All positions count: the
hardest ones by the loss at one context (section 4.4) would take noise for a gain of the next.

Shape suffixes: P positions, C contexts, K predicted pieces per pass, S passes.
"""

import math
from collections import defaultdict
from collections.abc import Iterator
from itertools import permutations
from timeit import timeit

import numpy as np
import torch

from components.core.artifacts import read_json
from components.core.errors import ConfigError, DataError
from components.data.scoring.base import Floats
from components.data.scoring.intervals import Interval, Ints
from components.models.base import LanguageModel
from components.models.encoder import Encoder, count_parameters
from components.models.transformer_xl import TransformerXL
from components.serving.likelihood import Gap, causal_log_probs
from components.studies.frame import CAUSAL, STAGE_OF, Outputs, Parts, Row, Rows, Sheet, is_causal, mean_of, over
from components.studies.kneser_ney import log_probs
from components.tokenization.special import MASK, PAD, START
from components.tokenization.store import TokenStore
from components.training.pretraining.perplexity import perplexity_of

#: Segments of the text that contain the positions, which are one step apart within a segment.
SEGMENTS = 8
#: Decrease of the perplexity below which a longer context does not count (Dai et al. 2019, appendix C).
THRESHOLD = 0.01
#: Number of timings, and number of predictions per timing.
REPEATS, TIMED = 5, 64
#: Column of the comparison of two models; of a model and n-grams, and the columns of the perplexities of both.
DIFFERENCE, MINUS = "difference of the gain", "minus n-grams, nats per piece"
FORMS = {"perplexity per word": ",.1f", "of n-grams": ",.1f"}
#: Special pieces that no text contains.
NEVER = (PAD, START, MASK)


def context_losses(
    model: LanguageModel, store: TokenStore, ends: Ints, *, longest: int, step: int, window: int
) -> Floats:
    """(C, P) losses in nats of the pieces at `ends`, given exactly `step`, 2 `step` ... `longest` pieces before them;
    for a model with fewer positions, or one that was trained with a shorter `window` and carries no state, the last
    losses repeat. A pass over a window gives the losses at multiples of `step` from its start, so it serves as many
    positions as it has steps."""
    reach = longest if model.max_tokens is None else min(longest, model.max_tokens, window) // step * step
    if reach < step:
        raise ConfigError(f"--step {step} exceeds the model's {model.max_tokens} positions or its window of {window}")
    places = range(step, reach + 1, step)
    starts = np.unique(ends[:, None] - places)
    gaps = [Gap(store.span(at, reach + 1).tolist(), places) for at in starts.tolist()]
    losses_SK = -np.asarray(causal_log_probs(model, gaps))
    used = np.minimum(np.arange(longest // step), len(places) - 1)[:, None]
    losses_CP: Floats = losses_SK[np.searchsorted(starts, ends - step * (used + 1)), used]
    return losses_CP


def gain(before_P: Floats, after_P: Floats) -> Interval:
    """The mean decrease of the loss from one context to another, with its interval over the segments of the text."""
    segments = np.arange(len(before_P)) * SEGMENTS // len(before_P)
    return mean_of(before_P - after_P, segments, within=(-math.inf, math.inf))


#: Name of the tokens, their held-out text, positions in it, and name of a model -> the model, and its losses (C, P).
Group = tuple[str, TokenStore, Ints, dict[str, LanguageModel], dict[str, Floats]]


def groups(outputs: Outputs, encoder: str, *, longest: int, step: int, positions: int) -> Iterator[Group]:
    """The causal models of a run in groups of one vocabulary that were last trained on one corpus."""
    members, params = defaultdict[str, dict[str, tuple[Encoder, int]]](dict), outputs.params
    for name, loaded in outputs.encoders(encoder, is_causal, CAUSAL).items():
        block, start = outputs.split_name(name)
        made = params.pretrain[block]
        tokens = f"{'domain' if start == 'adapted' else params.pretraining_corpus}-{made.tokenizer}"
        members[tokens][name] = loaded, made.training.window
    for tokens, of in members.items():
        heldout = TokenStore(outputs.of("tokens", tokens), "heldout")
        ends, losses = ends_in(heldout, longest=longest, step=step, positions=positions), dict[str, Floats]()
        for name, (loaded, window) in of.items():
            if loaded.tokenizer.fingerprint() != heldout.tokenizer_fingerprint:
                raise ConfigError(
                    f"{name}: has another vocabulary than the tokens in {heldout.directory} (it may be imported); name "
                    "another encoder with --encoder"
                )
            losses[name] = context_losses(loaded.model, heldout, ends, longest=longest, step=step, window=window)
        yield tokens, heldout, ends, {name: loaded.model for name, (loaded, _) in of.items()}, losses


def ends_in(store: TokenStore, *, longest: int, step: int, positions: int) -> Ints:
    """Positions of the predicted pieces: in SEGMENTS segments of the text, one step apart."""
    each = -(-positions // SEGMENTS)
    needed = longest + each * step
    if store.tokens <= needed:
        raise DataError(
            f"{store.directory}: has {store.tokens} held-out pieces, needs {needed}; lower --longest or --positions"
        )
    firsts = [longest + round(segment * (store.tokens - needed) / SEGMENTS) for segment in range(SEGMENTS)]
    return np.unique(np.add.outer(firsts, step * np.arange(each)))


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
    text, times = torch.from_numpy(store.span(0, context + TIMED))[None], list[tuple[float, float]]()
    if isinstance(model, TransformerXL):
        model.set_memory(context)
    # A few windows are enough to time one.
    windows = range(0, TIMED, 16)
    _, state = model.predict(text[:, :context])
    for _ in range(REPEATS):
        anew = timeit(lambda: [model.predict(text[:, at : at + context]) for at in windows], number=1) / len(windows)
        carried = timeit(lambda: model.predict(text[:, context:], state), number=1) / TIMED if carries else math.inf
        times.append((carried * 1000, anew * 1000))
    fastest, recomputed = map(min, zip(*times, strict=True))
    shown = {"ms, carried state": fastest if carries else None, "ms, recomputed": recomputed}
    return {"context": context} | shown | {"ratio": over([anew / of for of, anew in times]) if carries else None}


def effective_context(
    outputs: Outputs,
    *,
    encoder: str = "",
    longest: int = 256,
    step: int = 16,
    positions: int = 256,
    costs: str = "256,1024",
) -> Parts:
    """The effective context of the causal models of a run, and the cost of evaluation with and without a carried state.
    Models of one vocabulary that were last trained on the same corpus are compared on its held-out part."""
    if longest < 2 * step:
        raise ConfigError(f"--longest {longest}: must be at least two steps of {step}")
    timed, by = Rows(), ("encoder", "context")
    for tokens, heldout, ends, models, losses in groups(
        outputs, encoder, longest=longest, step=step, positions=positions
    ):
        rows, points, about = Rows(), Rows(), f"Held-out {tokens}"
        for name, of in losses.items():
            row: Row = {"encoder": name, "effective context": effective(of, step), f"loss at {step}": of[0].mean()}
            rows.append(row | {f"at {longest}": of[-1].mean(), "gain": gain(of[0], of[-1])})
            points += [{"encoder": name, "context": step * n, "loss": loss.mean()} for n, loss in enumerate(of, 1)]
        pairs = [
            {"encoder": name, "against": other, DIFFERENCE: gain(of[0] - of[-1], rival[0] - rival[-1])}
            for (name, of), (other, rival) in permutations(losses.items(), 2)
        ]
        yield Sheet(rows, f"{about}, {len(ends)} positions")
        yield Sheet(pairs, f"Gain of the longest context, {tokens}", value=DIFFERENCE, reference=0.0)
        yield from Sheet(points, about, value="loss", x="context").drawing()
        timed += [
            {"encoder": name} | cost(model, heldout, context=context)
            for context in map(int, filter(str.strip, costs.split(",")))
            if context + TIMED < heldout.tokens
            for name, model in models.items()
        ]
    yield Sheet(timed, "Cost of evaluation, per piece", {"ratio": ",.1f"}, "ratio", by=by)


def ngrams(
    outputs: Outputs,
    *,
    encoder: str = "",
    order: int = 5,
    pieces: int = 20_000_000,
    positions: int = 2048,
    longest: int = 64,
) -> Parts:
    """The losses of every causal model and of n-grams of as many pieces of the same text as it has read, on the same
    held-out pieces; and those of shorter n-grams and contexts."""
    rows, points = Rows(), Rows()
    for tokens, heldout, ends, models, losses in groups(outputs, encoder, longest=longest, step=1, positions=positions):
        train = TokenStore(outputs.of("tokens", tokens), "train")
        text, vocabulary = heldout.span(0, heldout.tokens), heldout.vocab_size - len(NEVER)
        for name, losses_CP in losses.items():
            block, start = outputs.split_name(name)
            stage = STAGE_OF[start]
            metrics = read_json(outputs.out / "metrics" / stage / f"{block}.json", made_by=f"the stage {stage}")
            counted = min(pieces, int(metrics.get("tokens") or pieces), train.tokens)
            learned, lengths = train.span(0, counted), range(1, order + 1)
            shorter = [-log_probs(text, learned=learned, order=n, vocabulary=vocabulary)[ends] for n in lengths]
            both, parameters = (losses_CP[-1], shorter[-1]), count_parameters(models[name])
            row: Row = {"encoder": name, "vocabulary": tokens, "parameters": parameters, "n": order, "read": counted}
            for column, nats in zip(FORMS, both, strict=True):
                row[column] = perplexity_of(float(nats.mean()), len(nats), heldout).perplexity_per_word
            rows.append(row | {MINUS: gain(*both)})
            for label, first, of in ((name, 1, losses_CP), (f"n-grams of {tokens}, {name}", 0, shorter)):
                points += [{"model": label, "context": n, "loss": loss.mean()} for n, loss in enumerate(of, first)]
    yield Sheet(rows, "Held-out text", FORMS, MINUS, reference=0.0)
    yield from Sheet(points, "Held-out text", value="loss", x="context").drawing()
