"""Distance of a task's texts from a language model's training data: its perplexity on them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

from components.artifacts import writing
from components.models import family as family_named
from components.models.encoder import Encoder
from components.pretraining.perplexity import Perplexity, heldout_sampler, measure
from components.tokenization.store import KIND, LAYOUT, TokenStore, write_shard
from components.tokenization.tokenize import encode_corpus
from components.training.distributed import World

#: Maximum number of predicted pieces, window length in pieces, and batch size in rows.
PIECES, WINDOW, ROWS = 100_000, 64, 32


def perplexity(encoder: Encoder, texts: Iterable[str]) -> Perplexity | None:
    """The encoder's perplexity on texts under its own training objective.

    Returns:
        None for word vectors, translators and models that were imported without their output layer, and for texts
        shorter than two windows.
    """
    objective = family_named(encoder.family).objective
    fresh = encoder.manifest.facts.get("fresh", []) if encoder.manifest else []
    headless = any(part in name for name in fresh for part in ("predictions", "lm_head", "lm_loss"))
    if objective in ("static", "translation") or headless:
        return None
    with TemporaryDirectory(prefix="headstart-study-") as folder:
        store = _store(encoder, texts, Path(folder) / "tokens")
        if store.tokens < 2 * WINDOW:
            return None
        # The model's positions limit the window.
        window = min(WINDOW, encoder.model.max_tokens or WINDOW)
        sampler = heldout_sampler(
            encoder.family,
            store,
            config=encoder.model.config,
            pieces=encoder.tokenizer.pieces,
            batch_size=ROWS,
            window=window,
            workers=1,
        )
        if sampler is None:
            return None
        return measure(
            encoder.model, sampler, store, family=encoder.family, pieces=PIECES, precision="float32", world=World()
        )


def _store(encoder: Encoder, texts: Iterable[str], directory: Path) -> TokenStore:
    tokenizer = encoder.tokenizer
    with writing(directory, kind=KIND) as draft:
        documents = encode_corpus(((text,) for text in texts), tokenizer=tokenizer)
        write_shard(draft.path / "texts.arrow", documents, vocab_size=tokenizer.vocab_size)
        draft.facts |= {
            "layout": LAYOUT,
            "tokenizer": tokenizer.fingerprint(),
            "vocabulary": tokenizer.vocab_size,
            "shards": {"train": [], "heldout": ["texts.arrow"]},
        }
    return TokenStore(directory, "heldout")
