"""Fixtures: the tokenizers of the models' tests."""

from tests.models.conftest import tokenizer_directory

__all__ = ["tokenizer_directory"]
