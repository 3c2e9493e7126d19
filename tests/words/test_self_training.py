"""Words models that learn from texts without labels: latent vectors, pseudo-labels by hand, and what is learned."""

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit, softmax

from components.core.errors import ArtifactError
from components.data.tasks.data import Split
from components.data.tasks.kinds import scoring_for
from components.learners.base import Rows
from components.learners.words import self_training
from components.learners.words.classifier import WordsModel, load_words, read_model, write_model
from components.learners.words.features import DESCRIPTION
from components.learners.words.latent import LatentFeatures
from components.learners.words.self_training import latent, rounds, select
from tests.example_task import save_words

#: Two topics that share no word; "salt" occurs with the words of cooking only.
COOKING = ["boil rice with salt", "fry fish with salt", "boil fish", "fry rice", "rice with fish"]
SAILING = ["sail the boat north", "row the boat home", "sail home north", "row north", "the boat"]
TOPICS = {
    "cooking": ["rice", "fish", "boil", "fry", "salt", "pan", "oven", "bread", "butter", "soup"],
    "sailing": ["boat", "sail", "north", "wind", "harbour", "row", "mast", "deck", "anchor", "wave"],
    "music": ["song", "guitar", "drum", "choir", "sing", "tune", "piano", "violin", "concert", "band"],
}


def test_texts_of_a_topic_are_near_without_common_words():
    fitted = LatentFeatures.fit(COOKING + SAILING, dimensions=(2, 2))
    for actual in fitted.parts(["boil", "salt", "boat", "home"]):
        cosines = actual @ actual.T
        assert cosines[0, 1] > 0.8 and cosines[2, 3] > 0.8
        assert abs(cosines[:2, 2:]).max() < cosines[0, 1] or cosines[:2, 2:].max() < 0
    for together, alone in zip(fitted.parts(["boil rice", "zzz", ""]), fitted.parts(["boil rice"]), strict=True):
        np.testing.assert_array_equal(together[1:], 0)
        np.testing.assert_allclose(alone, together[:1], atol=1e-6)
        assert abs(np.linalg.norm(together[0]) - 1) < 1e-6
    rare = LatentFeatures.fit(["one", "two"], dimensions=(5, 5))
    assert np.isfinite(rare.matrix([("one",), ("three",)])).all()


def split(per_topic: int, *, seed: int, topics: int = 3, several: bool = False) -> Split:
    """Texts of four words of their topic; with `several`, every third text is of the next topic as well."""
    rng = np.random.default_rng(seed)
    words = list(TOPICS.values())[:topics]
    fields, targets = [], []
    for number in range(per_topic):
        for label in range(topics):
            labels = [label, (label + 1) % topics] if several and number % 3 == 0 else [label]
            text = [word for single in labels for word in rng.choice(words[single], size=4, replace=False)]
            fields.append((" ".join(text),))
            targets.append(np.sort(np.asarray(labels, dtype=np.float64)))
    return Split(fields, targets, [None] * len(fields))


def training(kind: str = "classification", *, topics: int = 3) -> tuple[Rows, Split]:
    """One labelled row a topic, 40 texts a topic without labels, and test rows."""
    several, labels = kind == "multilabel", list(TOPICS)[:topics]
    rows, free = (split(size, seed=seed, topics=topics, several=several) for size, seed in ((1, 1), (40, 2)))
    data = Rows(rows, np.arange(len(rows)), rows, rows, labels, scoring_for(kind, labels), further=free.fields)
    return data, split(20, seed=3, topics=topics)


@pytest.mark.parametrize(("kind", "topics"), [("classification", 2), ("classification", 3), ("multilabel", 3)])
def test_a_topic_is_learned_from_one_label_and_texts_without_labels(kind, topics, tmp_path):
    learned, test = training(kind, topics=topics)
    actual = latent(learned, exclusive=kind == "classification")
    assert [candidate.details["round"] for candidate in actual] == [0, 1, 2, 3]
    first, *_, last = (np.stack(candidate.model.answers(test.fields)) for candidate in actual)
    accuracies = [(answer.argmax(1) == test.labels).mean() for answer in (first, last)]
    assert accuracies[1] > (0.95 if kind == "classification" else 0.9) and accuracies[1] >= accuracies[0]
    model = actual[-1].model
    assert isinstance(model, WordsModel) and model.answers([]) == []
    save_words(tmp_path / "model", models=[model], kind=kind, labels=learned.labels, facts={})
    stored = load_words(tmp_path / "model")
    np.testing.assert_array_equal(stored.answer(test.fields), last)
    # A row does not depend on the others.
    np.testing.assert_array_equal(stored.answer(test.fields[:1])[0], last[0])
    assert stored.models[0].features.coverage(("rice boil zebra",)) == (3, 1)


def test_labels_without_rows_and_a_single_label():
    learned, test = training()
    few, alone = (replace(learned, drawn=learned.drawn[rows], largest=learned.drawn) for rows in ([0, 2], [1]))
    assert all(answer[1] == 0 for answer in latent(few, exclusive=True)[-1].model.answers(test.fields))
    single = latent(alone, exclusive=True)
    assert len(single) == 4 and single[0].model.answers(test.fields)[0].tolist() == [0, 1, 0]


@pytest.mark.parametrize("part", ["semantics", "means"])
def test_a_damaged_model_is_refused(part, tmp_path):
    learned, _ = training()
    write_model(latent(learned, exclusive=True)[0].model, tmp_path)
    described = json.loads((tmp_path / DESCRIPTION).read_text())
    described[part]["terms" if part == "semantics" else "words"].pop()
    (tmp_path / DESCRIPTION).write_text(json.dumps(described))
    with pytest.raises(ArtifactError, match="not a words model of this version"):
        read_model(tmp_path, kind="classification", labels=["a", "b", "c"])


def test_every_class_gets_its_most_confident_rows_and_the_weight_of_its_labelled_rows():
    first = np.array([0.95, 0.9, 0.85, 0.8, 0.45, 0.3])
    teacher = np.stack([first, 1 - first], axis=1)
    labelled = np.array([[1.0, 0], [1, 0], [0, 1]])
    rows, targets, weights = select(teacher, labelled, exclusive=True, share=2 / 3)
    # Two rows of each class at most; of the second class one is sure enough.
    assert rows.tolist() == [0, 1, 5]
    assert targets.tolist() == [[1, 0], [1, 0], [0, 1]]
    # Above chance 0.9 and 0.8 of the first class, for its two labelled rows.
    np.testing.assert_allclose(weights, [2 * 0.9 / 1.7, 2 * 0.8 / 1.7, 1.0])
    teacher = np.array([[0.9, 0.1], [0.5, 0.9], [0.6, 0.5], [0.99, 0.99]])
    rows, targets, weights = select(teacher, np.ones((3, 2)), exclusive=False, share=0.75)
    assert rows.tolist() == [0, 1, 3], "with several labels, the mean confidence counts"
    assert targets.tolist() == [[1, 0], [0, 1], [1, 1]]
    np.testing.assert_allclose(weights, 3 * np.array([0.8, 0.4, 0.98]) / 2.18)
    for exclusive in (True, False):
        rows, targets, weights = select(np.full((4, 2), 0.5), np.eye(2), exclusive=exclusive, share=1)
        assert len(rows) == len(weights) == 0 and targets.shape == (0, 2), "no row is sure enough"


def clusters(count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two classes in 10 dimensions, whose means differ in the first, and a second view, which is that dimension."""
    rng = np.random.default_rng(1)
    y = np.arange(count) % 2
    x = rng.normal(size=(count, 10))
    x[:, 0] += 4 * y - 2
    return x, np.stack([x[:, 0], np.ones(count)], axis=1), y


@pytest.mark.parametrize("exclusive", [True, False])
def test_views_teach_each_other_and_the_same_rounds_come_again(exclusive, monkeypatch):
    x, other, y = clusters(400)
    given, views = np.eye(2)[y[:8]], [(x[:8, 1:], x[8:, 1:]), (other[:8], other[8:])]
    teachers = []
    real = self_training.select
    monkeypatch.setattr(
        self_training, "select", lambda teacher, *a, **k: teachers.append(teacher) or real(teacher, *a, **k)
    )
    first, second = (list(rounds(views, given, exclusive=exclusive)) for _ in range(2))
    for (model, count), (again, number) in zip(first, second, strict=True):
        np.testing.assert_array_equal(model.weights, again.weights)
        assert count == number
    sizes = [count for _, count in first]
    assert sizes[0] == 0 and sizes == sorted(sizes)
    # The first view knows nothing of the classes.
    assert (first[-1][0].values(np.hstack([x[8:, 1:], other[8:]])).argmax(1) == y[8:]).mean() > 0.9
    # With one view, the teacher is the calibrated model.
    teachers.clear()
    (alone, _), *_ = rounds(views[1:], given, exclusive=exclusive)
    list(rounds(views[1:], given, exclusive=exclusive))
    logits = alone.values(other[8:])
    np.testing.assert_allclose(teachers[0], softmax(logits, axis=1) if exclusive else expit(logits))
    # Without a sure row, a round repeats the model.
    monkeypatch.setattr(self_training, "CONFIDENCE", 1.1)
    (before, _), (after, count), *_ = rounds(views[1:], given, exclusive=True)
    assert count == 0
    np.testing.assert_allclose(after.weights, before.weights)
