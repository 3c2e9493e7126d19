"""Batches as functions of (seed, step), independent of the order of calls and of the number of workers."""

import itertools

import pytest
import torch

from components.core.errors import DataError, TrainingError
from components.models import FAMILIES
from components.tokenization.special import END, FIRST_ORDINARY, START
from components.training.pretraining.rows import (
    NO_PAIR,
    FullSentencesSampler,
    SentenceOrderSampler,
    SentencePairSampler,
)
from components.training.pretraining.samplers import SAMPLERS
from components.training.pretraining.streams import BidirectionalStreamSampler, StreamSampler
from tests.training.helpers import MemoryStore, numbered_pairs, numbered_store

EVERY = sorted(SAMPLERS)


def sampler(name: str, **changes: object):
    config = next(family for family in FAMILIES.values() if family.sampler == name).config(vocabulary=500)
    values = {"batch_size": 4, "window": 12, "seed": 1, "vocabulary": 500, "config": config} | changes
    return SAMPLERS[name](numbered_pairs() if name == "translation" else numbered_store(), **values)


@pytest.mark.parametrize("name", EVERY)
def test_workers_share_the_global_batch(name):
    for step, world in ((0, 2), (3, 4), (40, 4)):
        whole = sampler(name, jitter=3).batch(step)
        parts = [sampler(name, jitter=3).batch(step, rank, world) for rank in range(world)]
        for key, rows in whole.items():
            assert rows.dtype in (torch.int64, torch.float32, torch.float64)
            assert torch.equal(rows, torch.cat([part[key] for part in parts])), (key, step)


@pytest.mark.parametrize("name", EVERY)
def test_any_position_is_reached_directly(name):
    walked = sampler(name, jitter=3)
    for step in range(30):
        batch = walked.batch(step)
    jumped = sampler(name, jitter=3)
    jumped.batch(77)
    assert all(torch.equal(batch[key], jumped.batch(29)[key]) for key in batch)


def test_rows_that_cannot_be_divided_among_workers():
    with pytest.raises(TrainingError, match=r"batch_size 4 cannot be divided among 3 workers; choose a multiple"):
        sampler("stream").batch(0, 0, 3)


def test_too_little_text():
    store = MemoryStore([[[7, 8, 9]]])
    with pytest.raises(DataError, match=r"contains 4 tokens, too few for batches of 4 rows; add text or lower"):
        StreamSampler(store, batch_size=4, window=8, seed=0, vocabulary=20)
    with pytest.raises(DataError, match="at least two documents; the corpus contains one"):
        SentencePairSampler(store, batch_size=1, window=8, seed=0, vocabulary=20)
    with pytest.raises(DataError, match=r"training.window 4 leaves no room for two pieces of text; choose at least 5"):
        SentencePairSampler(numbered_store(), batch_size=1, window=4, seed=0, vocabulary=20)


def test_streams_continue_and_cover_an_epoch():
    store = numbered_store()
    stream = StreamSampler(store, batch_size=4, window=15, seed=3, vocabulary=500)
    # 20 documents of 21 pieces: 105 per stream, seven windows of 15.
    batches = [stream.batch(step) for step in range(7)]
    rows = torch.cat([batch["tokens"] for batch in batches], dim=1)
    assert rows.shape == (4, 105)
    assert sorted(rows.flatten().tolist()) == sorted(store.stream.tolist())
    for before, after in zip(batches, batches[1:], strict=False):
        assert torch.equal(before["targets"][:, -1], after["tokens"][:, 0])
        assert torch.equal(before["tokens"][:, 1:], before["targets"][:, :-1])
    # Documents are complete and shuffled, differently in every epoch.
    pieces = rows.flatten().tolist()
    firsts = [pieces[0], *(after for piece, after in zip(pieces, pieces[1:], strict=False) if piece == END)]
    in_order = [5 + 20 * document for document in range(20)]
    assert sorted(firsts) == in_order
    assert firsts != in_order
    again = torch.cat([stream.batch(step)["tokens"] for step in range(7, 14)], dim=1)
    assert sorted(again.flatten().tolist()) == sorted(store.stream.tolist())
    assert not torch.equal(rows, again)


def test_windows_vary_in_pairs_and_the_rate_with_them():
    stream = StreamSampler(numbered_store(200), batch_size=4, window=12, seed=3, vocabulary=500, jitter=3)
    lengths = []
    for step in range(60):
        start, length = stream.position(step)
        lengths.append(length)
        assert stream.batch(step)["tokens"].shape == (4, length)
        assert stream.rate_scale(step) == length / 12
        assert stream.position(step + 1)[0] == start + length
        assert stream.tokens_before(step) == 4 * start
        assert length >= 5
    assert [stream.position(2 * pair)[0] for pair in range(30)] == [24 * pair for pair in range(30)]
    assert len(set(lengths)) > 3


def test_the_backward_stream_is_the_reversed_text():
    store = numbered_store()
    batch = BidirectionalStreamSampler(store, batch_size=4, window=105, seed=3, vocabulary=500).batch(0)
    forward, backward = batch["tokens"].flatten(), batch["backward_tokens"].flatten()
    assert torch.equal(backward, forward.flip(0))
    assert torch.equal(batch["backward_tokens"][:, 1:], batch["backward_targets"][:, :-1])
    assert torch.equal(
        batch["tokens"], StreamSampler(store, batch_size=4, window=105, seed=3, vocabulary=500).batch(0)["tokens"]
    )


def unmask(batch: dict[str, torch.Tensor]) -> torch.Tensor:
    return batch["tokens"].scatter(1, batch["positions"], batch["targets"])


@pytest.mark.parametrize(
    ("kind", "key"), [(SentencePairSampler, "next_sentence"), (SentenceOrderSampler, "sentence_order")]
)
def test_pairs_fill_the_row_and_b_belongs_to_a_by_its_label(kind, key):
    """Sentences have 5 pieces and documents 20, numbered from 5."""
    pairs = kind(numbered_store(documents=60), batch_size=32, window=24, seed=0, vocabulary=2000)
    counts = {0: 0, 1: 0}
    for step in range(40):
        batch = pairs.batch(step)
        for row, segments, label in zip(unmask(batch), batch["segments"], batch[key].tolist(), strict=True):
            cut = int((segments == 0).sum())
            assert segments.tolist() == [0] * cut + [1] * (24 - cut)
            assert len(row) == 24 and (row[0], row[cut - 1], row[-1]) == (START, END, END)
            first, second = row[1 : cut - 1].tolist(), row[cut:-1].tolist()
            # Both begin with a sentence.
            assert first[0] % 5 == second[0] % 5 == 0
            if key == "next_sentence":
                last = [piece for piece in first if piece >= FIRST_ORDINARY][-1]
                assert (second[0] == last + 1) == ((second[0] - 5) // 20 == (last - 5) // 20) == (label == 0)
            else:
                # The later part begins with the sentence after the one in which the earlier ends.
                earlier, later = (second, first) if label else (first, second)
                assert later[0] == earlier[-1] // 5 * 5 + 5
                assert (later[0] - 5) // 20 == (earlier[-1] - 5) // 20
            counts[label] += 1
    assert 0.45 < counts[0] / 1280 < 0.55


def mixed_store() -> MemoryStore:
    """Documents of one sentence and of four, in blocks longer than a row; sentences have 5 pieces, numbered from 5."""
    numbers = itertools.count(1)
    documents = []
    for block in range(20):
        shape = [1] * 24 if block % 2 else [4] * 6
        documents += [[list(range(5 * n, 5 * n + 5)) for n in itertools.islice(numbers, size)] for size in shape]
    return MemoryStore(documents)


@pytest.mark.parametrize(
    ("sampler", "key"), [(SentencePairSampler, "next_sentence"), (SentenceOrderSampler, "sentence_order")]
)
def test_a_row_without_a_pair_has_no_label(sampler, key):
    store = mixed_store()
    pairs = sampler(store, batch_size=32, window=24, seed=0, vocabulary=5000)
    document_of = {
        piece: number
        for number in range(store.documents)
        for piece in store.stream[store.offsets[number] : store.offsets[number + 1]].tolist()
    }
    actual = {NO_PAIR: 0, 0: 0, 1: 0}
    for step in range(20):
        batch = pairs.batch(step)
        for row, segments, label in zip(unmask(batch), batch["segments"], batch[key].tolist(), strict=True):
            actual[label] += 1
            cut = int((segments == 0).sum())
            first = [piece for piece in row[1 : cut - 1].tolist() if piece >= FIRST_ORDINARY]
            second = [piece for piece in row[cut:-1].tolist() if piece >= FIRST_ORDINARY]
            if label == NO_PAIR:
                continue
            # A labelled B begins with a sentence; a positive one is in the document in which the other part ends.
            assert second[0] % 5 == 0
            if key == "next_sentence":
                assert (document_of[first[-1]] == document_of[second[0]]) == (label == 0)
            else:
                earlier, later = (second, first) if label else (first, second)
                assert document_of[earlier[-1]] == document_of[later[0]]
    assert min(actual.values()) > 100
    assert 0.8 < actual[0] / actual[1] < 1.25


def test_full_sentences_continue_across_documents():
    store = numbered_store(documents=60)
    full = FullSentencesSampler(store, batch_size=8, window=32, seed=0, vocabulary=2000)
    seen: set[int] = set()
    for step in range(10):
        batch = full.batch(step)
        assert sorted(batch) == ["positions", "targets", "tokens"]
        for row in unmask(batch).tolist():
            assert (row[0], row[-1]) == (START, END)
            # Sentences have 5 pieces, documents 20, numbered from 5: END follows every twentieth.
            assert row[1] % 5 == 0
            text = [piece for piece in row[1:-1] if piece != END]
            assert text == list(range(row[1], row[1] + len(text))) or 1204 in text
            assert [piece % 20 for piece, after in zip(row[1:-1], row[2:-1], strict=False) if after == END] in (
                [4],
                [4, 4],
            )
            seen |= set(text)
    assert len(seen) > 1000


def test_whole_words_reach_the_sampler():
    from components.models.roberta import RoBERTaConfig

    # Every second piece continues the word of the previous piece.
    pieces = [f"##{piece}" if piece >= FIRST_ORDINARY and piece % 2 == 0 else str(piece) for piece in range(500)]
    config = RoBERTaConfig(vocabulary=500, whole_words=True)
    options = {"batch_size": 8, "window": 40, "seed": 0, "vocabulary": 500, "config": config, "pieces": pieces}
    split = 0
    for step in range(10):
        batch = FullSentencesSampler(numbered_store(), **options).batch(step)
        for row, positions in zip(unmask(batch).tolist(), batch["positions"].tolist(), strict=True):
            split += sum(
                row[place] % 2 == 0 and place - 1 not in positions for place in positions if row[place - 1] > 4
            )
    assert split == 0


def test_a_sentence_longer_than_the_row_is_split():
    store = MemoryStore([[list(range(5, 105))]])
    batch = SentenceOrderSampler(store, batch_size=1, window=13, seed=0, vocabulary=200).batch(0)
    first, second = unmask(batch)[0, 1:6].tolist(), unmask(batch)[0, 7:12].tolist()
    assert batch["sentence_order"].tolist() == [NO_PAIR]
    assert [*first, *second] == list(range(5, 15))


@pytest.mark.parametrize("name", EVERY)
def test_batches_depend_on_the_seed(name):
    assert not torch.equal(sampler(name).batch(0)["tokens"], sampler(name, seed=2).batch(0)["tokens"])


def test_a_corpus_smaller_than_a_window_is_repeated():
    store = MemoryStore([[[7, 8]], [[9, 10]]])
    batch = StreamSampler(store, batch_size=1, window=20, seed=0, vocabulary=20).batch(2)
    text = [*batch["tokens"][0].tolist(), batch["targets"][0, -1].item()]
    assert sorted(set(text)) == [END, 7, 8, 9, 10]
    assert all(after == before + 1 for before, after in zip(text, text[1:], strict=False) if before in (7, 9))
