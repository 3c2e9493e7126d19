"""The sliding window: words with their offsets, candidates, hand-computed scores."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from components.data.scoring.answers import NEVER
from components.data.tasks.data import Split
from components.data.tasks.kinds import scoring_for
from components.learners.base import Rows
from components.learners.baselines.questions import (
    Words,
    best_candidate,
    by_overlap,
    candidates_of,
    common_words,
    words_of,
)

CONTEXT = "The river Rhine flows to Rotterdam. In 1932 a bridge was built by Anna Berg at Cologne."
COMMON = frozenset(["the", "to", "in", "a", "was", "by", "at"])


def test_candidates_are_runs_between_common_words_and_marks():
    context = words_of(CONTEXT)
    actual = [CONTEXT[context.spans[a][0] : context.spans[b - 1][1]] for a, b in candidates_of(context, COMMON)]
    assert actual == ["river Rhine flows", "Rotterdam", "1932", "bridge", "built", "Anna Berg", "Cologne"]


def test_the_best_candidate_by_hand():
    context = words_of(CONTEXT)
    question = words_of("Who built a bridge in 1932?").words
    start, end, score = best_candidate(question, context, COMMON)
    assert CONTEXT[start:end] == "Anna Berg"
    # Its sentence without it shares in, 1932, a, bridge, built (5 words) and "in 1932", "a bridge" (2 pairs).
    # Question words: who built a bridge in 1932, the candidate's: anna berg; so windows have 8 words. The best one is
    # "in 1932 a bridge was built by anna": six of S, each once in the context; or one place on, with berg for in.
    # The nearest question word, built, is 2 words away; the context has 19 words and marks.
    assert len(context.words) == 19
    assert score == pytest.approx(7 + 6 * math.log(2) - 2 / 19)


def test_the_threshold_is_selected_on_dev():
    fields = [("Who built a bridge in 1932?", CONTEXT), ("Why is the moon green?", CONTEXT), ("", "")]
    start = CONTEXT.index("Anna Berg")
    rows = Split(fields, [np.asarray([start, start + 9.0]), np.zeros(0), np.zeros(0)], [None] * 3)
    (candidate,) = by_overlap(Rows(rows, np.arange(3), rows, rows, [], scoring_for("questions", [])))
    model = candidate.model
    assert [answer[1] > 0 for answer in replace(model, threshold=NEVER).answers(fields)] == [True, True, False]
    actual = model.answers(fields)
    assert [answer[1] > 0 for answer in actual] == [True, False, False]
    assert CONTEXT[int(actual[0][0]) : int(actual[0][1])] == "Anna Berg"
    assert all(len(answer) == 4 and answer.dtype == np.float32 for answer in actual)


def by_definition(question: list[str], context: Words, common: frozenset[str]) -> tuple[int, int, float]:
    """`best_candidate` by the definition in its module, candidate by candidate; the first at a tie."""
    words, sentences = context.words, context.sentences
    query = {word for word in question if word not in ".,"}
    pairs = set(pairwise(question))
    scored = []
    for a, b in candidates_of(context, common):
        ours = words[a:b]
        if query.issuperset(ours):
            continue
        inside = [index for index in range(len(words)) if sentences[index] == sentences[a]]
        parts = [[words[index] for index in inside if index < a], [words[index] for index in inside if index >= b]]
        shared = len(query & {word for part in parts for word in part})
        shared += len(pairs & {pair for part in parts for pair in pairwise(part)})
        learned = query | set(ours)
        size = min(len(learned), len(words))
        weights = [np.log1p(1 / words.count(word)) if word in learned else 0.0 for word in words]
        window = max(sum(weights[start : start + size]) for start in range(len(words) - size + 1))
        away = [a - index if index < a else index - b + 1 for index in range(len(words)) if not a <= index < b]
        outside = [index for index in range(len(words)) if not a <= index < b]
        near = [gap for gap, index in zip(away, outside, strict=True) if words[index] in query]
        distance = min(near) / len(words) if near else 1.0
        span = context.spans[a][0], context.spans[b - 1][1]
        scored.append((shared, round(window - distance, 9), span))
    if not scored:
        return 0, 0, 0.0
    most, score, (start, end) = max(scored, key=lambda entry: entry[:2])
    return start, end, most + score


def test_the_best_candidate_by_definition():
    rng = np.random.default_rng(0)
    vocabulary = np.asarray(["anna", "berg", "sings", "the", "of", "a", "song", "old", ",", ".", "hall"])
    # Few contexts with many ties; words with low and high counts.
    many = np.asarray([*vocabulary, *(f"w{number}" for number in range(60))])
    for number in range(400):
        words, most = (vocabulary, 25) if number % 2 else (many, 150)
        shares = 1 / np.arange(1, len(words) + 1)
        sampled = rng.choice(words, rng.integers(1, most), p=shares / shares.sum())
        context = words_of(" ".join(sampled))
        question = [str(word) for word in rng.choice(words, rng.integers(1, 6))]
        start, end, score = best_candidate(question, context, COMMON)
        expected = by_definition(question, context, COMMON)
        assert (start, end) == expected[:2]
        assert score == pytest.approx(expected[2])


def test_words_sentences_and_their_offsets():
    actual = words_of("It costs 3.5 (US) dollars. Yes!")
    assert actual.words == ["it", "costs", "3", ".", "5", "(", "us", ")", "dollars", ".", "yes", "!"]
    assert actual.sentences == [0] * 10 + [1] * 2
    assert actual.spans[8] == (18, 25)
    text = "ผมกินข้าวที่บ้าน 3 ครั้ง"
    thai = words_of(text)
    assert len(thai.words) > 4
    assert [text[start:end] for start, end in thai.spans] == thai.words
    assert "".join(thai.words) == text.replace(" ", "")
    assert words_of("长江有多长?").words == ["长", "江", "有", "多", "长", "?"]


def test_what_is_no_candidate():
    context = words_of("one two three four five six seven eight nine ten")
    assert candidates_of(context, frozenset()) == [(2, 10)], "a long run keeps its last words"
    assert best_candidate(["anna", "berg", "sings"], words_of("Anna Berg sings."), frozenset()) == (0, 0, 0.0)
    assert best_candidate(["who"], words_of(""), frozenset()) == (0, 0, 0.0)


def test_common_words_come_from_the_contexts_too():
    many = common_words(f"der Fluss {number} und der Berg" for number in range(100))
    assert {"der", "und", "berg"} <= many and "7" not in many
    few = common_words(["der Fluss und der Berg"])
    assert "der" not in few and "the" in few
