"""A text classifier whose layers, pooling or head no class of transformers has.

`transformers.pipeline("text-classification", FOLDER, trust_remote_code=True)` runs this file, with the rights of the
user. It computes the model and reads no other file. Set `trust_remote_code` only for a folder whose origin you trust.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import AutoModel, BertConfig, PreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput


class HeadstartForSequenceClassification(PreTrainedModel):
    """Encoder, pooling of the chosen layers, and one or two linear layers; `config.headstart` describes them."""

    config_class = BertConfig

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        shape = config.headstart
        self.encoder = AutoModel.from_config(config)
        widths = shape["widths"]
        layers: list[torch.nn.Module] = [torch.nn.Linear(*widths[:2])]
        if len(widths) > 2:
            layers += [torch.nn.ReLU(), torch.nn.Linear(*widths[1:])]
        self.head = torch.nn.Sequential(*layers)
        self.mix = torch.nn.Parameter(torch.ones(shape["mix"])) if shape["mix"] else None
        self.centre = torch.nn.Parameter(torch.zeros(widths[0])) if shape["blocks"] else None
        self.post_init()

    def forward(
        self, input_ids: Any = None, attention_mask: Any = None, token_type_ids: Any = None, **more: Any
    ) -> SequenceClassifierOutput:
        """Logits (B, C)."""
        inside = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        segments = {} if token_type_ids is None else {"token_type_ids": token_type_ids}
        hidden = self.encoder(
            input_ids=input_ids, attention_mask=inside, output_hidden_states=True, return_dict=True, **segments
        ).hidden_states
        parts = [self._pool(layer, inside, name) for layer in self._select(hidden) for name in self._pools()]
        if self.config.headstart["unit_length"]:
            parts = [torch.nn.functional.normalize(part, dim=1) for part in parts]
        vectors = torch.cat(parts, dim=1)
        if self.mix is not None:
            chunks = vectors.chunk(len(self.mix), dim=-1)
            vectors = torch.stack([weight * chunk for weight, chunk in zip(self.mix, chunks, strict=True)]).sum(0)
        if self.centre is not None:
            blocks = (vectors - self.centre).split(self.config.headstart["blocks"], dim=-1)
            scaled = [torch.nn.functional.normalize(block, dim=-1) * block.shape[-1] ** 0.5 for block in blocks]
            vectors = torch.cat(scaled, dim=-1)
        return SequenceClassifierOutput(logits=self.head(vectors))

    def _pools(self) -> tuple[str, ...]:
        pooling = self.config.headstart["pooling"]
        return ("summary", "max", "mean") if pooling == "concat" else (pooling,)

    def _select(self, hidden: Any) -> list[Any]:
        layers, above = self.config.headstart["layers"], hidden[1:]
        if layers == "sum":
            return [torch.stack(list(above)).sum(0)]
        if layers == "sum_last_four":
            return [torch.stack(list(above[-4:])).sum(0)]
        if layers == "concat_last_four":
            return list(above[-4:])
        single = {"last": -1, "second_to_last": -2, "first": 0}
        return [hidden[single[layers]]] if layers in single else list(hidden)

    def _pool(self, layer: Any, inside: Any, name: str) -> Any:
        mask = inside[..., None].bool()
        if name == "summary":
            if self.config.headstart["summary"] == "first":
                return layer[:, 0]
            # The last piece, wherever the padding is.
            last = (inside * torch.arange(1, inside.shape[1] + 1, device=inside.device)).argmax(1)
            return layer[torch.arange(len(layer), device=layer.device), last]
        if name == "max":
            return layer.masked_fill(~mask, float("-inf")).amax(1)
        weights = inside.to(layer.dtype)
        if name == "lead":
            weights = weights / (2 + inside.cumsum(1))
        return torch.einsum("btd,bt->bd", layer, weights / weights.sum(1, keepdim=True))
