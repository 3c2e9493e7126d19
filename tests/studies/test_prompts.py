"""The study prompts: what counts as an answer, questions of a file, and answers against direct computation."""

from __future__ import annotations

import json
import re
import string
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from components.core.errors import ConfigError, DataError
from components.data.segmenters import Segmentation
from components.models.encoder import Encoder
from components.studies import prompts as study
from components.studies.prompts import ITEMS, continuations, read_questions, says
from components.tokenization.char import CharTokenizer
from components.tokenization.special import END, FIRST_ORDINARY, SPECIAL_PIECES
from tests.studies.conftest import findings


@pytest.fixture
def tokenizer_directory(tmp_path: Path) -> Path:
    """Characters, so that the encoders of this file know every answer."""
    characters = [*SPECIAL_PIECES, *string.ascii_letters, *string.digits, *string.punctuation, " "]
    CharTokenizer(characters, segmentation=Segmentation("none")).save(tmp_path / "tokenizer")
    return tmp_path / "tokenizer"


@pytest.mark.parametrize(
    ("text", "answer", "expected"),
    [
        ("98.", "98", True), ("It is 98", "98", True), ("-98", "98", False), ("198", "98", False),
        ("98.5", "98", False), ("-19", "-19", True), ("- 19", "-19", False), ("1,204", "1", False),
        ("A St. Louis one", "st. louis", True), ("banks", "bank", False), ("", "bank", False),
    ],
)  # fmt: skip
def test_what_counts_as_an_answer(text, answer, expected):
    assert says(text, ["none", answer]) is expected


def test_the_questions_that_are_shipped_have_right_answers():
    tasks = read_questions(ITEMS)
    assert list(dict.fromkeys(name.partition(":")[0] for name in tasks)) == [
        "questions", "translation into French", "last word", "unscramble", "new word", "sums"]  # fmt: skip
    for name, questions in tasks.items():
        assert len({of.text for of in questions}) == len(questions) >= 12
        for of in questions:
            (answer,), asked = of.answers, of.text.removesuffix("\nA:").split("\n")[-1]
            if name.startswith("sums"):
                expression = asked.removeprefix("Q: What is ").rstrip("?").replace("plus", "+").replace("minus", "-")
                assert re.fullmatch(r"[-+*\d() ]+", expression) and answer == str(eval(expression))
            if name.startswith("unscramble"):
                letters = asked.removesuffix(" =")[:: 2 if "insertion" in name else 1]
                assert sorted(letters) == sorted(answer) and asked != f"{answer} ="
            if name == "new word":
                assert says(answer, of.words) or says(answer, [f"{of.words[0]}s"])


def test_questions_of_a_file(tmp_path):
    path = tmp_path / "general.tsv"
    path.write_text("question\tanswer\nthe bank\tla banque\nred\trouge\nthe bank\tla  rive\n")
    ((name, (bank, red)),) = read_questions(path).items()
    assert (name, bank.text, len(bank.answers), red.words) == ("general", "the bank", 2, ["rouge"])
    path = tmp_path / "items.jsonl"
    path.write_text(json.dumps({"question": " ", "answer": "a"}) + "\n")
    with pytest.raises(DataError, match=r"items.jsonl, line 1: question is missing or empty; a row needs"):
        read_questions(path)
    path.write_text(json.dumps({"task": "t", "question": "Who?", "answer": 3}) + "\n")
    assert read_questions(path)["t"][0].answers == ["3"]
    with pytest.raises(DataError, match=r"none\.tsv: does not exist"):
        read_questions(tmp_path / "none.tsv")


def stepwise(encoder: Encoder, text: str, length: int) -> str:
    """The greedy answer, from one pass over the whole text per piece."""
    ids, written = [END, *encoder.tokenizer.encode_batch([text])[0].tolist()], []
    while len(written) < length:
        with torch.no_grad():
            logits = encoder.model.eval().predict(torch.tensor([ids]))[0][0, -1].double()
        logits[[id_ for id_ in range(FIRST_ORDINARY) if id_ != END]] = -torch.inf
        if (piece := int(logits.argmax())) == END:
            break
        written.append(piece)
        ids.append(piece)
    return encoder.tokenizer.decode(written)


@pytest.mark.parametrize("name", ["ulmfit", "transformer-xl"])
def test_answers_equal_those_of_one_pass_per_piece(outputs, add_encoder, name):
    add_encoder(name)
    encoder = outputs.encoder(name, "adapted")
    with torch.no_grad():
        for parameter in encoder.model.parameters():
            parameter.mul_(4)
    prompts = ["the old apple is", "a red bank", "very small river there", "zinc"]
    assert continuations(encoder, prompts, length=4) == [stepwise(encoder, prompt, 4) for prompt in prompts]


def test_a_prompt_loses_its_beginning_at_the_last_position(outputs, add_encoder):
    add_encoder("gpt")
    encoder = outputs.encoder("gpt", "adapted")
    # 8 positions: the special piece, 5 pieces of the prompt, and 2 of the answer.
    assert continuations(encoder, ["the river"], length=2) == continuations(encoder, ["river"], length=2)


def test_demonstrations_are_never_asked_and_answers_are_counted(outputs, add_encoder, tmp_path, monkeypatch):
    add_encoder("ulmfit")
    calls: list[Sequence[str]] = []

    def answers(_: Encoder, prompts: Sequence[str], *, length: int) -> list[str]:
        """Every second answer is right."""
        calls.append(prompts)
        return [f"is {42 + number}" if number % 2 else "" for number, _ in enumerate(prompts)]

    monkeypatch.setattr(study, "continuations", answers)
    path = tmp_path / "sums.jsonl"
    rows = [{"question": f"40 and {n}", "answer": 40 + n} for n in range(42)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = {"items": str(path), "encoder": "ulmfit", "prompt": "Q: {text}\nA: [MASK] ."}
    actual = findings(outputs, "prompts", shots=2, **options)
    (prompts,), (row,) = calls, actual.numbers["prompts"]
    assert prompts[0] == "Q: 40 and 0\nA: 40 .\nQ: 40 and 1\nA: 41 .\nQ: 40 and 2\nA:" and len(prompts) == 40
    assert (row["items"], row["trivial"], row["generated"]["mean"]) == (40, 1 / 40, 0.5)
    # The jackknife of a mean is its standard error.
    error = np.tile([0, 1], 20).std(ddof=1) / np.sqrt(40)
    assert row["generated"]["mean"] - row["generated"]["low"] == pytest.approx(2.02 * error, rel=0.01)
    assert row["generated minus trivial"]["low"] == pytest.approx(row["generated"]["low"] - row["trivial"])
    assert "is clearly not 0 for ulmfit-adapted, sums" in actual.chapter.lead[0]
    samples = actual.chapter.tables[1].rows
    assert [of[2:] for of in samples] == [["40 and 2", "(nothing)", "42"], ["40 and 3", "is 43", "43"]]
    with pytest.raises(DataError, match="sums: 42 questions are too few for 41 demonstrations and 2 questions"):
        findings(outputs, "prompts", shots=41, **options)


def test_all_questions_of_a_run_and_unsuitable_options(outputs, add_encoder):
    add_encoder("gpt")
    add_encoder("bert")
    rows = findings(outputs, "prompts", encoder="gpt", task="new word").numbers["prompts"]
    assert [(row["task"], row["items"], row["cut"]) for row in rows] == [("new word", 12, 12)]
    with pytest.raises(ConfigError, match="--task: unknown task 'sums: 2'; known: "):
        findings(outputs, "prompts", task="sums: 2")
    with pytest.raises(ConfigError, match="bert: not a causal language model; this study needs a causal family"):
        findings(outputs, "prompts", encoder="bert")
