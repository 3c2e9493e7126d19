"""Base class and common field types of the sections of params.yaml."""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, JsonValue

Fraction = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[int, Field(gt=0)]
#: `Field(..., json_schema_extra=NO_EFFECT)`: no value of this key changes a result, so no stage depends on it.
NO_EFFECT: Final[dict[str, JsonValue]] = {"affects_result": False}


class Section(BaseModel):
    """A section of params.yaml: immutable; unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())


def result_settings(section: Section) -> dict[str, Any]:
    """The settings that can change a result, defaults included: dotted key -> JSON value."""
    if section.model_config.get("json_schema_extra") == NO_EFFECT:
        return {}
    collected: dict[str, Any] = {}
    values = section.model_dump(mode="json")
    for name, declared in type(section).model_fields.items():
        value = getattr(section, name)
        if declared.json_schema_extra == NO_EFFECT:
            continue
        if isinstance(value, Section):
            collected |= {f"{name}.{key}": inner for key, inner in result_settings(value).items()}
        else:
            collected[name] = values[name]
    return collected
