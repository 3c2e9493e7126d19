"""Zero-shot: candidate answers by their likelihood, as by hand; prompts, labels in words, the study as a whole."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from components.artifacts import writing
from components.errors import ConfigError, DataError
from components.finetuning.examples import ExamplesJob, examples
from components.models.encoder import Encoder, build_model, save_encoder
from components.studies import zero_shot
from components.studies.outputs import Outputs
from components.studies.zero_shot import Prompt, answer_scores, said_for
from components.task_source import TaskSource
from components.tokenization.segmenters import Segmentation
from components.tokenization.special import END, MASK, SPECIAL_PIECES, START
from components.tokenization.word import WordTokenizer

WORDS = ["the", "old", "apple", "iron", "is", "fruit", "metal", "a", "red", "stone"]
TOKENIZER = WordTokenizer(
    [*SPECIAL_PIECES, *WORDS], segmentation=Segmentation("none"), lowercase=True, strip_accents=True
)
IDS = {word: place for place, word in enumerate(TOKENIZER.pieces)}
SIZES = {
    "ulmfit": {"embedding": 8, "hidden": 8, "layers": 2},
    "bert": {"width": 16, "layers": 2, "heads": 2, "positions": 12},
    "word2vec": {"width": 8},
}


def encoder_of(family: str) -> Encoder:
    torch.manual_seed(0)
    model = build_model(family, vocabulary=TOKENIZER.vocab_size, settings=SIZES[family]).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3)
    model.bind(TOKENIZER)
    return Encoder(family, model, TOKENIZER)


def test_the_likelihood_of_a_causal_model_by_hand() -> None:
    encoder = encoder_of("ulmfit")
    found = answer_scores(encoder, [("the apple is", "")], [("a fruit", "metal")])[0]

    def total(*words: str, wanted: int) -> float:
        tokens = [END, *(IDS[word] for word in words)]
        with torch.no_grad():
            shares = encoder.model.predict(torch.tensor([tokens]))[0][0].double().log_softmax(-1)
        places = range(len(tokens) - wanted, len(tokens))
        return sum(shares[place - 1, tokens[place]].item() for place in places)

    sums = [total("the", "apple", "is", "a", "fruit", wanted=2), total("the", "apple", "is", "metal", wanted=1)]
    alone = [total("a", "fruit", wanted=2), total("metal", wanted=1)]
    assert found["sum"] == pytest.approx(sums, abs=1e-6)
    assert found["mean"] == pytest.approx([sums[0] / 7, sums[1] / 5], abs=1e-6)
    assert found["prior"] == pytest.approx([sums[0] - alone[0], sums[1] - alone[1]], abs=1e-6)


def test_a_masked_model_fills_in_the_answer() -> None:
    encoder = encoder_of("bert")
    found = answer_scores(encoder, [("the apple is", "stone")], [("fruit", "a metal")])[0]
    tokens = [START, IDS["the"], IDS["apple"], IDS["is"], MASK, MASK, IDS["stone"], END]
    with torch.no_grad():
        shares = encoder.model.predict(torch.tensor([tokens]))[0][0].double().log_softmax(-1)
    expected = shares[4, IDS["a"]] + shares[5, IDS["metal"]]
    assert found["sum"][1] == pytest.approx(expected.item(), abs=1e-5)


def test_what_follows_the_answer_counts_for_a_causal_model() -> None:
    encoder = encoder_of("ulmfit")
    with_end = answer_scores(encoder, [("the", "is old")], [("apple",)])[0]["sum"][0]
    chained = answer_scores(encoder, [("the", "")], [("apple is old",)])[0]["sum"][0]
    assert with_end == pytest.approx(chained, abs=1e-6)


def test_prompts() -> None:
    assert Prompt.of("{text}").filled(("an apple",)) == ("an apple", "")
    assert Prompt.of("{text} is a [MASK] .").filled(("An apple",)) == ("An apple is a", " .")
    assert Prompt.of("{text} and {second}: [MASK]").filled(("a", "b")) == ("a and b:", "")
    assert Prompt.of("{{}} {text}").filled(("{x}",)) == ("{} {x}", "")
    with pytest.raises(ConfigError, match="has 2 places for one answer"):
        Prompt.of("[MASK] {text} [MASK]")
    with pytest.raises(ConfigError, match=r"only \{text\} and \{second\}"):
        Prompt.of("{words}")


def test_labels_in_words() -> None:
    assert said_for(["a_b", "c-d", "e"], " e = an e ; a_b=first") == {"a_b": "first", "c-d": "c d", "e": "an e"}
    for wrong in ("e", "x=y", "e="):
        with pytest.raises(ConfigError, match="write label=words for labels among a_b, e"):
            said_for(["a_b", "e"], wrong)


def test_what_cannot_answer() -> None:
    with pytest.raises(ConfigError, match="'word2vec' predicts no pieces"):
        answer_scores(encoder_of("word2vec"), [("the", "")], [("apple",)])
    with pytest.raises(DataError, match="answer 'apple apple .*longer than what the model reads at once"):
        answer_scores(encoder_of("bert"), [("the", "")], [("apple " * 12,)])


@pytest.fixture
def run_of(outputs: Outputs, tmp_path: Path) -> Outputs:
    """A run with two tasks and an encoder."""
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
    TOKENIZER.save(tmp_path / "tokenizer")
    with writing(outputs.out / "encoder" / "ulmfit" / "adapted", kind="encoder") as draft:
        save_encoder(draft.path, family="ulmfit", model=encoder_of("ulmfit").model, tokenizer=tmp_path / "tokenizer")
        draft.facts["trained"] = True
    return outputs


def test_the_study_of_labels(run_of: Outputs) -> None:
    found = zero_shot.run(run_of, task="aws-type", encoder="ulmfit-adapted", prompt="{text} is a", split="test")
    numbers = found.numbers
    assert (numbers["rows"], numbers["split"], numbers["answers"]) == (4, "test", ["fruit", "metal"])
    assert (numbers["guessing"], numbers["most_frequent"]) == (0.5, 0.5)
    encoder = encoder_of("ulmfit")
    rows = [(f"the test {'apple' if number % 2 == 0 else 'iron'} {number} is a", "") for number in range(4)]
    scores = answer_scores(encoder, rows, [("fruit", "metal")] * 4)
    for name in zero_shot.SCORES:
        right = np.mean([row[name].argmax() == number % 2 for number, row in enumerate(scores)])
        entry = numbers["accuracy"]["ulmfit-adapted"][name]
        assert entry["mean"] == pytest.approx(right)
        assert 0 <= entry["low"] <= entry["mean"] <= entry["high"] <= 1
    assert "4 rows" in found.chapter.lead[0] and "the most frequent label 50.0%" in found.chapter.lead[0]
    assert found.chapter.tables[0].columns == ["encoder", "sum", "mean", "prior"]


def test_the_study_of_choices(run_of: Outputs) -> None:
    numbers = zero_shot.run(run_of, task="aws-service", encoder="ulmfit-adapted").numbers
    assert numbers["most_frequent"] is None and numbers["guessing"] == 0.5
    scores = answer_scores(
        encoder_of("ulmfit"),
        [(f"dev {number}", "") for number in range(4)],
        [(("apple", "iron")[number % 2], "stone") for number in range(4)],
    )
    right = np.mean([row["sum"].argmax() == 0 for row in scores])
    assert numbers["accuracy"]["ulmfit-adapted"]["sum"]["mean"] == pytest.approx(right)
