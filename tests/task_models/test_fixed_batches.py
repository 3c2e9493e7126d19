"""The answer to a row has the same bits in every batch: among others, in any order, with any threads; alone, the same
label and probabilities within 1e-6."""

import numpy as np
import pytest
import torch

from components.core import threads
from components.data.segmenters import Segmentation
from components.learners.task_models import fixed_batches as module
from components.learners.task_models.base import Encoded
from components.learners.task_models.classifier import TextClassifier
from components.learners.task_models.fixed_batches import pool_bags as pooled
from components.learners.task_models.kinds import TASKS, find_task
from components.learners.task_models.model import TaskModel
from components.learners.task_models.pooling import Pooling
from components.learners.task_models.sampler import collate
from components.models import FAMILIES
from components.models.encoder import build_model, load_encoder
from components.settings.finetune import FinetuneSettings
from components.settings.training import Training
from components.tokenization.special import SPECIAL_PIECES
from components.tokenization.word import WordTokenizer
from tests.example_task import FILLER, KIND_OF

LABELS = {"tagging": ["O", "B-x", "I-x"], "multilabel": [f"label {index}" for index in range(5)]}
WORDS = [*KIND_OF, *FILLER, "unseen", "17"]


def fields_of(kind: str, count: int) -> list[tuple[str, ...]]:
    """Rows of very different lengths."""
    rng = np.random.default_rng(3)

    def text(most: int) -> str:
        return " ".join(rng.choice(WORDS, int(rng.integers(1, most))).tolist())

    actual: list[tuple[str, ...]] = []
    for _ in range(count):
        most = int(rng.choice([3, 12, 60]))
        if kind == "tagging":
            actual.append(tuple(text(most).split()))
        elif kind == "choice":
            actual.append((text(most), *(text(6) for _ in range(int(rng.integers(2, 5))))))
        else:
            actual.append((text(most), text(8)) if kind in ("pair", "similarity", "questions") else (text(most),))
    return actual


def make_classifier(folder, settings: FinetuneSettings, kind: str, precision: str) -> TextClassifier:
    encoder = load_encoder(folder)
    torch.manual_seed(2)
    labels = LABELS.get(kind, ["no", "maybe", "yes"])
    model = TaskModel(encoder.model, task=find_task(kind), settings=settings, labels=labels).eval()
    for parameter in model.head.parameters():
        torch.nn.init.normal_(parameter)
    return TextClassifier(model, encoder.tokenizer, precision)


def check(classifier: TextClassifier, rows: list[tuple[str, ...]]) -> None:
    """Compare the bits of all rows in several batches; of a row alone, the label and six digits."""
    with threads.limited(1):
        single = [classifier.answer([row])[0] for row in rows]
        alone = [classifier.answer([row, other])[0] for row, other in zip(rows, reversed(rows), strict=True)]
    for index, (one, of_two) in enumerate(zip(single, alone, strict=True)):
        np.testing.assert_allclose(one, of_two, rtol=1e-6, atol=1e-6, err_msg=f"row {index}")
        assert np.argmax(one, axis=-1).tolist() == np.argmax(of_two, axis=-1).tolist()
    rng = np.random.default_rng(0)
    batches = [np.arange(len(rows)), rng.permutation(len(rows)), rng.permutation(len(rows))[:3], rng.permutation(5)]
    for count, batch in enumerate(batches):
        with threads.limited(1 + count % 2):
            actual = classifier.answer([rows[index] for index in batch])
        for index, answer in zip(batch, actual, strict=True):
            assert answer.tobytes() == alone[index].tobytes(), f"row {index} in batch {count}"


@pytest.mark.parametrize("precision", ["float32", "bf16"])
@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_every_family_gives_the_same_bits_in_every_batch(family, precision, make_encoder, settings, monkeypatch):
    monkeypatch.setattr(module, "has_bf16", lambda device: True)
    folder = make_encoder(family)
    for kind in TASKS if precision == "float32" else ("classification", "tagging"):
        reading = {"max_length": 22, "pooling": "mean" if kind == "pair" else "concat", "tagger": "bilstm_crf"}
        classifier = make_classifier(folder, settings.model_copy(update=reading), kind, precision)
        check(classifier, fields_of(kind, 8))


@pytest.mark.parametrize("changes", [{"chunk": 8}, {"layers": "mix"}, {"pairs": "apart"}, {"tagger": "crf"}])
def test_windows_mixed_layers_and_separate_texts_give_the_same_bits(changes, make_encoder, settings):
    kind = {"pairs": "pair", "tagger": "tagging"}.get(next(iter(changes)), "classification")
    classifier = make_classifier(make_encoder("bert"), settings.model_copy(update=changes), kind, "float32")
    check(classifier, fields_of(kind, 11))


def test_a_tagger_of_a_frozen_encoder_computes_in_float32(make_encoder, settings, monkeypatch):
    """The features are of an encoder in bfloat16, the head was fitted to them in float32."""
    monkeypatch.setattr(module, "has_bf16", lambda device: True)
    changed = settings.model_copy(update={"tagger": "bilstm_crf", "method": "features"})
    classifier = make_classifier(make_encoder("flair"), changed, "tagging", "bf16")
    rows = fields_of("tagging", 5)
    check(TextClassifier(classifier.model, classifier.tokenizer, "bf16", head_precision="float32"), rows)


def test_one_text_is_computed_as_one_row(make_encoder, settings, monkeypatch):
    classifier = make_classifier(make_encoder("ulmfit"), settings, "classification", "float32")
    counts: list[int] = []
    encode = module.FixedBatches._encode

    def counting(self, length, sequences):
        counts.append(len(sequences))
        return encode(self, length, sequences)

    monkeypatch.setattr(module.FixedBatches, "_encode", counting)
    classifier.answer([("plum cat",)])
    classifier.answer([("plum cat",), ("cat plum",)])
    assert counts == [1, 16]


def test_a_batch_has_the_rows_of_its_length(make_encoder, settings):
    for family, expected in (("bert", [32, 16, 8]), ("ulmfit", [16, 16, 16])):
        batches = make_classifier(make_encoder(family), settings, "classification", "float32").batches
        assert [batches._rows(length) for length in (4, 8, 16)] == expected


# Pooled word vectors without padding equal those with padding, and do not depend on the other texts.


STATIC = [name for name, family in FAMILIES.items() if family.objective == "static"]
TOKENIZER = WordTokenizer(
    [*SPECIAL_PIECES, *"abcdefgh"], segmentation=Segmentation("none"), lowercase=True, strip_accents=True
)


def task_model(family: str, pooling: Pooling = "mean", **settings: object) -> TaskModel:
    torch.manual_seed(3)
    encoder = build_model(family, vocabulary=TOKENIZER.vocab_size, settings=FAMILIES[family].tiny)
    encoder.bind(TOKENIZER)
    for parameter in encoder.parameters():
        torch.nn.init.normal_(parameter)
    training = Training(rate=0.1, batch_size=2)
    finetuning = FinetuneSettings(layers="last", pooling=pooling, max_length=6, training=training, **settings)
    return TaskModel(encoder, task=find_task("classification"), settings=finetuning, labels=["x", "y", "z"]).eval()


def test_exact_values():
    model = build_model("word2vec", vocabulary=8, settings={"width": 2})
    model.load_state_dict({"input": torch.arange(16.0).view(8, 2), "output": torch.zeros(8, 2)})
    sequences = [np.asarray([5, 7]), np.asarray([6])]
    assert pooled(model, sequences, pooling="mean").tolist() == [[12, 13], [12, 13]]
    assert pooled(model, sequences, pooling="max").tolist() == [[14, 15], [12, 13]]
    # Weights 1/3 and 1/4: 4/7 and 3/7.
    assert pooled(model, sequences, pooling="lead")[0].tolist() == pytest.approx([82 / 7, 89 / 7])


@pytest.mark.parametrize("family", STATIC)
@pytest.mark.parametrize("pooling", ["mean", "lead", "max", "summary", "concat"])
def test_bags_equal_padded_batches(family, pooling):
    model = task_model(family, pooling)
    sequences = [np.asarray(ids) for ids in ([5, 6, 7], [8], [9, 9, 5, 12, 6])]
    with torch.no_grad():
        padded = model.kept(collate([Encoded.of_texts([ids]) for ids in sequences]))
        actual = pooled(model.encoder, sequences, pooling=pooling)
        torch.testing.assert_close(actual, padded)
        for row, ids in enumerate(sequences):
            assert torch.equal(pooled(model.encoder, [ids], pooling=pooling)[0], actual[row])
