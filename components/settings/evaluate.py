"""`evaluate`: how systems are scored."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from components.settings.names import BlockName
from components.settings.section import Section


class EvaluateSettings(Section):
    """How systems are scored and compared."""

    #: Ensemble name -> members whose mean class probabilities are scored as one more system: blocks of `pretrain`, or
    #: baselines by name (`tfidf-words`).
    ensembles: dict[BlockName, Annotated[list[str], Field(min_length=2)]] = {}
