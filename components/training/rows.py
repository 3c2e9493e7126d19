"""Training of large tables of which a step reads few rows, such as fastText's n-grams.

The gradient of such a table is sparse, and only rows that the batch has read are updated. So the time of a step does
not depend on the size of the table.

Shape suffixes: R rows of a table, N rows that a step reads, D columns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


class RowAdamW(torch.optim.AdamW):
    """AdamW that also trains tables with sparse gradients.

    A row is updated in the steps that read it, as if it were a parameter of its own that is trained in these steps
    only: moments and bias corrections are those of the row's own updates, and so is weight decay.
    """

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
