"""`drift`: the log of served traffic."""

from __future__ import annotations

from components.settings.section import NO_EFFECT, Section


class DriftSettings(Section):
    """What `serve` and `predict` log, for `headstart drift`. No key changes a model."""

    model_config = {**Section.model_config, "json_schema_extra": NO_EFFECT}

    #: Whether `serve` and `predict` log numbers about every row: lengths, unknown pieces, prediction, confidence, and a
    #: sketch of its features.
    log: bool = True
    #: Whether the texts are logged too; `headstart drift` then shows examples.
    text: bool = False
