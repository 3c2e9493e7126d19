"""Zero-shot: likelihoods of candidate answers against direct computation; prompts; the study."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from components.core.artifacts import writing
from components.core.errors import ConfigError, DataError
from components.data.segmenters import Segmentation
from components.data.tasks.examples import ExamplesJob, examples
from components.models.encoder import Encoder, build_model, save_encoder
from components.settings.tasks import TaskSource
from components.studies import prompts
from components.studies.frame import Outputs
from components.studies.likelihood import SCORES, answer_scores, pieces
from components.studies.prompts import Prompt, label_words
from components.tokenization.char import CharTokenizer
from components.tokenization.special import END, MASK, SPECIAL_PIECES, START
from components.tokenization.word import WordTokenizer
from tests.studies.conftest import findings, fits

WORDS = ["the", "old", "apple", "iron", "is", "fruit", "metal", "a", "red", "stone"]
TOKENIZER = WordTokenizer(
    [*SPECIAL_PIECES, *WORDS], segmentation=Segmentation("none"), lowercase=True, strip_accents=True
)
IDS = {word: id_ for id_, word in enumerate(TOKENIZER.pieces)}
SIZES = {
    "ulmfit": {"embedding": 8, "hidden": 8, "layers": 2},
    "bert": {"width": 16, "layers": 2, "heads": 2, "positions": 12},
    "word2vec": {"width": 8},
}


def encoder_of(family: str, **settings: str) -> Encoder:
    torch.manual_seed(0)
    model = build_model(family, vocabulary=TOKENIZER.vocab_size, settings=SIZES[family] | settings).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3)
    model.bind(TOKENIZER)
    return Encoder(family, model, TOKENIZER)


def test_the_scores_of_a_causal_model():
    encoder = encoder_of("ulmfit")
    actual = answer_scores(encoder, [("the apple is", "")], [("a fruit", "metal")], neutral=[("the", ""), ("old", "")])[
        0
    ]

    def total(*words, last):
        tokens = [END, *(IDS[word] for word in words)]
        with torch.no_grad():
            log_probs = encoder.model.predict(torch.tensor([tokens]))[0][0].double().log_softmax(-1)
        return sum(log_probs[t - 1, tokens[t]].item() for t in range(len(tokens) - last, len(tokens)))

    sums = [total("the", "apple", "is", "a", "fruit", last=2), total("the", "apple", "is", "metal", last=1)]
    alone = [total("a", "fruit", last=2), total("metal", last=1)]
    assert actual["sum"] == pytest.approx(sums, abs=1e-6)
    assert actual["mean"] == pytest.approx([sums[0] / 7, sums[1] / 5], abs=1e-6)
    assert actual["prior"] == pytest.approx([sums[0] - alone[0], sums[1] - alone[1]], abs=1e-6)
    shares = []
    for word in ("the", "old"):
        empty = np.exp([total(word, "a", "fruit", last=2), total(word, "metal", last=1)])
        shares.append(empty / empty.sum())
    assert actual["calibrated"] == pytest.approx(sums - np.log(np.mean(shares, 0)), abs=1e-6)


def test_the_scores_of_a_masked_model():
    encoder = encoder_of("bert")
    actual = answer_scores(encoder, [("the apple is", " stone")], [("fruit", "a metal")])[0]
    tokens = [START, IDS["the"], IDS["apple"], IDS["is"], MASK, MASK, IDS["stone"], END]
    with torch.no_grad():
        log_probs = encoder.model.predict(torch.tensor([tokens]))[0][0].double().log_softmax(-1)
    expected = log_probs[4, IDS["a"]] + log_probs[5, IDS["metal"]]
    assert actual["sum"][1] == pytest.approx(expected.item(), abs=1e-5)


def test_the_text_after_the_answer_counts_for_a_causal_model():
    encoder = encoder_of("ulmfit")
    with_end = answer_scores(encoder, [("the", " is old")], [("apple",)])[0]["sum"][0]
    chained = answer_scores(encoder, [("the", "")], [("apple is old",)])[0]["sum"][0]
    assert with_end == pytest.approx(chained, abs=1e-6)


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


def test_encoders_that_cannot_answer():
    with pytest.raises(ConfigError, match="'word2vec' has no language model"):
        answer_scores(encoder_of("word2vec"), [("the", "")], [("apple",)])
    with pytest.raises(ConfigError, match="ulmfit: a backward model cannot predict the answer .*use the forward model"):
        answer_scores(encoder_of("ulmfit", direction="backward"), [("the", "")], [("apple",)])
    with pytest.raises(DataError, match="answer 'apple apple .*exceeds the model's positions"):
        answer_scores(encoder_of("bert"), [("the", "")], [("apple " * 12,)])


@pytest.fixture
def run_of(outputs: Outputs, tmp_path: Path) -> Outputs:
    """A run with two tasks and one encoder."""
    things = [("apple", "fruit"), ("iron", "metal")]
    for split, count in (("train", 6), ("dev", 4), ("test", 4)):
        rows = [things[number % 2] for number in range(count)]
        classified = [
            {"text": f"the {split} {thing} {number}", "label": label} for number, (thing, label) in enumerate(rows)
        ]
        choices = [
            {"text": f"{split} {number}", "choices": [thing, "stone"], "label": 0}
            for number, (thing, _) in enumerate(rows)
        ]
        for kind, made in (("classification", classified), ("choice", choices)):
            folder = tmp_path / kind
            folder.mkdir(exist_ok=True)
            (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in made))
    for name, kind in (("aws-type", "classification"), ("aws-service", "choice")):
        source = TaskSource(path=str(tmp_path / kind), kind=kind, budgets=[2], seeds=[0])
        examples(ExamplesJob(task=name, source=source, output=outputs.out / "examples" / name))
    save(outputs, "ulmfit", encoder_of("ulmfit"), tmp_path)
    return outputs


def save(outputs: Outputs, block: str, encoder: Encoder, folder: Path) -> None:
    """Write an encoder as the adapted encoder of a block."""
    TOKENIZER.save(folder / "tokenizer")
    with writing(outputs.out / "encoder" / block / "adapted", kind="encoder") as draft:
        save_encoder(draft.path, family=encoder.family, model=encoder.model, tokenizer=folder / "tokenizer")
        draft.facts["trained"] = True


def test_the_study_of_labels(run_of):
    actual = findings(
        run_of, "zero-shot", task="aws-type", encoder="ulmfit-adapted", prompt="{text} is a", split="test"
    )
    fits(actual, "zero-shot")
    on_dev, numbers = actual.numbers["aws-type"]
    assert (on_dev["split"], numbers["split"], numbers["items"]) == ("dev", "test", 4)
    assert (numbers["guessing"], numbers["trivial"]) == (0.5, 0.5)
    encoder = encoder_of("ulmfit")
    rows = [(f"the test {'apple' if number % 2 == 0 else 'iron'} {number} is a", "") for number in range(4)]
    neutral = [("N/A is a", ""), (" is a", "")]
    scores = answer_scores(encoder, rows, [("fruit", "metal")] * 4, neutral=neutral)
    for name in SCORES:
        right = np.mean([row[name].argmax() == number % 2 for number, row in enumerate(scores)])
        entry = numbers[name]
        assert entry["mean"] == pytest.approx(right)
        assert 0 <= entry["low"] <= entry["mean"] <= entry["high"] <= 1
    difference, calibrated = numbers["calibrated minus trivial"], numbers["calibrated"]["mean"]
    assert difference["mean"] == pytest.approx(calibrated - 0.5) and difference["low"] <= difference["mean"]


def test_labelled_rows_precede_the_prompt(run_of, monkeypatch):
    seen: list[tuple[str, str]] = []
    real = prompts.answer_scores

    def scores(encoder, asked, *others, neutral):
        seen.extend([*asked, *neutral])
        return real(encoder, asked, *others, neutral=neutral)

    monkeypatch.setattr(prompts, "answer_scores", scores)
    options = {"task": "aws-type", "encoder": "ulmfit-adapted", "prompt": "{text} is a [MASK] ."}
    actual = findings(run_of, "zero-shot", shots=3, **options)
    first, second, third, asked = seen[0][0].split("\n")
    assert re.fullmatch("the train apple [024] is a fruit .", first)
    assert re.fullmatch("the train iron [135] is a metal .", second)
    assert re.fullmatch("the train apple [024] is a fruit .", third) and third != first
    assert (asked, seen[0][1]) == ("the dev apple 0 is a", " .")
    assert seen[4][0] == "\n".join([first, second, third, "N/A is a"])
    assert "after 3 labelled rows" in actual.chapter.text[0]
    with pytest.raises(ConfigError, match="--shots: the answers of a choice differ by row"):
        findings(run_of, "zero-shot", shots=1, task="aws-service", encoder="ulmfit-adapted")


def test_encoders_that_cannot_answer_are_skipped_unless_named(run_of, tmp_path):
    run = run_of.params.run.model_copy(update={"families": ["ulmfit", "transformer-xl"]})
    outputs = Outputs(run_of.params.model_copy(update={"run": run}))
    save(outputs, "transformer-xl", encoder_of("ulmfit", direction="backward"), tmp_path)
    actual = findings(outputs, "zero-shot", task="aws-type", answers="fruit=banana")
    assert [row["encoder"] for row in actual.numbers["aws-type"]] == ["ulmfit-adapted"]
    assert "transformer-xl-adapted is skipped: ulmfit: a backward model" in " ".join(actual.chapter.text)
    assert actual.numbers["aws-type"][0]["unknown"] == 1, "banana"
    with pytest.raises(ConfigError, match="a backward model cannot predict the answer"):
        findings(outputs, "zero-shot", task="aws-type", encoder="transformer-xl-adapted")
    run = run.model_copy(update={"families": ["transformer-xl"]})
    with pytest.raises(ConfigError, match=r"run\.families: none has a causal .* transformer-xl-adapted is skipped"):
        findings(Outputs(outputs.params.model_copy(update={"run": run})), "zero-shot", task="aws-type")
    with pytest.raises(ConfigError, match=r"only \{text\} may be in braces"):
        findings(run_of, "zero-shot", task="aws-service", encoder="ulmfit-adapted", prompt="{text} {second}")
