"""Windows without their padding: which positions remain, in which order, and which layers leave padding out."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from components.models.base import LanguageModel
from components.models.layers import lstm, lstm_kernels
from components.models.layers.chunks import Texts
from components.models.layers.lstm import BiLSTM
from components.models.layers.lstm_kernels import Ragged, by_step, previous_step, ragged
from components.tokenization.special import FIRST_ORDINARY
from tests.models.conftest import VOCABULARY

LENGTHS = torch.tensor([2, 4, 1])


@pytest.fixture
def window() -> Tensor:
    """Each position holds its step and its row."""
    return torch.tensor([[[step, row] for row in range(3)] for step in range(4)])


def test_positions_step_by_step_longest_rows_first(window: Tensor) -> None:
    found = ragged(window, Texts(LENGTHS))
    assert found.counts == [3, 2, 1, 1]
    assert found.values.tolist() == [[0, 1], [0, 0], [0, 2], [1, 1], [1, 0], [2, 1], [3, 1]]
    assert found.sort_rows(torch.tensor([10, 11, 12])).tolist() == [11, 10, 12]
    assert found.values[found.last].tolist() == [[1, 0], [3, 1], [0, 2]]
    inside = torch.arange(4)[:, None] < LENGTHS
    assert found.unpack(found.values).tolist() == (window * inside[..., None]).tolist()


def test_little_padding_is_kept(window: Tensor) -> None:
    wide = window.repeat(1, 7, 1)[:, :20]
    lengths = torch.full((20,), 4)
    lengths[3] = 0  # 4 of 80 positions
    found = ragged(wide, Texts(lengths))
    assert found.counts == [20] * 4
    assert found.values.tolist() == wide.flatten(0, 1).tolist()
    assert found.unpack(found.values).tolist() == wide.tolist()
    assert found.values[found.last].tolist() == wide[-1].tolist()
    lengths[4] = 3
    assert ragged(wide, Texts(lengths)).counts == [20, 19, 19, 18]
    assert ragged(wide, None).counts == [20] * 4


def test_windows_longer_than_every_text(window: Tensor) -> None:
    found = ragged(window, Texts(torch.tensor([1, 2, 1])))
    assert found.counts == [3, 1]
    assert found.unpack(found.values).shape == window.shape
    assert not found.unpack(found.values)[2:].any()


def test_previous_step_of_the_same_row(window: Tensor) -> None:
    found = ragged(window, Texts(LENGTHS))
    first = torch.full((3, 2), -1)
    earlier = previous_step(first, found.values, found.counts)
    assert earlier[:3].tolist() == first.tolist()
    assert (found.values - earlier)[3:].tolist() == [[1, 0]] * 4
    assert previous_step(first, found.values[:3], [3]).tolist() == first.tolist()


def test_tables_split_by_step(window: Tensor) -> None:
    found = ragged(window, Texts(LENGTHS))
    parts = by_step(found.counts, found.values, 10 * found.values)
    assert [len(part) for part, _ in parts] == [3, 2, 1, 1]
    assert all((10 * part).tolist() == tenfold.tolist() for part, tenfold in parts)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of positions that each layer reads; every layer is computed by steps."""
    counts: list[int] = []

    def noting(x_TBD: Tensor, texts: Texts | None) -> Ragged:
        found = ragged(x_TBD, texts)
        counts.append(len(found.values))
        return found

    monkeypatch.setattr(lstm_kernels, "suits_steps", lambda *_: True)
    for module in (lstm, lstm_kernels):
        monkeypatch.setattr(module, "ragged", noting)
    return counts


@pytest.mark.parametrize(("name", "layers"), [("ulmfit", 2), ("flair", 2), ("elmo", 4), ("cove", 4)])
@pytest.mark.parametrize("chunk", [None, 16])
def test_families_read_no_padding(
    build: Callable[..., LanguageModel], name: str, layers: int, chunk: int | None, read: list[int]
) -> None:
    model, lengths = build().train(), torch.tensor([40, 23, 33])
    tokens = torch.randint(FIRST_ORDINARY, VOCABULARY, (3, 40)).masked_fill(torch.arange(40) >= lengths[:, None], 0)
    if chunk is not None:
        model.set_chunks(chunk, learned=3)
    states = model.hidden_states(tokens, lengths)
    if chunk is None:
        assert read == [96] * layers
    else:
        # 16, 16 and 8 columns; one position of each text that has ended.
        assert read == [48, 16 + 7 + 16, 8 + 1 + 1] * layers
    states[-1].float().square().mean().backward()


def test_the_tagger_reads_no_padding(read: list[int]) -> None:
    tagger = BiLSTM(5, 4)
    lengths = torch.tensor([9, 2, 4])
    tagger(torch.randn(3, 9, 5), Texts(lengths)).sum().backward()
    assert read == [15, 15]
