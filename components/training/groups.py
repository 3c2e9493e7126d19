"""Parameter groups: which parameters learn at what rate, and from which step on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from torch import nn

#: Rate of a layer group over the rate of the one below it (Howard and Ruder 2018, section 3.2).
DISCRIMINATIVE = 2.6


#: Steps in which a group learns: the first of them, and the first after them (None: there is no end).
Span = tuple[int, int | None]
ALWAYS: tuple[Span, ...] = ((0, None),)
#: In which order layer groups begin to learn.
Unfreezing = Literal["gradual", "chain_thaw", "none"]


@dataclass(frozen=True)
class ParameterGroup:
    """Parameters that learn alike.

    Attributes:
        scale: multiplies the learning rate.
        spans: steps in which the group learns; in the others it is frozen, and no gradient is computed for it.
        weight_decay: decoupled decay (AdamW) or L2 (SGD); None takes the settings' value.
    """

    parameters: Sequence[nn.Parameter]
    scale: float = 1.0
    spans: tuple[Span, ...] = ALWAYS
    weight_decay: float | None = None

    def learns(self, step: int) -> bool:
        """Whether the group learns in step `step`, counted from 0."""
        return any(first <= step and (end is None or step < end) for first, end in self.spans)


def decayed(
    parameters: Iterable[nn.Parameter], *, scale: float = 1.0, spans: tuple[Span, ...] = ALWAYS
) -> list[ParameterGroup]:
    """Two groups: matrices, which decay, and vectors (biases, norms), which do not. Empty ones are left out."""
    # A set of ids keeps tied parameters from standing in a group twice.
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
    """Discriminative rates, and the order in which layer groups learn.

    The topmost layer group learns at the full rate, every group below at the rate of the one above divided by `factor`
    (Howard and Ruder 2018, section 3.2), the head at the full rate times `head_scale`. The head learns alone for
    `unfreeze_every` steps; then

        gradual     one more group joins from the top every `unfreeze_every` steps (Howard and Ruder 2018, section 3.3)
        chain_thaw  each group learns alone for `unfreeze_every` steps, the lowest first, all else frozen; then
                    everything learns (Felbo et al. 2017, section 3.3, who let each learn until dev no longer improves)

    With `none`, or 0 steps, everything learns from the start.

    Args:
        layers: groups of parameters, lowest (the embeddings) first, as `LanguageModel.layer_groups` gives them.
        head: parameters above the encoder.
        head_scale: below 1 for a head of many inputs that is near its best already.
    """
    every = 0 if unfreezing == "none" else unfreeze_every
    whole = (len(layers) + bool(head)) * every
    alone = unfreezing == "chain_thaw" and every > 0
    groups = list(decayed(head, scale=head_scale, spans=((0, every), (whole, None)) if alone else ALWAYS))
    for depth, parameters in enumerate(reversed(layers)):
        place = bool(head) + (len(layers) - 1 - depth if alone else depth)
        begins = place * every
        spans: tuple[Span, ...] = ((begins, begins + every), (whole, None)) if alone else ((begins, None),)
        groups += decayed(parameters, scale=factor**-depth, spans=spans)
    return groups
