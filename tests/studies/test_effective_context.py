"""RECL on given losses, losses against one pass per position, and the study on tiny models."""

import math

import numpy as np
import pytest
import torch

from components.core.errors import ConfigError, DataError
from components.studies import effective_context
from components.studies.effective_context import context_losses, effective
from components.tokenization.store import TokenStore

TEXTS = [
    f"the {item} {other} is here and there very old" for item in ("red", "large") for other in ("bank", "river")
] * 40


def test_recl_is_the_context_where_the_gain_ends():
    # Two models, four positions, contexts 10 to 40. The gain of `near` ends at 20, that of `far` continues to 40.
    near = np.array([[4.0] * 4, [3.0] * 4, [2.999] * 4, [2.9] * 4])
    far = np.array([[4.0] * 4, [3.5] * 4, [2.9] * 4, [2.5] * 4])
    contexts = [10, 20, 30, 40]
    losses = {"near": near, "far": far}
    assert effective(losses, "near", contexts, 1.0) == 20
    # From 20 to 30 the baseline is the other model's 3.0.
    assert effective(losses, "far", contexts, 1.0) == 40
    # In a group of one, the baseline is the model's own loss.
    assert effective({"near": near}, "near", contexts, 1.0) == 20
    assert 1 - math.exp(-0.001) < 0.01 < 1 - math.exp(-0.1)


@pytest.mark.parametrize("name", ["ulmfit", "transformer-xl", "gpt"])
def test_losses_equal_those_of_one_pass_per_position(outputs, add_encoder, add_tokens, name):
    add_encoder(name)
    add_tokens("domain-word", TEXTS)
    model = outputs.encoder(name, "adapted").model
    store = TokenStore(outputs.out / "tokens" / "domain-word", "heldout")
    ends = np.array([40, 44, 48, 101])
    actual = context_losses(model, store, ends, longest=12, step=4)
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
    actual = effective_context.run(outputs, longest=16, step=4, positions=32)
    (group,) = actual.numbers["groups"]
    assert set(group["recl"]) == {"ulmfit-adapted", "transformer-xl-adapted", "gpt-adapted"}
    assert group["contexts"] == [4, 8, 12, 16] and group["positions"] == 32
    assert group["loss"]["gpt-adapted"][1] == group["loss"]["gpt-adapted"][3], "gpt has 8 positions"
    assert "none" in actual.chapter.tables[1].rows[2]
    assert len(actual.chapter.figures) == 2


def test_messages_about_unsuitable_options(outputs, add_encoder, add_tokens):
    add_encoder("bert")
    with pytest.raises(ConfigError, match="bert: not a causal language model; this study needs a causal family"):
        effective_context.run(outputs, encoder="bert")
    with pytest.raises(ConfigError, match="--longest 16: must be at least two steps of 10"):
        effective_context.run(outputs, encoder="bert", longest=16, step=10)
    add_encoder("gpt")
    add_tokens("domain-word", TEXTS)
    with pytest.raises(ConfigError, match="--step 9 exceeds the model's 8 positions"):
        effective_context.run(outputs, encoder="gpt", longest=18, step=9, positions=16)
    with pytest.raises(DataError, match=r"1[0-9]{3} held-out pieces, needs \d+; lower --longest or --positions"):
        effective_context.run(outputs, encoder="gpt", longest=1600, step=8, positions=64)
