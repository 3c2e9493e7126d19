"""Training of large tables of which a step reads few rows, such as fastText's n-grams.

The gradient of such a table is sparse: only rows that the batch has read are updated, and the state of the optimizer
has only rows that some batch has read. So a step does not depend on the size of the table.

Shape suffixes: R rows of a table, N rows that a step reads, K rows that any step has read, D columns.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any, Final, Literal

import torch
from torch import Tensor, nn

from components.models.base import LanguageModel

Rule = Literal["adamw", "adagrad", "sgd"]
#: Optimizer of the settings -> its rule.
RULES: Final[dict[str, Rule]] = {"adamw": "adamw", "adagrad": "adagrad", "sgd": "sgd", "asgd": "sgd"}
#: Rows of the state that are allocated at first; the allocation doubles whenever it is full.
FIRST_ROWS: Final = 1024
#: State that belongs to the rows of a table, besides `rows` (K,), their indices in the order in which they were read.
OF_ROWS: Final = {"adamw": ("count", "exp_avg", "exp_avg_sq"), "adagrad": ("sum",), "sgd": ()}


def sparse_parameters(model: nn.Module) -> set[int]:
    """Ids of the parameters with sparse gradients of all language models in a module."""
    return {
        id(parameter)
        for module in model.modules()
        if isinstance(module, LanguageModel)
        for parameter in module.sparse_parameters()
    }


class RowOptimizer(torch.optim.Optimizer):
    """AdamW, AdaGrad or SGD, with one row of state per row that was read.

    A row is updated in the steps that read it, as if it were a parameter of its own that is trained in these steps
    only: AdamW's moments and bias corrections are those of the row's own updates, and so is weight decay.

    Args:
        groups: parameter groups with `params` and `weight_decay`.
        rows: ids of the parameters with sparse gradients.
        rule: the optimizer.
        dense: groups of the other parameters -> their optimizer.
        rate: learning rate.
        betas, eps: of AdamW; AdaGrad uses `eps`.
    """

    def __init__(
        self,
        groups: Iterable[dict[str, Any]],
        *,
        rows: Collection[int],
        rule: Rule,
        dense: Callable[[list[dict[str, Any]]], torch.optim.Optimizer],
        rate: float,
        betas: tuple[float, float],
        eps: float,
    ) -> None:
        # `fused` keeps the counts of steps on the device when a state is loaded.
        super().__init__(groups, {"lr": rate, "weight_decay": 0.0, "fused": True})
        self.rows, self.rule, self.betas, self.eps = frozenset(rows), rule, betas, eps
        others = [
            {**group, "params": [one for one in group["params"] if id(one) not in self.rows]}
            for group in self.param_groups
        ]
        self._dense = dense(others) if any(group["params"] for group in others) else None
        if self._dense is not None:
            # One state, so that a checkpoint has that of all parameters.
            self.state = self._dense.state
        self._slots: dict[nn.Parameter, Tensor] = {}
        self._held: dict[nn.Parameter, dict[str, Tensor]] = {}

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """One step of all parameters that have a gradient; sparse gradients are coalesced."""
        if self._dense is not None:
            for group, own in zip(self._dense.param_groups, self.param_groups, strict=True):
                group["lr"] = own["lr"]
            self._dense.step()
        for group in self.param_groups:
            for parameter in group["params"]:
                if id(parameter) in self.rows and parameter.grad is not None:
                    self._update(parameter, parameter.grad, group)
        return None

    def _update(self, parameter: nn.Parameter, gradient: Tensor, group: dict[str, Any]) -> None:
        if not gradient.is_sparse:
            raise TypeError("a parameter of sparse_parameters() has a dense gradient")
        rows_N, gradient_ND = gradient.indices()[0], gradient.values()
        if not len(rows_N):
            return
        rate, decay = group["lr"], group["weight_decay"]
        weights_ND = parameter[rows_N]
        if self.rule == "sgd":
            parameter[rows_N] = weights_ND - rate * (gradient_ND + decay * weights_ND)
            return
        slots_N = self._slots_of(parameter, rows_N)
        held = self._held[parameter]
        if self.rule == "adagrad":
            gradient_ND = gradient_ND + decay * weights_ND
            sum_ND = held["sum"][slots_N] + gradient_ND.square()
            held["sum"][slots_N] = sum_ND
            parameter[rows_N] = weights_ND - rate * gradient_ND / (sum_ND.sqrt() + self.eps)
            return
        count_N1 = held["count"][slots_N] + 1
        held["count"][slots_N] = count_N1
        first_ND = held["exp_avg"][slots_N].lerp(gradient_ND, 1 - self.betas[0])
        second_ND = held["exp_avg_sq"][slots_N].lerp(gradient_ND.square(), 1 - self.betas[1])
        held["exp_avg"][slots_N], held["exp_avg_sq"][slots_N] = first_ND, second_ND
        mean_ND = first_ND / (1 - self.betas[0] ** count_N1)
        root_ND = (second_ND / (1 - self.betas[1] ** count_N1)).sqrt() + self.eps
        parameter[rows_N] = weights_ND * (1 - rate * decay) - rate * mean_ND / root_ND

    def _slots_of(self, parameter: nn.Parameter, rows_N: Tensor) -> Tensor:
        """(N,) positions of rows in the state; rows that were not read before are appended."""
        if parameter not in self._slots:
            self._slots[parameter] = torch.full((len(parameter),), -1, dtype=torch.int64, device=parameter.device)
            self._held[parameter] = self._empty(parameter, FIRST_ROWS)
            self.state[parameter]["rows"] = rows_N[:0]
        slots_R, state = self._slots[parameter], self.state[parameter]
        new = rows_N[slots_R[rows_N] < 0]
        if len(new):
            before, after = len(state["rows"]), len(state["rows"]) + len(new)
            slots_R[new] = torch.arange(before, after, device=new.device)
            held = self._held[parameter]
            capacity = len(next(iter(held.values())))
            while capacity < after:
                capacity *= 2
            if capacity > len(next(iter(held.values()))):
                grown = self._empty(parameter, capacity)
                for name, values in held.items():
                    grown[name][:before] = values[:before]
                self._held[parameter] = held = grown
            state["rows"] = torch.cat([state["rows"], new])
            # Views: what a checkpoint stores has no unused rows.
            state |= {name: values[:after] for name, values in held.items()}
        return slots_R[rows_N]

    def _empty(self, parameter: nn.Parameter, rows: int) -> dict[str, Tensor]:
        widths = {name: 1 if name == "count" else parameter.shape[1] for name in OF_ROWS[self.rule]}
        return {name: parameter.new_zeros(rows, width) for name, width in widths.items()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Set the state to a stored one."""
        # torch would convert the indices of rows to the type of the parameter.
        rows = {index: state["rows"] for index, state in state_dict["state"].items() if "rows" in state}
        states = {
            index: {name: value for name, value in state.items() if name != "rows"}
            for index, state in state_dict["state"].items()
        }
        super().load_state_dict({**state_dict, "state": states})
        if self._dense is not None:
            self._dense.state = self.state
        parameters = [parameter for group in self.param_groups for parameter in group["params"]]
        self._slots, self._held = {}, {}
        for index, rows_K in rows.items():
            parameter = parameters[index]
            state = self.state[parameter]
            state["rows"] = rows_K.to(parameter.device)
            slots_R = torch.full((len(parameter),), -1, dtype=torch.int64, device=parameter.device)
            slots_R[state["rows"]] = torch.arange(len(rows_K), device=parameter.device)
            self._slots[parameter] = slots_R
            self._held[parameter] = {name: state[name].clone() for name in OF_ROWS[self.rule]}
            state |= self._held[parameter]
