"""`headstart try`: the output of a model for a text as a table. The family's objective determines what is shown."""

from __future__ import annotations

from pathlib import Path

from components.core.errors import ConfigError
from components.models import family as family_named
from components.models.cove import CoVe
from components.models.encoder import Encoder, load_encoder
from components.models.static import StaticVectors
from components.serving.generation import Sampling, continue_text, fill_gaps, nearest_to, translate_text

Rows = list[tuple[str, ...]]


def try_model(
    directory: Path, text: str, *, length: int, count: int, sampling: Sampling, seed: int
) -> tuple[list[str], Rows]:
    """Columns and rows: continuations of a text, candidates for its gaps, a translation, or the nearest words.

    Args:
        text: the prompt; with [MASK] for masked families, an expression of words for word vectors.
        length: maximum number of pieces to generate (causal families and translators).
        count: number of continuations, of candidates per gap, or of words.
    """
    if count < 1 or length < 1:
        raise ConfigError("count and length must be at least 1")
    encoder = load_encoder(Path(directory))
    model, tokenizer = encoder.model, encoder.tokenizer
    objective = family_named(encoder.family).objective
    if objective == "causal":
        copies = 1 if sampling.temperature == 0 else count
        texts = [
            continue_text(model, tokenizer, text, length=length, sampling=sampling, seed=seed + copy)
            for copy in range(copies)
        ]
        return ["seed", "text"], [(str(seed + copy), written) for copy, written in enumerate(texts)]
    if objective in ("masked", "permuted"):
        require_output_layer(encoder)
        gaps = fill_gaps(model, tokenizer, text, count=count)
        return ["gap", "piece", "probability"], [
            (str(gap), piece, f"{probability:.4f}") for gap, best in enumerate(gaps, 1) for piece, probability in best
        ]
    if isinstance(model, CoVe):
        return ["translation"], [(translate_text(model, tokenizer, text, length=length),)]
    if isinstance(model, StaticVectors):
        return ["word", "cosine"], [
            (word, f"{cosine:.4f}") for word, cosine in nearest_to(model, tokenizer, text, count=count)
        ]
    raise ConfigError(f"the family {encoder.family!r} has neither a language model nor word vectors")


def require_output_layer(encoder: Encoder) -> None:
    """Refuse an encoder that was imported without its output layer: a newly initialised one predicts nothing useful."""
    fresh = encoder.manifest.facts.get("fresh", []) if encoder.manifest else []
    if lacking := [name for name in fresh if "predictions" in name or "lm_head" in name or "lm_loss" in name]:
        raise ConfigError(
            f"{encoder.family}: imported without its output layer ({lacking[0]} ...), so it cannot fill gaps; adapt it "
            "first, which trains that layer"
        )
