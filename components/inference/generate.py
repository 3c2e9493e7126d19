"""`headstart try`: what a model says to a text, as rows of a table; which way follows from the family's objective."""

from __future__ import annotations

from pathlib import Path

from components.errors import ConfigError
from components.inference.generation import Sampling, continued, filled, related, translated
from components.models import family as family_named
from components.models.cove import CoVe
from components.models.encoder import Encoder, load_encoder
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
        DataError, ConfigError: as `components.inference.generation` says.
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
        require_output_layer(encoder)
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


def require_output_layer(encoder: Encoder) -> None:
    """Published encoders often come without the layer that names pieces; what a new one says means nothing.

    Raises:
        ConfigError: so did this one.
    """
    fresh = encoder.manifest.facts.get("fresh", []) if encoder.manifest else []
    if lacking := [name for name in fresh if "predictions" in name or "lm_head" in name or "lm_loss" in name]:
        raise ConfigError(
            f"{encoder.family}: imported without its output layer ({lacking[0]} ...), so it cannot fill gaps; adapt it "
            "first, which trains one"
        )
