"""`data` and `ingest`: where the raw data is, and how text is cleaned."""

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from components.settings.section import BlockName, Fraction, Section
from components.settings.tasks import TaskSource


class CorpusSource(Section):
    """Raw text of one corpus."""

    #: Folder of txt, jsonl, csv, tsv or parquet files, plain, .gz or .zst.
    path: str
    #: Column of the text.
    text: str = "text"
    #: Column of the document id; null: documents are identified by file and line.
    id: str | None = None


class ParallelSource(Section):
    """Translation pairs."""

    #: Folder of jsonl, csv, tsv or parquet files.
    path: str
    #: Column of the source text.
    source: str = "source"
    #: Column of the translation.
    target: str = "target"
    #: Column of the pair id; null: pairs are identified by file and line.
    id: str | None = None


class DataSettings(Section):
    """Where the raw data is. data.dvc versions everything below data/."""

    #: General text, for pretraining; null: none.
    general: CorpusSource | None = None
    #: Unlabelled text of the domain, for adaptation. Null: the texts of the train splits and of `unlabelled`, without
    #: those that are in dev or test.
    domain: CorpusSource | None = None
    #: Text without labels, beside the texts of the train splits: paths, or blocks as of `domain`.
    unlabelled: list[
        Annotated[CorpusSource, BeforeValidator(lambda value: {"path": value} if isinstance(value, str) else value)]
    ] = []
    #: Translation pairs for the families `cove` and `transformer`: `general` for pretraining and `domain` for
    #: adaptation. Both may name the same folder. Empty: the pipeline has no stages for pairs.
    parallel: dict[Literal["general", "domain"], ParallelSource] = {}
    #: Task name -> labelled data.
    tasks: dict[BlockName, TaskSource] = Field(min_length=1)

    @property
    def sources(self) -> dict[str, CorpusSource | ParallelSource | TaskSource]:
        """All raw data: key below `data`, such as `general` or `tasks.aws-type`, and its section."""
        named: dict[str, CorpusSource | ParallelSource | TaskSource | None]
        named = {"general": self.general, "domain": self.domain}
        named |= {f"unlabelled.{number}": source for number, source in enumerate(self.unlabelled)}
        named |= {f"parallel.{corpus}": source for corpus, source in self.parallel.items()}
        named |= {f"tasks.{task}": source for task, source in self.tasks.items()}
        return {key: source for key, source in named.items() if source is not None}

    @field_validator("parallel")
    @classmethod
    def _both(cls, parallel: dict[str, ParallelSource]) -> dict[str, ParallelSource]:
        if len(parallel) == 1:
            raise ValueError("must name both general and domain (the same folder, if there is only one)")
        return parallel

    @model_validator(mode="after")
    def _one_domain(self) -> Self:
        if self.parallel and (self.general is None or self.domain is None):
            raise ValueError("parallel needs general and domain, whose texts are part of the vocabulary of the pairs")
        if self.domain is not None and self.unlabelled:
            raise ValueError("set either domain or unlabelled; unlabelled is text beside the texts of the tasks")
        return self


class NearDuplicates(Section):
    """Near-duplicate removal by MinHash over word n-grams (Broder 1997) and locality-sensitive hashing."""

    #: Estimated Jaccard similarity from which two documents are duplicates.
    threshold: Annotated[float, Field(ge=0.4, le=1)] = 0.8


class IngestSettings(Section):
    """Cleaning, deduplication and sharding of raw text."""

    #: Whether HTML is converted to plain text.
    strip_markup: bool = True
    #: Minimum number of characters of a document (of a pair: of its source text); shorter ones are dropped.
    min_characters: int = 1
    #: Near-duplicate removal; null keeps near duplicates. Exact duplicates are always dropped.
    near_duplicates: NearDuplicates | None = NearDuplicates()
    #: Fraction of the documents, chosen by a hash of their text, that is held out to measure perplexity.
    heldout: Fraction = 0.01
