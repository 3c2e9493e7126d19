"""The study prompts: items of the tasks, answers against direct computation, and the study with given answers."""

from __future__ import annotations

import json
import re
import string
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from components.core.errors import ArtifactError, ConfigError, DataError
from components.data.segmenters import Segmentation
from components.models.encoder import Encoder
from components.studies import prompts as study
from components.studies.frame import Outputs
from components.studies.prompt_tasks import (
    SUMS,
    TASKS,
    Item,
    Prompt,
    PromptTask,
    Source,
    contains,
    first_line,
    first_number,
    first_sentence,
    first_word,
    is_equal,
    is_exact_match,
)
from components.studies.prompts import continuations
from components.tokenization.char import CharTokenizer
from components.tokenization.special import END, FIRST_ORDINARY, SPECIAL_PIECES
from tests.studies.conftest import findings

PASSAGES = [f"The old {word} is here and there. It is very small and it is a red {word}." for word in ("bank", "river")]


@pytest.fixture
def tokenizer_directory(tmp_path: Path) -> Path:
    """Characters, so that the encoders of this file know every answer."""
    characters = [*SPECIAL_PIECES, *string.ascii_letters, *string.digits, *string.punctuation, " "]
    CharTokenizer(characters, segmentation=Segmentation("none")).save(tmp_path / "tokenizer")
    return tmp_path / "tokenizer"


def tasks_of(name: str, count: int = 40, **source: Any) -> list[PromptTask]:
    made = Source(**{"corpus": lambda: Path(), "pairs": None, "count": count} | source)
    return TASKS[name](made, np.random.default_rng(0))


def test_what_counts_as_an_answer():
    assert [first_word(text) for text in (" = casino, of", "don't go", "...")] == ["casino", "don't", ""]
    assert [first_number(text) for text in (" 98.", " -19\nQ", " - 28", "1,204", "no 3", "")] == [
        *("98", "-19", "-28", "1204", "", "")
    ]
    assert [first_line(text) for text in ("\n St. Louis \nQ: b", "  a b ", "")] == ["St. Louis", "a b", ""]
    assert first_sentence(" One. Two.\nThree.") == "One. Two."
    assert [first_sentence(text) for text in ("One is here. Two", "one", "")] == ["One is here.", "one", ""]
    assert is_equal("Bank", ["bank"]) and not is_equal("banks", ["bank"])
    assert is_exact_match("the Bank!", ["river", "bank"]) and not is_exact_match("old bank", ["bank"])
    assert contains("Two Dremmits.", ["dremmit"]) and not contains("Two.", ["dremmit"])


def test_sums_are_correct():
    tasks = tasks_of("sums")
    assert [task.name for task in tasks] == [f"sums: {name}" for name in SUMS]
    for task, limit in zip(tasks, (100, 100, 1000, 1000, 10), strict=True):
        assert len({item.question for item in task.items}) == 40
        for item in task.items:
            expression = item.question[0].replace("plus", "+").replace("minus", "-")
            assert re.fullmatch(r"\d+ [+-] \d+" if limit > 10 else r"\d[-+*]\(\d[-+*]\d\)", expression)
            assert item.answers == (str(eval(expression)),)
            assert all(int(number) < limit for number in re.findall(r"\d+", expression))
        assert max(int(number) for item in task.items for number in re.findall(r"\d+", item.question[0])) >= 0.9 * limit
    assert any(item.answers[0].startswith("-") for item in tasks[1].items)
    assert tasks[0].prompt(("98 plus 45",), [Item(("48 plus 76",), ("124",))]) == (
        "Q: What is 48 plus 76?\nA: 124\nQ: What is 98 plus 45?\nA:",
        "",
    )


def test_scrambled_words(outputs, add_corpus):
    words = ["inevitably", "corruption", "opponent", "succession", "objects", "level", "aaaa", "iron"]
    add_corpus("domain", [" ".join(words)])
    made = {
        task.name.removeprefix("unscramble: "): {item.answers[0]: item.question[0] for item in task.items}
        for task in tasks_of("unscramble", corpus=lambda: outputs.of("corpus", "domain"))
    }
    cycled, outer, outer_two, inserted, backward = made.values()
    for word, text in cycled.items():
        assert text in word + word and len(text) == len(word) and text != word
    for kept, scrambled in ((1, outer), (2, outer_two)):
        for word, text in scrambled.items():
            assert sorted(text) == sorted(word) and text != word
            assert (text[:kept], text[-kept:]) == (word[:kept], word[-kept:])
    for word, text in inserted.items():
        assert text[::2] == word and len(text) == 2 * len(word) - 1
        assert not any(mark.isalnum() for mark in text[1::2])
    assert backward["objects"] == "stcejbo"
    # A palindrome, equal letters, and a word of four letters whose two inner ones are kept or the only ones moved.
    assert set(words) - backward.keys() == {"level", "aaaa"}
    assert set(words) - cycled.keys() == {"aaaa"} and set(words) - outer_two.keys() == {"level", "aaaa", "iron"}
    assert inserted.keys() == set(words) and outer["iron"] == "iorn"


def test_last_words(outputs, add_corpus):
    long = "There is a bank. " * 12 + "It ends here. It is not read."
    left_out = ["The red bank is old.", "The small river is very old and it is here in 1900.", PASSAGES[0]]
    add_corpus("domain", [], [*PASSAGES, *left_out, long])
    (task,) = tasks_of("last-word", corpus=lambda: outputs.of("corpus", "domain"))
    assert {item.question[0]: item.answers for item in task.items} == {
        "The old bank is here and there. It is very small and it is a red": ("bank",),
        "The old river is here and there. It is very small and it is a red": ("river",),
        # 12 sentences of four words, and one that reaches 50 words.
        "There is a bank. " * 12 + "It ends": ("here",),
    }
    first, second = task.items[:2]
    assert task.prompt(first.question, []) == (first.question[0], "")
    shown = f"{second.question[0]} ____. -> {second.answers[0]}\n{first.question[0]} ____. ->"
    assert task.prompt(first.question, [second]) == (shown, "")


def test_pairs_of_a_file(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("source\ttarget\nthe bank\tla banque\nthe river\tla rivière\nthe bank\tla  rive\n")
    (task,) = tasks_of("translation", pairs=path)
    assert {item.question[0]: item.answers for item in task.items} == {
        "the bank": ("la banque", "la rive"),
        "the river": ("la rivière",),
    }
    assert task.prompt(("red",), [Item(("old",), ("vieux",))]) == ("old = vieux\nred =", "")
    path = tmp_path / "pairs.jsonl"
    path.write_text(json.dumps({"question": "Who?", "answer": 3}) + "\n")
    (task,) = tasks_of("closed-book", pairs=path)
    assert task.items == [Item(("Who?",), ("3",))]
    with pytest.raises(DataError, match=r"pairs.jsonl, line 1: no column 'source'; known: answer, question"):
        tasks_of("translation", pairs=path)
    path.write_text(json.dumps({"question": " ", "answer": "a"}) + "\n")
    with pytest.raises(DataError, match=r"pairs.jsonl, line 1: question is empty; remove the row"):
        tasks_of("closed-book", pairs=path)
    with pytest.raises(ConfigError, match="--pairs: missing; name a file with the columns question and answer"):
        tasks_of("closed-book")
    with pytest.raises(DataError, match=r"none\.tsv: does not exist"):
        tasks_of("closed-book", pairs=tmp_path / "none.tsv")


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


@pytest.fixture
def run_of(outputs: Outputs, add_encoder: Any, add_corpus: Any) -> Outputs:
    """A run with a causal model, 8 frequent words and 8 passages."""
    words = ["inevitably", "corruption", "opponent", "succession", "objects", "forward", "measure", "station"]
    add_corpus(
        "domain",
        [" ".join(words)],
        [f"The old bank is here and there. It is very small and number {n} is {word}." for n, word in enumerate(words)],
    )
    add_encoder("ulmfit")
    return outputs


def given(monkeypatch: pytest.MonkeyPatch, answer: Callable[[str], str]) -> list[Sequence[str]]:
    """Replace the model by a function prompt -> answer; returns the prompts of each call."""
    calls: list[Sequence[str]] = []

    def replacement(_: Encoder, prompts: Sequence[str], *, length: int) -> Any:
        calls.append(prompts)
        return [answer(prompt) for prompt in prompts]

    monkeypatch.setattr(study, "continuations", replacement)
    return calls


def added(prompt: str) -> str:
    """The correct answer to the last sum if the first number is even, else another number."""
    left, right = map(int, re.findall(r"(\d+) plus (\d+)", prompt)[-1])
    return f" {left + right + left % 2}\nQ: What"


def test_demonstrations_are_never_asked(run_of, monkeypatch):
    calls = given(monkeypatch, added)
    monkeypatch.setattr(study, "TASKS", {"sums": lambda *given: TASKS["sums"](*given)[:1]})
    findings(run_of, "prompts", task="sums", encoder="ulmfit", shots=3, items=5, seeds=4, choices=0)
    assert len(calls) == 4
    asked, shown = set(), []
    for prompts in calls:
        assert len(prompts) == 5
        lines = [prompt.split("\n") for prompt in prompts]
        assert len({tuple(of[:6]) for of in lines}) == 1, "one draw for a seed"
        asked |= {of[6] for of in lines}
        shown.append(tuple(lines[0][:6:2]))
        assert lines[0][1] == f"A: {sum(map(int, re.findall('[0-9]+', lines[0][0])))}"
    assert len(asked) == 5 and len(set(shown)) == 4
    assert not asked & {question for of in shown for question in of}


def test_the_shares_of_correct_answers(run_of, monkeypatch):
    given(monkeypatch, added)
    monkeypatch.setattr(study, "TASKS", {"sums": lambda *given: TASKS["sums"](*given)[:1]})
    actual = findings(run_of, "prompts", task="sums", encoder="ulmfit", items=40, choices=0)
    (row,) = actual.numbers["prompts"]
    items = tasks_of("sums")[0].items
    even = np.asarray([int(item.question[0].split()[0]) % 2 == 0 for item in items])
    assert row["generated"]["mean"] == pytest.approx(even.mean())
    # The jackknife of a mean is its standard error.
    error = even.std(ddof=1) / np.sqrt(40)
    assert row["generated"]["mean"] - row["generated"]["low"] == pytest.approx(2.02 * error, rel=0.01)
    answers = [item.answers[0] for item in items]
    assert row["trivial"] == max(map(answers.count, answers)) / 40 and row["sum"] is None
    table, samples = actual.chapter.tables
    assert table.rows[0][:3] == ["ulmfit-adapted", "sums: 2 digits, plus", "40"]
    assert [row[2] for row in samples.rows] == [item.question[0] for item in items[:2]]
    difference = row["generated minus trivial"]
    assert difference["low"] == pytest.approx(row["generated"]["low"] - row["trivial"])
    assert "is clearly not 0 for ulmfit-adapted, sums: 2 digits, plus" in actual.chapter.lead[0]


def test_translations(run_of, tmp_path, monkeypatch):
    path = tmp_path / "pairs.tsv"
    rows = [(f"the old bank {n} is here", f"la vieille banque {n} est ici") for n in range(12)]
    path.write_text("".join("\t".join(row) + "\n" for row in [("source", "target"), *rows]))
    given(monkeypatch, lambda prompt: f" {dict(rows)[prompt.split(chr(10))[-1][:-2]]}\nthe")
    actual = findings(
        run_of, "prompts", task="translation", encoder="ulmfit", pairs=str(path), shots=2, seeds=2, items=8
    )
    (result,) = actual.numbers["prompts"]
    assert (result["items"], result["generated"]["mean"]) == (8, pytest.approx(1.0))
    # The number alone is copied: 1 of 5 words.
    assert 0 < result["trivial"] < 0.2
    monkeypatch.setitem(sys.modules, "sacrebleu.metrics", None)
    with pytest.raises(ConfigError, match="the package sacrebleu is not installed"):
        findings(run_of, "prompts", encoder="ulmfit", pairs=str(path))


def test_the_choice_among_answers(run_of, tmp_path, monkeypatch):
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps({"question": f"q{n}", "answer": f"a{n}"}) + "\n" for n in range(8)))
    given(monkeypatch, lambda prompt: "")
    seen: list[Any] = []

    def scores(_, prompts, candidates, *, neutral):
        seen.append((prompts, candidates, neutral))
        # The sum is best for the correct answer of every second item, and equal for the others' candidates.
        others = dict.fromkeys(("mean", "prior", "calibrated"), np.array([3, 2, 1]))
        return [{"sum": np.array([-1.0, -2.0 + n % 2, -3.0]), **others} for n in range(8)]

    monkeypatch.setattr(study, "answer_scores", scores)
    actual = findings(run_of, "prompts", task="closed-book", encoder="ulmfit", pairs=str(path), choices=3)
    (result,) = actual.numbers["prompts"]
    assert result["sum"]["mean"] == 0.5
    # Of 8 items all are right: the exact bound.
    assert result["calibrated"] == {"mean": 1.0, "low": pytest.approx(0.025 ** (1 / 8)), "high": 1.0}
    assert result["guessing"] == pytest.approx(1 / 3) and result["perplexity"] == pytest.approx(np.e)
    assert result["generated"]["mean"] == 0 and result["trivial"] == 1 / 8
    ((prompts, candidates, neutral),) = seen
    assert neutral == [("Q: N/A\nA:", ""), ("Q: \nA:", "")]
    for (prompt, after), of in zip(prompts, candidates, strict=True):
        assert after == "" and prompt == f"Q: q{of[0][1:]}\nA:"
        assert len(set(of)) == 3 and set(of) <= {f"a{n}" for n in range(8)}


def test_all_tasks_of_a_run(run_of, tmp_path):
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps({"question": f"is {n}", "answer": f"é{n}"}) + "\n" for n in range(9)))
    actual = findings(run_of, "prompts", encoder="ulmfit", pairs=str(path), shots=1, items=4, seeds=2, choices=2)
    rows = actual.numbers["prompts"]
    names = [row["task"] for row in rows]
    assert [name.partition(":")[0] for name in names] == [
        *("last-word", *["unscramble"] * 5, *["sums"] * 5, "new-word", "closed-book")
    ]
    results = dict(zip(names, rows, strict=True))
    assert all(0 <= result["generated"]["mean"] <= 1 and result["items"] == 4 for result in results.values())
    assert results["new-word"]["sum"] is None and results["last-word"]["guessing"] == 0.5
    assert results["last-word"]["perplexity"] > 1
    assert [row[1] for row in actual.chapter.tables[1].rows].count("new-word") == 4
    assert "closed-book: 5 of 5 answers have unknown words ('é" in " ".join(actual.chapter.text)
    json.dumps(actual.numbers, allow_nan=False)


def test_what_cannot_be_asked_is_skipped_unless_named(outputs, add_encoder, add_corpus):
    add_encoder("gpt")
    with pytest.raises(ArtifactError, match="corpus/domain: missing; run `headstart stage ingest --item domain`"):
        findings(outputs, "prompts", task="last-word", encoder="gpt")
    add_corpus("domain", ["bank river"])
    with pytest.raises(DataError, match="no held-out document has 10 words and ends with a word"):
        findings(outputs, "prompts", task="last-word", encoder="gpt")
    message = "new-word: 12 items are too few for 12 demonstrations and 2 questions"
    with pytest.raises(DataError, match=message):
        findings(outputs, "prompts", task="new-word", encoder="gpt", shots=12)
    actual = findings(outputs, "prompts", encoder="gpt", shots=12, items=2, seeds=1, choices=0)
    text = " ".join(actual.chapter.text)
    assert {result["task"].partition(":")[0] for result in actual.numbers["prompts"]} == {"sums"}
    assert "last-word is skipped: " in text and "unscramble is skipped: " in text and message in text
    assert "gpt-adapted: 2 of 2 prompts of sums: 2 digits, plus exceed the model's 8 positions" in text


def test_messages_about_unsuitable_options(run_of, add_encoder, tmp_path):
    with pytest.raises(ConfigError, match="--task: unknown task 'sum'; did you mean 'sums'"):
        findings(run_of, "prompts", task="sum")
    add_encoder("bert")
    with pytest.raises(ConfigError, match="bert: not a causal language model; this study needs a causal family"):
        findings(run_of, "prompts", encoder="bert")
    path = tmp_path / "pairs.tsv"
    path.write_text("text\tlabel\na b\tc\nd e\tf\n")
    with pytest.raises(
        DataError, match=r"has the columns text, label; needs source and target, or question and answer"
    ):
        findings(run_of, "prompts", encoder="ulmfit", pairs=str(path))


def test_prompts_with_and_without_demonstrations():
    task = PromptTask("t", [], Prompt("Q: {text}\nA:", ""), first_word, is_equal, intro="Answer:\n")
    assert task.prompt(("c",), []) == ("Answer:\nQ: c\nA:", "")
    shown = [Item(("a",), ("1", "one")), Item(("b",), ("2",), "two")]
    assert task.prompt(("c",), shown) == ("Answer:\nQ: a\nA: 1\nQ: b\nA: two\nQ: c\nA:", "")
