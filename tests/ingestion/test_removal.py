"""Deleted and edited raw files: only the shards that held them are rewritten."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from components.artifacts import read_manifest
from components.formats.corpus import read_documents, shards
from components.ingestion.documents import what_became_of
from components.ingestion.stage import IngestJob, ingest
from components.settings.data import CorpusSource
from components.settings.ingest import IngestSettings
from components.tokenization.char import CharTokenizer
from components.tokenization.segmenters import Segmentation
from components.tokenization.special import SPECIAL_PIECES
from components.tokenization.tokenize import TokenizeJob, tokenize

Files = dict[str, list[str]]


def text(seed: int) -> str:
    source = random.Random(seed)
    return " ".join("".join(source.choices("abcdefghij", k=source.randint(2, 9))) for _ in range(20))


def raw(folder: Path, files: Files) -> None:
    """Set the content of the folder of raw files."""
    (folder / "raw").mkdir(exist_ok=True)
    for path in (folder / "raw").iterdir():
        path.unlink()
    for name, texts in files.items():
        (folder / "raw" / name).write_text("".join(json.dumps({"text": one}) + "\n" for one in texts))


def run(folder: Path, **settings: Any) -> Path:
    source = CorpusSource(path=str(folder / "raw"))
    values = {"heldout": 0, "near_duplicates": None} | settings
    return ingest(IngestJob(name="t", source=source, settings=IngestSettings(**values), output=folder / "corpus"))


def added_one_by_one(folder: Path, files: Files, **settings: Any) -> Path:
    """A corpus with a shard per file."""
    for count in range(1, len(files) + 1):
        raw(folder, dict(list(files.items())[:count]))
        run(folder, **settings)
    return folder / "corpus"


def numbers(corpus: Path) -> dict[str, int]:
    return json.loads((corpus / "metrics.json").read_text())


def files_of(folder: Path) -> dict[str, int]:
    """Name of a shard -> inode."""
    return {path.name: path.stat().st_ino for path in folder.glob("*-*") if path.suffix in (".parquet", ".arrow")}


FILES = {name: [text(10 * at + one) for one in range(5)] for at, name in enumerate(["a.jsonl", "b.jsonl", "c.jsonl"])}


@pytest.mark.parametrize("change", ["gone", "edited", "appended"])
def test_only_the_shards_of_a_changed_file_are_written_again(
    tmp_path: Path, change: str, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus = added_one_by_one(tmp_path, FILES)
    before, old = files_of(corpus), shards(corpus)
    b = FILES["b.jsonl"]
    now: list[str] | None = {"gone": None, "edited": [b[0], text(99), *b[2:]], "appended": [*b, text(99)]}[change]
    files = {name: texts for name, texts in (FILES | {"b.jsonl": now or []}).items() if texts}
    raw(tmp_path, files)
    run(tmp_path)
    facts = read_manifest(corpus, verify=True).facts
    assert facts["rewritten"] is None and facts["files"].keys() == files.keys()
    stays = {"gone": [], "edited": [b[0], *b[2:]], "appended": b}[change]
    new = [] if change == "gone" else [text(99)]
    assert list(read_documents(corpus)) == [*FILES["a.jsonl"], *stays, *FILES["c.jsonl"], *new]
    # Two key shards and two train shards of the other files, or all old ones.
    kept = before.items() & files_of(corpus).items()
    assert len(kept) == (6 if change == "appended" else 4)
    assert shards(corpus)[0] == old[0] and old[2] in shards(corpus)
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    raw(fresh, files)
    assert numbers(corpus) == numbers(run(fresh))
    removed = {"gone": 5, "edited": 1, "appended": 0}[change]
    how = "is gone" if change == "gone" else "changed"
    said = f"ingest t: b.jsonl {how}: {removed} documents removed, {int(removed > 0)} shards rewritten\n"
    assert said in capsys.readouterr().out
    # Nothing has changed since.
    written = files_of(corpus)
    run(tmp_path)
    assert files_of(corpus) == written


def test_only_the_token_shards_of_a_changed_file_are_written_again(tmp_path: Path, tokenizer: Path) -> None:
    corpus = added_one_by_one(tmp_path, FILES)
    job = TokenizeJob(corpus=corpus, tokenizer=tokenizer, output=tmp_path / "tokens")
    before = files_of(tokenize(job))
    raw(tmp_path, FILES | {"b.jsonl": FILES["b.jsonl"][1:]})
    run(tmp_path)
    after = files_of(tokenize(job))
    assert len(before) == len(after) == 3
    assert len(before.items() & after.items()) == 2


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    CharTokenizer([*SPECIAL_PIECES, *"abcdefghij "], segmentation=Segmentation("none")).save(tmp_path / "tokenizer")
    return tmp_path / "tokenizer"


def test_duplicates_of_removed_documents_return(tmp_path: Path) -> None:
    first, near = text(1), text(1) + " more"
    files = {
        "a.jsonl": [first, text(2)],
        # `near` is a near duplicate of `first`, and `near` in c an exact one of that in b.
        "b.jsonl": [near, text(3), text(4)],
        "c.jsonl": [first, near, text(5), text(6), text(2)],
    }
    settings = {"near_duplicates": {"threshold": 0.8}}
    corpus = added_one_by_one(tmp_path, files, **settings)
    assert numbers(corpus)["kept"] == 6
    raw(tmp_path, {name: files[name] for name in ("b.jsonl", "c.jsonl")})
    run(tmp_path, **settings)
    # b comes first again: `near` returns, and both copies in c are its duplicates; text(2) of c returns.
    assert set(read_documents(corpus)) == {text(3), text(4), text(5), text(6), near, text(2)}
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    raw(fresh, {name: files[name] for name in ("b.jsonl", "c.jsonl")})
    assert numbers(corpus) == numbers(run(fresh, **settings))
    assert "kept in the train split" in str(what_became_of(corpus, "b.jsonl:1")[0])
    assert "dropped as an exact duplicate of b.jsonl:1" in str(what_became_of(corpus, "c.jsonl:2")[0])
    assert read_manifest(corpus).facts["rewritten"] is None


def test_documents_that_move_are_written_again_once(tmp_path: Path) -> None:
    corpus = added_one_by_one(tmp_path, FILES)
    raw(tmp_path, FILES | {"b.jsonl": [text(99), *FILES["b.jsonl"]]})
    run(tmp_path)
    assert sorted(read_documents(corpus)) == sorted([text(99), *(one for texts in FILES.values() for one in texts)])
    assert str(what_became_of(corpus, "b.jsonl:2")[0]) == "b.jsonl:2: kept in the train split"


def test_the_removal_of_half_or_of_all_held_out_text_rewrites_the_corpus(tmp_path: Path) -> None:
    files = {"a.jsonl": FILES["a.jsonl"], "b.jsonl": FILES["b.jsonl"]}
    corpus = added_one_by_one(tmp_path, files)
    raw(tmp_path, {"a.jsonl": files["a.jsonl"]})
    run(tmp_path)
    assert read_manifest(corpus).facts["rewritten"] == "raw file gone: b.jsonl"
    corpus = added_one_by_one(tmp_path, FILES, heldout=0.001)
    (held,) = read_documents(corpus, "heldout")
    (name,) = [name for name, texts in FILES.items() if held in texts]
    raw(tmp_path, {other: texts for other, texts in FILES.items() if other != name})
    run(tmp_path, heldout=0.001)
    assert read_manifest(corpus).facts["rewritten"] == f"raw file gone: {name}"
    assert len(list(read_documents(corpus, "heldout"))) == 1


def test_a_requested_rebuild_equals_a_first_run(tmp_path: Path) -> None:
    corpus = added_one_by_one(tmp_path, {name: FILES[name] for name in ("b.jsonl", "c.jsonl", "a.jsonl")})
    source = CorpusSource(path=str(tmp_path / "raw"))
    settings = IngestSettings(heldout=0, near_duplicates=None)
    job = IngestJob(name="t", source=source, settings=settings, output=corpus, rebuild="drift")
    ingest(job)
    assert read_manifest(corpus).facts["rewritten"] == "requested: drift"
    fresh = job.model_copy(update={"output": tmp_path / "fresh", "rebuild": ""})
    assert read_manifest(ingest(fresh)).digest == read_manifest(corpus).digest
