"""Raw files of random sentences, and the stage `ingest` on them."""

import random
from pathlib import Path
from typing import Any

from components.data.ingestion.stage import IngestJob
from components.settings.data import CorpusSource, IngestSettings
from tests import example_task


def sentence(seed: int, count: int = 30) -> str:
    source = random.Random(seed)
    return " ".join("".join(source.choices("abcdefghij", k=source.randint(2, 9))) for _ in range(count))


def write_jsonl(path: Path, texts: list[str]) -> None:
    example_task.write_jsonl(path, [{"text": text, "id": f"{path.stem}-{n}"} for n, text in enumerate(texts)])


def job(folder: Path, *, id: str | None = None, **settings: Any) -> IngestJob:
    source, output = CorpusSource(path=str(folder / "raw"), id=id), folder / "corpus"
    return IngestJob(name="test", source=source, settings=IngestSettings(**settings), output=output)
