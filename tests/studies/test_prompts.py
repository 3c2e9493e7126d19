"""The studies prompts and zero-shot: templates, likelihoods of answers against direct computation, and the choice."""

from __future__ import annotations

import json
import re
from operator import not_
from typing import Any

import numpy as np
import pytest
import torch

from components.core.errors import ConfigError, DataError
from components.data.segmenters import Segmentation
from components.data.tasks.examples import read_split
from components.models.encoder import Encoder, build_model
from components.studies import prompts
from components.studies.frame import Outputs
from components.studies.prompts import (
    ITEMS,
    SCORES,
    answer_scores,
    can_answer,
    fill,
    label_words,
    pieces,
    read_questions,
    template_of,
)
from components.tokenization.char import CharTokenizer
from components.tokenization.special import END, MASK, SPECIAL_PIECES, START
from tests.studies.conftest import CLAIMS, ROOT, SIZES, findings, fits

OPTIONS = {"task": "aws-type", "encoder": "ulmfit-adapted", "answers": "fruit=river; metal=old bank"}


def log_probs(encoder: Encoder, tokens: list[int]) -> torch.Tensor:
    with torch.no_grad():
        return encoder.model.eval().predict(torch.tensor([tokens]))[0][0].double().log_softmax(-1)


def test_the_scores_of_a_causal_model(outputs, add_encoder):
    add_encoder("ulmfit")
    encoder = outputs.encoder("ulmfit", "adapted")
    neutral = [("the", ""), ("old", "")]
    (actual,) = answer_scores(encoder, [("the apple is", "")], [("a river", "bank")], neutral=neutral)

    def total(text, last):
        tokens = [END, *map(encoder.tokenizer.pieces.index, text.split())]
        nats = log_probs(encoder, tokens)
        return sum(nats[t - 1, tokens[t]].item() for t in range(len(tokens) - last, len(tokens)))

    sums = np.array([total("the apple is a river", 2), total("the apple is bank", 1)])
    alone = [total("a river", 2), total("bank", 1)]
    empty = np.exp([[total(f"{word} a river", 2), total(f"{word} bank", 1)] for word in ("the", "old")])
    shares = empty / empty.sum(1, keepdims=True)
    expected = {"sum": sums, "mean": sums / [7, 4], "prior": sums - alone, "calibrated": sums - np.log(shares.mean(0))}
    for name, values in expected.items():
        assert actual[name] == pytest.approx(values, abs=1e-6), name
    # The text after the answer counts.
    with_end = answer_scores(encoder, [("the", " is old")], [("apple",)])[0]["sum"][0]
    assert with_end == pytest.approx(total("the apple is old", 3), abs=1e-6)


def test_the_scores_of_a_masked_model_and_encoders_that_cannot_answer(outputs, run_with):
    run_with("word2vec", "bert")
    encoder = outputs.encoder("bert", "adapted")
    (actual,) = answer_scores(encoder, [("the apple is", " red")], [("river", "a bank")])
    ids = {word: id_ for id_, word in enumerate(encoder.tokenizer.pieces)}
    nats = log_probs(encoder, [START, ids["the"], ids["apple"], ids["is"], MASK, MASK, ids["red"], END])
    assert actual["sum"][1] == pytest.approx((nats[4, ids["a"]] + nats[5, ids["bank"]]).item(), abs=1e-5)
    with pytest.raises(DataError, match="answer 'apple apple .*exceeds the model's positions"):
        answer_scores(encoder, [("the", "")], [("apple " * 32,)])
    settings = SIZES["ulmfit"] | {"direction": "backward"}
    backward = build_model("ulmfit", vocabulary=encoder.tokenizer.vocab_size, settings=settings)
    silent = [outputs.encoder("word2vec", "adapted"), Encoder("ulmfit", backward, encoder.tokenizer)]
    assert [can_answer(each) for each in (encoder, *silent)] == [True, False, False]


def test_punctuation_after_the_answer_is_separated_as_in_the_prompt():
    characters = CharTokenizer([*SPECIAL_PIECES, *"abcdefghijklmnopqrstuvwxyz ."], segmentation=Segmentation("none"))
    for after in (".", " . so", ""):
        parts = pieces(characters, "it is", "red", after)
        assert ["".join(characters.pieces[id_] for id_ in ids) for ids in parts] == ["it is", " red", after]


def test_templates():
    for template, parts, filled in (
        ("{text}", ("an apple",), ("an apple", "")),
        ("{text} is a [MASK] .", ("An apple",), ("An apple is a", " .")),
        ("{text} and {second}: [MASK]", ("a", "b"), ("a and b:", "")),
        ("{{}} {text}", ("{x}",), ("{} {x}", "")),
    ):
        assert fill(template_of(template), parts) == filled
    with pytest.raises(ConfigError, match=r"has 2 \[MASK\]; write one or none"):
        template_of("[MASK] {text} [MASK]")
    for wrong in ("{words}", "{}", "{text.real}", "{text[0]}", "{text[a]}", "{te[MASK]xt}", "{text:d}", "{text"):
        with pytest.raises(ConfigError, match=r"only \{text\} and \{second\} may be in braces"):
            template_of(wrong)


def test_answers_for_labels():
    assert label_words(["a_b", "c-d", "e"], " e = an e ; a_b=first") == {"a_b": "first", "c-d": "c d", "e": "an e"}
    for wrong in ("e", "x=y", "e="):
        with pytest.raises(ConfigError, match="write label=words for labels among a_b, e"):
            label_words(["a_b", "e"], wrong)


def test_questions(tmp_path):
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

    def scores(_, asked, candidates, *, neutral):
        seen.append((asked, candidates, neutral))
        # The sum is best for the correct answer of every second question, and equal for the others' candidates.
        others = dict.fromkeys(("mean", "prior", "calibrated"), np.array([3, 2, 1]))
        return [{"sum": np.array([-1.0, -2.0 + n % 2, -3.0]), **others} for n, _ in enumerate(asked)]

    monkeypatch.setattr(prompts, "answer_scores", scores)
    path = tmp_path / "letters.jsonl"
    rows = [{"question": f"q{n}", "answer": f"a{n}"} for n in range(10)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = {"items": str(path), "encoder": "ulmfit", "prompt": "Q: {text}\nA: [MASK] ."}
    actual = findings(outputs, "prompts", shots=2, choices=3, **options)
    (row,), ((asked, candidates, neutral),) = actual.numbers["prompts"], seen
    assert (row["encoder"], row["task"], row["items"]) == ("ulmfit-adapted", "letters", 8)
    assert row["sum"]["mean"] == 0.5 and row["perplexity"] == pytest.approx(np.e)
    # Of 8 questions all are right: the exact bound.
    assert row["calibrated"] == {"mean": 1.0, "low": pytest.approx(0.025 ** (1 / 8)), "high": 1.0}
    assert row["guessing"] == pytest.approx(1 / 3) and row["trivial"] is None
    shown = "Q: q0\nA: a0 .\nQ: q1\nA: a1 .\n"
    assert neutral == [(f"{shown}Q: N/A\nA:", " ."), (f"{shown}Q: \nA:", " .")]
    for (prompt, after), of in zip(asked, candidates, strict=True):
        assert (prompt, after) == (f"{shown}Q: q{of[0][1:]}\nA:", " .")
        assert len(set(of)) == 3 and set(of) <= {f"a{n}" for n in range(10)}
    with pytest.raises(DataError, match="letters: 10 questions are too few for 9 demonstrations and 2 questions"):
        findings(outputs, "prompts", shots=9, **options)
    # A further right answer is no candidate.
    path.write_text("".join(json.dumps(row) + "\n" for row in ({"question": "q", "answer": of} for of in "ab")))
    findings(outputs, "prompts", **options)
    assert seen[-1][1] == [("a",), ("b",)]


def test_all_questions_of_a_run_and_unsuitable_options(outputs, run_with):
    run_with("ulmfit", "bert")
    (row,) = findings(outputs, "prompts", encoder="ulmfit", task="new word").numbers["prompts"]
    assert (row["task"], row["items"], row["guessing"]) == ("new word", 12, 0.25) and row["unknown"] == 12
    for options, message in (
        ({"task": "sums: 2"}, "--task: unknown task 'sums: 2'; known: "),
        ({"encoder": "bert"}, "bert: not a causal language model; this study needs a causal family"),
        ({"prompt": "{text} {second}"}, r"only \{text\} may be in braces"),
    ):
        with pytest.raises(ConfigError, match=message):
            findings(outputs, "prompts", **options)


@pytest.fixture
def run_of(outputs: Outputs, add_task, run_with) -> Outputs:
    """A run with a task and two encoders."""
    add_task()
    run_with("ulmfit", "word2vec")
    return outputs


def test_the_labels_of_rows(run_of):
    actual = findings(run_of, "zero-shot", prompt="{text} is a", split="test", **OPTIONS)
    fits(actual, "zero-shot")
    (numbers,) = actual.numbers["aws-type"]
    assert (numbers["split"], numbers["items"]) == ("test", 60)
    assert (numbers["guessing"], numbers["trivial"], numbers["unknown"]) == (0.5, 0.5, 0)
    rows = read_split(run_of.out / "examples" / "aws-type", "test")
    scores = answer_scores(
        run_of.encoder("ulmfit", "adapted"),
        [(f"{text} is a", "") for text in rows.texts],
        [("river", "old bank")] * 60,
        neutral=[("N/A is a", ""), (" is a", "")],
    )
    for name in SCORES:
        right = [of[name].argmax() == row[0] for of, row in zip(scores, rows.targets, strict=True)]
        entry = numbers[name]
        assert entry["mean"] == pytest.approx(np.mean(right))
        assert 0 <= entry["low"] <= entry["mean"] <= entry["high"] <= 1
    difference, calibrated = numbers["calibrated minus trivial"], numbers["calibrated"]["mean"]
    assert difference["mean"] == pytest.approx(calibrated - 0.5) and difference["low"] <= difference["mean"]


def test_labelled_rows_precede_the_prompt(run_of, monkeypatch):
    seen: list[tuple[str, str]] = []
    real = answer_scores

    def scores(encoder, asked, *others, neutral):
        seen.extend([asked[0], *neutral])
        return real(encoder, asked, *others, neutral=neutral)

    monkeypatch.setattr(prompts, "answer_scores", scores)
    actual = findings(run_of, "zero-shot", shots=3, prompt="{text} is a [MASK] .", **OPTIONS)
    first, second, third, asked = seen[0][0].split("\n")
    assert re.fullmatch("the .* is a river .", first) and re.fullmatch("the .* is a old bank .", second)
    assert re.fullmatch("the .* is a river .", third) and third != first
    assert asked.endswith(" is a") and seen[0][1] == " ."
    assert seen[1][0] == "\n".join([first, second, third, "N/A is a"])
    assert "after 3 labelled rows" in actual.chapter.text[0]


def test_encoders_that_cannot_answer_are_left_out(run_of):
    actual = findings(run_of, "zero-shot", answers="fruit=banana; metal=old")
    assert [row["encoder"] for row in actual.numbers["aws-type"]] == ["ulmfit-adapted"]
    assert actual.numbers["aws-type"][0]["unknown"] == 1, "banana"
    assert "word2vec-adapted is left out: no causal or masked language model" in actual.chapter.text[-1]
    with pytest.raises(ConfigError, match="word2vec-adapted: no causal or masked language model with an output layer"):
        findings(run_of, "zero-shot", encoder="word2vec-adapted")


def test_the_choices_of_a_row(run_of, write_task):
    rows = [{"text": f"the {word}", "choices": [word, "red river"], "label": 0} for word in ("apple", "iron", "zinc")]
    write_task("aws-service", rows, kind="choice")
    options = {"task": "aws-service", "encoder": "ulmfit-adapted"}
    (row,) = findings(run_of, "zero-shot", **options).numbers["aws-service"]
    assert (row["items"], row["guessing"], row["trivial"]) == (3, 0.5, None)
    with pytest.raises(ConfigError, match="--shots: the answers of a choice differ by row"):
        findings(run_of, "zero-shot", shots=1, **options)
    with pytest.raises(ConfigError, match=r"only \{text\} may be in braces"):
        findings(run_of, "zero-shot", prompt="{text} {second}", **options)


def test_both_sides_of_a_gap(outputs, run_with, monkeypatch):
    run_with("bert", "ulmfit")
    seen: list[list[tuple[str, str]]] = []

    def scores(_, asked, candidates, *, neutral):
        seen.append(asked)
        # With both sides every answer is right, with the left side every second one.
        right = [bool(after) or n % 2 == 0 for n, (_, after) in enumerate(asked)]
        return [dict.fromkeys(SCORES, np.array([1.0, 0.5 + not_right, 0, 0])) for not_right in map(not_, right)]

    monkeypatch.setattr(prompts, "answer_scores", scores)
    items = ROOT / CLAIMS["gap"].options["items"]
    actual = findings(outputs, "prompts", items=str(items))
    fits(actual, "prompts")
    whole, sides = actual.numbers.values()
    assert [row["encoder"] for row in whole] == ["bert-adapted", "ulmfit-adapted"], "a masked model has both sides"
    assert seen[0][0] == ("I am", " excited to see you again .") and seen[1][0] == ("I am", "")
    assert all(after for _, after in seen[0]) and not any(after for _, after in seen[1])
    assert sides[0]["both minus left"]["mean"] == 0.5 and sides[0]["both minus left"]["low"] > 0
