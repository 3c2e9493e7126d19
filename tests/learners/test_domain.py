"""Texts that are unlike the training texts of a model."""

from __future__ import annotations

import random

import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.preprocessing import normalize

from components.core.errors import ArtifactError
from components.data.tasks.members import DOMAIN
from components.learners.abstention import AbstainingClassifier
from components.learners.domain import CHARACTERS, LEVEL, TEXTS, Domain
from tests.inference.files import ByLength

NOUNS = ["invoice", "refund", "parcel", "courier", "password", "login", "order", "voucher", "address", "receipt"]
VERBS = ["where is", "please send", "I have lost", "how do I change", "cancel", "I never got"]


def tickets(count: int, *, seed: int = 0) -> list[tuple[str]]:
    rng = random.Random(seed)
    return [
        (f"{rng.choice(VERBS)} my {rng.choice(NOUNS)} and the {rng.choice(NOUNS)} {rng.randrange(999)}",)
        for _ in range(count)
    ]


def test_exact_similarities():
    """Mean cosines to the two other texts, half of words and half of characters; the inverse document frequencies of a
    text's own vector are those without it."""
    texts = ["red fox", "red dog", "blue dog barks"]
    cosines = np.zeros((3, 3))
    for settings in ({"token_pattern": r"\w+"}, {"analyzer": "char_wb", "ngram_range": (2, 4)}):
        counts = CountVectorizer(**settings).fit_transform(texts).toarray()
        weights, frequencies = np.where(counts, 1 + np.log(np.maximum(counts, 1)), 0), (counts > 0).sum(0)
        stored = normalize(weights * (1 + np.log(4 / (1 + frequencies))))
        alone = normalize(weights * (1 + np.log(3 / frequencies)))
        cosines += alone @ stored.T / 2
    others = (cosines.sum(1) - cosines.diagonal()) / 2
    np.testing.assert_allclose(Domain.fit([(text,) for text in texts]).similarities, np.sort(others), atol=1e-6)


@pytest.mark.parametrize("count", [16, 400])
def test_texts_from_elsewhere_are_flagged(count):
    domain = Domain.fit(tickets(count))
    elsewhere = [
        "",
        "ยกเลิกคำสั่งซื้อของฉันที่สั่งเมื่อวานนี้",
        "xq zzvk qwpt bnmm",
        "😀😀",
        "Наконец наступила весна, и снег растаял.",
    ]
    assert [domain.excludes((text,)) for text in elsewhere] == [True] * len(elsewhere)


@pytest.mark.parametrize(("count", "most"), [(16, 3 * LEVEL), (300, 1.5 * LEVEL)])
def test_the_share_of_flagged_texts_of_the_domain(count, most):
    shares = []
    for seed in range(8):
        rows = tickets(count + 150, seed=seed)
        domain = Domain.fit(rows[:count])
        shares.append(np.mean([domain.excludes(row) for row in rows[count:]]))
    assert np.mean(shares) <= most


def test_texts_of_new_customers_are_of_the_domain():
    """Each writes in words of their own, which the limit has to expect of others."""

    def customers(first: int, count: int) -> tuple[list[tuple[str]], list[int]]:
        names = range(first, first + count)
        ticket = {name: [text for (text,) in tickets(8, seed=name)] for name in names}
        own = {name: " ".join(f"{'abcdefghij'[name % 10] * 3}{name}{word}" for word in range(6)) for name in names}
        return [(f"{own[name]} {text}",) for name in names for text in ticket[name]], [
            n for n in names for _ in range(8)
        ]

    (rows, units), (later, _) = customers(0, 40), customers(40, 40)
    shares = [
        np.mean([domain.excludes(row) for row in later])
        for domain in (Domain.fit(rows, np.asarray(units)), Domain.fit(rows))
    ]
    assert shares[0] <= 1.5 * LEVEL and shares[1] > 0.5


def test_few_and_equal_texts_have_a_domain():
    assert not Domain.fit([("a",)]).excludes(("a",))
    domain = Domain.fit([("a b",), ("a b",), ("a c",)])
    assert len(domain.similarities) == 2 and 0 < domain.p_value(("a b",)) < 1


def test_long_and_many_texts_are_cut():
    domain = Domain.fit([(f"text {number} " + "word " * CHARACTERS,) for number in range(TEXTS + 10)])
    assert len(domain.similarities) == TEXTS
    assert domain.p_value(("x" * CHARACTERS + "a",)) == domain.p_value(("x" * CHARACTERS + "b",))


def test_a_stored_domain_gives_the_same_values(tmp_path):
    domain, rows = Domain.fit(tickets(60)), [*tickets(5, seed=2), ("half \ud800 pair",)]
    domain.write(tmp_path)
    stored = Domain.read(tmp_path)
    assert stored is not None
    assert [stored.p_value(row) for row in rows] == [domain.p_value(row) for row in rows]
    (tmp_path / DOMAIN).write_bytes(b"damaged")
    with pytest.raises(ArtifactError, match=r"domain.safetensors: not the texts of a model .*run its stage again"):
        Domain.read(tmp_path)
    assert Domain.read(tmp_path / "earlier") is None


def test_a_confident_answer_outside_of_the_domain_abstains():
    classifier = AbstainingClassifier(ByLength(), 0.0, Domain.fit(tickets(60)))
    rows = [*tickets(1), ("สวัสดีครับ",)]
    formatted = [classifier.io.format(row, ByLength().answer([row])[0], ["short", "long"]) for row in rows]
    assert [(row["out_of_domain"], row["abstained"]) for row in formatted] == [(False, False), (True, True)]
