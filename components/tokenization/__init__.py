"""Tokenizers, and the memory-mapped store of token ids.

This package and its modules `special` and `store` import NumPy and PyArrow only; the libraries of a tokenizer are
imported when it is trained or loaded.
"""

from components.tokenization.base import KINDS, Tokenizer, load_tokenizer, overlap

__all__ = ["KINDS", "Tokenizer", "load_tokenizer", "overlap"]
