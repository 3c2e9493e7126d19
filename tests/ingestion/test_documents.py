"""dropped.parquet and the look-up of a document."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from components.core.artifacts import read_manifest
from components.core.errors import DataError
from components.data.formats.corpus import read_documents, shards
from components.data.ingestion import parts
from components.data.ingestion.documents import DROPPED, Origin, what_became_of
from components.data.ingestion.stage import ingest
from tests.ingestion.made import job, sentence, write_jsonl


def run(folder: Path, **settings: Any) -> Path:
    return ingest(job(folder, **{"heldout": 0, "min_characters": 10} | settings))


def dropped(output: Path) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in pq.read_table(output / DROPPED).to_pylist()]


def test_every_dropped_document_has_a_row_with_its_reason_and_twin(tmp_path):
    first, second = sentence(1), sentence(2, 120)
    write_jsonl(tmp_path / "raw" / "a.jsonl", [first, "<p></p>", second, "short", first])
    write_jsonl(tmp_path / "raw" / "b.jsonl", ["some more words " + second, sentence(3)])
    output = run(tmp_path)
    empty, short, exact, near = dropped(output)
    assert empty == ("a.jsonl:2", "a.jsonl", 2, "empty", None, None, None, None)
    assert short == ("a.jsonl:4", "a.jsonl", 4, "too_short", None, None, None, None)
    assert exact == ("a.jsonl:5", "a.jsonl", 5, "exact_duplicate", "a.jsonl:1", "a.jsonl", 1, 1.0)
    assert near[:-1] == ("b.jsonl:1", "b.jsonl", 1, "near_duplicate", "a.jsonl:3", "a.jsonl", 3)
    assert 0.8 <= near[-1] < 1
    assert DROPPED in read_manifest(output, verify=True).files


@pytest.mark.parametrize("batch_rows", [8_192, 1])
def test_later_runs_append_to_the_table_and_keep_the_shards(tmp_path, monkeypatch, batch_rows):
    monkeypatch.setattr(parts, "_BATCH_ROWS", batch_rows)
    texts = [sentence(seed) for seed in range(4)]
    write_jsonl(tmp_path / "raw" / "m.jsonl", [*texts, texts[0], ""])
    output = run(tmp_path, id="id")
    before, (shard,), inode = dropped(output), shards(output), (output / DROPPED).stat().st_ino
    # The earlier directory may be in DVC's cache through the same inode: its file must not change.
    kept = tmp_path / "linked.parquet"
    kept.hardlink_to(output / DROPPED)
    content = kept.read_bytes()
    write_jsonl(tmp_path / "raw" / "a.jsonl", ["", texts[2], texts[3] + " more", sentence(9)])
    run(tmp_path, id="id")
    after = dropped(output)
    assert after[: len(before)] == before
    assert [row[:7] for row in after[len(before) :]] == [
        ("a-0", "a.jsonl", 1, "empty", None, None, None),
        ("a-1", "a.jsonl", 2, "exact_duplicate", "m-2", "m.jsonl", 3),
        ("a-2", "a.jsonl", 3, "near_duplicate", "m-3", "m.jsonl", 4),
    ]
    assert shards(output)[0] == shard
    assert (output / DROPPED).stat().st_ino != inode
    assert kept.read_bytes() == content
    assert str(what_became_of(output, "m-0")[0]) == "m-0 (m.jsonl:1): kept in the train split"
    assert "m-3 (m.jsonl:4), which is kept" in str(what_became_of(output, "a-2")[0])


@pytest.mark.parametrize(
    "name", ["a.jsonl:2", "a.jsonl#2", "a.jsonl, line 2", "data/raw/a.jsonl:2", "/x/a.jsonl, row 2", "a-1"]
)
def test_a_document_is_found_by_id_and_by_position(tmp_path, name):
    write_jsonl(tmp_path / "raw" / "a.jsonl", [sentence(1), "", sentence(2)])
    (fate,) = what_became_of(run(tmp_path, id="id"), name)
    assert (fate.origin, fate.reason, fate.split) == (Origin("a-1", "a.jsonl", 2), "empty", None)
    assert str(fate) == "a-1 (a.jsonl:2): dropped: no text is left after cleaning"


def test_twins_are_followed_to_the_document_that_was_kept(tmp_path):
    words = sentence(1, 200).split()
    # Of three texts, the second is a near duplicate of both others, but these are less alike.
    texts = [words, ["other"] * 15 + words[15:], ["other"] * 30 + words[30:]]
    write_jsonl(tmp_path / "raw" / "a.jsonl", [*map(" ".join, texts), "  " + " ".join(texts[2]), sentence(2)])
    (fate,) = what_became_of(run(tmp_path), "a.jsonl:4")
    chain = []
    while fate is not None:
        chain.append((fate.origin.line, fate.reason))
        last, fate = fate, fate.twin
    assert chain == [(4, "exact_duplicate"), (3, "near_duplicate"), (2, "near_duplicate"), (1, None)]
    assert last.split == "train"
    assert str(what_became_of(tmp_path / "corpus", "a.jsonl:4")[0]).startswith(
        "a.jsonl:4: dropped as an exact duplicate of a.jsonl:3, which is dropped as a near duplicate (estimated Jaccard"
    )


def test_a_line_inside_a_text_document_counts_as_its_first(tmp_path):
    (tmp_path / "raw").mkdir()
    same = f"{sentence(1)}\fnew page {sentence(3)}\f{sentence(1)}\n"
    (tmp_path / "raw" / "a.txt").write_text(f"first\ndocument {sentence(2)}\n\n\n\n{same}")
    output = run(tmp_path)
    assert [str(fate) for fate in what_became_of(output, "a.txt:2")] == ["a.txt:1: kept in the train split"]
    # Three documents begin on line 6; the twin of the third is the first.
    fates = what_became_of(output, "a.txt:6")
    assert [fate.reason for fate in fates] == [None, None, "exact_duplicate"]
    assert "exact duplicate of a.txt:6" in str(fates[-1])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nothing", "no document 'nothing' in the 1 raw files that were read; give an id, FILE:LINE"),
        ("b.jsonl:1", r"no raw file 'b\.jsonl'; did you mean 'a\.jsonl'\?"),
        ("a.jsonl:77", r"no document begins at line \(or row\) 77 of a\.jsonl"),
        ("notes.docx:1", r"notes\.docx: was not read by ingest: its suffix is not a known format"),
    ],
)
def test_an_unknown_document_is_an_error(tmp_path, name, message):
    write_jsonl(tmp_path / "raw" / "a.jsonl", [sentence(1), sentence(2)])
    (tmp_path / "raw" / "notes.docx").write_text("x")
    output = run(tmp_path)
    with pytest.raises(DataError, match=message):
        what_became_of(output, name)


def test_a_corpus_of_an_earlier_version_is_rewritten(tmp_path, monkeypatch):
    write_jsonl(tmp_path / "raw" / "a.jsonl", [sentence(1), sentence(2)])
    monkeypatch.setattr("components.data.ingestion.stage.VERSION", 1)
    run(tmp_path)
    monkeypatch.undo()
    assert read_manifest(run(tmp_path)).facts["rewritten"] == "written by another version"


def test_the_split_of_a_kept_document_is_known(tmp_path):
    write_jsonl(tmp_path / "raw" / "a.jsonl", [sentence(seed) for seed in range(30)])
    output = run(tmp_path, heldout=0.3)
    splits = {what_became_of(output, f"a.jsonl:{line + 1}")[0].split: sentence(line) for line in range(30)}
    assert splits["heldout"] in set(read_documents(output, "heldout"))
    assert splits["train"] in set(read_documents(output, "train"))


def test_all_documents_with_one_id_are_listed(tmp_path):
    for name in ("a", "b"):
        (tmp_path / "raw").mkdir(exist_ok=True)
        (tmp_path / "raw" / f"{name}.csv").write_text(f"key,text\n7,{sentence(ord(name))}\n")
    fates = what_became_of(run(tmp_path, id="key"), "7")
    assert [str(fate.origin) for fate in fates] == ["7 (a.csv:2)", "7 (b.csv:2)"]
