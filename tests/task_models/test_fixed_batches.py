"""The answer to a row has the same bits in every batch: alone, among others, in any order, with any threads."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from components.models import FAMILIES
from components.models.elmo import CharacterCNN, spell
from components.models.encoder import load_encoder
from components.models.layers.host import fixed_shapes
from components.settings.finetune import FinetuneSettings
from components.task_models import fixed_batches as module
from components.task_models.classifier import TextClassifier
from components.task_models.fixed_batches import padded_length
from components.task_models.kinds import TASKS, find_task
from components.task_models.model import TaskModel
from components.training import threads
from tests.example_task import FILLER, KIND_OF

LABELS = {"tagging": ["O", "B-x", "I-x"], "multilabel": [f"label {index}" for index in range(5)]}
WORDS = [*KIND_OF, *FILLER, "unseen", "17"]


def fields_of(kind: str, count: int) -> list[tuple[str, ...]]:
    """Rows of very different lengths."""
    rng = np.random.default_rng(3)

    def text(most: int) -> str:
        return " ".join(rng.choice(WORDS, int(rng.integers(1, most))).tolist())

    found: list[tuple[str, ...]] = []
    for _ in range(count):
        most = int(rng.choice([3, 12, 60]))
        if kind == "tagging":
            found.append(tuple(text(most).split()))
        elif kind == "choice":
            found.append((text(most), *(text(6) for _ in range(int(rng.integers(2, 5))))))
        else:
            found.append((text(most), text(8)) if kind in ("pair", "similarity", "questions") else (text(most),))
    return found


def make_classifier(folder, settings: FinetuneSettings, kind: str, precision: str) -> TextClassifier:
    encoder = load_encoder(folder)
    torch.manual_seed(2)
    labels = LABELS.get(kind, ["no", "maybe", "yes"])
    model = TaskModel(encoder.model, task=find_task(kind), settings=settings, labels=labels).eval()
    for parameter in model.head.parameters():
        torch.nn.init.normal_(parameter)
    return TextClassifier(model, encoder.tokenizer, precision)


def check(classifier: TextClassifier, rows: list[tuple[str, ...]]) -> None:
    """Compare the bits of all rows in several batches."""
    with threads.limited(1):
        alone = [classifier.answer([row])[0] for row in rows]
    rng = np.random.default_rng(0)
    batches = [np.arange(len(rows)), rng.permutation(len(rows)), rng.permutation(len(rows))[:3], rng.permutation(5)]
    for count, batch in enumerate(batches):
        with threads.limited(1 + count % 2):
            found = classifier.answer([rows[index] for index in batch])
        for index, answer in zip(batch, found, strict=True):
            assert answer.tobytes() == alone[index].tobytes(), f"row {index} in batch {count}"


@pytest.mark.parametrize("precision", ["float32", "bf16"])
@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_every_family_gives_the_same_bits_in_every_batch(
    family: str, precision: str, make_encoder, settings: FinetuneSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "has_bf16", lambda device: True)
    folder = make_encoder(family)
    for kind in TASKS if precision == "float32" else ("classification", "tagging"):
        reading = {"max_length": 22, "pooling": "mean" if kind == "pair" else "concat", "tagger": "bilstm_crf"}
        classifier = make_classifier(folder, settings.model_copy(update=reading), kind, precision)
        check(classifier, fields_of(kind, 8))


@pytest.mark.parametrize("changes", [{"chunk": 8}, {"layers": "mix"}, {"pairs": "apart"}, {"tagger": "crf"}])
def test_windows_mixed_layers_and_separate_texts_give_the_same_bits(
    changes: dict[str, object], make_encoder, settings: FinetuneSettings
) -> None:
    kind = {"pairs": "pair", "tagger": "tagging"}.get(next(iter(changes)), "classification")
    classifier = make_classifier(make_encoder("bert"), settings.model_copy(update=changes), kind, "float32")
    check(classifier, fields_of(kind, 11))


def test_the_padded_length_depends_on_the_length_only() -> None:
    lengths = [padded_length(length) for length in range(1, 2000)]
    assert lengths == sorted(lengths) and all(found >= length for length, found in enumerate(lengths, start=1))
    assert [padded_length(length) for length in (1, 4, 5, 33, 129, 257, 600)] == [4, 4, 8, 40, 160, 320, 640]
    assert padded_length(21, 22) == 22, "a model with 22 positions"


def test_a_batch_has_the_rows_of_its_length(make_encoder, settings: FinetuneSettings) -> None:
    for family, expected in (("bert", [32, 16, 8]), ("ulmfit", [16, 16, 16])):
        batches = make_classifier(make_encoder(family), settings, "classification", "float32").batches
        assert [batches._rows(length) for length in (4, 8, 16)] == expected


def test_words_are_computed_in_shapes_of_their_own() -> None:
    torch.manual_seed(0)
    words = CharacterCNN(width=8, filters=((1, 16), (3, 16)), highway=1, output=24)
    spelt = spell(["a", "of", "intermediate", "internationalisation", "x" * 60, *map(str, range(50))])
    with torch.inference_mode():
        whole = words(spelt)
        with fixed_shapes():
            fixed = words(spelt)
            alone = torch.cat([words(spelt[row : row + 1]) for row in range(len(spelt))])
    assert torch.equal(fixed, alone)
    torch.testing.assert_close(fixed, whole)
