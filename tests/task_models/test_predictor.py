"""The answer to a row is the same in every batch: among others, in any order, alone, with any threads: equal label, and
probabilities within 1e-6 (contract 17)."""

import numpy as np
import pytest
import torch

from components.core import threads
from components.learners.task_models import predictor as module
from components.learners.task_models.base import Encoded
from components.learners.task_models.classifier import AveragedClassifier, TextClassifier
from components.learners.task_models.kinds import TASKS, find_task
from components.learners.task_models.model import TaskModel, batches_by_length
from components.learners.task_models.predictor import Predictor, padded_length
from components.learners.task_models.sampler import matrix
from components.models import FAMILIES
from components.models.encoder import build_model, load_encoder
from components.settings.finetune import FinetuneSettings
from tests.example_task import FILLER, KIND_OF

LABELS = {"tagging": ["O", "B-x", "I-x"], "multilabel": [f"label {index}" for index in range(5)]}
WORDS = [*KIND_OF, *FILLER, "unseen", "17"]


def fields_of(kind: str, count: int) -> list[tuple[str, ...]]:
    """Rows of very different lengths."""
    rng = np.random.default_rng(3)

    def text(most: int) -> str:
        return " ".join(rng.choice(WORDS, int(rng.integers(1, most))).tolist())

    rows: list[tuple[str, ...]] = []
    for _ in range(count):
        most = int(rng.choice([3, 12, 60]))
        if kind == "tagging":
            rows.append(tuple(text(most).split()))
        elif kind == "choice":
            rows.append((text(most), *(text(6) for _ in range(int(rng.integers(2, 5))))))
        else:
            rows.append((text(most), text(8)) if kind in ("pair", "similarity", "questions") else (text(most),))
    return rows


def make_classifier(folder, settings: FinetuneSettings, kind: str = "classification", precision: str = "float32"):
    encoder = load_encoder(folder)
    torch.manual_seed(2)
    labels = LABELS.get(kind, ["no", "maybe", "yes"])
    model = TaskModel(encoder.model, task=find_task(kind), settings=settings, labels=labels).eval()
    for parameter in model.head.parameters():
        torch.nn.init.normal_(parameter)
    return TextClassifier(model, encoder.tokenizer, precision)


def check(classifier: TextClassifier, rows: list[tuple[str, ...]]) -> None:
    rng = np.random.default_rng(0)
    batches = [np.arange(len(rows)), rng.permutation(len(rows)), rng.permutation(len(rows))[:3], rng.permutation(5)]
    with threads.limited(1):
        alone = [classifier.answer([row])[0] for row in rows]
    for count, batch in enumerate(batches):
        with threads.limited(1 + count % 2):
            answers = classifier.answer([rows[index] for index in batch])
        for index, answer in zip(batch, answers, strict=True):
            np.testing.assert_allclose(answer, alone[index], rtol=1e-6, atol=1e-6, err_msg=f"row {index}, {count}")
            assert np.argmax(answer, axis=-1) == np.argmax(alone[index], axis=-1)


@pytest.mark.parametrize("precision", ["float32", "bf16"])
@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_every_family_gives_the_same_answers_in_every_batch(family, precision, make_encoder, settings, monkeypatch):
    monkeypatch.setattr(module, "has_bf16", lambda device: True)
    folder = make_encoder(family)
    for kind in TASKS if precision == "float32" and family in ("bert", "ulmfit") else ("pair", "tagging"):
        reading = {"max_length": 22, "pooling": "mean" if kind == "pair" else "concat", "tagger": "bilstm_crf"}
        check(make_classifier(folder, settings.model_copy(update=reading), kind, precision), fields_of(kind, 8))


@pytest.mark.parametrize("changes", [{"chunk": 8}, {"layers": "mix"}, {"pairs": "apart"}, {"tagger": "crf"}])
def test_windows_mixed_layers_and_separate_texts_give_the_same_answers(changes, make_encoder, settings):
    kind = {"pairs": "pair", "tagger": "tagging"}.get(next(iter(changes)), "classification")
    check(make_classifier(make_encoder("bert"), settings.model_copy(update=changes), kind), fields_of(kind, 11))


def test_shapes_follow_from_the_length_and_one_text_is_one_row(make_encoder, settings, monkeypatch):
    assert [padded_length(length, 70) for length in (1, 4, 5, 33, 64, 65, 600)] == [4, 4, 8, 40, 64, 70, 70]
    assert padded_length(513) == 640
    shapes: list[tuple[int, int]] = []
    encoded = Predictor._encoded

    def counting(self, parts, length):
        shapes.append((len(parts), length))
        return encoded(self, parts, length)

    monkeypatch.setattr(Predictor, "_encoded", counting)
    for family, rows, alone in (("bert", [32, 16, 8], 32), ("ulmfit", [16, 16, 16], 1), ("word2vec", [4096, 2048], 1)):
        classifier = make_classifier(make_encoder(family), settings)
        assert [classifier.predictor.rows_of(length) for length in (4, 8, 16)][: len(rows)] == rows
        classifier.answer([("plum cat",)])
        assert shapes.pop() == (alone, 4)
    classifier = make_classifier(make_encoder("ulmfit"), settings)
    classifier.answer([("plum cat",), ("cat plum",)])
    assert shapes == [(16, 4)]
    # A model that is only scored reads what there is, as long as the longest row.
    one, two = classifier.encode([("plum cat",), ("cat",)])
    answers = Predictor(classifier.model, fixed=False).answers([two, one])
    assert shapes[1:] == [(2, len(one.pieces[0]))]
    np.testing.assert_allclose(answers, classifier.answer([("cat",), ("plum cat",)]), atol=1e-6)


def test_the_features_of_a_bounded_number_of_pieces_are_in_memory(make_encoder, settings, monkeypatch):
    one = make_classifier(make_encoder("bert"), settings, "tagging")
    average, rows, read = AveragedClassifier([one, one]), fields_of("tagging", 9), []
    whole, reading = average.answer(rows), Predictor.read
    monkeypatch.setattr(module, "PORTION_PIECES", 40)
    monkeypatch.setattr(Predictor, "read", lambda self, part: read.append(len(part)) or reading(self, part))
    for actual, expected in zip(average.answer(rows), whole, strict=True):
        np.testing.assert_array_equal(actual, expected)
    assert len(read) > 2 and sum(read) == len(rows), "by one member, because the other has the same encoder"


def test_batches_end_before_much_padding_and_keep_the_order_of_the_rows():
    def batches(lengths, budget):
        ones = np.ones(len(lengths), dtype=np.int64)
        return [rows.tolist() for rows in batches_by_length(np.asarray(lengths), ones, budget)]

    # With the row of 11, 3 of 44 pieces would be padding: too many, once 3 x 11 exceed a quarter of the budget.
    assert batches([10, 10, 10, 11], 132) == [[0, 1, 2, 3]]
    assert batches([10, 10, 10, 11], 131) == [[0, 1, 2], [3]]
    # 6 of 182 padded pieces are allowed, 12 of 189 are not.
    assert batches([*[25] * 6, 26], 300) == [[*range(7)]]
    assert batches([*[25] * 6, 27], 300) == [[*range(6)], [6]]


def test_exact_values_of_word_vectors(settings):
    encoder = build_model("word2vec", vocabulary=8, settings={"width": 2})
    encoder.load_state_dict({"input": torch.arange(16.0).view(8, 2), "output": torch.zeros(8, 2)})
    encoded = [Encoded.of_texts([ids]) for ids in ([5, 7], [6])]
    # Weights 1/3 and 1/4 of `lead`: 4/7 and 3/7.
    for pooling, expected in (("mean", [12, 13]), ("max", [14, 15]), ("lead", [82 / 7, 89 / 7])):
        changed = settings.model_copy(update={"pooling": pooling, "layers": "last"})
        model = TaskModel(encoder, task=find_task("classification"), settings=changed, labels=["a", "b"]).eval()
        assert matrix(Predictor(model).read(encoded)).tolist() == [pytest.approx(expected), [12, 13]]
