"""Parameter groups (rates, weight decay, steps in which parameters are trained), optimizers, averages of weights.

Large tables of which a step reads few rows, such as fastText's n-grams, have sparse gradients: only rows that the batch
has read are updated, so the time of a step does not depend on the size of the table.

Shape suffixes: R rows of a table, N rows that a step reads, D columns.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import torch
from torch import Tensor, nn

from components.settings.training import Training

#: Learning rate of a layer group divided by the rate of the group below (Howard and Ruder 2018, section 3.2).
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
        weight_decay: decoupled (AdamW) or L2 penalty (other optimizers); None: as in the settings.
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
    below_head: bool = False,
    unfreezing: Unfreezing = "gradual",
    unfreeze_every: int = 0,
) -> list[ParameterGroup]:
    """Parameter groups with discriminative learning rates and gradual unfreezing.

    The top layer group has the full learning rate, each lower group the rate of the group above it divided by `factor`
    (Howard and Ruder 2018, section 3.2), and the head the full rate times `head_scale`. With `below_head` the head is
    the group above the top layer group, whose rate is then the full rate divided by `factor` (train_clas.py of the
    published code, and fastai). For the first `unfreeze_every` steps only the head, if there is one, is trained; then

        gradual     every `unfreeze_every` steps one more group is unfrozen, from the top (Howard and Ruder 2018,
                    section 3.3)
        chain_thaw  each group is trained separately for `unfreeze_every` steps, from the lowest, all others frozen;
                    then all are trained (Felbo et al. 2017, section 3.3, who train each until dev stops improving)

    With `none`, or 0 steps, all groups are trained from the first step.

    Args:
        layers: parameters of the layer groups, lowest (the embeddings) first, as `LanguageModel.layer_groups` returns.
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
        groups += decayed(parameters, scale=factor ** -(depth + below_head), spans=spans)
    return groups


class RowAdamW(torch.optim.AdamW):
    """AdamW that also trains tables with sparse gradients: a row is updated in the steps that read it, with moments,
    bias corrections and weight decay from its own updates."""

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """One step of all parameters that have a gradient; sparse ones, which must be coalesced, are consumed."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None and parameter.grad.is_sparse:
                    self._update(parameter, parameter.grad, group)
                    parameter.grad = None
        return super().step(closure)

    def _update(self, parameter: nn.Parameter, gradient: Tensor, group: dict[str, Any]) -> None:
        rows_N, gradient_ND = gradient.indices()[0], gradient.values()
        state, (first, second) = self.state[parameter], group["betas"]
        if not state:
            # torch's loading of a state reads `step`.
            state["step"], state["count"] = torch.zeros(()), parameter.new_zeros(len(parameter), 1)
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
        count_N1 = state["count"][rows_N] + 1
        first_ND = state["exp_avg"][rows_N].lerp(gradient_ND, 1 - first)
        second_ND = state["exp_avg_sq"][rows_N].lerp(gradient_ND.square(), 1 - second)
        state["count"][rows_N], state["exp_avg"][rows_N], state["exp_avg_sq"][rows_N] = count_N1, first_ND, second_ND
        mean_ND = first_ND / (1 - first**count_N1)
        root_ND = (second_ND / (1 - second**count_N1)).sqrt() + group["eps"]
        decayed_ND = parameter[rows_N] * (1 - group["lr"] * group["weight_decay"])
        parameter[rows_N] = decayed_ND - group["lr"] * mean_ND / root_ND


#: Term added to the denominators of AdamW and AdaGrad.
EPSILON: Final = 1e-8


def make_optimizer(groups: Sequence[ParameterGroup], *, settings: Training) -> torch.optim.Optimizer:
    """AdamW, AdaGrad (Duchi et al. 2011) or SGD, each a fused kernel; `asgd` is SGD, whose weights `average_of`
    averages. Weight decay is an L2 penalty in AdaGrad and SGD. Only AdamW trains tables with sparse gradients."""
    options = [
        {
            "params": list(group.parameters),
            "weight_decay": settings.weight_decay if group.weight_decay is None else group.weight_decay,
        }
        for group in groups
    ]
    if settings.optimizer == "adamw":
        return RowAdamW(options, lr=settings.rate, betas=settings.betas, eps=EPSILON, fused=True)
    if settings.optimizer == "adagrad":
        return torch.optim.Adagrad(options, lr=settings.rate, eps=EPSILON, fused=True)
    return torch.optim.SGD(options, lr=settings.rate, fused=True)


class WeightAverage:
    """The mean of the weights after each step later than `begins` (Polyak and Juditsky 1992); `count` updates so far.

    While `begins` is None there is no average and `swap` has no effect; the non-monotone trigger of NT-ASGD (Merity et
    al. 2018) sets it."""

    def __init__(self, parameters: Sequence[nn.Parameter], *, begins: int | None = None) -> None:
        self.parameters = list(parameters)
        self.begins = begins
        self.count = 0
        self.tensors = [parameter.detach().clone() for parameter in self.parameters]

    def begin(self, step: int) -> None:
        """Start the average with the weights after `step` steps (NT-ASGD, algorithm 1: T = k)."""
        self.begins = step - 1
        self.update(step)

    @torch.no_grad()
    def update(self, step: int) -> None:
        if self.begins is None or step <= self.begins:
            return
        self.count += 1
        torch._foreach_lerp_(self.tensors, [parameter.data for parameter in self.parameters], 1 / self.count)

    @torch.no_grad()
    def swap(self) -> None:
        """Exchange weights and average, if begun: before it is evaluated or saved, and again afterwards."""
        if self.count:
            for parameter, average in zip(self.parameters, self.tensors, strict=True):
                held = parameter.detach().clone()
                parameter.copy_(average)
                average.copy_(held)


def non_monotone(losses: Sequence[float]) -> bool:
    """Whether the last loss v_t exceeds the best of v_0 .. v_{t-n-1}, t > n = 5 (Merity et al. 2018, algorithm 1)."""
    *earlier, last = losses or [0.0]
    return len(earlier) > 5 and last > min(earlier[:-5])


def average_of(parameters: Sequence[nn.Parameter], *, settings: Training) -> WeightAverage | None:
    """The average of weights that the optimizer keeps; None if it keeps none."""
    return WeightAverage(parameters) if settings.optimizer == "asgd" else None
