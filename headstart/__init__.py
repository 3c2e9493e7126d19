"""Headstart from Python: models that are trained from a table of labelled texts, in this process.

    from headstart import fit, load

    model = fit("reviews.csv", start="all-MiniLM-L6-v2")
    model.predict(["Great value"])     # a DataFrame: label, confidence, one column of probability a class
    model.save("reviews-model")
    load("reviews-model").report

`HeadstartClassifier`, `HeadstartRegressor` and `HeadstartTagger` are the same models as scikit-learn estimators.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from components.core.errors import HeadstartError

if TYPE_CHECKING:
    from headstart.estimators import HeadstartClassifier, HeadstartRegressor, HeadstartTagger
    from headstart.fitting import fit
    from headstart.loading import load
    from headstart.model import Model
    from headstart.report import Report

__all__ = [
    "fit",
    "load",
    "Model",
    "Report",
    "HeadstartClassifier",
    "HeadstartRegressor",
    "HeadstartTagger",
    "HeadstartError",
]

#: Name -> module; imported at first use, so that `import headstart` takes no time.
_MODULES = {
    "fit": "headstart.fitting",
    "load": "headstart.loading",
    "Model": "headstart.model",
    "Report": "headstart.report",
    "HeadstartClassifier": "headstart.estimators",
    "HeadstartRegressor": "headstart.estimators",
    "HeadstartTagger": "headstart.estimators",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'headstart' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
