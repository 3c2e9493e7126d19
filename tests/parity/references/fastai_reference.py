"""fastai's AWD-LSTM language model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from answering import answer
from fastai.text.models.awdlstm import AWD_LSTM, awd_lstm_lm_config
from fastai.text.models.core import get_language_model
from torch.nn import functional as F


def language_model(folder: str, words: list[str], sizes: dict[str, int], stream: list[list[int]]) -> dict[str, Any]:
    """A model without dropout: its files, states, loss with fastai's penalties, and gradients, on one batch.

    The penalties are those of the callback `RNNRegularizer(alpha=2, beta=1)`.
    """
    torch.manual_seed(0)
    rates = {name: 0.0 for name in awd_lstm_lm_config if name.endswith("_p")}
    model = get_language_model(AWD_LSTM, len(words), awd_lstm_lm_config | rates | sizes)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    model[0].reset()
    torch.save(model.state_dict(), Path(folder, "model.pth"))
    Path(folder, "words.json").write_text(json.dumps(words), encoding="utf-8")
    tokens = torch.tensor(stream)
    model.train()
    logits, raw, dropped = model(tokens[:, :-1])
    entropy = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    loss = entropy + 2.0 * dropped.float().pow(2).mean() + 1.0 * (raw[:, 1:] - raw[:, :-1]).float().pow(2).mean()
    loss.backward()
    return {
        "states": raw.detach().numpy(),
        "entropy": entropy.detach().numpy(),
        "loss": loss.detach().numpy(),
        "embedding_gradient": model[0].encoder.weight.grad.numpy(),
        "recurrent_gradient": model[0].rnns[0].weight_hh_l0_raw.grad.numpy(),
    }


if __name__ == "__main__":
    answer(language_model)
