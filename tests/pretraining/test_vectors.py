"""Co-occurrence vectors, and embeddings that are initialised with them."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from components.core import threads
from components.models import FAMILIES
from components.tokenization.special import END
from components.tokenization.store import TokenStore
from components.training.pretraining.language_model import before_training, initial_model
from components.training.pretraining.word_vectors import TextVectors, _counts, initialise_embeddings
from tests.training.helpers import MemoryStore, lm_settings, pretrain_job, run_of

VOCABULARY = 14


class Text:
    """Two sets of words that never co-occur; 6 and 7 have the same contexts, and so do 11 and 12. 13 is absent."""

    documents = 1
    offsets = np.array([0, 6000])
    tokens = 6000

    def __init__(self) -> None:
        chosen = np.random.default_rng(0).integers(0, 2, 2000)
        first = [[5, 6 + choice, 8] for choice in chosen[:1000]]
        second = [[9, 11 + choice, 10] for choice in chosen[1000:]]
        self.stream = np.array([*first, *second], dtype=np.int64).ravel()

    def span(self, start: int, length: int) -> NDArray[np.int64]:
        return self.stream[start : start + length]

    def sentence_starts(self, document: int) -> NDArray[np.int64]:
        return np.array([0])


def test_words_with_the_same_contexts_are_similar():
    vectors = TextVectors(Text(), vocabulary=VOCABULARY).of(4)
    assert vectors.shape == (VOCABULARY, 4)
    alike = torch.nn.functional.cosine_similarity(vectors[:, None], vectors[None], dim=-1)
    assert alike[6, 7] > 0.99 and alike[11, 12] > 0.99
    assert alike[6, 11] < 0.5 and alike[8, 10] < 0.5


def test_words_of_different_documents_do_not_cooccur():
    """6 and 8 are beside each other only where one document ends and the next begins."""
    store = MemoryStore([[[5, 6, 7]], [[8, 9, 10]]] * 50)
    counts = _counts(store, VOCABULARY).to_dense()
    assert not counts[[5, 6, 7]][:, [8, 9, 10]].any() and not counts[END].any()
    assert counts[5, 6] == 50 and counts[5, 7] == pytest.approx(40)


class LongText(Text):
    """Enough pieces for libraries to use a second thread."""

    vocabulary = 2000
    tokens = 200_000

    def __init__(self) -> None:
        self.stream = np.random.default_rng(0).zipf(1.3, self.tokens) % self.vocabulary


def test_vectors_are_the_same_with_any_number_of_threads():
    present = np.arange(LongText.vocabulary) % 2 == 0
    starts = []
    for count in (1, 2):
        table = nn.Parameter(torch.randn(LongText.vocabulary, 128, generator=torch.Generator().manual_seed(0)))
        with threads.limited(count):
            vectors = TextVectors(LongText(), vocabulary=LongText.vocabulary).of(128)
            initialise_embeddings(table, vectors, trained=present)
            assert torch.get_num_threads() == count
        starts.append((vectors, table))
    assert torch.equal(starts[0][0], starts[1][0])
    assert torch.equal(starts[0][1], starts[1][1])


def test_new_rows_are_mapped_to_the_space_of_the_known_ones():
    torch.manual_seed(0)
    vectors = torch.randn(2000, 4)
    learned = vectors @ torch.randn(4, 4)
    present = np.arange(2000) < 1990
    table = nn.Parameter(torch.where(torch.from_numpy(present)[:, None], learned, torch.zeros(())))
    initialise_embeddings(table, vectors, trained=present)
    assert torch.equal(table[:1990], learned[:1990])
    assert torch.nn.functional.cosine_similarity(table[1990:], learned[1990:]).min() > 0.999
    torch.testing.assert_close(table[1990:].detach().std(), learned[:1990].std(), rtol=1e-2, atol=0)


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_pretraining_can_start_with_them(inputs, tmp_path, family):
    job = pretrain_job(inputs, family, tmp_path, training=lm_settings(vectors=True))
    run = run_of(job)
    model = initial_model(run)
    before_training(run, model)
    table = model.piece_embedding()
    if table is None:
        assert family in {"flair", "elmo"}, "they read characters"
        return
    vectors = TextVectors(TokenStore(job.tokens), vocabulary=table.shape[0]).of(table.shape[1])
    torch.testing.assert_close(table / table.std(), vectors / vectors.std(), atol=1e-4, rtol=1e-4)
