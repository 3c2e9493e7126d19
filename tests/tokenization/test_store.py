"""Token shards and the memory-mapped store."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from components.core.artifacts import writing
from components.core.errors import ArtifactError, DataError
from components.tokenization.store import (
    KIND,
    LAYOUT,
    Counts,
    EncodedDocuments,
    TokenStore,
    join_sentences,
    write_shard,
)


def documents(
    *texts: list[list[int]], words: list[int] | None = None, chars: list[int] | None = None
) -> EncodedDocuments:
    """Documents from lists of sentences of ids."""
    sentences = [sentence for text in texts for sentence in text]
    return join_sentences(
        np.asarray([id_ for sentence in sentences for id_ in sentence], dtype=np.int32),
        np.cumsum([0, *map(len, sentences)]),
        sentences=np.asarray([len(text) for text in texts]),
        words=words or [1] * len(texts),
        chars=chars or [2] * len(texts),
    )


def write_store(
    directory: Path, shards: dict[str, list[EncodedDocuments]], *, vocab_size: int = 100, **facts: object
) -> Path:
    """A token directory with these shards in the given order."""
    with writing(directory, kind=KIND) as draft:
        for name, batches in shards.items():
            write_shard(draft.path / name, batches, vocab_size=vocab_size)
        draft.facts |= {
            "layout": LAYOUT,
            "tokenizer": "f",
            "vocabulary": vocab_size,
            "shards": {split: [name for name in shards if name.startswith(split)] for split in ("train", "heldout")},
            **facts,
        }
    return directory


def with_targets(encoded: EncodedDocuments, *targets: list[int]) -> EncodedDocuments:
    other = documents(*([target] for target in targets))
    return replace(encoded, targets=other.ids, target_offsets=other.offsets)


@pytest.fixture
def store(tmp_path: Path) -> TokenStore:
    first = documents([[10, 11], [12]], [[13]], words=[2, 1], chars=[9, 4])
    second = documents([[14, 15, 16]])
    third = documents([[17], [], [18]])
    # Not in alphabetical order: the manifest decides.
    shards = {"train-b.arrow": [first, second], "train-a.arrow": [third], "heldout-c.arrow": [documents([[20]])]}
    return TokenStore(write_store(tmp_path / "tokens", shards))


def test_sentences_are_joined_and_end_with_end():
    joined = documents([[10, 11], [], [12]], [[]], [[13], [14, 15]])
    assert joined.ids.tolist() == [10, 11, 12, 3, 3, 13, 14, 15, 3]
    assert joined.offsets.tolist() == [0, 4, 5, 9]
    assert joined.sentences.tolist() == [0, 2, 0, 1]
    assert joined.sentence_offsets.tolist() == [0, 2, 2, 4]


def test_documents_are_in_corpus_order(store):
    assert [store.document(index).tolist() for index in range(store.documents)] == [
        [10, 11, 12, 3],
        [13, 3],
        [14, 15, 16, 3],
        [17, 18, 3],
    ]
    assert [store.sentence_starts(index).tolist() for index in range(4)] == [[0, 2], [0], [0], [0, 1]]
    assert store.offsets.tolist() == [0, 4, 6, 10, 13]
    assert store.offsets.dtype == np.int64
    assert (store.documents, store.tokens, store.words, store.chars) == (4, 13, 5, 17)
    assert (store.vocab_size, store.tokenizer_fingerprint) == (100, "f")
    assert TokenStore(store.directory, "heldout").document(0).tolist() == [20, 3]


def test_a_span_crosses_documents_and_shards_and_wraps_around(store):
    flat = [10, 11, 12, 3, 13, 3, 14, 15, 16, 3, 17, 18, 3]
    for start in range(2 * len(flat)):
        for length in (0, 1, 5, 13, 30):
            expected = [flat[(start + position) % 13] for position in range(length)]
            span = store.span(start, length)
            assert span.tolist() == expected
            assert span.dtype == np.int64


def test_two_bytes_up_to_65536_pieces_else_four(tmp_path):
    highest = documents([[65535]])
    small = TokenStore(write_store(tmp_path / "small", {"train-a.arrow": [highest]}, vocab_size=65536))
    large = TokenStore(write_store(tmp_path / "large", {"train-a.arrow": [documents([[65536]])]}, vocab_size=65537))
    assert (small.dtype, small.document(0).tolist()) == (np.uint16, [65535, 3])
    assert (large.dtype, large.document(0).tolist()) == (np.uint32, [65536, 3])


def test_a_directory_of_another_kind_is_an_error(store, tmp_path, write_corpus):
    with pytest.raises(DataError, match="no split 'test'; known: train, heldout"):
        TokenStore(store.directory, "test")
    with pytest.raises(ArtifactError, match="not a complete output"):
        TokenStore(tmp_path / "nowhere")
    with pytest.raises(ArtifactError, match="is of kind 'corpus', expected 'tokens'"):
        TokenStore(write_corpus(tmp_path / "corpus", train=[["a"]]))
    shard = store.directory / "train-b.arrow"
    content = shard.read_bytes()
    shard.unlink()
    shard.write_bytes(content[:-8])
    with pytest.raises(ArtifactError, match="train-b.arrow: missing, or its size differs"):
        TokenStore(store.directory)
    shard.write_bytes(b"\0" * len(content))
    with pytest.raises(ArtifactError, match="train-b.arrow: not a readable Arrow file"):
        TokenStore(store.directory)


def test_ids_of_another_type_are_an_error(tmp_path):
    write_store(tmp_path / "tokens", {"train-a.arrow": [documents([[9]])]}, vocabulary=70000)
    with pytest.raises(ArtifactError, match="train-a.arrow: has uint16 ids, expected uint32 according to its manifest"):
        TokenStore(tmp_path / "tokens")


def test_another_layout_is_an_error(store, monkeypatch):
    monkeypatch.setattr("components.tokenization.store.LAYOUT", LAYOUT + 1)
    with pytest.raises(ArtifactError, match="token shards of another version; run the tokenize stage again"):
        TokenStore(store.directory)


def test_pairs_are_read_together(tmp_path):
    first = with_targets(documents([[10, 11], [12]], [[13]], words=[2, 1], chars=[9, 4]), [20], [21, 22])
    second = with_targets(documents([[14, 1]]), [])
    with writing(tmp_path / "pairs", kind=KIND) as draft:
        counts = write_shard(draft.path / "train-a.arrow", [first, second], vocab_size=100, pairs=True)
        counts += write_shard(
            draft.path / "train-b.arrow", [with_targets(documents([[15]]), [1])], vocab_size=100, pairs=True
        )
        draft.facts |= {
            "layout": LAYOUT, "tokenizer": "f", "vocabulary": 100,
            "shards": {"train": ["train-a.arrow", "train-b.arrow"], "heldout": []},
        }  # fmt: skip
    assert counts == Counts(documents=4, tokens=11, targets=8, words=5, chars=17, unknown=2)
    store = TokenStore(tmp_path / "pairs")
    assert store.pair_lengths().tolist() == [[4, 2], [2, 3], [3, 1], [2, 2]]
    assert [store.target(index).tolist() for index in range(4)] == [[20, 3], [21, 22, 3], [3], [1, 3]]
    assert [store.document(index).tolist() for index in range(4)] == [[10, 11, 12, 3], [13, 3], [14, 1, 3], [15, 3]]
    assert (store.tokens, store.predicted) == (11, 8)
    assert not store.target(0).flags.writeable
    # An empty split of pairs has none, and says nothing of it before it is asked for pieces.
    assert TokenStore(tmp_path / "pairs", "heldout").pair_lengths().shape == (0, 2)


def test_a_corpus_of_documents_has_no_pairs(store):
    assert store.predicted == store.tokens == 13
    with pytest.raises(DataError, match=r"tokens: has no pairs; a translation family needs data\.parallel"):
        store.pair_lengths()


def test_an_empty_split_has_no_span(tmp_path):
    store = TokenStore(write_store(tmp_path / "tokens", {"train-a.arrow": [documents([[9]])]}), "heldout")
    assert (store.documents, store.tokens, store.offsets.tolist()) == (0, 0, [0])
    with pytest.raises(DataError, match="the heldout split has no tokens; add text to the corpus"):
        store.span(0, 1)
