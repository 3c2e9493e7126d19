"""Perplexity of the causal language models of a run beside the perplexity of n-grams on the same held-out pieces.

Both predict pieces of one vocabulary, so their perplexities per word are comparable; an unknown piece is one event for
both. Masked and static models have no comparable perplexity.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from numpy.typing import NDArray

from components.core.artifacts import read_json
from components.core.errors import ArtifactError
from components.models import family as family_named
from components.models.encoder import build_model
from components.reporting.chapters import Chapter, Table
from components.reporting.findings import Findings
from components.settings.pretrain import PretrainSettings
from components.settings.training import LanguageModelTraining
from components.studies.frame import Outputs, Study
from components.studies.ngram_model import estimate
from components.tokenization.special import MASK, PAD, START, UNK
from components.tokenization.store import TokenStore
from components.training.pretraining.language_model import FINAL_PIECES
from components.training.pretraining.perplexity import heldout_sampler, measured_steps, perplexity_of

#: Special pieces that no text contains.
NEVER = (PAD, START, MASK)


def run(
    outputs: Outputs,
    *,
    order: Annotated[int, typer.Option(help="Length of the longest n-grams, in pieces.", min=1, max=12)] = 5,
    character_order: Annotated[int, typer.Option(help="The same for characters.", min=1, max=12)] = 8,
    pieces: Annotated[
        int, typer.Option(help="Maximum number of pieces of train, which are counted in memory.")
    ] = 20_000_000,
) -> Findings:
    """Measure every causal model of the run beside n-grams of as many pieces of the same text as it has read."""
    params = outputs.params
    stages: dict[str, Mapping[str, Any]] = {"pretrain": params.pretrain, "adapt": params.adapt}
    numbers: dict[str, dict[str, Any]] = {}
    nats: dict[tuple[str, int], NDArray[np.float64]] = {}
    for stage, blocks in stages.items():
        corpus = params.pretraining_corpus if stage == "pretrain" else "domain"
        for name in filter(params.run.families.__contains__, blocks):
            block = params.pretrain[name]
            if family_named(block.family or name).objective != "causal":
                continue
            text = f"{corpus}-{block.tokenizer}"
            tokens = outputs.directory("tokens", text, stage=f"tokenize --item {text}")
            if (positions := measured_positions(tokens, name, block, blocks[name].training)) is None:
                continue
            length = character_order if block.tokenizer == "char" else order
            trained = read_json(outputs.out / "metrics" / stage / f"{name}.json", made_by=f"the stage {stage}")
            counted = min(pieces, trained.get("tokens") or pieces, TokenStore(tokens, "train").tokens)
            if (text, counted) not in nats:
                nats[text, counted] = ngram_nats(tokens, order=length, most=counted)
            heldout = TokenStore(tokens, "heldout")
            measured = perplexity_of(float(nats[text, counted][positions].mean()), len(positions), heldout)
            numbers[f"{name}-{stage}"] = {
                "vocabulary": text,
                "order": length,
                "counted": counted,
                "pieces": len(positions),
                "unknown_rate": float(np.mean(heldout.span(0, heldout.tokens) == UNK)),
                "ngrams_per_word": measured.perplexity_per_word,
                "model_per_word": trained.get("perplexity_per_word"),
            }
    if not numbers:
        raise ArtifactError(f"{outputs.out}: no causal language model of the run has held-out text")
    columns = ["model", "vocabulary", "n", "read", "held out", "unknown", "perplexity per word", "of n-grams"]
    rows = [
        [
            name,
            entry["vocabulary"],
            str(entry["order"]),
            f"{entry['counted']:,}",
            f"{entry['pieces']:,}",
            f"{entry['unknown_rate']:.2%}",
            f"{entry['model_per_word']:,.1f}" if entry["model_per_word"] else "",
            f"{entry['ngrams_per_word']:,.1f}",
        ]
        for name, entry in numbers.items()
    ]
    text = (
        "N-grams count as many pieces of the corpus as the language model of their row has read of it (column read; "
        "interpolated modified Kneser-Ney, Chen and Goodman 1999). An adapted model has read general text before."
    )
    return Findings(Chapter("Language models beside n-grams", text=[text], tables=[Table(columns, rows)]), numbers)


def ngram_nats(tokens: Path, *, order: int, most: int) -> NDArray[np.float64]:
    """(pieces,) negative log-likelihood of the held-out pieces by an n-gram model of the train split."""
    train, heldout = TokenStore(tokens, "train"), TokenStore(tokens, "heldout")
    pieces = train.span(0, min(most, train.tokens)) if train.tokens else np.zeros(0, dtype=np.int64)
    model = estimate(pieces, order=order, vocabulary=train.vocab_size - len(NEVER))
    return -model.log_probs(heldout.span(0, heldout.tokens))


def measured_positions(
    tokens: Path, name: str, block: PretrainSettings, training: LanguageModelTraining
) -> NDArray[np.int64] | None:
    """Positions in the held-out stream of the pieces that a causal language model predicts when it is measured
    (`components.training.pretraining.perplexity.measure`); None if there is too little text."""
    store, family = TokenStore(tokens, "heldout"), block.family or name
    with torch.device("meta"):
        model = build_model(family, vocabulary=store.vocab_size, preset=block.preset, settings=block.model)
    numbered: Any = _Positions(store)
    rows, window = training.batch_size, training.window
    sampler = heldout_sampler(
        family, numbered, config=model.config, pieces=(), batch_size=rows, window=window, workers=1
    )
    if sampler is None:
        return None
    steps = measured_steps(sampler, min(FINAL_PIECES, store.tokens))
    return np.concatenate([sampler.batch(step)["targets"].numpy().ravel() for step in range(steps)])


class _Positions:
    """A store whose pieces are their positions in the stream of another, with the same documents."""

    def __init__(self, store: TokenStore) -> None:
        self._store = store
        self.documents, self.tokens, self.offsets = store.documents, store.tokens, store.offsets

    def span(self, start: int, length: int) -> NDArray[np.int64]:
        return np.arange(start, start + length) % self.tokens

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


STUDY = Study("ngrams", "Is the language model better than n-grams of the same text?", run)
