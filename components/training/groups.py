"""Parameter groups: learning rates, weight decay and the steps in which parameters are trained."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from torch import nn

#: Learning rate of a layer group divided by that of the group below (Howard and Ruder 2018, section 3.2).
DISCRIMINATIVE = 2.6


#: A half-open interval of steps in which a group is trained; None: no end.
Span = tuple[int, int | None]
ALWAYS: tuple[Span, ...] = ((0, None),)
#: Order in which layer groups are unfrozen.
Unfreezing = Literal["gradual", "chain_thaw", "none"]


@dataclass(frozen=True)
class ParameterGroup:
    """Parameters with the same options.

    Attributes:
        scale: factor of the learning rate.
        spans: steps in which the group is trained; otherwise it is frozen and no gradient is computed for it.
        weight_decay: decoupled weight decay (AdamW) or L2 penalty (other optimizers); None: that of the settings.
    """

    parameters: Sequence[nn.Parameter]
    scale: float = 1.0
    spans: tuple[Span, ...] = ALWAYS
    weight_decay: float | None = None

    def learns(self, step: int) -> bool:
        """Whether the group is trained in step `step`, counted from 0."""
        return any(first <= step and (end is None or step < end) for first, end in self.spans)


def decayed(
    parameters: Iterable[nn.Parameter], *, scale: float = 1.0, spans: tuple[Span, ...] = ALWAYS
) -> list[ParameterGroup]:
    """Up to two groups: matrices, with weight decay, and vectors (biases, norms), without. Empty groups are omitted."""
    # By id: tied parameters occur once.
    distinct = list({id(parameter): parameter for parameter in parameters}.values())
    matrices = [parameter for parameter in distinct if parameter.ndim > 1]
    vectors = [parameter for parameter in distinct if parameter.ndim <= 1]
    groups = [
        ParameterGroup(matrices, scale=scale, spans=spans),
        ParameterGroup(vectors, scale=scale, spans=spans, weight_decay=0.0),
    ]
    return [group for group in groups if group.parameters]


def discriminative(
    layers: Sequence[Sequence[nn.Parameter]],
    *,
    head: Sequence[nn.Parameter] = (),
    head_scale: float = 1.0,
    factor: float = DISCRIMINATIVE,
    unfreezing: Unfreezing = "gradual",
    unfreeze_every: int = 0,
) -> list[ParameterGroup]:
    """Parameter groups with discriminative learning rates and gradual unfreezing.

    The top layer group has the full learning rate, each lower group the rate of the group above it divided by `factor`
    (Howard and Ruder 2018, section 3.2), and the head the full rate times `head_scale`. For the first `unfreeze_every`
    steps only the head, if there is one, is trained; then

        gradual     every `unfreeze_every` steps one more group is unfrozen, from the top (Howard and Ruder 2018,
                    section 3.3)
        chain_thaw  each group is trained separately for `unfreeze_every` steps, from the lowest, all others frozen;
                    then all are trained (Felbo et al. 2017, section 3.3, who train each until dev stops improving)

    With `none`, or 0 steps, all groups are trained from the first step.

    Args:
        layers: parameters of the layer groups, lowest (the embeddings) first, as `LanguageModel.layer_groups` returns.
        head: parameters above the encoder.
        head_scale: below 1 for a head with many inputs that is trained already.
    """
    every = 0 if unfreezing == "none" else unfreeze_every
    whole = (len(layers) + bool(head)) * every
    alone = unfreezing == "chain_thaw" and every > 0
    groups = list(decayed(head, scale=head_scale, spans=((0, every), (whole, None)) if alone else ALWAYS))
    for depth, parameters in enumerate(reversed(layers)):
        position = bool(head) + (len(layers) - 1 - depth if alone else depth)
        begins = position * every
        spans: tuple[Span, ...] = ((begins, begins + every), (whole, None)) if alone else ((begins, None),)
        groups += decayed(parameters, scale=factor**-depth, spans=spans)
    return groups
