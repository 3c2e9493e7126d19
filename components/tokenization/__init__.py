"""Text to ids and back: vocabularies (WordPiece, words, characters), and the memory-mapped store of token ids.

Importing this package, `special` or `store` needs NumPy and PyArrow only; the tokenizers' own libraries are imported
when one is trained or loaded.
"""

from __future__ import annotations

from components.tokenization.base import KINDS, Tokenizer, load_tokenizer, overlap

__all__ = ["KINDS", "Tokenizer", "load_tokenizer", "overlap"]
