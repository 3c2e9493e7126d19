"""The stage `ngrams`: an n-gram language model of a corpus, measured on the pieces on which language models are.

It predicts the pieces of the same vocabulary, so its perplexity per word is comparable with that of a neural model with
the same tokens, whatever the pieces; an unknown piece is one event for both.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from components.artifacts import writing
from components.models import family as family_named
from components.models.encoder import build_model
from components.ngrams.model import estimate
from components.pretraining.language_model import FINAL_PIECES
from components.pretraining.perplexity import Perplexity, heldout_sampler, measured_steps, perplexity_of
from components.settings.ngrams import NgramSettings
from components.settings.section import Section
from components.tokenization.selection import Selection
from components.tokenization.special import MASK, PAD, START, UNK
from components.tokenization.store import TokenStore

KIND = "ngrams"
#: Special pieces that no text contains.
NEVER = (PAD, START, MASK)


class MeasuredModel(Section):
    """A block of `pretrain` that is trained on the corpus: what determines the held-out pieces on which it is measured.

    Attributes:
        family, preset, model: as in `pretrain.<name>`.
        batch_size, window: of its training.
    """

    family: str
    preset: str | None = None
    model: dict[str, Any] = Field(default_factory=dict)
    batch_size: int
    window: int


class NgramsJob(Section):
    """Inputs and output of the stage.

    Attributes:
        tokens: token shards of the corpus.
        output: directory to write: metrics.json, and the model if it is kept.
        settings: `ngrams`.
        characters: whether the pieces are characters.
        models: language models that are trained on the corpus.
    """

    tokens: Path
    output: Path
    settings: NgramSettings
    characters: bool = False
    models: dict[str, MeasuredModel] = Field(default_factory=dict)


def ngrams(job: NgramsJob) -> Path:
    """Estimate the n-gram model of a corpus from its train split; returns the output directory.

    metrics.json has its perplexity on all held-out text, and under `models` that on the pieces on which each causal
    language model is measured; of a corpus in several languages also those of one model per language, under
    `languages`. Masked and static models have no comparable perplexity.

    Raises:
        ArtifactError: the tokens are incomplete.
        DataError: the corpus has no tokens.
    """
    train, heldout = TokenStore(job.tokens, "train"), TokenStore(job.tokens, "heldout")
    order = job.settings.character_order if job.characters else job.settings.order
    memory = job.settings.memory_megabytes * 1_000_000
    with writing(job.output, kind=KIND) as draft, _folder(draft.path, keep=job.settings.keep) as folder:
        model = estimate(train, folder, order=order, vocabulary=train.vocab_size - len(NEVER), memory=memory)
        metrics: dict[str, Any] = dict(model.facts)
        if heldout.tokens:
            nats = -model.log_probs(heldout)
            metrics |= _measured(nats, heldout)
            metrics["unknown_rate"] = float(np.mean(heldout.span(0, heldout.tokens) == UNK))
            metrics["models"] = _models(job, nats, heldout)
        if languages := _languages(job, train, heldout, order=order, memory=memory):
            metrics["languages"] = languages
        (draft.path / "metrics.json").write_text(json.dumps(metrics, indent=1) + "\n", encoding="utf-8")
        draft.facts |= {"tokenizer": train.tokenizer_fingerprint, "order": order}
    per_word = metrics.get("perplexity_per_word")
    print(
        f"ngrams {job.output.name}: {sum(model.facts['ngrams']):,} n-grams of {train.tokens:,} tokens"
        + (f", perplexity {per_word:,.1f} per word" if per_word else "")
    )
    return job.output


def _languages(
    job: NgramsJob, train: TokenStore, heldout: TokenStore, *, order: int, memory: int
) -> dict[str, dict[str, Any]]:
    """Measurements of an n-gram model of each language alone, as those of the whole corpus."""
    found: dict[str, dict[str, Any]] = {}
    for language in train.languages.keys() & heldout.languages.keys():
        own = Selection(heldout, heldout.languages[language])
        with tempfile.TemporaryDirectory(dir=job.output.parent) as temporary:
            text = Selection(train, train.languages[language])
            model = estimate(
                text, Path(temporary), order=order, vocabulary=train.vocab_size - len(NEVER), memory=memory
            )
            nats = -model.log_probs(own)
        found[language] = {**_measured(nats, own), "models": _models(job, nats, own)}
    return dict(sorted(found.items()))


def _models(job: NgramsJob, nats: NDArray[np.float64], store: TokenStore | Selection) -> dict[str, Any]:
    """Measurements on the pieces of a held-out store on which each causal language model is measured."""
    return {
        name: _measured(nats[positions], store)
        for name, entry in job.models.items()
        if (positions := measured_positions(store, entry)) is not None
    }


@contextmanager
def _folder(output: Path, *, keep: bool) -> Iterator[Path]:
    """The folder of the model: the output, or one that is deleted."""
    if keep:
        yield output
    else:
        with tempfile.TemporaryDirectory(dir=output) as temporary:
            yield Path(temporary)


def _measured(nats: NDArray[np.float64], store: TokenStore | Selection) -> Mapping[str, float]:
    """Perplexity from the negative log-likelihood of pieces of a store."""
    found: Perplexity = perplexity_of(float(nats.mean()), len(nats), store)
    return found.named("")


def measured_positions(store: TokenStore | Selection, entry: MeasuredModel) -> NDArray[np.int64] | None:
    """Positions in the held-out stream of the pieces that a causal language model predicts when it is measured
    (`components.pretraining.perplexity.measure`); None for other models, or if there is too little text."""
    if family_named(entry.family).objective != "causal":
        return None
    with torch.device("meta"):
        config = build_model(
            entry.family, vocabulary=store.vocab_size, preset=entry.preset, settings=entry.model
        ).config
    sampler = heldout_sampler(
        entry.family,
        _Positions(store),
        config=config,
        pieces=(),
        batch_size=entry.batch_size,
        window=entry.window,
        workers=1,
    )
    if sampler is None:
        return None
    steps = measured_steps(sampler, min(FINAL_PIECES, store.tokens))
    return np.concatenate([sampler.batch(step)["targets"].numpy().ravel() for step in range(steps)])


class _Positions:
    """A store whose pieces are their positions in the stream of another, with the same documents."""

    def __init__(self, store: TokenStore | Selection) -> None:
        self._store = store
        self.documents, self.tokens, self.offsets = store.documents, store.tokens, store.offsets

    def span(self, start: int, length: int) -> NDArray[np.int64]:
        return np.arange(start, start + length) % self.tokens

    def another(self, document: int, chance: float) -> int:
        return self._store.another(document, chance)

    def sentence_starts(self, document: int) -> NDArray[Any]:
        return self._store.sentence_starts(document)
