"""How much context does a language model use, and what does it cost? (Dai et al. 2019)

`components.studies.context_length` defines the relative effective context length (RECL). Cost: with a carried state or
memory every piece is processed once. Without it, each prediction processes its complete context (section 4.5 of the
paper: up to 1,874 times slower).
"""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from components.core.errors import ConfigError, DataError
from components.models.encoder import Encoder
from components.reporting import figures
from components.reporting.chapters import Chapter, Drawing, Table
from components.reporting.figures import Line
from components.reporting.findings import Findings
from components.studies.context_length import THRESHOLD, context_losses, cost, effective
from components.studies.frame import EncoderName, Outputs, Study
from components.tokenization.store import TokenStore

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


STUDY = Study("effective-context", "How much context does a language model use, and what does it cost?", run)
