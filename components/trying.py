"""`headstart try`: what a model says to a text, as rows of a table; which way follows from the family's objective."""

from __future__ import annotations

from pathlib import Path

from components.errors import ConfigError
from components.models import family as family_named
from components.models.cove import CoVe
from components.models.encoder import load_encoder
from components.models.generation import Sampling, continued, filled, related, translated
from components.models.static import StaticVectors

Rows = list[tuple[str, ...]]


def try_model(
    directory: Path, text: str, *, length: int, count: int, sampling: Sampling, seed: int
) -> tuple[list[str], Rows]:
    """Columns and rows for a text: continuations, pieces for its gaps, a translation, or the words nearest to it.

    Args:
        directory: encoder directory.
        length: pieces to write (causal families and translators).
        count: how many continuations, pieces a gap, or words.

    Raises:
        ArtifactError: no complete encoder there.
        DataError, ConfigError: as `components.models.generation` says.
    """
    if count < 1 or length < 1:
        raise ConfigError("count and length: 1 or more")
    encoder = load_encoder(Path(directory))
    model, tokenizer = encoder.model, encoder.tokenizer
    objective = family_named(encoder.family).objective
    if objective == "causal":
        copies = 1 if sampling.temperature == 0 else count
        texts = [
            continued(model, tokenizer, text, length=length, sampling=sampling, seed=seed + copy)
            for copy in range(copies)
        ]
        return ["seed", "text"], [(str(seed + copy), written) for copy, written in enumerate(texts)]
    if objective in ("masked", "permuted"):
        gaps = filled(model, tokenizer, text, count=count)
        return ["gap", "piece", "probability"], [
            (str(gap), piece, f"{share:.4f}") for gap, best in enumerate(gaps, 1) for piece, share in best
        ]
    if isinstance(model, CoVe):
        return ["translation"], [(translated(model, tokenizer, text, length=length),)]
    if isinstance(model, StaticVectors):
        return ["word", "cosine"], [
            (word, f"{cosine:.4f}") for word, cosine in related(model, tokenizer, text, count=count)
        ]
    raise ConfigError(f"the family {encoder.family!r} neither predicts pieces nor holds word vectors: nothing to try")
