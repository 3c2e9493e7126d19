"""Logistic regressions on the layers of a frozen encoder, and on their scalar mix.

Shape suffixes: L layers, M vectors, D width, C labels.
"""

from __future__ import annotations

import warnings

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from torch import Tensor
from torch.nn import functional as F

#: Strengths of the L2 penalty (1 / C), the strongest first, and maximum number of solver steps.
PENALTIES = (1000.0, 100.0, 10.0, 1.0)
STEPS = 100

Floats = NDArray[np.floating]
Labels = NDArray[np.int64]


def normalised(train_LMD: Tensor, dev_LMD: Tensor) -> tuple[Tensor, Tensor]:
    """Every feature with mean 0 and std 1 on train."""
    mean, std = train_LMD.mean(1, keepdim=True), train_LMD.std(1, correction=0, keepdim=True)
    std = std.where(std > 1e-6, 1.0)
    return (train_LMD - mean) / std, (dev_LMD - mean) / std


def regressed(x_MD: Floats, labels: Labels, dev_MD: Floats, *, classes: int) -> list[Floats]:
    """(M, C) probabilities on dev of logistic regressions, one per penalty. Labels that are not in the sample have
    probability 0."""
    if len(np.unique(labels)) == 1:
        return [np.eye(classes)[np.full(len(dev_MD), labels[0])]]
    # Each fit is initialised with the previous one, which has a stronger penalty.
    regression = LogisticRegression(max_iter=STEPS, warm_start=True)
    predicted: list[Floats] = []
    for penalty in PENALTIES:
        with warnings.catch_warnings():
            # Reaching the maximum number of steps is acceptable.
            warnings.simplefilter("ignore", ConvergenceWarning)
            regression.set_params(C=1 / penalty).fit(x_MD, labels)
        probabilities = np.zeros((len(dev_MD), classes))
        probabilities[:, regression.classes_] = regression.predict_proba(dev_MD)
        predicted.append(probabilities)
    return predicted


def mixed(x_LMD: Tensor, labels: Labels, dev_LMD: Tensor, *, classes: int, penalty: float) -> tuple[Floats, Floats]:
    """Logistic regression on a scalar mix of layers (Peters et al. 2018, equation 1), fitted jointly by L-BFGS, with
    the same penalty as `regressed`. Returns (M, C) probabilities on dev, and the (L,) weights of the layers, which sum
    to 1."""
    scores_L = torch.zeros(len(x_LMD), requires_grad=True)
    weight_CD = torch.zeros(classes, x_LMD.shape[2], requires_grad=True)
    bias_C = torch.zeros(classes, requires_grad=True)
    targets = torch.from_numpy(labels)
    # Of two labels, scikit-learn penalises the difference of the weights, whose square is twice the sum of theirs.
    strength = penalty if len(np.unique(labels)) == 2 else penalty / 2
    solver = torch.optim.LBFGS(
        [scores_L, weight_CD, bias_C], max_iter=STEPS, tolerance_grad=1e-4, line_search_fn="strong_wolfe"
    )

    def logits(x: Tensor) -> Tensor:
        return F.linear(torch.einsum("l,lmd->md", scores_L.softmax(0), x), weight_CD, bias_C)

    def closure() -> Tensor:
        solver.zero_grad()
        loss = F.cross_entropy(logits(x_LMD), targets, reduction="sum") + strength * weight_CD.square().sum()
        loss.backward()
        return loss

    solver.step(closure)
    with torch.no_grad():
        return logits(dev_LMD).softmax(1).numpy(), scores_L.softmax(0).numpy()
