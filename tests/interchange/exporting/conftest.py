"""Fixtures: encoders with random weights and tokenizers of the models' tests, on one thread with a fixed seed."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from components.models import FAMILIES
from components.models.base import LanguageModel
from components.models.encoder import build_model
from components.tokenization import load_tokenizer
from tests.models.conftest import VOCABULARY, tokenizer_directory

__all__ = ["tokenizer_directory"]

#: Kinds of tokenizers of Hugging Face's classes in addition to the default one.
KINDS = {"roberta": "bpe", "modernbert": "bpe", "gpt": "bpe", "llama": "bpe", "albert": "unigram", "xlnet": "unigram"}


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)


@pytest.fixture
def random_encoder(tokenizer_directory: Callable[..., Path]) -> Callable[..., tuple[LanguageModel, Path]]:
    """`random_encoder("bert", reading=None)`: a model with these settings, and the directory of its tokenizer."""

    def build(family: str, **settings: Any) -> tuple[LanguageModel, Path]:
        tokenizer = tokenizer_directory(KINDS.get(family, FAMILIES[family].tokenizers[0]))
        # Attention within a band has no counterpart in transformers.
        sizes = {key: value for key, value in FAMILIES[family].tiny.items() if key != "band"}
        model = build_model(family, vocabulary=VOCABULARY, settings=sizes | settings)
        model.bind(load_tokenizer(tokenizer))
        for parameter in model.parameters():
            # Biases and norms start where a mistake would not be seen.
            torch.nn.init.normal_(parameter, std=0.1)
        return model, tokenizer

    return build
