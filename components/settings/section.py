"""What every section of params.yaml is made of."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Fraction = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[int, Field(gt=0)]


class Section(BaseModel):
    """A part of params.yaml: immutable, and closed to keys it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())
