"""Windows without their padding: which places are left, in which order, and who leaves padding out."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from components.models.base import LanguageModel
from components.models.layers import lstm, projected_lstm
from components.models.layers.chunks import Texts
from components.models.layers.lstm import LSTM
from components.models.layers.ragged import Ragged, a_step_earlier, by_step, ragged
from components.task_models.taggers import BiLSTM
from components.tokenization.special import FIRST_ORDINARY
from tests.models.conftest import VOCABULARY

LENGTHS = torch.tensor([2, 4, 1])


@pytest.fixture
def window() -> Tensor:
    """Each place says its step and its row."""
    return torch.tensor([[[step, row] for row in range(3)] for step in range(4)])


def test_places_step_by_step_longest_rows_first(window: Tensor) -> None:
    found = ragged(window, Texts(LENGTHS))
    assert found.counts == [3, 2, 1, 1]
    assert found.places.tolist() == [[0, 1], [0, 0], [0, 2], [1, 1], [1, 0], [2, 1], [3, 1]]
    assert found.rows(torch.tensor([10, 11, 12])).tolist() == [11, 10, 12]
    assert found.places[found.last].tolist() == [[1, 0], [3, 1], [0, 2]]
    inside = torch.arange(4)[:, None] < LENGTHS
    assert found.window(found.places).tolist() == (window * inside[..., None]).tolist()


def test_little_padding_is_left_where_it_is(window: Tensor) -> None:
    wide = window.repeat(1, 7, 1)[:, :20]
    lengths = torch.full((20,), 4)
    lengths[3] = 0  # 4 of 80 places
    found = ragged(wide, Texts(lengths))
    assert found.counts == [20] * 4
    assert found.places.tolist() == wide.flatten(0, 1).tolist()
    assert found.window(found.places).tolist() == wide.tolist()
    assert found.places[found.last].tolist() == wide[-1].tolist()
    lengths[4] = 3
    assert ragged(wide, Texts(lengths)).counts == [20, 19, 19, 18]
    assert ragged(wide, None).counts == [20] * 4


def test_windows_longer_than_every_text(window: Tensor) -> None:
    found = ragged(window, Texts(torch.tensor([1, 2, 1])))
    assert found.counts == [3, 1]
    assert found.window(found.places).shape == window.shape
    assert not found.window(found.places)[2:].any()


def test_the_same_row_a_step_earlier(window: Tensor) -> None:
    found = ragged(window, Texts(LENGTHS))
    first = torch.full((3, 2), -1)
    earlier = a_step_earlier(first, found.places, found.counts)
    assert earlier[:3].tolist() == first.tolist()
    assert (found.places - earlier)[3:].tolist() == [[1, 0]] * 4
    assert a_step_earlier(first, found.places[:3], [3]).tolist() == first.tolist()


def test_tables_cut_into_steps(window: Tensor) -> None:
    found = ragged(window, Texts(LENGTHS))
    parts = by_step(found.counts, found.places, 10 * found.places)
    assert [len(part) for part, _ in parts] == [3, 2, 1, 1]
    assert all((10 * part).tolist() == tenfold.tolist() for part, tenfold in parts)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The places that each layer reads, as if all suited steps."""
    counts: list[int] = []

    def noting(x_TBD: Tensor, texts: Texts | None) -> Ragged:
        found = ragged(x_TBD, texts)
        counts.append(len(found.places))
        return found

    monkeypatch.setattr(LSTM, "_suits_steps", lambda *_: True)
    for module in (lstm, projected_lstm):
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
        # 16, 16 and 8 columns; of a text that has ended one place is read.
        assert read == [48, 16 + 7 + 16, 8 + 1 + 1] * layers
    states[-1].float().square().mean().backward()


def test_the_tagger_reads_no_padding(read: list[int]) -> None:
    tagger = BiLSTM(5, 4)
    lengths = torch.tensor([9, 2, 4])
    tagger(torch.randn(3, 9, 5), lengths).sum().backward()
    assert read == [15, 15]
