"""Numbers and answers that a model writes: exact scores, prompts, the study."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch

from components.artifacts import writing
from components.errors import ConfigError
from components.models.encoder import Encoder, build_model, save_encoder
from components.settings.tasks import TaskSource
from components.studies import arithmetic, generated, written
from components.studies.frame import Outputs
from components.studies.generated import Item, of_number, of_question, scored, write
from components.tasks.examples import ExamplesJob, examples
from components.tokenization.char import CharTokenizer
from components.tokenization.segmenters import Segmentation
from components.tokenization.special import SPECIAL_PIECES

TOKENIZER = CharTokenizer(
    [*SPECIAL_PIECES, *"abcdefghijklmnopqrstuvwxyzADLQRTW0123456789 .?:;+-*()\n"], segmentation=Segmentation("none")
)
SIZES = {
    "ulmfit": {"embedding": 8, "hidden": 8, "layers": 1},
    "gpt": {"width": 16, "layers": 1, "heads": 2, "positions": 40},
    "bert": {"width": 16, "layers": 1, "heads": 2, "positions": 12},
}


def encoder_of(family: str) -> Encoder:
    torch.manual_seed(0)
    model = build_model(family, vocabulary=TOKENIZER.vocab_size, settings=SIZES[family]).eval()
    model.bind(TOKENIZER)
    return Encoder(family, model, TOKENIZER)


def test_scores_by_hand() -> None:
    right = [of_number(answer, ["124"])["exact_match"] for answer in ("124", " 1 2 4.", "124 5", "-124", "12", "x 124")]
    assert right == [1, 1, 0, 0, 0, 0]
    assert of_number("1,024 of them", ["1024"]) == of_number("- 7", ["-7"]) == {"exact_match": 1}
    assert of_question("The red stone!", ["red stone", "iron"]) == {"f1": 1, "exact_match": 1}
    assert of_question("red", ["red stone"]) == {"f1": pytest.approx(2 / 3), "exact_match": 0}
    items = [Item("a", "", ("1",)), Item("a", "", ("2",)), Item("b", "", ("3",))]
    found = scored(items, ["1", "7", "3"], of_number, confidence=0.95)
    assert (found["a"]["exact_match"]["mean"], found["b"]["exact_match"]["mean"]) == (0.5, 1.0)
    assert 0 <= found["a"]["exact_match"]["low"] < 0.5 < found["a"]["exact_match"]["high"] <= 1


@pytest.mark.parametrize("operation", arithmetic.OPERATIONS)
def test_problems_are_right_different_and_a_function_of_the_seed(operation: str) -> None:
    asked, shown = arithmetic.asked_and_shown(operation, rows=20, shots=3, seed=1)
    assert (len(asked), len(shown)) == (20, 3)
    assert len({one.question for one in [*asked, *shown]}) == 23
    assert asked == arithmetic.asked_and_shown(operation, rows=20, shots=3, seed=1)[0]
    assert asked != arithmetic.asked_and_shown(operation, rows=20, shots=3, seed=2)[0]
    for one in asked:
        text = one.question.removeprefix("What is ").removesuffix("?")
        for word, sign in (("plus", "+"), ("minus", "-"), ("times", "*")):
            text = text.replace(word, sign)
        assert re.fullmatch(r"[\d+*() -]+", text)
        assert eval(text) == one.answer


def test_few_problems_are_all_asked() -> None:
    asked, shown = arithmetic.asked_and_shown("1 digit, plus", rows=500, shots=5, seed=0)
    assert len(shown) == 5 and 90 <= len(asked) <= 95


def test_what_is_written_ends_at_the_next_question(monkeypatch: pytest.MonkeyPatch) -> None:
    prompts: list[str] = []

    def answered(model: object, prompt: list[int], **_: object) -> list[int]:
        prompts.append(TOKENIZER.decode(prompt))
        return TOKENIZER.encode_batch([" 12.\nQ: a"])[0].tolist()

    monkeypatch.setattr(generated, "generate", answered)
    item = Item("a", "Q: 5+7?\nA:", ("12",), ("Q: 1+1?\nA: 2",))
    assert write(encoder_of("ulmfit"), [item], length=12, seed=0) == (["12."], 1.0)
    assert prompts == ["Q: 1+1?\nA: 2\n\nQ: 5+7?\nA:"]
    # GPT has 40 positions, 12 of which are for the answer: no room for the demonstration, nor for the long prompt.
    long = Item("a", "x" * 60 + "\nA:", ("12",))
    assert write(encoder_of("gpt"), [item, long], length=12, seed=0)[1] == 0.5
    assert prompts[2].endswith("x\nA:") and prompts[2].count("x") < 28


@pytest.fixture
def run_of(outputs: Outputs, tmp_path: Path) -> Outputs:
    """A run with questions and two encoders, one of which writes."""
    rows = [
        {
            "question": f"where {n}",
            "context": f"it is at {n} here",
            "answers": {"text": [f"at {n}"], "answer_start": [6]},
        }
        for n in range(6)
    ]
    rows.append({"question": "who", "context": "nobody", "answers": {"text": [], "answer_start": []}})
    for place, split in enumerate(("train", "dev", "test")):
        lines = [json.dumps(row | {"context": f"{row['context']} {'abc'[place]}"}) for row in rows]
        (tmp_path / f"{split}.jsonl").write_text("\n".join(lines))
    source = TaskSource(path=str(tmp_path), kind="questions", budgets=["all"], seeds=[0])
    examples(ExamplesJob(task="aws-type", source=source, output=outputs.out / "examples" / "aws-type"))
    TOKENIZER.save(tmp_path / "tokenizer")
    for family in ("ulmfit", "bert"):
        encoder = encoder_of(family)
        with writing(outputs.out / "encoder" / family / "adapted", kind="encoder") as draft:
            save_encoder(draft.path, family=family, model=encoder.model, tokenizer=tmp_path / "tokenizer")
            draft.facts["trained"] = True
    families = outputs.params.run.model_copy(update={"families": ["ulmfit", "bert"]})
    return Outputs(outputs.params.model_copy(update={"run": families}))


def test_the_study_of_numbers(run_of: Outputs) -> None:
    found = written.run(run_of, rows=2, shots=1)
    assert found.numbers["rows"] == 2 * len(arithmetic.OPERATIONS)
    assert found.numbers["scores"]["ulmfit-adapted"].keys() == arithmetic.OPERATIONS.keys()
    assert found.chapter.lead[0].startswith("ulmfit-adapted reaches exact match 0.")
    assert found.chapter.text == [
        "bert-adapted is skipped: it is not a forward causal language model, so it writes no text."
    ], "its characters are all in the vocabulary"
    assert found.numbers == written.run(run_of, rows=2, shots=1).numbers
    with pytest.raises(ConfigError, match="none is a causal language model"):
        written.run(run_of, encoder="bert-adapted")


def test_the_study_of_questions(run_of: Outputs, monkeypatch: pytest.MonkeyPatch) -> None:
    prompts: list[str] = []

    def answered(model: object, prompt: list[int], **_: object) -> list[int]:
        prompts.append(TOKENIZER.decode(prompt))
        return TOKENIZER.encode_batch([" at 3"])[0].tolist()

    monkeypatch.setattr(generated, "generate", answered)
    found = written.run(run_of, what="questions", task="aws-type", shots=1, encoder="ulmfit-adapted")
    assert found.numbers["rows"] == 6, "one question has no answer"
    scores = found.numbers["scores"]["ulmfit-adapted"]["all"]
    # The answer is right for one question, and shares one of two words with those of the others.
    assert scores["exact_match"]["mean"] == pytest.approx(1 / 6)
    assert scores["f1"]["mean"] == pytest.approx((1 + 5 * 0.5) / 6)
    assert re.fullmatch(r"it is at (\d) here a\nQ: where \1\nA: at \1\n\nit is at 0 here b\nQ: where 0\nA:", prompts[0])
