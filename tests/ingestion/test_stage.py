import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from components.core.artifacts import MANIFEST, digest_tree, read_manifest
from components.core.errors import ArtifactError, DataError
from components.data.formats.corpus import holds_pairs, read_documents, read_rows, shards
from components.data.ingestion import parts, stage
from components.data.ingestion.stage import IngestJob, ingest
from components.settings.data import IngestSettings, ParallelSource
from tests import example_task
from tests.ingestion.made import job, sentence, write_jsonl


def metrics(folder: Path) -> dict[str, int]:
    return json.loads((folder / "corpus" / "metrics.json").read_text())


def test_documents_keep_their_order_and_drops_are_counted(tmp_path):
    texts = [sentence(seed) for seed in range(50)]
    raw = [*texts, "", "<p> </p>", "short", texts[3], f"<p>{texts[4]}</p>", texts[5] + " more", texts[6].upper()]
    write_jsonl(tmp_path / "raw" / "a.jsonl", raw)
    ingest(job(tmp_path, min_characters=10, heldout=0))
    assert list(read_documents(tmp_path / "corpus")) == texts
    assert list(read_documents(tmp_path / "corpus", "heldout")) == []
    assert metrics(tmp_path) == {
        "documents": 57,
        "kept": 50,
        "heldout": 0,
        "characters": sum(map(len, texts)),
        "raw_bytes": (tmp_path / "raw" / "a.jsonl").stat().st_size,
        "bad_bytes": 0,
        "bad_lines": 0,
        "files": 1,
        "dropped_empty": 2,
        "dropped_too_short": 1,
        "dropped_judged_row": 0,
        "dropped_exact_duplicate": 2,
        "dropped_near_duplicate": 2,
    }


def test_a_hash_of_the_text_selects_held_out_documents(tmp_path):
    texts = [sentence(seed) for seed in range(400)]
    write_jsonl(tmp_path / "raw" / "a.jsonl", texts)
    ingest(job(tmp_path, heldout=0.1))
    apart = list(read_documents(tmp_path / "corpus", "heldout"))
    assert 20 <= len(apart) <= 60
    assert sorted([*apart, *read_documents(tmp_path / "corpus")]) == sorted(texts)
    # The split of a text depends neither on its position nor on other texts.
    write_jsonl(tmp_path / "raw" / "a.jsonl", [sentence(1000), *reversed(texts[:200])])
    ingest(job(tmp_path, heldout=0.1))
    again = set(read_documents(tmp_path / "corpus", "heldout"))
    assert again & set(texts) == set(apart) & set(texts[:200])


def test_new_files_become_new_shards_and_old_shards_stay(tmp_path):
    first = [sentence(seed) for seed in range(30)]
    write_jsonl(tmp_path / "raw" / "m.jsonl", first)
    output = ingest(job(tmp_path, heldout=0.1))
    old = {path.name: (path.stat().st_ino, path.read_bytes()) for path in output.glob("*-*.parquet")}
    before = metrics(tmp_path)
    kept = list(read_documents(output))
    # The new file sorts before the old one, but its documents are appended.
    second = [sentence(100), first[7], first[8] + " more", sentence(101)]
    write_jsonl(tmp_path / "raw" / "a.jsonl", second)
    ingest(job(tmp_path, heldout=0.1))
    assert {
        path.name: (path.stat().st_ino, path.read_bytes()) for path in output.glob("*.parquet") if path.name in old
    } == old
    assert list(read_documents(output))[: len(kept)] == kept
    assert set(read_documents(output)) | set(read_documents(output, "heldout")) == {
        *first,
        sentence(100),
        sentence(101),
    }
    after = metrics(tmp_path)
    assert after["documents"] == before["documents"] + 4
    assert after["kept"] == before["kept"] + 2
    assert (after["dropped_exact_duplicate"], after["dropped_near_duplicate"]) == (1, 1)
    assert read_manifest(output, verify=True).facts["rewritten"] is None


@pytest.mark.parametrize(("name", "rewritten"), [("a.jsonl", None), ("a.txt", "raw file changed: a.txt")])
def test_lines_may_be_appended_to_a_file(tmp_path, name, rewritten):
    """The documents of a text file may grow, therefore it is read again as a whole."""
    path = tmp_path / "raw" / name
    texts = [sentence(seed) for seed in range(20)]
    end = "\n\n\n" if path.suffix == ".txt" else "\n"
    write_jsonl(path, texts)
    path.write_text("".join(f"{text}{end}" for text in (path.read_text().splitlines() if end == "\n" else texts)))
    output = ingest(job(tmp_path, heldout=0.001))
    old, kept = shards(output), list(read_documents(output))
    with path.open("a") as file:
        for text in (sentence(100), texts[3], sentence(101)):
            file.write((json.dumps({"text": text}) if end == "\n" else text) + end)
    ingest(job(tmp_path, heldout=0.001))
    facts = read_manifest(output, verify=True).facts
    assert facts["rewritten"] == rewritten
    assert list(read_documents(output)) == [*kept, sentence(100), sentence(101)]
    assert (shards(output)[: len(old)] == old) == (rewritten is None)
    (tmp_path / "fresh" / "raw").mkdir(parents=True)
    (tmp_path / "fresh" / "raw" / name).write_bytes(path.read_bytes())
    ingest(job(tmp_path / "fresh", heldout=0.001))
    assert metrics(tmp_path) == metrics(tmp_path / "fresh")
    # Nothing has changed since.
    written = (output / MANIFEST).stat().st_mtime_ns
    ingest(job(tmp_path, heldout=0.001))
    assert (output / MANIFEST).stat().st_mtime_ns == written


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("settings", "settings changed"),
        ("gone", "raw file gone: b.jsonl"),
        ("changed", "raw file changed: b.jsonl"),
        ("damaged", "first run"),
    ],
)
def test_a_changed_source_or_setting_rewrites_the_corpus(tmp_path, change, reason):
    write_jsonl(tmp_path / "raw" / "a.jsonl", [sentence(1), sentence(2)])
    write_jsonl(tmp_path / "raw" / "b.jsonl", [sentence(3), sentence(4)])
    output = ingest(job(tmp_path, heldout=0))
    if change == "gone":
        (tmp_path / "raw" / "b.jsonl").unlink()
    elif change == "changed":
        write_jsonl(tmp_path / "raw" / "b.jsonl", [sentence(5)])
    elif change == "damaged":
        shards(output)[0].unlink()
    ingest(job(tmp_path, heldout=0, min_characters=5 if change == "settings" else 1))
    facts = read_manifest(output, verify=True).facts
    assert facts["rewritten"] == reason
    last = {"gone": [], "changed": [sentence(5)]}.get(change, [sentence(3), sentence(4)])
    assert list(read_documents(output)) == [sentence(1), sentence(2), *last]
    (tmp_path / "fresh" / "raw").mkdir(parents=True)
    for path in (tmp_path / "raw").iterdir():
        (tmp_path / "fresh" / "raw" / path.name).write_bytes(path.read_bytes())
    fresh = ingest(job(tmp_path / "fresh", heldout=0, min_characters=5 if change == "settings" else 1))
    assert read_manifest(fresh).digest == read_manifest(output).digest


def test_a_large_corpus_has_several_shards(tmp_path, monkeypatch):
    monkeypatch.setattr(parts, "_BATCH_CHARACTERS", 100_000)
    texts = [sentence(seed, count=2_000) for seed in range(250)]
    write_jsonl(tmp_path / "raw" / "a.jsonl", texts)
    monkeypatch.setattr(stage, "SHARD_BYTES", 1_000_000)
    output = ingest(job(tmp_path, heldout=0))
    assert len(shards(output)) == 4
    assert list(read_documents(output)) == texts


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (
            [sentence(1)],
            r"raw: 1 documents read, 1 kept, 1 of them held out; a corpus needs at least 2 different documents",
        ),
        (["", " ", "\t"], "raw: 3 documents read, 0 kept, 0 of them held out; dropped: 3 empty; a corpus needs"),
        ([sentence(1)] * 5, "raw: 5 documents read, 1 kept, 1 of them held out; dropped: 4 exact duplicate; a corpus"),
    ],
)
def test_a_corpus_needs_two_documents(tmp_path, texts, message):
    write_jsonl(tmp_path / "raw" / "a.jsonl", texts)
    with pytest.raises(DataError, match=rf"{message}.* in txt a block of text followed by two empty lines$"):
        ingest(job(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["raw"]


def test_a_damaged_raw_file_leaves_the_earlier_corpus_unchanged(tmp_path):
    write_jsonl(tmp_path / "raw" / "a.jsonl", [sentence(1), sentence(2)])
    output = ingest(job(tmp_path))
    before = digest_tree(output)
    whole = pa.Codec("zstd").compress(b'{"text": "x"}\n' * 100_000, asbytes=True)
    (tmp_path / "raw" / "b.jsonl.zst").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"b\.jsonl\.zst, after line \d+: damaged or truncated"):
        ingest(job(tmp_path))
    assert digest_tree(output) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus", "raw"]


def test_invalid_bytes_are_counted_and_other_files_listed(tmp_path, capsys):
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "a.txt").write_bytes(b"caf\xe9\n\n\nother \xff\xff words\n\n\n" + "\u00fc".encode() * 40)
    (tmp_path / "raw" / "LICENSE").write_text("x")
    output = ingest(job(tmp_path, heldout=0))
    assert list(read_documents(output)) == ["caf\ufffd", "other \ufffd\ufffd words", "\u00fc" * 40]
    assert (metrics(tmp_path)["bad_bytes"], metrics(tmp_path)["bad_lines"]) == (3, 2)
    assert read_manifest(output).facts["ignored"] == ["LICENSE"]
    assert capsys.readouterr().out == (
        "ingest test: 3 documents read, 3 kept, 0 of them held out; 3 bytes that are not UTF-8 were replaced\n"
    )


def test_a_damaged_shard_is_named(tmp_path):
    write_jsonl(tmp_path / "raw" / "a.jsonl", [sentence(1), sentence(2)])
    output = ingest(job(tmp_path, heldout=0))
    (shard,) = shards(output)
    shard.write_bytes(bytes(shard.stat().st_size))
    with pytest.raises(ArtifactError, match=rf"{shard.name}: damaged .*run the stage again"):
        list(read_documents(output))
    with pytest.raises(ArtifactError, match="not a complete output"):
        shards(tmp_path / "raw")


def write_pairs(path: Path, pairs: list[tuple[str | None, str | None]]) -> None:
    rows = ({"from": source, "to": target, "key": f"{path.stem}-{n}"} for n, (source, target) in enumerate(pairs))
    example_task.write_jsonl(path, rows)


def pair_job(folder: Path, **settings: Any) -> IngestJob:
    source = ParallelSource(path=str(folder / "raw"), source="from", target="to", id="key")
    return IngestJob(name="pairs", source=source, settings=IngestSettings(**settings), output=folder / "corpus")


def test_a_pair_is_one_document(tmp_path):
    first, second = sentence(1), sentence(2)
    pairs = [(first, "one"), (f"<b>{second}</b>", "two "), (first, "one"), (first, "other"), (second, ""), (None, "x")]
    write_pairs(tmp_path / "raw" / "a.jsonl", [*pairs, (sentence(3), "one")])
    output = ingest(pair_job(tmp_path, heldout=0, near_duplicates=None))
    (shard,) = shards(output)
    assert holds_pairs(shard)
    assert pq.read_table(shard).to_pylist() == [
        {"id": "a-0", "text": first, "source": "a.jsonl", "target": "one"},
        {"id": "a-1", "text": second, "source": "a.jsonl", "target": "two"},
        {"id": "a-3", "text": first, "source": "a.jsonl", "target": "other"},
        {"id": "a-6", "text": sentence(3), "source": "a.jsonl", "target": "one"},
    ]
    assert list(read_rows(shard)) == [(first, "one"), (second, "two"), (first, "other"), (sentence(3), "one")]
    actual = metrics(tmp_path)
    assert (actual["dropped_exact_duplicate"], actual["dropped_empty"], actual["kept"]) == (1, 2, 4)
    assert actual["characters"] == 2 * len(first) + len(second) + len(sentence(3)) + len("onetwootherone")


def test_near_duplicate_pairs_and_new_files(tmp_path):
    text = sentence(1, count=100)
    write_pairs(tmp_path / "raw" / "m.jsonl", [(text, "one"), (text, "another"), (sentence(2), "two")])
    output = ingest(pair_job(tmp_path, heldout=0))
    assert [row[1] for shard in shards(output) for row in read_rows(shard)] == ["one", "two"]
    (old,) = shards(output)
    write_pairs(tmp_path / "raw" / "a.jsonl", [(text, "third"), (sentence(4), "four")])
    ingest(pair_job(tmp_path, heldout=0))
    assert [row[1] for shard in shards(output) for row in read_rows(shard)] == ["one", "two", "four"]
    assert shards(output)[0] == old
    assert read_manifest(output, verify=True).facts["rewritten"] is None


def test_a_text_file_is_not_a_source_of_pairs(tmp_path):
    write_pairs(tmp_path / "raw" / "a.jsonl", [(sentence(1), "one"), (sentence(2), "two")])
    (tmp_path / "raw" / "b.txt").write_text("some text\n")
    with pytest.raises(DataError, match=r"b\.txt: a text file has no pairs; use jsonl, csv, tsv or parquet"):
        ingest(pair_job(tmp_path))
    (tmp_path / "raw" / "b.txt").unlink()
    source = ParallelSource(path=str(tmp_path / "raw"), source="form", target="to")
    with pytest.raises(DataError, match=r"a\.jsonl, line 1: no column 'form'; did you mean 'from'\?"):
        ingest(pair_job(tmp_path).model_copy(update={"source": source}))


def test_shards_have_id_text_and_source(tmp_path):
    write_jsonl(tmp_path / "raw" / "b" / "x.jsonl", [sentence(1), sentence(2)])
    (tmp_path / "raw" / "a.txt.gz").write_bytes(gzip.compress(f"{sentence(3)}\n\n\n{sentence(4)}".encode()))
    ingest(job(tmp_path, heldout=0, id="id"))
    (shard,) = shards(tmp_path / "corpus")
    assert pq.read_table(shard).to_pylist() == [
        {"id": "a.txt.gz:1", "text": sentence(3), "source": "a.txt.gz"},
        {"id": "a.txt.gz:4", "text": sentence(4), "source": "a.txt.gz"},
        {"id": "x-0", "text": sentence(1), "source": "b/x.jsonl"},
        {"id": "x-1", "text": sentence(2), "source": "b/x.jsonl"},
    ]


def test_a_requested_rebuild_equals_a_first_run(tmp_path):
    for name, seed in (("b", 1), ("a", 20)):
        write_jsonl(tmp_path / "raw" / f"{name}.jsonl", [sentence(seed + number) for number in range(9)])
        output = ingest(job(tmp_path))
    ingest(job(tmp_path).model_copy(update={"rebuild": "drift"}))
    assert read_manifest(output).facts["rewritten"] == "requested: drift"
    # The share selects no document of a small corpus: one is held out.
    assert len(list(read_documents(output, "heldout"))) == 1
    fresh = ingest(job(tmp_path).model_copy(update={"output": tmp_path / "fresh"}))
    assert read_manifest(fresh).digest == read_manifest(output).digest
