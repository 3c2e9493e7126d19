"""The stages `tokenizer` and `tokenize` on tiny corpora."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from components.cluster import shards
from components.core.artifacts import read_manifest
from components.core.errors import ArtifactError, DataError
from components.settings.tokenizer import TokenizerSettings
from components.tokenization import KINDS, load_tokenizer
from components.tokenization.special import END
from components.tokenization.store import TokenStore
from components.tokenization.tokenize import TokenizeJob, encode_documents, tokenize
from components.tokenization.train import TokenizerJob, sample, train_tokenizer
from tests.tokenizers import learn as learn_tokenizer

FIRST = ["The name. The list!", "a list of names"]
SECOND = ["the\nend"]
HELD = ["a name"]


@pytest.fixture
def tokenizer(make: Any, tmp_path: Path) -> Path:
    words = ["the", "name", "list", "a", "of", "names", ".", "!", "end"]
    make("word", words).save(tmp_path / "tokenizer")
    return tmp_path / "tokenizer"


def run(tmp_path: Path, tokenizer: Path) -> TokenStore:
    return TokenStore(
        tokenize(TokenizeJob(corpus=tmp_path / "corpus", tokenizer=tokenizer, output=tmp_path / "tokens"))
    )


def test_tokens_sentences_words_and_characters(tmp_path, tokenizer, write_corpus):
    write_corpus(tmp_path / "corpus", train=[FIRST, SECOND], heldout=[HELD])
    store = run(tmp_path, tokenizer)
    assert [store.document(index).tolist() for index in range(3)] == [
        [5, 6, 11, 5, 7, 12, 3],
        [8, 7, 9, 10, 3],
        [5, 13, 3],
    ]
    assert [store.sentence_starts(index).tolist() for index in range(3)] == [[0, 3], [0], [0]]
    assert (store.words, store.chars) == (10, 41)
    assert TokenStore(store.directory, "heldout").document(0).tolist() == [8, 6, 3]
    metrics = json.loads((store.directory / "metrics.json").read_text())
    assert metrics["train"] == {
        "documents": 3,
        "tokens": 15,
        "words": 10,
        "chars": 41,
        "unknown": 0,
        "shards": 2,
        "tokens_per_word": 1.5,
        "unknown_rate": 0.0,
    }
    assert metrics["heldout"]["documents"] == 1


def test_only_new_shards_are_tokenized(tmp_path, tokenizer, write_corpus, monkeypatch):
    encoded: list[str] = []

    def spy(texts, *, tokenizer):
        encoded.extend(texts)
        return encode_documents(texts, tokenizer=tokenizer)

    monkeypatch.setattr("components.tokenization.tokenize.encode_documents", spy)
    write_corpus(tmp_path / "corpus", train=[FIRST], heldout=[HELD])
    run(tmp_path, tokenizer)
    assert encoded == [*FIRST, *HELD]
    inode = next((tmp_path / "tokens").glob("train-*.arrow")).stat().st_ino
    kept = next((tmp_path / "tokens").glob("train-*.arrow")).name

    encoded.clear()
    write_corpus(tmp_path / "corpus", train=[FIRST, SECOND], heldout=[HELD])
    store = run(tmp_path, tokenizer)
    assert encoded == SECOND
    assert (store.directory / kept).stat().st_ino == inode
    assert store.documents == 3

    encoded.clear()
    write_corpus(tmp_path / "corpus", train=[SECOND])
    store = run(tmp_path, tokenizer)
    assert encoded == []
    assert [path.name for path in store.directory.glob("*.arrow")] == read_manifest(store.directory).facts["shards"][
        "train"
    ]
    assert store.documents == 1


def test_a_damaged_shard_is_rewritten(tmp_path, tokenizer, write_corpus):
    write_corpus(tmp_path / "corpus", train=[FIRST])
    shard = next(run(tmp_path, tokenizer).directory.glob("*.arrow"))
    good = shard.read_bytes()
    shard.write_bytes(good[:-20] + b"\0" * 20)
    run(tmp_path, tokenizer)
    assert shard.read_bytes() == good


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("segmenter", ["none", "thai"])
def test_encoding_by_sentence_equals_encoding_the_document(kind, segmenter):
    texts = [
        "abc. Tab b\n\nT. a", "", " \n ", "การตัด การ\nabc", "a", "One. Two!  \n\nThree?\n four ",
        "ภาษาไทย ก็ได้ ที่นี่", " . a",
    ]  # fmt: skip
    frequent = {"min_frequency": 1} if kind in ("word", "wordpiece") else {}
    tokenizer = learn_tokenizer(texts, kind, segmenter=segmenter, **frequent)
    encoded = encode_documents(texts, tokenizer=tokenizer)
    for index, ids in enumerate(tokenizer.encode_batch(texts)):
        start, end = encoded.offsets[index : index + 2]
        if kind != "open_word":
            assert encoded.ids[start : end - 1].tolist() == ids.tolist()
        assert encoded.ids[end - 1] == END
    words = [len(tokenizer.segmentation.spaced(text).split()) for text in texts]
    assert (list(encoded.words), list(encoded.chars)) == (words, [len(text) for text in texts])


def test_worker_processes_write_the_same_shards(tmp_path, tokenizer, write_corpus, monkeypatch):
    write_corpus(tmp_path / "corpus", train=[FIRST, SECOND], heldout=[HELD])
    alone = read_manifest(run(tmp_path, tokenizer).directory).digest
    monkeypatch.setattr(shards, "PARALLEL_BYTES", 0)
    job = TokenizeJob(corpus=tmp_path / "corpus", tokenizer=tokenizer, output=tmp_path / "parallel")
    assert read_manifest(tokenize(job)).digest == alone


def test_an_empty_or_other_corpus_is_an_error(tmp_path, tokenizer, write_corpus):
    write_corpus(tmp_path / "corpus")
    with pytest.raises(DataError, match="corpus: has no documents; add raw text"):
        run(tmp_path, tokenizer)
    job = TokenizeJob(corpus=tokenizer, tokenizer=tokenizer, output=tmp_path / "tokens")
    with pytest.raises(ArtifactError, match="not a complete output"):
        tokenize(job)
    assert not (tmp_path / "tokens").exists()


def learn(tmp_path: Path, kind: str, **settings: object) -> Path:
    return train_tokenizer(
        TokenizerJob(
            corpus=tmp_path / "corpus",
            output=tmp_path / "learned",
            kind=kind,
            settings=TokenizerSettings.model_validate(settings),
        )
    )


def test_the_tokenizer_stage_writes_vocabulary_counts_and_report(tmp_path, write_corpus):
    write_corpus(tmp_path / "corpus", train=[FIRST, SECOND], heldout=[["unseen " * 50]])
    output = learn(tmp_path, "word", word={"vocabulary": 7, "min_frequency": 2})
    tokenizer = load_tokenizer(output)
    assert tokenizer.pieces[5:] == ["the", "list"]
    assert tokenizer.frequencies.tolist() == [0, 7, 0, 3, 0, 3, 2]
    assert json.loads((output / "metrics.json").read_text())["sample_documents"] == 3
    assert json.loads((output / "report.json").read_text())["scripts"]["latin"]["words"] == 10
    manifest = read_manifest(output, kind="tokenizer", verify=True)
    assert manifest.facts["fingerprint"] == tokenizer.fingerprint()
    assert tokenizer.segmentation.name == "none", "no text needs a segmenter"


def test_a_corpus_without_train_documents(tmp_path, write_corpus):
    write_corpus(tmp_path / "corpus", heldout=[["a"]])
    with pytest.raises(DataError, match="the train split has no documents; add raw text"):
        learn(tmp_path, "char")


def test_a_damaged_corpus_shard(tmp_path, tokenizer, write_corpus):
    corpus = write_corpus(tmp_path / "corpus", train=[FIRST])
    shard = next(corpus.glob("train-*"))
    shard.write_bytes(b"\0" * shard.stat().st_size)
    with pytest.raises(ArtifactError, match=r"train-.*parquet: not a readable corpus shard .* run the stage ingest"):
        run(tmp_path, tokenizer)
    assert not (tmp_path / "tokens").exists()


def test_a_huge_line_without_a_break_is_one_unknown_word(make):
    tokenizer = make("wordpiece", ["a", "##a"])
    encoded = encode_documents(["a" * 300_000 + "\nab a " + " " * 300_000], tokenizer=tokenizer)
    assert encoded.ids.tolist() == [1, 1, 5, 3]
    assert np.diff(encoded.offsets).tolist() == [4]


PAIRS = [("The bridge. The boat!", "boat bridge"), ("One word", "word"), ("unseen", "unseen boat")]


def test_pairs_and_corpus_share_a_vocabulary(tmp_path, write_corpus):
    text = write_corpus(tmp_path / "corpus", train=[["a river and a river", "the sea"]])
    pairs = write_corpus(tmp_path / "pairs", train=[PAIRS[:2]], heldout=[PAIRS[2:]])
    settings = TokenizerSettings.model_validate({"word": {"vocabulary": 15, "min_frequency": 1}})
    job = TokenizerJob(corpus=text, pairs=pairs, output=tmp_path / "learned", kind="word", settings=settings)
    tokenizer = load_tokenizer(train_tokenizer(job))
    assert set(tokenizer.pieces[5:]) == {"a", "the", "river", "boat", "bridge", "word", "!", "and", ".", "one"}
    # The initial output bias: the frequency of each word in the targets.
    counted = {piece: int(count) for piece, count in zip(tokenizer.pieces, tokenizer.frequencies, strict=True) if count}
    assert counted == {"[SEP]": 2, "boat": 1, "bridge": 1, "word": 1}

    store = TokenStore(tokenize(TokenizeJob(corpus=pairs, tokenizer=tmp_path / "learned", output=tmp_path / "tokens")))
    word = tokenizer.pieces.index
    assert store.target(0).tolist() == [word("boat"), word("bridge"), 3]
    assert store.document(0).tolist() == [*map(word, ["the", "bridge", ".", "the", "boat", "!"]), 3]
    assert store.sentence_starts(0).tolist() == [0, 3]
    # Words and characters are those of the targets: they are what is predicted.
    assert (store.words, store.chars) == (3, 15)
    held = json.loads((tmp_path / "tokens" / "metrics.json").read_text())["heldout"]
    assert (held["tokens"], held["targets"], held["unknown"]) == (2, 3, 2)
    assert held["unknown_rate"] == pytest.approx(2 / 5)
    assert held["tokens_per_word"] == pytest.approx(3 / 2)


def test_a_published_vocabulary_is_imported_and_counted(tmp_path, write_corpus):
    from components.tokenization.published import vocabulary_digest

    folder = tmp_path / "published"
    folder.mkdir()
    (folder / "vocab.txt").write_text("[PAD]\n[UNK]\nthe\n[CLS]\n[SEP]\n[MASK]\nname\n##s\n")
    source = write_corpus(tmp_path / "corpus", train=[["The names", "the name"]])

    def job(kind, digest):
        settings = TokenizerSettings.model_validate({kind: {"source": str(folder), "digest": digest}})
        return TokenizerJob(corpus=source, output=tmp_path / "tokenizer", kind=kind, settings=settings)

    loaded = load_tokenizer(train_tokenizer(job("wordpiece", vocabulary_digest(folder))))
    assert loaded.pieces[5:] == ["the", "name", "##s"]
    assert loaded.frequencies.tolist() == [0, 0, 0, 2, 0, 2, 2, 1]
    assert load_tokenizer(train_tokenizer(job("wordpiece", None))).pieces == loaded.pieces
    with pytest.raises(ArtifactError, match=f"its tokenizer is {vocabulary_digest(folder)}, expected 00"):
        train_tokenizer(job("wordpiece", "00"))
    with pytest.raises(ArtifactError, match="its tokenizer is of kind 'wordpiece', not 'bpe'"):
        train_tokenizer(job("bpe", vocabulary_digest(folder)))


def test_another_tokenizer_rewrites_all_shards(tmp_path, tokenizer, write_corpus, make):
    write_corpus(tmp_path / "corpus", train=[FIRST])
    run(tmp_path, tokenizer)
    make("word", ["list", "the"]).save(tokenizer)
    store = run(tmp_path, tokenizer)
    assert store.document(0).tolist() == [6, 1, 1, 6, 5, 1, 3]
    assert store.tokenizer_fingerprint == load_tokenizer(tokenizer).fingerprint()


def test_thai_corpora_are_segmented(tmp_path, write_corpus):
    write_corpus(tmp_path / "corpus", train=[["การตัดคำ", "ตัดคำ"]])
    tokenizer = load_tokenizer(learn(tmp_path, "word", word={"vocabulary": 8, "min_frequency": 1}))
    assert tokenizer.segmentation.name == "auto"
    assert tokenizer.pieces[5:] == ["คำ", "ตัด", "การ"]
    characters = load_tokenizer(learn(tmp_path, "char"))
    assert characters.pieces[5:] == ["ค", "ด", "ต", "\u0e31", "\u0e33"], "no space was in the text"


def test_the_sample_is_evenly_spaced_and_deterministic(tmp_path, write_corpus):
    shards = [[f"{shard}{row} " + "x" * 1000 for row in range(10)] for shard in "abc"]
    corpus = write_corpus(tmp_path / "corpus", train=shards, heldout=[["h" * 1000]])
    taken = [text.split()[0] for text in sample(corpus, megabytes=0.0153)]
    assert taken == [text.split()[0] for text in sample(corpus, megabytes=0.0153)]
    assert [sum(name.startswith(shard) for name in taken) for shard in "abc"] == [5, 5, 5]
    assert len(list(sample(corpus, megabytes=64))) == 30
