"""flair's character language model."""

from __future__ import annotations

from typing import Any

import torch
from answering import answer
from flair.data import Dictionary
from flair.models.language_model import LanguageModel
from torch.nn import functional as F


def language_models(characters: int, sizes: dict[str, int], texts: list[list[list[int]]]) -> dict[str, Any]:
    """A forward and a backward model without dropout: weights, states, loss and state after one batch each.

    Args:
        characters: size of the vocabulary.
        sizes: hidden_size, nlayers, embedding_size.
        texts: ids (B, T + 1) for each direction, in its reading direction.
    """
    dictionary = Dictionary(add_unk=False)
    for index in range(characters):
        dictionary.add_item(chr(0x100 + index))
    actual: dict[str, Any] = {}
    for ahead, text in zip((True, False), texts, strict=True):
        name = "forwards" if ahead else "backwards"
        torch.manual_seed(int(ahead))
        model = LanguageModel(dictionary, is_forward_lm=ahead, dropout=0.0, **sizes)
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
        ids = torch.tensor(text)
        logits, states, carry = model(ids[:, :-1].t(), model.init_hidden(len(ids)))
        loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].t().flatten())
        actual |= {f"{name}/weights/{key}": value.detach().numpy() for key, value in model.state_dict().items()}
        actual |= {
            f"{name}/states": states.detach().transpose(0, 1).numpy(),
            f"{name}/loss": loss.detach().numpy(),
            f"{name}/h": carry[0].detach().numpy(),
            f"{name}/c": carry[1].detach().numpy(),
        }
    return actual


if __name__ == "__main__":
    answer(language_models)
