"""Models of `transformers` with the same weights, and models with large random weights."""

from typing import Any

import torch
import transformers
from torch import nn

from components.interchange.huggingface import CONVERTERS
from components.models.base import LanguageModel
from components.models.encoder import build_model


def wild_model(family: str, *, vocabulary: int, **settings: Any) -> Any:
    """A model in evaluation mode with weights of std 0.3. With std 0.02 every layer is close to the identity, and
    differences would not show."""
    model = build_model(family, vocabulary=vocabulary, settings=settings)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    return model.eval()


def peer_of(model: LanguageModel) -> Any:
    """The `transformers` model with the exported config and tensors, in evaluation mode."""
    config, tensors = CONVERTERS[type(model).__name__.lower()].to_huggingface(model)
    tensors = {name: tensor for name, tensor in tensors.items() if "/" not in name}
    kind = getattr(transformers, config["architectures"][0])
    peer = kind(transformers.AutoConfig.for_model(**config))
    missing, surplus = peer.load_state_dict(tensors, strict=False)
    # The output layer is tied to the embeddings, and its bias is stored twice.
    assert all(name.split(".")[-2] in ("decoder", "lm_head", "lm_loss", "generator_lm_head") for name in missing)
    assert not surplus
    peer.tie_weights()
    return peer.to(torch.float32).eval()
