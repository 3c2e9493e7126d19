"""The study prompts: the questions that are shipped and those of a file, and the choice among answers."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest

from components.core.errors import ConfigError, DataError
from components.studies import prompts as study
from components.studies.prompts import ITEMS, read_questions
from tests.studies.conftest import findings


def test_the_questions_that_are_shipped_have_right_answers():
    tasks = read_questions(ITEMS)
    assert list(dict.fromkeys(name.partition(":")[0] for name in tasks)) == [
        "questions", "translation into French", "last word", "unscramble", "new word", "sums"]  # fmt: skip
    for name, questions in tasks.items():
        assert len(dict(questions)) == len(questions) >= 12
        for question, answer in questions:
            asked = question.removesuffix("\nA:").split("\n")[-1]
            if name.startswith("sums"):
                expression = asked.removeprefix("Q: What is ").rstrip("?").replace("plus", "+").replace("minus", "-")
                assert re.fullmatch(r"[-+*\d() ]+", expression) and answer == str(eval(expression))
            if name.startswith("unscramble"):
                letters = asked.removesuffix(" =")[:: 2 if "insertion" in name else 1]
                assert sorted(letters) == sorted(answer) and asked != f"{answer} ="
            if name == "new word":
                assert re.search("the word (.*) is:", question)[1] in answer.lower()


def test_questions_of_a_file(tmp_path):
    path = tmp_path / "general.tsv"
    path.write_text("question\tanswer\nthe bank\tla banque\nthe bank\tla rive\n")
    assert read_questions(path) == {"general": [("the bank", "la banque"), ("the bank", "la rive")]}
    path = tmp_path / "items.jsonl"
    path.write_text(json.dumps({"question": " ", "answer": "a"}) + "\n")
    with pytest.raises(DataError, match=r"items.jsonl, line 1: a question or its answer is missing or empty"):
        read_questions(path)
    path.write_text(json.dumps({"task": "t", "question": "Who?", "answer": 3}) + "\n")
    assert read_questions(path) == {"t": [("Who?", "3")]}


def test_the_choice_among_answers(outputs, add_encoder, tmp_path, monkeypatch):
    add_encoder("ulmfit")
    seen: list[Any] = []

    def scores(_, prompts, candidates, *, neutral):
        seen.append((prompts, candidates, neutral))
        # The sum is best for the correct answer of every second question, and equal for the others' candidates.
        others = dict.fromkeys(("mean", "prior", "calibrated"), np.array([3, 2, 1]))
        return [{"sum": np.array([-1.0, -2.0 + n % 2, -3.0]), **others} for n, _ in enumerate(prompts)]

    monkeypatch.setattr(study, "answer_scores", scores)
    path = tmp_path / "letters.jsonl"
    rows = [{"question": f"q{n}", "answer": f"a{n}"} for n in range(10)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = {"items": str(path), "encoder": "ulmfit", "prompt": "Q: {text}\nA: [MASK] ."}
    actual = findings(outputs, "prompts", shots=2, choices=3, **options)
    (row,), ((prompts, candidates, neutral),) = actual.numbers["prompts"], seen
    assert (row["encoder"], row["task"], row["items"]) == ("ulmfit-adapted", "letters", 8)
    assert row["sum"]["mean"] == 0.5 and row["perplexity"] == pytest.approx(np.e)
    # Of 8 questions all are right: the exact bound.
    assert row["calibrated"] == {"mean": 1.0, "low": pytest.approx(0.025 ** (1 / 8)), "high": 1.0}
    assert row["guessing"] == pytest.approx(1 / 3) and row["trivial"] is None
    shown = "Q: q0\nA: a0 .\nQ: q1\nA: a1 .\n"
    assert neutral == [(f"{shown}Q: N/A\nA:", " ."), (f"{shown}Q: \nA:", " .")]
    for (prompt, after), of in zip(prompts, candidates, strict=True):
        assert (prompt, after) == (f"{shown}Q: q{of[0][1:]}\nA:", " .")
        assert len(set(of)) == 3 and set(of) <= {f"a{n}" for n in range(10)}
    with pytest.raises(DataError, match="letters: 10 questions are too few for 9 demonstrations and 2 questions"):
        findings(outputs, "prompts", shots=9, **options)
    # A further right answer is no candidate.
    path.write_text("".join(json.dumps(row) + "\n" for row in ({"question": "q", "answer": of} for of in "ab")))
    findings(outputs, "prompts", **options)
    assert seen[-1][1] == [("a",), ("b",)]


def test_all_questions_of_a_run_and_unsuitable_options(outputs, add_encoder):
    add_encoder("ulmfit")
    add_encoder("bert")
    (row,) = findings(outputs, "prompts", encoder="ulmfit", task="new word").numbers["prompts"]
    assert (row["task"], row["items"], row["guessing"]) == ("new word", 12, 0.25) and row["unknown"] == 12
    with pytest.raises(ConfigError, match="--task: unknown task 'sums: 2'; known: "):
        findings(outputs, "prompts", task="sums: 2")
    with pytest.raises(ConfigError, match="bert: not a causal language model; this study needs a causal family"):
        findings(outputs, "prompts", encoder="bert")
