"""Batches of labelled rows: complete, reproducible, split over ranks, with little padding."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from components.learners.task_models.base import Encoded
from components.learners.task_models.sampler import ExampleSampler, collate, some_windows

PIECES = [np.full(1 + (7 * number) % 23, number + 5, dtype=np.int64) for number in range(45)]
LABELS = np.arange(45) % 3
TARGETS = [np.asarray([label], dtype=np.float64) for label in LABELS]


def sampler(seed: int = 0, batch_size: int = 4) -> ExampleSampler:
    return ExampleSampler([Encoded.of_texts([ids]) for ids in PIECES], TARGETS, batch_size=batch_size, seed=seed)


def test_a_batch_maps_sequences_to_rows():
    none = np.zeros((0, 2), dtype=np.int64)
    two = Encoded(
        [np.asarray([2, 7, 3]), np.asarray([2, 3])],
        [np.asarray([0, 0, 1]), np.asarray([0, 1])],
        [np.asarray([[1, 1]]), none],
        [np.asarray([[4, 9]]), none],
    )
    item = Encoded([np.asarray([5])], [np.asarray([0])], [np.asarray([[0, 0], [0, 0]])], [np.asarray([[0, 1], [1, 2]])])
    batch = collate([two, item], [np.asarray([1.0, 2.0]), np.zeros(0)])
    assert {name: tensor.tolist() for name, tensor in batch.items() if name != "targets"} == {
        "tokens": [[2, 7, 3], [2, 3, 0], [5, 0, 0]],
        "lengths": [3, 2, 1],
        "segments": [[0, 0, 1], [0, 1, 0], [0, 0, 0]],
        "rows": [0, 0, 1],
        "units": [[[1, 1], [-1, -1]], [[-1, -1], [-1, -1]], [[0, 0], [0, 0]]],
        "unit_lengths": [1, 0, 2],
        "offsets": [[[4, 9], [-1, -1]], [[-1, -1], [-1, -1]], [[0, 1], [1, 2]]],
        "target_lengths": [2, 0],
    }
    np.testing.assert_array_equal(batch["targets"], [[1, 2], [np.nan, np.nan]])


def test_batches_are_functions_of_seed_and_step_and_hold_every_row_once_per_epoch():
    item, other = sampler(), sampler()
    backwards = [other.batch(step) for step in reversed(range(26))][::-1]
    read = 0
    for step in range(26):
        assert item.tokens_before(step) == read, "tokens without padding"
        batch = item.batch(step)
        assert all(torch.equal(tensor, backwards[step][name]) for name, tensor in batch.items())
        read += int(batch["lengths"].sum())
    assert any(not np.array_equal(item.rows(step), sampler(1).rows(step)) for step in range(12))
    assert item.epoch_steps == 12
    epochs = [np.concatenate([item.rows(step) for step in range(start, start + 12)]) for start in (0, 12)]
    assert all(sorted(epoch) == list(range(45)) for epoch in epochs) and not np.array_equal(*epochs)


@pytest.mark.parametrize("world", [2, 3])
def test_workers_share_the_global_batch(world):
    parts = [sampler().batch(5, rank, world)["targets"][:, 0] for rank in range(world)]
    assert sorted(torch.cat(parts).tolist()) == sorted(LABELS[sampler().rows(5)].tolist())


def long_context(windows: int) -> Encoded:
    """Windows of three pieces with a stride of two: unit 0 is the whole, the others are ten characters each."""
    starts = [20 * window for window in range(windows)]
    return Encoded(
        [np.arange(3) + start for start in starts],
        [np.zeros(3, dtype=np.int64)] * windows,
        [np.asarray([[0, 2], [0, 0], [1, 1], [2, 2]])] * windows,
        [np.asarray([[0, 0], *([start + 10 * unit, start + 10 * unit + 10] for unit in range(3))]) for start in starts],
    )


def test_sampled_windows_include_one_with_the_answer():
    row, target = long_context(40), np.asarray([302.0, 318.0])
    seen: set[int] = set()
    for seed in range(30):
        actual = some_windows(row, target, most=3, rng=np.random.default_rng(seed))
        firsts = [int(pieces[0]) for pieces in actual.pieces]
        # 302 to 318 lies in the window from 300 on alone.
        assert len(firsts) == 3 and firsts == sorted(set(firsts)) and 300 in firsts
        assert [int(offsets[1, 0]) for offsets in actual.offsets] == firsts
        seen |= set(firsts)
    assert len(seen) > 20
    # An answer that no window holds, and none at all.
    for other in (np.asarray([295.0, 345.0]), np.zeros(0)):
        assert len(some_windows(row, other, most=3, rng=np.random.default_rng(0)).pieces) == 3


def test_a_batch_contains_a_bounded_number_of_windows():
    rows, targets = [long_context(40), long_context(2)], [np.asarray([302.0, 318.0]), np.asarray([3.0, 5.0])]
    limited = ExampleSampler(rows, targets, batch_size=2, seed=0, windows=4)
    batch = limited.batch(3)
    assert sorted(torch.bincount(batch["rows"]).tolist()) == [2, 4]
    assert limited.tokens_before(5) == 5 * 3 * (4 + 2)
    assert all(torch.equal(value, limited.batch(3)[name]) for name, value in batch.items())
    assert not torch.equal(limited.batch(4)["tokens"].sort(0)[0], batch["tokens"].sort(0)[0])
    assert len(ExampleSampler(rows, targets, batch_size=2, seed=0).batch(3)["rows"]) == 42


def test_vectors_of_units_are_batched_by_their_number_too():
    lengths = np.asarray([1, 9] * 16 + [4] * 4)
    parts = np.split(np.arange(lengths.sum(), dtype=np.float32)[:, None], np.cumsum(lengths)[:-1])
    rows = list(map(Encoded.of_vectors, [*([part] for part in parts[:32]), parts[32:34], parts[34:]]))
    subject = ExampleSampler(rows, [np.asarray([float(row)]) for row in range(34)], batch_size=2, seed=0)
    batches = [subject.batch(step) for step in range(17)]
    assert sorted(float(target) for batch in batches for target in batch["targets"]) == list(range(34))
    assert all(len(set(batch["unit_lengths"].tolist())) == 1 for batch in batches)
    assert {batch["features"].shape for batch in batches} == {(2, 1, 1), (2, 9, 1), (4, 4, 1)}
