import random

import numpy as np
import pytest

from components.data.ingestion.dedup import PERMUTATIONS, Shingles, band_rows, exact_keys
from components.data.ingestion.duplicates import find_duplicates, near_pairs


def words(count: int, seed: int) -> list[str]:
    source = random.Random(seed)
    return ["".join(source.choices("abcdefghij", k=source.randint(2, 11))) for _ in range(count)]


def jaccard(left: list[str], right: list[str], ngram: int) -> float:
    grams = [{tuple(text[i : i + ngram]) for i in range(len(text) - ngram + 1)} for text in (left, right)]
    return len(grams[0] & grams[1]) / len(grams[0] | grams[1])


@pytest.mark.parametrize("changed", [0, 3, 8, 25])
def test_sketches_estimate_the_jaccard_similarity_of_word_ngrams(changed):
    left = words(400, seed=1)
    right = list(left)
    for position in random.Random(2).sample(range(400), changed):
        right[position] = "changed"
    sketches = Shingles(ngram=3, permutations=256).sketches(
        [" ".join(left), " ".join(right), " ".join(words(400, seed=3))]
    )
    assert (sketches[0] == sketches[1]).mean() == pytest.approx(jaccard(left, right, 3), abs=0.1)
    assert (sketches[0] == sketches[2]).mean() < 0.03


def test_sketches_are_independent_of_other_texts_case_punctuation_and_spaces():
    shingles = Shingles(ngram=5, permutations=64)
    texts = [" ".join(words(count, seed=count)) for count in (1, 2, 4, 5, 6, 50, 2000)] + ["?!", "...", "é", "ภาษาไทย"]
    together = shingles.sketches(texts)
    assert (together == np.concatenate([shingles.sketches([text]) for text in texts])).all()
    loud = shingles.sketches([text.upper().replace(" ", ", \n") for text in texts[:7]])
    assert (loud == together[:7]).all()
    # Texts without words are similar only if they are equal.
    assert (together[7] != together[8]).mean() > 0.9


def test_characters_are_words_in_scripts_without_spaces():
    thai = "รัฐบาลไทยประกาศนโยบายใหม่เกี่ยวกับการศึกษาและสาธารณสุขในวันนี้"
    chinese = "政府今天宣布了关于教育和公共卫生的新政策并将在全国范围内实施"
    near = [thai[:-3] + "พรุ่ง", chinese[:-2] + "执行"]
    sketches = Shingles(ngram=5, permutations=256).sketches([thai, chinese, *near])
    assert (sketches[0] == sketches[2]).mean() > 0.7
    assert (sketches[1] == sketches[3]).mean() > 0.6
    assert (sketches[0] == sketches[1]).mean() < 0.05


def documents() -> list[str]:
    """40 texts; text 10 equals text 3, texts 20 and 30 are texts 4 and 5 with one word changed."""
    texts = [" ".join(words(120, seed=seed)) for seed in range(40)]
    texts[10] = texts[3]
    texts[20] = texts[4].replace(texts[4].split()[60], "otherwise")
    texts[30] = "otherwise " + texts[5]
    return texts


def test_duplicates_are_found_once_and_later_than_their_twins():
    texts = documents()
    sketches = Shingles(ngram=5, permutations=64).sketches(texts)
    pairs, flags = find_duplicates(exact_keys(texts), sketches, old=0, threshold=0.8)
    assert [*pairs[["later", "earlier", "exact"]].itertuples(index=False, name=None)] == [
        (10, 3, True),
        (20, 4, False),
        (30, 5, False),
    ]
    assert np.flatnonzero(flags).tolist() == [10, 20, 30]
    estimates = [(sketches[later] == sketches[earlier]).mean() for later, earlier in ((20, 4), (30, 5))]
    assert pairs["similarity"].tolist() == pytest.approx([1.0, *estimates])
    # Documents of earlier runs are only compared with.
    pairs, flags = find_duplicates(exact_keys(texts), sketches, old=25, threshold=0.8)
    assert [*pairs[["later", "earlier", "exact"]].itertuples(index=False, name=None)] == [(30, 5, False)]
    assert np.flatnonzero(flags).tolist() == [30]


def test_only_pairs_above_the_threshold_are_found():
    left = words(200, seed=7)
    right = left[:170] + words(30, seed=8)
    assert 0.7 < jaccard(left, right, 5) < 0.8
    sketches = Shingles(ngram=5, permutations=256).sketches([" ".join(left), " ".join(right)])
    assert not any(len(later) for later, _, _ in near_pairs(sketches, 0.9, rows=4))
    assert any(len(later) for later, _, _ in near_pairs(sketches, 0.6, rows=4))


def pairs_of_similarity(similarity: float, *, count: int, values: int, seed: int) -> np.ndarray:
    """Signatures (2 * count, values) of which `count` pairs (2i, 2i + 1) agree in a share `similarity` of the values,
    at random positions."""
    source = np.random.default_rng(seed)
    sketches = source.integers(0, 2**16, (2 * count, values), dtype=np.uint16)
    for pair in range(count):
        equal = source.permutation(values)[: round(similarity * values)]
        sketches[2 * pair + 1, equal] = sketches[2 * pair, equal]
    return sketches


@pytest.mark.parametrize(
    ("threshold", "permutations", "rows"),
    [(0.8, 64, 4), (0.9, 64, 4), (1.0, 4, 4), (0.7, 64, 3), (0.5, 64, 2), (0.5, 256, 3), (0.4, 64, 2)],
)
def test_rows_of_a_band(threshold, permutations, rows):
    assert band_rows(threshold, permutations=permutations) == rows


@pytest.mark.parametrize("threshold", [0.4, 0.5, 0.8])
def test_99_percent_of_the_pairs_at_the_threshold_are_found(threshold):
    count = 2_000
    sketches = pairs_of_similarity(threshold + 0.01, count=count, values=PERMUTATIONS, seed=1)
    exact = exact_keys([str(number) for number in range(2 * count)])
    pairs, _ = find_duplicates(exact, sketches, old=0, threshold=threshold)
    later, earlier = pairs["later"], pairs["earlier"]
    assert (later % 2 == 1).all() and (earlier == later - 1).all()
    assert len(later) >= 0.99 * count


def test_exact_keys_are_equal_for_equal_texts_only():
    keys = exact_keys(["a", "b", "a", ""])
    assert keys.shape == (4, 2)
    assert keys.dtype == np.uint64
    assert len({tuple(row) for row in keys.tolist()}) == 3
    assert tuple(keys[0]) == tuple(keys[2])
    # BLAKE2b-128 of "a", little-endian halves: the keys are on disk, so they must not change.
    assert keys[0].tobytes().hex() == "27c35e6e9373877f29e562464e46497e"
