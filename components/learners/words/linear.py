"""Linear models on word features, as arrays: what is stored is what predicts, in training and in serving.

Shapes: N rows, F features, C labels, K linear functions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit


@dataclass(frozen=True)
class LinearModel:
    """Probabilities of C labels.

    Attributes:
        weights, intercepts: (K, F) and (K,).
        classes: indices of the labels that the functions are about, ascending if exclusive; two if K = 1, the second of
            which the function is about.
        usual: (C,) probabilities of the other labels: 1 for one that all training rows have, otherwise 0.
        exclusive: whether a row has one label: softmax over the functions, otherwise a sigmoid of each.
    """

    weights: NDArray[np.float64]
    intercepts: NDArray[np.float64]
    classes: NDArray[np.int64]
    usual: NDArray[np.float32]
    exclusive: bool

    def probabilities(self, features: Any) -> NDArray[np.float32]:
        """(N, F) features -> (N, C). A row does not depend on the others."""
        result = np.tile(self.usual, (features.shape[0], 1))
        if not len(self.classes):
            return result
        values = np.asarray(features @ self.weights.T) + self.intercepts
        if self.exclusive and len(self.classes) > 2:
            values = np.exp(values - values.max(axis=1, keepdims=True))
            result[:, self.classes] = values / values.sum(axis=1, keepdims=True)
        elif self.exclusive:
            right = expit(values[:, 0])
            result[:, self.classes] = np.stack([1 - right, right], axis=1)
        else:
            result[:, self.classes] = expit(values)
        return result

    answers = probabilities

    def logits(self, features: Any) -> NDArray[np.float64]:
        """(N, F) -> (N, C) logits; 0 for labels without a function, and for the first of two exclusive ones."""
        result = np.zeros((features.shape[0], len(self.usual)))
        if len(self.classes):
            values = np.asarray(features @ self.weights.T) + self.intercepts
            result[:, self.classes[-values.shape[1] :]] = values
        return result

    def tempered(self, temperature: float) -> LinearModel:
        return replace(self, weights=self.weights / temperature, intercepts=self.intercepts / temperature)

    def balanced(self, counts: NDArray[Any]) -> LinearModel:
        """The model of exclusive labels as if all were equally frequent: the logarithms of their (C,) numbers of
        training rows plus 1 are subtracted from the logits (Menon et al. 2021, "Long-tail learning via logit
        adjustment"; plus 1, since the share of a label with one row is hardly known). Weights of the rows would not do
        it: with few rows every fit separates them, whatever they weigh."""
        logs = np.log((counts[self.classes] + 1) / (counts.max() + 1))
        logs = logs[1:] - logs[:1] if len(logs) == 2 else logs
        return replace(self, intercepts=self.intercepts - logs)

    def dump(self) -> dict[str, NDArray[Any]]:
        exclusive = np.asarray([self.exclusive], dtype=np.uint8)
        return {
            "weights": np.ascontiguousarray(self.weights),
            "intercepts": self.intercepts,
            "classes": self.classes,
            "usual": self.usual,
            "exclusive": exclusive,
        }


@dataclass(frozen=True)
class LinearFunction:
    """A linear function to a number.

    Attributes:
        weights: (1, F).
        intercepts: (1,).
    """

    weights: NDArray[np.float64]
    intercepts: NDArray[np.float64]

    def answers(self, features: Any) -> NDArray[np.float32]:
        """(N, F) features -> (N, 1) values. A row does not depend on the others."""
        values = np.asarray(features @ self.weights.T) + self.intercepts
        return np.asarray(values, dtype=np.float32)

    def dump(self) -> dict[str, NDArray[Any]]:
        return {"weights": np.ascontiguousarray(self.weights), "intercepts": self.intercepts}


def load_linear(arrays: dict[str, NDArray[Any]], *, features: int, labels: int) -> LinearModel | LinearFunction:
    """The linear model whose arrays these are: a function has no classes.

    Raises:
        KeyError, ValueError: an array is missing, or has the wrong shape.
    """
    weights, intercepts, functions = arrays["weights"], arrays["intercepts"], 1
    model: LinearModel | LinearFunction = LinearFunction(weights, intercepts)
    if "classes" in arrays:
        classes, usual, exclusive = arrays["classes"], arrays["usual"], bool(arrays["exclusive"][0])
        model = LinearModel(weights, intercepts, classes, usual, exclusive)
        functions = 1 if exclusive and len(classes) == 2 else len(classes)
        if usual.shape != (labels,):
            raise ValueError(f"probabilities of shape {usual.shape} for {labels} labels")
    if (weights.shape, intercepts.shape) != ((functions, features), (functions,)):
        raise ValueError(f"weights of shape {weights.shape} for {functions} functions of {features} features")
    return model
