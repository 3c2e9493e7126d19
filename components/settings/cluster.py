"""`cluster`: where training runs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from components.settings.section import Positive, Section


class ClusterSettings(Section):
    """Where training runs. None of it changes what is learned, so no stage depends on it."""

    launcher: Literal["ray", "local"] = "ray"
    workers: Positive | Literal["auto"] = "auto"
    address: str = "local"
    storage: str = ".headstart/checkpoints"
    #: Folder for what frozen encoders say of texts, so that it is computed once for all label budgets, seeds and heads;
    #: beyond so many gigabytes what was not used for longest goes.
    features: str = ".headstart/features"
    features_gigabytes: Annotated[float, Field(ge=0)] = 8
