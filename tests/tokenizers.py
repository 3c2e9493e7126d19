"""Tokenizers with known vocabularies."""

from collections.abc import Iterable
from typing import Any

from components.data.segmenters import Segmentation
from components.settings.tokenizer import TokenizerSettings
from components.tokenization import KINDS, Tokenizer
from components.tokenization.special import SPECIAL_PIECES
from components.tokenization.train import fit
from components.tokenization.unigram import WORDS, normalization


def make_tokenizer(
    kind: str, pieces: Iterable[str], *, segmenter: str = "none", lowercase: bool = True, strip: bool | None = None,
    **more: Any,
) -> Any:  # fmt: skip
    """A tokenizer with these pieces after the special ones, without merges and with equal scores.

    Args:
        strip: whether accents are stripped; None: with the upper case.
        more: further arguments of its class.
    """
    names = [*SPECIAL_PIECES, *pieces]
    words = {"lowercase": lowercase, "strip_accents": lowercase if strip is None else strip}
    unigram = {"scores": [-1.0] * len(names), "normalizer": normalization(lowercase=lowercase), "pre_tokenizer": WORDS}
    options = {"char": {}, "bpe": {"merges": []}, "unigram": unigram}.get(kind, words) | more
    tokenizer: Tokenizer = KINDS[kind](names, segmentation=Segmentation(segmenter), **options)
    return tokenizer


def learn(texts: Iterable[str], kind: str, *, segmenter: str = "none", **settings: Any) -> Any:
    """A tokenizer that is learned from texts with these settings of its kind."""
    segmentation = Segmentation(segmenter)
    separator = KINDS[kind].separator if KINDS[kind].segmented else ""
    sample = [segmentation.spaced(text, separator) for text in texts]
    chosen = TokenizerSettings.model_validate({kind.removeprefix("open_"): settings})
    tokenizer: Tokenizer = fit(sample, kind=kind, settings=chosen, segmentation=segmentation)
    return tokenizer
