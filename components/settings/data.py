"""`data`: where the raw data is."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from components.settings.section import Section
from components.settings.tasks import TaskSource


class CorpusSource(Section):
    """Raw text of one corpus: a folder of txt, jsonl, csv, tsv or parquet files, plain, .gz or .zst."""

    path: str
    text: str = "text"
    id: str | None = None
    language: str = "en"


class ParallelSource(Section):
    """Pairs of texts, one a translation of the other: a folder of jsonl, csv, tsv or parquet files with two columns."""

    path: str
    source: str = "source"
    target: str = "target"
    id: str | None = None


class DataSettings(Section):
    """Where the raw data lies; all of it below data/, which data.dvc versions."""

    general: CorpusSource
    domain: CorpusSource
    #: Pairs for families that learn to translate: what is pretrained on (`general`) and what adaptation goes on with
    #: (`domain`; the same folder where the domain has no pairs of its own). Empty: nothing is made of pairs.
    parallel: dict[Literal["general", "domain"], ParallelSource] = {}
    tasks: dict[str, TaskSource] = Field(min_length=1)

    @field_validator("parallel")
    @classmethod
    def _both(cls, parallel: dict[str, ParallelSource]) -> dict[str, ParallelSource]:
        if len(parallel) == 1:
            raise ValueError("must name both general and domain (the same folder, if there is only one)")
        return parallel
