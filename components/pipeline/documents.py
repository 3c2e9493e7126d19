"""Look-up of a document in the corpora of a run."""

from __future__ import annotations

from components.core.errors import ConfigError, DataError, HeadstartError, nearest
from components.data.ingestion.documents import Outcome, what_became_of
from components.pipeline.jobs import corpora
from components.settings.params import Params


def find_document(params: Params, document: str, *, corpus: str = "") -> list[tuple[str, Outcome]]:
    """(corpus, outcome) of every document that `document` names, an id or a position.

    Args:
        corpus: name of the corpus to search, such as general or domain-parallel; empty: all of them.

    Raises:
        ConfigError: there is no such corpus.
        ArtifactError: the corpus, or every corpus, has not been ingested.
        DataError: the document is in none of the ingested corpora.
    """
    arguments = [*corpora.ingest(params).values(), *corpora.ingest_parallel(params).values()]
    directories = {job["output"].name: job["output"] for job in arguments}
    if corpus and corpus not in directories:
        raise ConfigError(f"unknown corpus {corpus!r}{nearest(corpus, directories)}")
    collected: list[tuple[str, Outcome]] = []
    problems: list[HeadstartError] = []
    for name in [corpus] if corpus else directories:
        try:
            collected += [(name, outcome) for outcome in what_became_of(directories[name], document)]
        except HeadstartError as error:
            problems.append(error)
    if not collected:
        if len(problems) == 1 or not any(isinstance(error, DataError) for error in problems):
            raise problems[0]
        raise DataError("\n".join(map(str, problems)))
    return collected
