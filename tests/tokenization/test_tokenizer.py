"""Contract of all tokenizers: storage, fingerprint, frequencies; and the overlap of two vocabularies."""

import json

import numpy as np
import pytest
from tokenizers import models, trainers

from components.core.errors import ArtifactError, DataError
from components.tokenization import KINDS, Tokenizer, load_tokenizer, overlap
from components.tokenization.base import PROBES
from components.tokenization.bert import backend
from components.tokenization.special import END, PAD, SPECIAL_PIECES
from tests.conftest import python
from tests.tokenizers import learn

TEXTS = ["The parameter is optional.", "the API's name, the ID", "a list of the names"] * 3
SMALL: dict[str, dict[str, int]] = {
    "wordpiece": {"vocabulary": 60},
    "word": {"vocabulary": 16, "min_frequency": 3},
    "bpe": {"vocabulary": 290},
    "unigram": {"vocabulary": 30},
}


def fitted(kind: str) -> Tokenizer:
    return learn(TEXTS, kind, **SMALL.get(kind, {}))


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_tokenizer_is_loaded_unchanged(kind, tmp_path):
    tokenizer = fitted(kind)
    tokenizer.save(tmp_path / "tokenizer")
    loaded = load_tokenizer(tmp_path / "tokenizer")
    assert loaded.kind == kind
    assert loaded.pieces == tokenizer.pieces
    assert loaded.pieces[:5] == list(SPECIAL_PIECES)
    assert loaded.fingerprint() == tokenizer.fingerprint()
    assert loaded.frequencies.tolist() == tokenizer.frequencies.tolist()
    text = "The API's optional names!"
    assert loaded.encode_batch([text])[0].tolist() == tokenizer.encode_batch([text])[0].tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_offsets_and_batches_agree(kind):
    tokenizer = fitted(kind)
    for text in [*TEXTS, *PROBES, ""]:
        ids, spans = tokenizer.encode_with_offsets(text)
        assert ids.tolist() == tokenizer.encode_batch([text])[0].tolist()
        assert len(spans) == len(ids)
        assert all(0 <= start <= end <= len(text) for start, end in spans)
        assert [start for start, _ in spans] == sorted(start for start, _ in spans)


@pytest.mark.parametrize("kind", KINDS)
def test_frequencies_count_the_sample(kind):
    tokenizer = fitted(kind)
    counts = np.zeros(tokenizer.vocab_size, dtype=np.int64)
    np.add.at(counts, tokenizer.encode_ragged(TEXTS)[0], 1)
    counts[END] = len(TEXTS)
    assert tokenizer.frequencies.tolist() == counts.tolist()
    assert np.exp(tokenizer.log_frequencies()).sum() == pytest.approx(1, rel=1e-5)
    assert tokenizer.log_frequencies()[PAD] == pytest.approx(-np.log(counts.sum() + len(counts)))


def test_learned_pieces_word():
    """Six of one, three of the others; equal counts in alphabetical order; at most 16 pieces, at least 3 times."""
    assert fitted("word").pieces[5:] == ["the", "'", ",", ".", "a", "api", "id", "is", "list", "name", "names"]


def test_learned_pieces_wordpiece():
    """Continuing characters, then the alphabet, then merges in the order of their counts."""
    tokenizer = learn(["hug hug hug", "pug pug hugs"], "wordpiece", vocabulary=15, min_frequency=2)
    assert tokenizer.pieces[5:] == ["##g", "##s", "##u", "g", "h", "p", "s", "u", "##ug", "hug"]
    assert [tokenizer.pieces[id_] for id_ in tokenizer.encode_batch(["hugs pug"])[0]] == ["hug", "##s", "p", "##ug"]


@pytest.mark.parametrize("kind", ["wordpiece", "word", "bpe", "unigram"])
def test_more_pieces_than_the_corpus_yields(kind, capsys):
    """A size that is set is an error; the default is an upper bound."""
    size = 12000 if kind == "word" else 8000
    message = rf"tokenizer.{kind}.vocabulary: {size} pieces requested, but the corpus yields (\d+); set it to \1"
    with pytest.raises(DataError, match=message) as caught:
        learn(["one one one"], kind, vocabulary=size)
    given = int(str(caught.value).split("set it to ")[1].split()[0])
    assert learn(["one one one"], kind).vocab_size == given
    said = f"tokenizer.{kind}.vocabulary: {given} pieces, which is all that the corpus yields; the default is {size:,}"
    assert said in capsys.readouterr().out


def test_fewer_pieces_than_the_alphabet():
    with pytest.raises(DataError, match=r"wordpiece.vocabulary: 7 pieces are too few, .* set it to a few hundred"):
        learn(TEXTS, "wordpiece", vocabulary=7)


def test_combining_marks_that_are_letters_are_kept():
    """Lower-casing strips accents from Latin text, but not the vowels of Thai."""
    for text, words in (("café CAFE\u0301 the", ["cafe", "the"]), ("ที่นี่ ดี", ["ดี", "ที่นี่"])):
        assert learn([text], "word", vocabulary=7, min_frequency=1).pieces[5:] == words


def test_the_fingerprint_depends_on_pieces_settings_and_segmentation(make):
    prints = {
        make("wordpiece", ["a", "b"]).fingerprint(),
        make("wordpiece", ["b", "a"]).fingerprint(),
        make("word", ["a", "b"]).fingerprint(),
        make("word", ["a", "cafe"]).fingerprint(),
        make("word", ["a", "cafe"], lowercase=False).fingerprint(),
        make("word", ["ภาษา"], strip=False).fingerprint(),
        make("word", ["ภาษา"], strip=False, segmenter="thai").fingerprint(),
        # None of the probes' words is in these vocabularies: the ids of a closed tokenizer are all UNK.
        make("open_word", ["zz"]).fingerprint(),
        make("open_word", ["zz"], lowercase=False).fingerprint(),
        make("open_word", ["zz"], strip=False).fingerprint(),
        make("word", ["zz"]).fingerprint(),
    }
    assert len(prints) == 11


def test_a_changed_vocabulary_is_an_error(tmp_path):
    fitted("wordpiece").save(tmp_path)
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    content["normalizer"]["lowercase"] = False
    vocabulary = content["model"]["vocab"]
    vocabulary["the"], vocabulary["##s"] = vocabulary["##s"], vocabulary["the"]
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(ArtifactError, match=r"no longer gives the ids that it gave when it was saved: .* restore it"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("config.json", None, "config.json: does not exist; .* is not a tokenizer directory"),
        ("config.json", b"{", "damaged tokenizer"),
        ("config.json", b"{}", r"damaged tokenizer \(KeyError\('kind'\)\); run the tokenizer stage again"),
        (
            "config.json",
            b'{"kind": "phrases", "settings": {}, "fingerprint": ""}',
            "unknown kind of tokenizer 'phrases'; known: wordpiece",
        ),
        ("vocabulary.json", None, "vocabulary.json: does not exist"),
        ("vocabulary.json", b'["a"]', r"a vocabulary must begin with \[PAD\], \[UNK\]"),
        ("frequencies.npy", b"\x93NUMPY", "damaged tokenizer"),
        ("frequencies.npy", np.zeros(3, dtype=np.int64), r"frequencies.npy: \(3,\) counts for \d+ pieces"),
    ],
)
def test_damaged_directories(name, content, message, tmp_path):
    fitted("char").save(tmp_path)
    (tmp_path / name).unlink()
    if isinstance(content, bytes):
        (tmp_path / name).write_bytes(content)
    elif content is not None:
        np.save(tmp_path / name, content)
    with pytest.raises(ArtifactError, match=message):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize(
    ("kind", "pieces", "surfaces", "continues"),
    [
        ("bpe", ["Ġthe", "the", "Ġ", "à"], ["the", "the", "", ""], [False, True, False, True]),
        ("unigram", ["▁the", "s", "▁", " <s>"], ["the", "s", "", "<s>"], [False, True, False, True]),
    ],
)
def test_surface_and_continuation(kind, pieces, surfaces, continues, make):
    tokenizer = make(kind, pieces)
    assert [tokenizer.surface(id_) for id_ in range(5, 9)] == surfaces
    assert [tokenizer.continues(id_) for id_ in range(5, 9)] == continues


def test_a_tokenizer_without_frequencies(make):
    with pytest.raises(ArtifactError, match="has no frequencies of its pieces"):
        make("char", ["a"]).log_frequencies()


def test_overlap_gives_the_old_id_of_each_new_piece():
    old, new = [*SPECIAL_PIECES, "a", "b", "##c"], [*SPECIAL_PIECES, "##c", "x", "a"]
    rows = overlap(old, new)
    assert rows.tolist() == [0, 1, 2, 3, 4, 7, -1, 5]
    assert rows.dtype == np.int64


def test_pieces_equal_those_of_the_library():
    """Counting the words first changes nothing, once the characters have their fixed order."""
    words = ["low"] * 700 + ["lower"] * 2 + ["newest!"] * 6 + ["widest"] * 3
    tokenizer = learn([" ".join(words).upper()], "wordpiece", vocabulary=35, min_frequency=2)
    reference = backend(models.WordPiece(unk_token="[UNK]"), lowercase=True, strip_accents=True)
    trainer = trainers.WordPieceTrainer(
        vocab_size=35,
        min_frequency=2,
        special_tokens=[*SPECIAL_PIECES, *("##" + letter for letter in "deiorstw")],
        show_progress=False,
    )
    reference.train_from_iterator(words, trainer)
    learned = reference.get_vocab()
    assert tokenizer.pieces == sorted(learned, key=learned.__getitem__)


def test_training_is_deterministic_across_processes(tmp_path):
    """The library's hash tables begin differently in every process; what is learned must not show it."""
    program = (
        "from tests.tokenization.test_tokenizer import fitted\n"
        "print(*(fitted(kind).fingerprint() for kind in ('wordpiece', 'bpe', 'unigram')))"
    )
    prints = [fitted(kind).fingerprint() for kind in ("wordpiece", "bpe", "unigram")]
    assert python("-c", program).split() == prints
