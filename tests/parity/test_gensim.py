"""word2vec and fastText give what gensim gives."""

import numpy as np
import pytest
import torch

from components.data.segmenters import Segmentation
from components.interchange.vectors import read_vectors
from components.models.encoder import build_model
from components.models.fasttext import FastTextConfig, ngram_buckets
from components.models.static import skip_gram
from components.tokenization.special import FIRST_ORDINARY, SPECIAL_PIECES
from components.tokenization.word import WordTokenizer
from components.training.pretraining.negatives import keep_probabilities, noise_distribution


@pytest.mark.parametrize(("shortest", "longest"), [(3, 6), (1, 3)])
def test_buckets_of_ngrams(reference, shortest, longest):
    words = ["where", "a", "œuvre", "naïve", "นกบิน", "don't", "🙂"]
    actual = reference("gensim", "buckets", words=words, shortest=shortest, longest=longest, count=2_000_000)
    config = FastTextConfig(vocabulary=9, buckets=2_000_000, shortest=shortest, longest=longest)
    for row, word in enumerate(words):
        assert sorted(ngram_buckets(word, config)) == sorted(actual[str(row)].tolist()), word


def test_vectors_of_known_and_unknown_words(reference):
    asked = ["where", "there", "somewhere", "thereby", "ab"]
    sentences = [["where", "there", "here", "where"], ["here", "abc", "where"]]
    settings = {"vector_size": 4, "bucket": 50, "min_n": 3, "max_n": 6}
    actual = reference("gensim", "words_and_grams", sentences=sentences, asked=asked, settings=settings)
    pieces = [*SPECIAL_PIECES, *actual["words"].tolist()]
    model = build_model("fasttext", vocabulary=len(pieces), settings={"width": 4, "buckets": 50})
    with torch.no_grad():
        model.word[FIRST_ORDINARY:] = torch.from_numpy(actual["word"])
        model.gram.copy_(torch.from_numpy(actual["gram"]))
    model.bind(WordTokenizer(pieces, segmentation=Segmentation("none"), lowercase=True, strip_accents=False))
    for word, expected in zip(asked, actual["vectors"], strict=True):
        np.testing.assert_allclose(model.vector(word).numpy(), expected, atol=1e-6, err_msg=word)


def test_one_pass_over_a_pair(reference):
    # gensim samples one noise word per pair and leaves it out if it is the true word; with two words in the vocabulary
    # the noise of a pair is the other word, or none. Its sigmoid is a table with steps of 0.012.
    rate = 0.5
    before = np.random.default_rng(1).normal(0, 0.7, size=(8, 2, 2, 4)).astype(np.float32)
    actual = reference("gensim", "passes_over_a_pair", before=before.tolist(), rate=rate)
    drawn = set()
    for start, expected in zip(before, actual["after"], strict=True):
        # Distance from gensim's tables for each choice of noise words.
        distances = {
            noisy: float(np.abs(_after(start, noisy, rate=rate) - expected).max()) for noisy in np.ndindex(2, 2)
        }
        best = min(distances, key=distances.__getitem__)
        assert distances.pop(best) < 0.01 < 0.02 < min(distances.values())
        drawn.add(best)
    assert len(drawn) > 1


def _after(tables: np.ndarray, noisy: tuple[int, ...], *, rate: float) -> np.ndarray:
    """Tables (input, output) (2, V, D) after the pairs (I[b], O[a]) and (I[a], O[b]), with and without a noise word:
    gensim's input vector is that of the context."""
    weights = torch.from_numpy(tables.copy()).requires_grad_()
    for (read, true), noise in zip(((1, 0), (0, 1)), noisy, strict=True):
        in_BTD = torch.stack([weights[0, read], torch.zeros(4)])[None]
        out_BUD = torch.stack([weights[1, row] for row in (read, true, 1 - true)])[None]
        loss = skip_gram(in_BTD, out_BUD, torch.tensor([[0, 0]]), torch.tensor([[1, 0]]), negatives=noise)
        (gradient,) = torch.autograd.grad(loss, weights)
        with torch.no_grad():
            weights -= rate * gradient
    return weights.detach().numpy()


def test_sub_sampling_and_noise(reference):
    counts = {"the": 900, "film": 60, "was": 300, "good": 7}
    actual = reference("gensim", "distributions", counts=counts, sample=1e-2)
    numbers = np.array(list(counts.values()))
    np.testing.assert_allclose(keep_probabilities(numbers, 1e-2), actual["keep"], atol=1e-6)
    np.testing.assert_allclose(noise_distribution(numbers, 0.75), actual["noise"], atol=1e-6)


def test_reads_its_text_format(reference, tmp_path):
    actual = reference("gensim", "text_file", path=str(tmp_path / "vectors.txt"))
    read = read_vectors(tmp_path / "vectors.txt")
    assert read.words == actual["words"].tolist()
    np.testing.assert_allclose(read.vectors, actual["vectors"], rtol=1e-6)
