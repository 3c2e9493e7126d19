"""Co-occurrence counts compared with a loop over the text, in memory and on disk; the cells of GloVe's sampler."""

import itertools
from collections import Counter
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from components.core.errors import DataError
from components.models.glove import GloVeConfig
from components.tokenization.special import END
from components.training.pretraining import cooccurrence
from components.training.pretraining.cooccurrence import CooccurrenceSampler, Run, count_pairs, whole_text
from tests.training.helpers import MemoryStore

VOCABULARY = 12
WEIGHTS = (1.0, 1 / 2, 1 / 3)


def random_store(documents: int = 30) -> MemoryStore:
    rng = np.random.default_rng(2)
    return MemoryStore([[rng.integers(5, VOCABULARY, rng.integers(1, 15)).tolist()] for _ in range(documents)])


def by_hand(store: MemoryStore) -> dict[tuple[int, int], float]:
    """Counts by a loop over all pairs."""
    actual: Counter[tuple[int, int]] = Counter()
    text = store.stream.tolist()
    for left, right in itertools.combinations(range(len(text)), 2):
        if right - left <= len(WEIGHTS) and END not in text[left : right + 1]:
            low, high = sorted((text[left], text[right]))
            actual[low, high] += WEIGHTS[right - left - 1]
    return dict(actual)


def as_dict(run: Run) -> dict[tuple[int, int], float]:
    keys, counts = run
    return {divmod(key, VOCABULARY): count for key, count in zip(keys.tolist(), counts.tolist(), strict=True)}


@pytest.mark.parametrize("stretch", [1000, 17, 2, 1])
def test_counts_equal_those_of_a_loop(stretch, monkeypatch):
    monkeypatch.setattr(cooccurrence, "CHUNK", stretch)
    store = random_store()
    run = count_pairs(whole_text(store, reach=3), vocabulary=VOCABULARY, weights=WEIGHTS)
    assert as_dict(run) == pytest.approx(by_hand(store))
    assert (np.diff(run[0]) > 0).all()


@pytest.mark.parametrize("most", [1, 5, 20])
def test_counts_are_the_same_beyond_the_memory_limit(most, monkeypatch):
    monkeypatch.setattr(cooccurrence, "CHUNK", 9)
    monkeypatch.setattr(cooccurrence, "SAMPLE_INTERVAL", 2)
    store = random_store()
    options: dict[str, Any] = {"vocabulary": VOCABULARY, "weights": WEIGHTS}
    whole = count_pairs(whole_text(store, reach=3), **options)
    held: list[int] = []
    merged = cooccurrence._merged

    def noting(runs):
        held.append(sum(len(keys) for keys, _ in runs))
        return merged(runs)

    monkeypatch.setattr(cooccurrence, "_merged", noting)
    spilled = count_pairs(whole_text(store, reach=3), **options, max_pairs=most)
    assert isinstance(spilled[0], np.memmap) and not isinstance(whole[0], np.memmap)
    assert np.array_equal(spilled[0], whole[0])
    np.testing.assert_allclose(spilled[1], whole[1])
    assert max(held) < 10 * max(most, 9)


def sampler(store: MemoryStore, **changes: Any) -> CooccurrenceSampler:
    options = {"batch_size": 4, "window": 50, "seed": 0, "vocabulary": VOCABULARY} | changes
    return CooccurrenceSampler(store, config=GloVeConfig(vocabulary=VOCABULARY, context=3, x_max=10), **options)


def matrix(store: MemoryStore) -> NDArray[np.float64]:
    """X, symmetric: a pair of equal words counts twice."""
    actual = np.zeros((VOCABULARY, VOCABULARY))
    for (low, high), count in by_hand(store).items():
        actual[low, high] += count
        actual[high, low] += count
    return actual


@pytest.mark.parametrize("spilled", [False, True])
def test_cells_are_sampled_in_proportion_to_their_weights(spilled, monkeypatch):
    if spilled:
        monkeypatch.setattr(cooccurrence, "CHUNK", 9)
        monkeypatch.setattr(cooccurrence, "MAX_PAIRS", 5)
    store = random_store()
    sample, expected = sampler(store), matrix(store)
    assert isinstance(sample._weights, np.memmap) == spilled
    drawn = np.zeros_like(expected)
    for step in range(100):
        batch = {key: value.flatten().numpy() for key, value in sample.batch(step).items()}
        np.add.at(drawn, (batch["tokens"], batch["contexts"]), 1)
        np.testing.assert_allclose(batch["counts"], expected[batch["tokens"], batch["contexts"]], rtol=1e-6)
    # x_max 10 and alpha 0.75: some cells have the maximum weight.
    weights = np.minimum(1, expected / 10) ** 0.75
    assert (weights == 1).any() and expected.diagonal().any()
    share = weights / weights.sum() * 100 * 200
    assert not drawn[weights == 0].any()
    np.testing.assert_allclose(drawn, share, atol=5 * share.max() ** 0.5)
    assert sample.tokens_before(100) == 100 * 200


def test_documents_of_one_word():
    with pytest.raises(DataError, match="no document of the corpus contains two words, so GloVe has nothing to count"):
        sampler(MemoryStore([[[7]]] * 20))


def test_a_full_disk(monkeypatch, tmp_path):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cooccurrence.tempfile, "TemporaryFile", full)
    monkeypatch.setattr(cooccurrence.tempfile, "gettempdir", lambda: str(tmp_path))
    with pytest.raises(DataError, match=r"counts cannot be written \(No space left on device\); free space there or"):
        count_pairs(whole_text(random_store(), reach=3), vocabulary=VOCABULARY, weights=WEIGHTS, max_pairs=3)
