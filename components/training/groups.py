"""Parameter groups: which parameters learn at what rate, and from which step on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from torch import nn

#: Rate of a layer group over the rate of the one below it (Howard and Ruder 2018, section 3.2).
DISCRIMINATIVE = 2.6


@dataclass(frozen=True)
class ParameterGroup:
    """Parameters that learn alike.

    Attributes:
        scale: multiplies the learning rate.
        starts_at: step at which the group begins to learn; until then it is frozen, and no gradient is computed for it.
        weight_decay: decoupled decay (AdamW) or L2 (SGD); None takes the settings' value.
    """

    parameters: Sequence[nn.Parameter]
    scale: float = 1.0
    starts_at: int = 0
    weight_decay: float | None = None


def decayed(parameters: Iterable[nn.Parameter], *, scale: float = 1.0, starts_at: int = 0) -> list[ParameterGroup]:
    """Two groups: matrices, which decay, and vectors (biases, norms), which do not. Empty ones are left out."""
    # A set of ids keeps tied parameters from standing in a group twice.
    distinct = list({id(parameter): parameter for parameter in parameters}.values())
    matrices = [parameter for parameter in distinct if parameter.ndim > 1]
    vectors = [parameter for parameter in distinct if parameter.ndim <= 1]
    groups = [
        ParameterGroup(matrices, scale=scale, starts_at=starts_at),
        ParameterGroup(vectors, scale=scale, starts_at=starts_at, weight_decay=0.0),
    ]
    return [group for group in groups if group.parameters]


def discriminative(
    layers: Sequence[Sequence[nn.Parameter]],
    *,
    head: Sequence[nn.Parameter] = (),
    factor: float = DISCRIMINATIVE,
    unfreeze_every: int = 0,
) -> list[ParameterGroup]:
    """Discriminative rates and gradual unfreezing (Howard and Ruder 2018, sections 3.2 and 3.3).

    The head and the topmost layer group learn at the full rate, every group below at the rate of the one above
    divided by `factor`. With `unfreeze_every`, the head learns alone first and one more group joins from the top every
    `unfreeze_every` steps; 0 lets all learn from the start.

    Args:
        layers: groups of parameters, lowest (the embeddings) first, as `LanguageModel.layer_groups` gives them.
        head: parameters above the encoder.
    """
    groups = list(decayed(head))
    for depth, parameters in enumerate(reversed(layers)):
        joins = unfreeze_every * (depth + bool(head))
        groups += decayed(parameters, scale=factor**-depth, starts_at=joins)
    return groups
