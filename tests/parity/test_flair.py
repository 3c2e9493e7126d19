"""FLAIR's character models give what flair's LanguageModel gives with the same weights."""

import numpy as np
import pytest
import torch

from components.models.encoder import build_model

CHARACTERS = 12


@pytest.mark.parametrize("layers", [1, 2])
def test_states_and_loss_of_both_directions(reference, layers):
    texts = np.random.default_rng(0).integers(0, CHARACTERS, size=(2, 3, 10))
    sizes = {"hidden_size": 7, "nlayers": layers, "embedding_size": 5}
    actual = reference("flair", "language_models", characters=CHARACTERS, sizes=sizes, texts=texts.tolist())
    model = build_model(
        "flair", vocabulary=CHARACTERS, settings={"embedding": 5, "hidden": 7, "layers": layers, "dropout": 0.0}
    )
    state = {}
    for name in ("forwards", "backwards"):
        weights = {key.rpartition("/")[2]: torch.from_numpy(actual[key]) for key in actual if f"{name}/weights/" in key}
        state |= {
            f"{name}.embedding": weights["encoder.weight"],
            f"{name}.output": weights["decoder.weight"],
            f"{name}.bias": weights["decoder.bias"],
        }
        for layer in range(layers):
            state |= {
                f"{name}.lstms.{layer}.weight_ih": weights[f"rnn.weight_ih_l{layer}"],
                f"{name}.lstms.{layer}.weight_hh": weights[f"rnn.weight_hh_l{layer}"],
                f"{name}.lstms.{layer}.bias": weights[f"rnn.bias_ih_l{layer}"] + weights[f"rnn.bias_hh_l{layer}"],
            }
    model.load_state_dict(state)
    model.eval()
    ahead, back = (torch.from_numpy(text) for text in texts)
    for name, text in (("forwards", ahead), ("backwards", back)):
        outputs, carry = getattr(model, name)(text[:, :-1].t(), ())
        np.testing.assert_allclose(outputs[-1].detach().transpose(0, 1), actual[f"{name}/states"], atol=1e-5)
        for part, key in enumerate(("h", "c")):
            ours = torch.stack([state.detach() for state in carry[part::2]])
            np.testing.assert_allclose(ours, actual[f"{name}/{key}"], atol=1e-5)
    result = model.losses(
        {
            "tokens": ahead[:, :-1],
            "targets": ahead[:, 1:],
            "backward_tokens": back[:, :-1],
            "backward_targets": back[:, 1:],
        }
    )
    expected = float(actual["forwards/loss"]) + float(actual["backwards/loss"])
    np.testing.assert_allclose(float(result.loss.detach()), expected, rtol=1e-5)
