"""`data`: where the raw data is."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from components.settings.names import BlockName
from components.settings.section import Section
from components.settings.tasks import TaskSource

#: A language code such as en, th or zh-hant; it becomes a part of file names.
Language = Annotated[str, Field(pattern=r"^[a-z]{2,8}(-[a-z0-9]{1,8})*$")]


class LanguageSource(Section):
    """The raw text of one language of a corpus."""

    #: Folder or file below the path of the corpus; null: the folder named as the language.
    path: str | None = None
    #: Column of the text; null: that of the corpus.
    text: str | None = None
    #: Column of the document id; null: that of the corpus.
    id: str | None = None


def _as_source(value: Any) -> Any:
    return {"path": value} if isinstance(value, str) else value


class CorpusSource(Section):
    """Raw text of one corpus."""

    #: Folder of txt, jsonl, csv, tsv or parquet files, plain, .gz or .zst.
    path: str
    #: Column of the text.
    text: str = "text"
    #: Column of the document id; null: documents are identified by file and line.
    id: str | None = None
    #: Language -> its part of a corpus in several languages; only these parts are read. Empty: one corpus, whatever its
    #: languages.
    languages: dict[Language, LanguageSource] = {}

    @model_validator(mode="after")
    def _apart(self) -> CorpusSource:
        parts = {name: self._part(name) for name in self.languages}
        for name, part in parts.items():
            if part.is_absolute() or ".." in part.parts:
                raise ValueError(f"languages.{name}.path: must be below the path of the corpus; found {part}")
            for other, there in parts.items():
                if other != name and (part == there or there in part.parents):
                    raise ValueError(f"languages.{name}.path: {part} is inside that of {other!r}; give each its own")
        return self

    def _part(self, language: str) -> PurePosixPath:
        return PurePosixPath(self.languages[language].path or language)

    def by_language(self) -> dict[str, CorpusSource]:
        """Language -> its part as a corpus of its own; empty for one corpus."""
        return {
            name: CorpusSource(
                path=str(Path(self.path) / self._part(name)), text=part.text or self.text, id=part.id or self.id
            )
            for name, part in self.languages.items()
        }

    def parts(self) -> list[Path]:
        """The folders or files that are read: those of the languages, or the whole corpus."""
        return [Path(self.path) / self._part(name) for name in self.languages] or [Path(self.path)]

    def language_of(self, name: str) -> str | None:
        """The language of a raw file.

        Args:
            name: its path below the path of the corpus.
        """
        file = PurePosixPath(name)
        return next((one for one in self.languages if (part := self._part(one)) == file or part in file.parents), None)

    def columns_of(self, path: Path) -> tuple[str, str | None]:
        """The columns of the text and of the id in a raw file."""
        root = Path(self.path)
        name = self.language_of(path.relative_to(root).as_posix()) if path.is_relative_to(root) else None
        part = self.languages[name] if name is not None else LanguageSource()
        return part.text or self.text, part.id or self.id


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
    unlabelled: list[Annotated[CorpusSource, BeforeValidator(_as_source)]] = []
    #: Translation pairs for the family `cove`: `general` for pretraining and `domain` for adaptation. Both may name the
    #: same folder. Empty: the pipeline has no stages for pairs.
    parallel: dict[Literal["general", "domain"], ParallelSource] = {}
    #: Task name -> labelled data.
    tasks: dict[BlockName, TaskSource] = Field(min_length=1)

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
