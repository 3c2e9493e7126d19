"""RECL on given losses, losses against one pass per position, and the study on tiny models."""

import math

import numpy as np
import pytest
import torch

from components.core.errors import ConfigError, DataError
from components.studies.context import context_losses, effective, gain
from components.tokenization.store import TokenStore
from tests.studies.conftest import findings, fits

TEXTS = [
    f"the {item} {other} is here and there very old" for item in ("red", "large") for other in ("bank", "river")
] * 40


def test_the_context_ends_where_the_rest_gains_less_than_a_hundredth():
    # Contexts of 10 to 40 pieces, at 16 positions; the last gain is 0.1 nats, or 0.001.
    far = np.array([[4.0] * 16, [3.0] * 16, [2.9] * 16, [2.5] * 16])
    near = np.array([[4.0] * 16, [3.0] * 16, [2.9] * 16, [2.899] * 16])
    assert effective(far, 10) == 40 and effective(near, 10) == 30
    assert 1 - math.exp(-0.001) < 0.01 < 1 - math.exp(-0.4)


def test_noise_is_no_gain_of_context():
    """A model without any effect of context, whose losses have a noise of 0.3 nats: the minimum over contexts of the
    original measure takes that for a gain at every context."""
    rng = np.random.default_rng(0)
    noise = 3 + 0.3 * rng.normal(size=(16, 256))
    assert effective(noise, 16) <= 32
    assert gain(noise[0], noise[-1]).low < 0 < gain(noise[0], noise[-1]).high


def test_a_gain_and_its_interval():
    before = np.repeat(np.arange(8.0), 4)
    actual = gain(before, np.zeros(32))
    # Of 8 segments of one size the jackknife is the standard error of their means, 2.45 / sqrt(8), with 7 degrees.
    assert actual.mean == 3.5 and actual.mean - actual.low == pytest.approx(2.365 * 2.449 / math.sqrt(8), rel=1e-3)


@pytest.mark.parametrize("name", ["ulmfit", "transformer-xl", "gpt"])
def test_losses_equal_those_of_one_pass_per_position(outputs, add_encoder, add_tokens, name):
    add_encoder(name)
    add_tokens("domain-word", TEXTS)
    model = outputs.encoder(name, "adapted").model
    store = TokenStore(outputs.out / "tokens" / "domain-word", "heldout")
    ends = np.array([40, 44, 48, 101])
    actual = context_losses(model, store, ends, longest=12, step=4, window=64)
    assert actual.shape == (3, 4)
    for index, context in enumerate((4, 8, 12)):
        # gpt has 8 positions.
        used = min(context, model.max_tokens or context)
        for column, end in enumerate(ends):
            window = torch.from_numpy(store.span(int(end) - used, used + 1))[None]
            with torch.no_grad():
                logits, _ = model.predict(window[:, :-1])
            expected = -logits[0, -1].log_softmax(-1)[window[0, -1]]
            assert actual[index, column] == pytest.approx(float(expected), abs=1e-4)


def test_the_study_compares_models_with_the_same_vocabulary(outputs, add_encoder, add_tokens, monkeypatch):
    add_tokens("domain-word", TEXTS)
    for name in ("ulmfit", "transformer-xl", "gpt", "bert"):
        add_encoder(name)
    run = outputs.params.run.model_copy(update={"families": ["ulmfit", "transformer-xl", "gpt", "bert"]})
    monkeypatch.setattr(outputs, "params", outputs.params.model_copy(update={"run": run}))
    actual = findings(outputs, "effective-context", longest=16, step=4, positions=32, costs="16")
    fits(actual, "effective-context")
    models = ["ulmfit-adapted", "transformer-xl-adapted", "gpt-adapted"]
    contexts, gains, costs = actual.numbers.values()
    assert [row["encoder"] for row in contexts] == models
    pairs = {(row["encoder"], row["against"]): row["difference of the gain"]["mean"] for row in gains}
    assert len(pairs) == 6
    gained = {row["encoder"]: row["gain"]["mean"] for row in contexts}
    for (name, other), difference in pairs.items():
        assert difference == pytest.approx(gained[name] - gained[other])
    assert [row["ratio"] is None for row in costs] == [False, False, True]
    assert costs[0]["ratio"]["low"] < costs[0]["ratio"]["mean"] and len(actual.chapter.figures) == 3


def test_a_model_without_a_state_is_not_used_beyond_its_window(outputs, add_encoder, add_tokens):
    add_encoder("gpt")
    add_tokens("domain-word", TEXTS)
    model, store = (
        outputs.encoder("gpt", "adapted").model,
        TokenStore(outputs.out / "tokens" / "domain-word", "heldout"),
    )
    actual = context_losses(model, store, np.array([40, 44]), longest=8, step=2, window=4)
    assert not np.array_equal(actual[0], actual[1])
    assert np.array_equal(actual[1], actual[2]) and np.array_equal(actual[1], actual[3])


def test_messages_about_unsuitable_options(outputs, add_encoder, add_tokens):
    add_encoder("bert")
    with pytest.raises(ConfigError, match="bert: not a causal language model; this study needs a causal family"):
        findings(outputs, "effective-context", encoder="bert")
    with pytest.raises(ConfigError, match="--longest 16: must be at least two steps of 10"):
        findings(outputs, "effective-context", encoder="bert", longest=16, step=10)
    add_encoder("gpt")
    add_tokens("domain-word", TEXTS)
    with pytest.raises(ConfigError, match="--step 9 exceeds the model's 8 positions"):
        findings(outputs, "effective-context", encoder="gpt", longest=18, step=9, positions=16)
    with pytest.raises(DataError, match=r"1[0-9]{3} held-out pieces, needs \d+; lower --longest or --positions"):
        findings(outputs, "effective-context", encoder="gpt", longest=1600, step=8, positions=64)
