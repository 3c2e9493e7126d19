"""Word vectors as text: the formats of word2vec, GloVe and fastText, and invalid files."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from components.core.errors import ArtifactError, DataError
from components.interchange.vectors import read_vectors, write_vectors


def written(path: Path, text: str | bytes) -> Path:
    data = text.encode() if isinstance(text, str) else text
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


@pytest.mark.parametrize("name", ["vectors.txt", "vectors.vec.gz"])
@pytest.mark.parametrize("header", ["", "3 2\n"])
def test_with_and_without_header_plain_and_compressed(tmp_path, name, header):
    # A space at the line's end, as word2vec writes; a tab; an empty line at the end.
    actual = read_vectors(written(tmp_path / name, f"{header}the 0.5 -1e-3 \nวัน 1 2\na\t.25\t3\r\n\n"))
    assert actual.words == ["the", "วัน", "a"]
    assert actual.vectors.dtype == np.float32
    np.testing.assert_allclose(actual.vectors, [[0.5, -0.001], [1, 2], [0.25, 3]])


def test_words_with_spaces_and_words_like_numbers(tmp_path):
    # As in GloVe's 840B; U+0085 ends a line for some, and not here.
    text = "the 1 2 3\n. . . 4 5 6\nat name@domain.com 7 8 9\n2012 1 2 4\nx\u0085y 3 2 1\n"
    assert read_vectors(written(tmp_path / "glove.txt", text)).words == [
        "the", ". . .", "at name@domain.com", "2012", "x\u0085y",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["vectors.txt", "vectors.txt.gz"])
def test_written_vectors_are_read_bit_identical(tmp_path, name):
    vectors = np.random.default_rng(0).standard_normal((2500, 7)).astype(np.float32)
    vectors[3] = [1e-45, -0.0, 3.4028235e38, 1 / 3, 16777217, 0, -1e-9]
    words = [f"word{number}" for number in range(2500)]
    write_vectors(tmp_path / name, words, vectors)
    actual = read_vectors(tmp_path / name)
    assert actual.words == words
    assert np.array_equal(actual.vectors.view(np.int32), vectors.view(np.int32))
    write_vectors(tmp_path / f"again-{name}", words, vectors)
    assert (tmp_path / f"again-{name}").read_bytes() == (tmp_path / name).read_bytes()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("the 1 2\na 3\n", "line 2: 1 numbers, expected 2"),
        ("3 2\nthe 1 2\na 3 4 5\n", "line 3: more than 2 numbers"),
        ("the 1 2\na 3 4\nthe 5 6\n", "line 3: 'the' occurs in line 1 already"),
        ("the 1 2\na 3 O.4\n", "line 2: 'O.4' is not a number"),
        ("the 1 2\na 3 \n", "line 2: 1 numbers, expected 2"),
        ("the 1 2\n 3 4\n", "line 2: no word before its numbers"),
        ("the 1 2\na nan 4\n", "line 2: has a number that is not finite"),
        ("the 1 2\na 1e39 4\n", "line 2: has a number that is not finite"),
        ("3 2\nthe 1 2\na 3 4\n", "3 words in the header, 2 in the file; is it truncated?"),
        ("the\n", "line 1: expected a word and its numbers, or a header 'words width'"),
        ("", "has no vectors"),
        ("0 3\n", "has no vectors"),
        (b"3 2\nthe \xff\xfe\x00\x01\n", "line 2: not UTF-8; is it a binary file of vectors?"),
    ],
)
def test_errors_name_the_line_of_vectors(tmp_path, text, message):
    path = written(tmp_path / "bad.txt", text)
    with pytest.raises(DataError) as caught:
        read_vectors(path)
    assert str(caught.value) in (f"{path}, {message}", f"{path}: {message}")


def test_missing_and_truncated_files(tmp_path):
    with pytest.raises(DataError, match=r"none.txt: does not exist$"):
        read_vectors(tmp_path / "none.txt")
    whole = written(tmp_path / "whole.gz", "the 1 2\n" * 500).read_bytes()
    (tmp_path / "cut.gz").write_bytes(whole[: len(whole) - 9])
    with pytest.raises(DataError, match=r"cut.gz: damaged or truncated|line 2: 'the' occurs"):
        read_vectors(tmp_path / "cut.gz")
    (tmp_path / "no.gz").write_bytes(b"the 1 2\n")
    with pytest.raises(DataError, match=r"no.gz: damaged or truncated \(Not a gzipped file"):
        read_vectors(tmp_path / "no.gz")
    with pytest.raises(DataError, match=r"cannot be read \(Is a directory\)"):
        read_vectors(tmp_path)


def test_words_that_cannot_be_written(tmp_path, monkeypatch):
    vectors = np.zeros((2, 3), np.float32)
    for word in ("", "new york", "a\u00a0b", "line\n"):
        with pytest.raises(DataError, match="words in a file of vectors must not be empty or contain white space"):
            write_vectors(tmp_path / "bad.txt", ["the", word], vectors)
    with pytest.raises(DataError, match="1 words for 2 vectors"):
        write_vectors(tmp_path / "bad.txt", ["the"], vectors)
    (tmp_path / "file").touch()
    with pytest.raises(ArtifactError, match=r"bad.txt: cannot be written \(File exists\); free space"):
        write_vectors(tmp_path / "file" / "bad.txt", ["the", "a"], vectors)

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(gzip, "GzipFile", full)
    with pytest.raises(ArtifactError, match=r"cannot be written \(No space left on device\)"):
        write_vectors(tmp_path / "bad.txt.gz", ["the", "a"], vectors)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
