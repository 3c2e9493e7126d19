"""A tiny token store, tokenizers with known vocabularies, and a small model of every family."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.gpu_steps.correctness import CountingStore
from components.models import FAMILIES
from components.models.base import Batch, LanguageModel
from components.models.encoder import build_model
from components.tokenization import load_tokenizer
from components.tokenization.special import FIRST_ORDINARY, SPECIAL_PIECES
from components.training.pretraining.samplers import sampler_for
from tests.tokenizers import make_tokenizer

VOCABULARY = 24
WINDOW = 16
ROWS = 8

BatchOf = Callable[..., Batch]


def letters(count: int) -> list[str]:
    """a, b, c ..."""
    return [chr(ord("a") + index) for index in range(count)]


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)


@pytest.fixture
def batch_of() -> BatchOf:
    """`batch_of("ulmfit", step, rank, workers)`: a worker's batch of the family's sampler on the tiny store."""
    store = CountingStore(VOCABULARY, 40, 30)
    pieces = [*SPECIAL_PIECES, *letters(VOCABULARY - FIRST_ORDINARY)]

    def batch(family: str, step: int = 0, rank: int = 0, workers: int = 1) -> Batch:
        config = FAMILIES[family].config(vocabulary=VOCABULARY, **FAMILIES[family].tiny)
        sampler = sampler_for(family, store, config=config, pieces=pieces, batch_size=ROWS, window=WINDOW, seed=0)
        return sampler.batch(step, rank, workers)

    return batch


@pytest.fixture(params=list(FAMILIES))
def name(request: pytest.FixtureRequest) -> str:
    """Every family of the table."""
    return str(request.param)


@pytest.fixture
def build(name: str, tokenizer_directory: Callable[..., Path]) -> Callable[..., LanguageModel]:
    """`build(dropout=0.3)`: the family's test model with these settings, bound to a tokenizer."""

    def fresh(**settings: Any) -> LanguageModel:
        model = build_model(name, vocabulary=VOCABULARY, settings={**FAMILIES[name].tiny, **settings})
        model.bind(load_tokenizer(tokenizer_directory(FAMILIES[name].tokenizers[0])))
        return model

    return fresh


@pytest.fixture
def model(build: Callable[..., LanguageModel]) -> LanguageModel:
    return build()


@pytest.fixture
def texts() -> tuple[torch.Tensor, torch.Tensor]:
    """Three texts of different lengths, padded with 0."""
    lengths = torch.tensor([9, 4, 6])
    tokens = torch.randint(FIRST_ORDINARY, VOCABULARY, (3, 9))
    return tokens.masked_fill(torch.arange(9) >= lengths[:, None], 0), lengths


@pytest.fixture
def tokenizer_directory(tmp_path: Path) -> Callable[..., Path]:
    """`tokenizer_directory("char", surplus=0)`: a saved tokenizer with VOCABULARY (and `surplus`) pieces."""

    def save(kind: str, *, surplus: int = 0) -> Path:
        directory = tmp_path / f"{kind}-{surplus}"
        make_tokenizer(kind, letters(VOCABULARY - FIRST_ORDINARY + surplus)).save(directory)
        return directory

    return save
