"""Words models that learn from texts without labels."""

import json
from dataclasses import replace

import numpy as np
import pytest

from components.core.errors import ArtifactError
from components.data.tasks.data import Split
from components.data.tasks.kinds import scoring_for
from components.learners.base import Rows
from components.learners.unlabelled.self_training import probabilities
from components.learners.words import transductive
from components.learners.words.classifier import WordsModel, load_words, read_model, save_words, write_model
from components.learners.words.features import DESCRIPTION
from components.learners.words.linear import LinearModel

TOPICS = {
    "cooking": ["rice", "fish", "boil", "fry", "salt", "pan", "oven", "bread", "butter", "soup"],
    "sailing": ["boat", "sail", "north", "wind", "harbour", "row", "mast", "deck", "anchor", "wave"],
    "music": ["song", "guitar", "drum", "choir", "sing", "tune", "piano", "violin", "concert", "band"],
}


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


def training(kind: str, *, topics: int = 3, several: bool = False) -> tuple[Rows, Split]:
    """One labelled row a topic, 40 texts a topic without labels, and test rows."""
    rows, labels = split(1, seed=1, topics=topics, several=several), list(TOPICS)[:topics]
    free = split(40, seed=2, topics=topics, several=several)
    scoring = scoring_for(kind, labels)
    data = Rows(rows, np.arange(len(rows)), rows, rows, labels, scoring, further=free.fields)
    return data, split(20, seed=3, topics=topics)


@pytest.mark.parametrize("topics", [2, 3])
def test_a_topic_is_learned_from_one_label_and_texts_without_labels(topics):
    learned, test = training("classification", topics=topics)
    actual = transductive.exclusive(learned)
    assert [candidate.details["round"] for candidate in actual] == [0, 1, 2, 3]
    answers = [np.stack(candidate.model.answers(test.fields)) for candidate in actual]
    accuracies = [(answer.argmax(1) == test.labels).mean() for answer in answers]
    assert accuracies[-1] > 0.95 and accuracies[-1] >= accuracies[0]
    for answer in actual[-1].model.answers(test.fields[:3]):
        assert answer.sum() == pytest.approx(1, abs=1e-5)


def test_texts_with_several_labels():
    learned, test = training("multilabel", several=True)
    answers = np.stack(transductive.independent(learned)[-1].model.answers(test.fields))
    assert (answers.argmax(1) == test.labels).mean() > 0.9


def test_the_model_is_the_mean_of_the_calibrated_logits(monkeypatch):
    learned, test = training("classification")
    seen = []
    real = transductive.rounds

    def kept(*arguments, **named):
        for single in real(*arguments, **named):
            seen.append(single)
            yield single

    monkeypatch.setattr(transductive, "rounds", kept)
    model = transductive.exclusive(learned)[2].model
    assert isinstance(model, WordsModel)
    parts = model.features.parts([fields[0] for fields in test.fields])
    logits = np.mean(
        [
            single.logits(part) / temperature
            for single, part, temperature in zip(seen[2].models, parts, seen[2].temperatures, strict=True)
        ],
        axis=0,
    )
    np.testing.assert_allclose(model.answers(test.fields), probabilities(logits, exclusive=True), atol=1e-5)


def test_labels_without_rows_and_a_single_label():
    learned, test = training("classification")
    few = replace(learned, drawn=learned.drawn[[0, 2]], largest=learned.drawn)
    two = transductive.exclusive(few)[-1].model.answers(test.fields)
    assert all(answer[1] == 0 for answer in two)
    single = transductive.exclusive(replace(learned, drawn=learned.drawn[[1]], largest=learned.drawn))
    assert len(single) == 4 and single[0].model.answers(test.fields)[0].tolist() == [0, 1, 0]


def test_a_stored_model_is_the_same(tmp_path):
    learned, test = training("classification")
    model = transductive.exclusive(learned)[-1].model
    assert isinstance(model, WordsModel)
    save_words(tmp_path / "model", models=[model], kind="classification", labels=learned.labels, facts={})
    stored = load_words(tmp_path / "model")
    np.testing.assert_array_equal(stored.answer(test.fields), model.answers(test.fields))
    # A row does not depend on the others.
    np.testing.assert_array_equal(stored.answer(test.fields[:1])[0], stored.answer(test.fields)[0])
    assert stored.models[0].features.words(("rice boil zebra",)) == (3, 1)
    assert model.answers([]) == []


def test_a_damaged_model_is_refused(tmp_path):
    learned, _ = training("classification")
    model = transductive.exclusive(learned)[0].model
    assert isinstance(model, WordsModel) and isinstance(model.linear, LinearModel)
    write_model(model, tmp_path)
    described = json.loads((tmp_path / DESCRIPTION).read_text())
    described["means"]["words"].pop()
    (tmp_path / DESCRIPTION).write_text(json.dumps(described))
    with pytest.raises(ArtifactError, match="not a words model of this version"):
        read_model(tmp_path, kind="classification", labels=["a", "b", "c"])
