"""Layer vectors against direct computation, the regression against scikit-learn, and the scalar mix."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from components.core.errors import ConfigError
from components.data.tasks.data import Split
from components.settings.finetune import FinetuneSettings
from components.settings.training import Training
from components.studies.frozen import PENALTIES, Labelled, layer_vectors, mixed, regressed
from tests.studies.conftest import findings

SETTINGS = FinetuneSettings(training=Training(rate=0.01, batch_size=4))


def test_vectors_are_the_means_of_the_hidden_states(outputs, add_task, add_encoder):
    add_task()
    add_encoder("bert")
    encoder = outputs.encoder("bert", "adapted")
    split = Labelled.of(outputs, "aws-type").dev.take([4, 0, 9])
    actual = layer_vectors(encoder, split, kind="classification", settings=SETTINGS)
    assert [tuple(layer.shape) for layer in actual] == [(3, 16)] * 4
    for row, text in enumerate(split.texts):
        (ids,) = encoder.tokenizer.encode_batch([text])
        tokens = torch.tensor([encoder.model.special_tokens(ids.tolist())])
        with torch.no_grad():
            hidden = encoder.model.hidden_states(tokens, torch.tensor([tokens.shape[1]]))
        for layer, expected in zip(actual, hidden, strict=True):
            assert torch.allclose(layer[row], expected[0].mean(0), atol=1e-5)


def test_words_of_a_sentence_of_several_windows(outputs, add_task, add_encoder):
    add_task()
    add_encoder("bert")
    encoder = outputs.encoder("bert", "adapted")
    lengths = (140, 3, 70)
    fields = [tuple(["the", "red", "goat"][number % 3] for number in range(length)) for length in lengths]
    split = Split(fields, [np.zeros(length) for length in lengths], [None] * 3)
    actual = layer_vectors(encoder, split, kind="tagging", settings=SETTINGS)
    assert {len(layer) for layer in actual} == {sum(lengths)}


def test_the_regression_equals_scikit_learns():
    rng = np.random.default_rng(0)
    x, dev = rng.normal(size=(40, 3)), rng.normal(size=(9, 3))
    labels = (x[:, 0] > 0).astype(np.int64) * 2
    actual = regressed(x, labels, dev, classes=4)
    for penalty, probabilities in zip(PENALTIES, actual, strict=True):
        expected = LogisticRegression(C=1 / penalty, max_iter=1000, tol=1e-8).fit(x, labels).predict_proba(dev)
        assert probabilities[:, [0, 2]] == pytest.approx(expected, abs=2e-3)
        assert not probabilities[:, [1, 3]].any()
    only = regressed(x, np.full(40, 1), dev, classes=2)
    assert only[0].tolist() == [[0.0, 1.0]] * 9


def test_the_mix_gives_the_informative_layer_the_largest_weight():
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(2, (60,), generator=generator)
    noise = torch.randn(3, 60, 4, generator=generator)
    x = noise.clone()
    x[1, :, 0] = 2.0 * labels - 1
    probabilities, weights = mixed(x, labels.numpy(), x[:, :10], classes=2, penalty=1.0)
    assert weights.sum() == pytest.approx(1) and weights.argmax() == 1 and weights[1] > 0.8
    assert (probabilities.argmax(1) == labels[:10].numpy()).all()
    # With one layer it is the regression.
    alone, _ = mixed(x[1:2], labels.numpy(), x[1:2, :10], classes=2, penalty=2.0)
    expected = (
        LogisticRegression(C=0.5, max_iter=1000).fit(x[1].numpy(), labels.numpy()).predict_proba(x[1, :10].numpy())
    )
    assert alone == pytest.approx(expected, abs=1e-2)


def test_the_study(outputs, add_task, add_encoder):
    add_task()
    add_encoder("bert")
    add_encoder("word2vec")
    actual = findings(outputs, "layers", encoder="bert")
    rows = {row["layers"]: row for row in actual.numbers["aws-type"]}
    assert list(rows) == ["first", "second to last", "last", "sum", "sum last four", "concat last four", "mix"]
    # With three layers, the last four are all layers.
    assert rows["sum"]["score"] == rows["sum last four"]["score"]
    # A word determines the class, and the embedding represents it.
    assert rows["first"]["score"]["mean"] > 0.6
    assert actual.chapter.tables[0].rows[0][1:3] == ["first", "91.0"]
    assert "macro F1 on dev at 5 labels a class" in actual.chapter.text[0]
    # The difference to the last layer is paired by sample and row.
    difference, last = rows["first"]["minus the last layer"], rows["last"]
    assert difference["mean"] == pytest.approx(rows["first"]["score"]["mean"] - last["score"]["mean"])
    assert last["minus the last layer"] is None and difference["low"] < difference["mean"] < difference["high"]
    assert findings(outputs, "layers", encoder="bert-adapted").numbers == actual.numbers
    item = findings(outputs, "layers", encoder="word2vec").numbers["aws-type"]
    assert [row["layers"] for row in item] == ["first", "last", "mix"], "word vectors have one layer"


def test_a_kind_without_one_label_is_refused(outputs, add_task, monkeypatch):
    add_task()
    monkeypatch.setattr("components.studies.frozen.LABELLED", ("pair",))
    with pytest.raises(ConfigError, match="this study needs one label per text or word, which classification"):
        findings(outputs, "layers")
