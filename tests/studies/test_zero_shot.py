"""Zero-shot: likelihoods of candidate answers against direct computation; prompts; the study."""

import re

import numpy as np
import pytest
import torch

from components.core.errors import ConfigError, DataError
from components.data.segmenters import Segmentation
from components.data.tasks.examples import read_split
from components.models.encoder import Encoder, build_model
from components.studies import prompts
from components.studies.frame import Outputs
from components.studies.prompts import SCORES, Prompt, answer_scores, label_words, pieces
from components.tokenization.char import CharTokenizer
from components.tokenization.special import END, MASK, SPECIAL_PIECES, START
from tests.studies.conftest import SIZES, findings, fits


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
    assert actual["sum"] == pytest.approx(sums, abs=1e-6)
    assert actual["mean"] == pytest.approx(sums / [7, 4], abs=1e-6)
    assert actual["prior"] == pytest.approx(sums - alone, abs=1e-6)
    empty = np.exp([[total(f"{word} a river", 2), total(f"{word} bank", 1)] for word in ("the", "old")])
    shares = empty / empty.sum(1, keepdims=True)
    assert actual["calibrated"] == pytest.approx(sums - np.log(shares.mean(0)), abs=1e-6)
    # The text after the answer counts.
    with_end = answer_scores(encoder, [("the", " is old")], [("apple",)])[0]["sum"][0]
    assert with_end == pytest.approx(total("the apple is old", 3), abs=1e-6)


def test_the_scores_of_a_masked_model(outputs, add_encoder):
    add_encoder("bert")
    encoder = outputs.encoder("bert", "adapted")
    (actual,) = answer_scores(encoder, [("the apple is", " red")], [("river", "a bank")])
    ids = {word: id_ for id_, word in enumerate(encoder.tokenizer.pieces)}
    nats = log_probs(encoder, [START, ids["the"], ids["apple"], ids["is"], MASK, MASK, ids["red"], END])
    expected = nats[4, ids["a"]] + nats[5, ids["bank"]]
    assert actual["sum"][1] == pytest.approx(expected.item(), abs=1e-5)


def test_punctuation_after_the_answer_is_separated_as_in_the_prompt():
    characters = CharTokenizer([*SPECIAL_PIECES, *"abcdefghijklmnopqrstuvwxyz ."], segmentation=Segmentation("none"))

    def written(after):
        return ["".join(characters.pieces[id_] for id_ in ids) for ids in pieces(characters, "it is", "red", after)]

    assert written(".") == ["it is", " red", "."]
    assert written(" . so") == ["it is", " red", " . so"]
    assert written("") == ["it is", " red", ""]


def test_prompts():
    assert Prompt.of("{text}").fill(("an apple",)) == ("an apple", "")
    assert Prompt.of("{text} is a [MASK] .").fill(("An apple",)) == ("An apple is a", " .")
    assert Prompt.of("{text} and {second}: [MASK]").fill(("a", "b")) == ("a and b:", "")
    assert Prompt.of("{{}} {text}").fill(("{x}",)) == ("{} {x}", "")
    with pytest.raises(ConfigError, match=r"has 2 \[MASK\]; write one or none"):
        Prompt.of("[MASK] {text} [MASK]")
    for wrong in (
        "{words}",
        "{}",
        "{text.real}",
        "{text.upper}",
        "{text[0]}",
        "{text[a]}",
        "{te[MASK]xt}",
        "{text:d}",
        "{text",
    ):
        with pytest.raises(ConfigError, match=r"only \{text\} and \{second\} may be in braces"):
            Prompt.of(wrong)
    with pytest.raises(ConfigError, match=r"only \{text\} may be in braces"):
        Prompt.of("{text} {second}", parts=("text",))


def test_answers_for_labels():
    assert label_words(["a_b", "c-d", "e"], " e = an e ; a_b=first") == {"a_b": "first", "c-d": "c d", "e": "an e"}
    for wrong in ("e", "x=y", "e="):
        with pytest.raises(ConfigError, match="write label=words for labels among a_b, e"):
            label_words(["a_b", "e"], wrong)


def test_encoders_that_cannot_answer(outputs, add_encoder):
    for name in ("word2vec", "bert"):
        add_encoder(name)
    with pytest.raises(ConfigError, match="'word2vec' has no language model"):
        answer_scores(outputs.encoder("word2vec", "adapted"), [("the", "")], [("apple",)])
    bert = outputs.encoder("bert", "adapted")
    with pytest.raises(DataError, match="answer 'apple apple .*exceeds the model's positions"):
        answer_scores(bert, [("the", "")], [("apple " * 32,)])
    settings = SIZES["ulmfit"] | {"direction": "backward"}
    backward = build_model("ulmfit", vocabulary=bert.tokenizer.vocab_size, settings=settings)
    with pytest.raises(ConfigError, match="ulmfit: a backward model cannot predict the answer .*use the forward model"):
        answer_scores(Encoder("ulmfit", backward, bert.tokenizer), [("the", "")], [("apple",)])


OPTIONS = {"task": "aws-type", "encoder": "ulmfit-adapted", "answers": "fruit=river; metal=old bank"}


@pytest.fixture
def run_of(outputs: Outputs, add_task, add_encoder) -> Outputs:
    """A run with a task and two encoders."""
    add_task()
    add_encoder("ulmfit")
    add_encoder("word2vec")
    return outputs


def test_the_study_of_labels(run_of):
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
        entry, right = (
            numbers[name],
            [of[name].argmax() == row[0] for of, row in zip(scores, rows.targets, strict=True)],
        )
        assert entry["mean"] == pytest.approx(np.mean(right))
        assert 0 <= entry["low"] <= entry["mean"] <= entry["high"] <= 1
    difference, calibrated = numbers["calibrated minus trivial"], numbers["calibrated"]["mean"]
    assert difference["mean"] == pytest.approx(calibrated - 0.5) and difference["low"] <= difference["mean"]


def test_labelled_rows_precede_the_prompt(run_of, monkeypatch):
    seen: list[tuple[str, str]] = []
    real = prompts.answer_scores

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


def test_encoders_that_cannot_answer_are_skipped_unless_named(run_of):
    run = run_of.params.run.model_copy(update={"families": ["ulmfit", "word2vec"]})
    outputs = Outputs(run_of.params.model_copy(update={"run": run}))
    actual = findings(outputs, "zero-shot", answers="fruit=banana; metal=old")
    assert [row["encoder"] for row in actual.numbers["aws-type"]] == ["ulmfit-adapted"]
    assert actual.numbers["aws-type"][0]["unknown"] == 1, "banana"
    assert "word2vec-adapted is skipped: the family 'word2vec' has no" in " ".join(actual.chapter.text)
    with pytest.raises(ConfigError, match="'word2vec' has no language model"):
        findings(outputs, "zero-shot", encoder="word2vec-adapted")
    run = run.model_copy(update={"families": ["word2vec"]})
    with pytest.raises(ConfigError, match=r"run\.families: none has a causal .* word2vec-adapted is skipped"):
        findings(Outputs(outputs.params.model_copy(update={"run": run})), "zero-shot")


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
