"""Optimizers of the hidden matrices: Muon and SOAP. All other parameters are trained by AdamW.

A hidden matrix is a matrix of a layer above the embeddings. Stacked matrices, such as the four gates of an LSTM or
queries, keys and values, are separate matrices. The state of one optimizer covers all parameters, so checkpoints,
parameter groups and schedules are those of every optimizer.

Shape suffixes: K stacked matrices, R rows, C columns of each.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw

from components.models.base import LanguageModel
from components.training.precision import Precision

#: Decay of Muon's momentum, with Nesterov's correction (Jordan et al. 2024).
MOMENTUM: Final = 0.95
#: Coefficients of the quintic Newton-Schulz iteration (Jordan et al. 2024), and number of iterations.
NEWTON_SCHULZ: Final = (3.4445, -4.7750, 2.0315)
ITERATIONS: Final = 5
#: Root mean square of an update of AdamW, which Muon's updates are scaled to (Liu et al. 2025, section 2.2).
UPDATE_RMS: Final = 0.2
#: Steps between two updates of SOAP's eigenbases (Vyas et al. 2024, section 4).
EIGENBASIS_EVERY: Final = 10
#: Sides of a matrix that are longer have no preconditioner (as in the authors' code, `max_precond_dim`).
LONGEST_SIDE: Final = 10_000


def hidden_matrices(model: nn.Module) -> dict[int, int]:
    """The hidden matrices of all language models in a module: id of the parameter -> number of stacked matrices."""
    found: dict[int, int] = {}
    for module in model.modules():
        if isinstance(module, LanguageModel):
            # The biases of relative attention are one vector per head.
            biases = {id(parameter) for name, parameter in module.named_parameters() if name.endswith("bias")}
            layers = (parameter for layer in module.layer_groups()[1:] for parameter in layer)
            found |= {id(weight): 1 for weight in layers if weight.ndim == 2 and id(weight) not in biases}
    for module in model.modules():
        for name, count in getattr(module, "stacked", {}).items():
            if id(parameter := module.get_parameter(name)) in found:
                found[id(parameter)] = count
    return found


class MatrixOptimizer(torch.optim.Optimizer):
    """AdamW, except for hidden matrices.

    Args:
        groups: parameter groups with `params` and `weight_decay`; decay is decoupled for all parameters.
        hidden: id of a hidden matrix -> number of stacked matrices.
        rate: learning rate.
        betas, eps: of AdamW and SOAP.
        matrix_rate: factor of the learning rate of hidden matrices.
        precision: of training; Muon's iteration is computed in it.
    """

    def __init__(
        self,
        groups: Iterable[dict[str, Any]],
        *,
        hidden: Mapping[int, int],
        rate: float,
        betas: tuple[float, float],
        eps: float,
        matrix_rate: float = 1.0,
        precision: Precision = "float32",
    ) -> None:
        # `fused` keeps the counts of steps on the device when a state is loaded.
        super().__init__(groups, {"lr": rate, "weight_decay": 0.0, "fused": True})
        self.hidden, self.betas, self.eps = dict(hidden), betas, eps
        self.matrix_rate, self.precision = matrix_rate, precision

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """One step of all parameters that have a gradient."""
        for group in self.param_groups:
            learning = [parameter for parameter in group["params"] if parameter.grad is not None]
            self._adamw([parameter for parameter in learning if id(parameter) not in self.hidden], group)
            for parameter in learning:
                if id(parameter) in self.hidden:
                    self._matrices(parameter, group)
        return None

    def _matrices(self, parameter: nn.Parameter, group: dict[str, Any]) -> None:
        assert parameter.grad is not None
        rate = group["lr"] * self.matrix_rate
        shape = (self.hidden[id(parameter)], -1, parameter.shape[1])
        update_KRC = self.update(parameter.grad.view(shape), self.state[parameter])
        if update_KRC is not None:
            parameter.mul_(1 - rate * group["weight_decay"])
            parameter.sub_(update_KRC.reshape_as(parameter), alpha=rate)

    @abstractmethod
    def update(self, gradient_KRC: Tensor, state: dict[str, Tensor]) -> Tensor | None:
        """The update in units of the learning rate, or None for no step; changes the state of the matrices."""

    def _adamw(self, parameters: list[nn.Parameter], group: dict[str, Any]) -> None:
        if not parameters:
            return
        for parameter in parameters:
            if not self.state[parameter]:
                self.state[parameter] |= {
                    "step": torch.zeros((), device=parameter.device),
                    "exp_avg": torch.zeros_like(parameter),
                    "exp_avg_sq": torch.zeros_like(parameter),
                }
        states = [self.state[parameter] for parameter in parameters]
        adamw(
            list(parameters),
            [parameter.grad for parameter in parameters if parameter.grad is not None],
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [],
            [state["step"] for state in states],
            fused=True,
            amsgrad=False,
            beta1=self.betas[0],
            beta2=self.betas[1],
            lr=group["lr"],
            weight_decay=group["weight_decay"],
            eps=self.eps,
            maximize=False,
        )


class Muon(MatrixOptimizer):
    """Muon (Jordan et al. 2024, Muon: An optimizer for hidden layers in neural networks).

        B_t = mu B_{t-1} + (1 - mu) G_t        O_t = NewtonSchulz(mu B_t + (1 - mu) G_t)
        W_t = (1 - rate * decay) W_{t-1} - rate * 0.2 sqrt(max(R, C)) O_t

    The factor makes the root mean square of an update that of AdamW, so that rate and weight decay are those of AdamW
    (Liu et al. 2025, Muon is Scalable for LLM Training, section 2.2).
    """

    def update(self, gradient_KRC: Tensor, state: dict[str, Tensor]) -> Tensor:
        if not state:
            state["momentum"] = torch.zeros_like(gradient_KRC)
        momentum_KRC = state["momentum"].lerp_(gradient_KRC, 1 - MOMENTUM)
        smoothed_KRC = gradient_KRC.lerp(momentum_KRC, MOMENTUM)
        scale = UPDATE_RMS * math.sqrt(max(smoothed_KRC.shape[1:]))
        dtype = torch.bfloat16 if self.precision == "bf16" else torch.float32
        return newton_schulz(smoothed_KRC.to(dtype)).to(gradient_KRC.dtype) * scale


def newton_schulz(x_KRC: Tensor, iterations: int = ITERATIONS) -> Tensor:
    """Approximately U V^T of each matrix U S V^T, with singular values of about 0.7 to 1.2.

    X_0 = X / |X|;  A = X X^T;  X <- a X + (b A + c A A) X, on the shorter side.
    """
    a, b, c = NEWTON_SCHULZ
    tall = x_KRC.shape[1] > x_KRC.shape[2]
    x = x_KRC.mT if tall else x_KRC
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(iterations):
        square = x @ x.mT
        x = a * x + (b * square + c * square @ square) @ x
    return x.mT if tall else x


class SOAP(MatrixOptimizer):
    """SOAP: Adam in the eigenbasis of Shampoo's preconditioner (Vyas et al. 2024, algorithm 3).

        L = b2 L + (1 - b2) G G^T        R = b2 R + (1 - b2) G^T G        M = b1 M + (1 - b1) G
        G' = Q_L^T G Q_R     M' = Q_L^T M Q_R     V = b2 V + (1 - b2) G' * G'
        W = W - rate * Q_L (M' / (sqrt(V) + eps)) Q_R^T, with Adam's correction of the bias

    L and R include the current gradient only after the step. Every ten steps one power iteration and a QR decomposition
    move Q to the new eigenvectors. As in the authors' code, the first gradient only initialises L, R and Q, and the
    eigenvectors are sorted by their eigenvalues, V with them.
    """

    def update(self, gradient_KRC: Tensor, state: dict[str, Tensor]) -> Tensor | None:
        first = not state
        if first:
            state |= {
                "step": torch.zeros((), device=gradient_KRC.device),
                "exp_avg": torch.zeros_like(gradient_KRC),
                "exp_avg_sq": torch.zeros_like(gradient_KRC),
            }
            for side, size in (("left", gradient_KRC.shape[1]), ("right", gradient_KRC.shape[2])):
                if size <= LONGEST_SIDE:
                    state[side] = gradient_KRC.new_zeros(len(gradient_KRC), size, size)
        update_KRC = None if first else self._adam(gradient_KRC, state)
        self._precondition(gradient_KRC, state, first=first)
        return update_KRC

    def _adam(self, gradient_KRC: Tensor, state: dict[str, Tensor]) -> Tensor:
        beta1, beta2 = self.betas
        step = int(state["step"].add_(1))
        mean_KRC = state["exp_avg"].lerp_(gradient_KRC, 1 - beta1)
        state["exp_avg_sq"].lerp_(rotated(gradient_KRC, state).square(), 1 - beta2)
        denominator_KRC = (state["exp_avg_sq"] / (1 - beta2**step)).sqrt_().add_(self.eps)
        turned_KRC = rotated(mean_KRC, state) / (1 - beta1**step) / denominator_KRC
        return rotated(turned_KRC, state, back=True)

    def _precondition(self, gradient_KRC: Tensor, state: dict[str, Tensor], *, first: bool) -> None:
        for side, product in (
            ("left", lambda: gradient_KRC @ gradient_KRC.mT),
            ("right", lambda: gradient_KRC.mT @ gradient_KRC),
        ):
            if side not in state:
                continue
            covariance = state[side].lerp_(product(), 1 - self.betas[1])
            if first:
                # Ascending eigenvalues; the largest first, as after every update.
                state[f"basis_{side}"] = torch.linalg.eigh(covariance).eigenvectors.flip(-1).contiguous()
            elif int(state["step"]) % EIGENBASIS_EVERY == 0:
                basis = state[f"basis_{side}"]
                order = (basis * (covariance @ basis)).sum(1).argsort(dim=1, descending=True, stable=True)
                basis = basis.gather(2, order.unsqueeze(1).expand_as(basis))
                along = order.unsqueeze(2) if side == "left" else order.unsqueeze(1)
                moments = state["exp_avg_sq"]
                moments.copy_(moments.gather(1 if side == "left" else 2, along.expand_as(moments)))
                state[f"basis_{side}"] = torch.linalg.qr(covariance @ basis).Q.contiguous()


def rotated(x_KRC: Tensor, state: Mapping[str, Tensor], *, back: bool = False) -> Tensor:
    """Q_L^T X Q_R, or Q_L X Q_R^T for `back`; a side without preconditioner stays."""
    if "basis_left" in state:
        left = state["basis_left"]
        x_KRC = (left if back else left.mT) @ x_KRC
    if "basis_right" in state:
        right = state["basis_right"]
        x_KRC = x_KRC @ (right.mT if back else right)
    return x_KRC
