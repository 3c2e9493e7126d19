from pathlib import Path
from typing import Any

import pytest

from components.core.errors import DataError
from components.data.formats.conll import read_conll, read_conllu
from components.data.formats.lines import Reading


def conll(tmp_path: Path, text: str, **settings: Any) -> list[tuple[list[str], list[str]]]:
    path = tmp_path / "a.conll"
    path.write_text(text)
    return [(sentence.words, sentence.tags) for sentence in read_conll(path, Reading(), **settings)]


def test_columns_separated_by_white_space(tmp_path):
    text = "-DOCSTART- -X- -X- O\n\nEU NNP  I-NP B-ORG\nrejects VBZ I-VP O\n\n\n# NN I-NP O\n"
    assert conll(tmp_path, text) == [(["EU", "rejects"], ["B-ORG", "O"]), (["#"], ["O"])]
    assert conll(tmp_path, text, tags=1)[0] == (["EU", "rejects"], ["NNP", "VBZ"])
    assert conll(tmp_path, text, words=-3, tags=-2)[0] == (["NNP", "VBZ"], ["I-NP", "I-VP"])


def test_a_hash_is_a_word_or_a_comment_in_files_with_tabs(tmp_path):
    """A `#` with a tab is a word (WNUT17), one without is a comment; a word may hold a space."""
    text = "# id = 7\n#\tO\nNew York\tB-x\n\t\n#tag\tO\n# not = this\tO\n"
    path = tmp_path / "a.conll"
    path.write_text(text)
    first, second = read_conll(path, Reading())
    assert (first.words, first.tags, first.lines) == (["#", "New York"], ["O", "B-x"], [2, 3])
    assert (first.comments, first.line, second.line) == ({"id": "7"}, 1, 5)
    assert (second.words, second.comments) == (["#tag", "# not = this"], {})


@pytest.mark.parametrize(
    ("text", "settings", "message"),
    [
        ("a O\n\nb c O\n", {}, "line 3: 3 columns, the first line has 2; set delimiter if words contain white space"),
        ("a O\n", {"words": 2}, "line 1: no column 2; there are 2, numbered from 0"),
        ("a\tO\n \tO\n", {}, "line 2: the word is empty; remove the line or fill it in"),
    ],
)
def test_errors_name_the_line(tmp_path, text, settings, message):
    with pytest.raises(DataError, match=rf"a\.conll, {message}"):
        conll(tmp_path, text, **settings)


CONLLU = """\
# newdoc id = d1
# sent_id = s1
# text = Don't go
1-2\tDon't\t_\t_\t_\t_\t_\t_\t_\t_
1\tDo\tdo\tAUX\tVBP\t_\t3\taux\t3:aux\tSpaceAfter=No
2\tn't\tnot\tPART\tRB\t_\t3\tadvmod\t3:advmod\t_
3\tgo\tgo\tVERB\tVB\t_\t0\troot\t0:root\t_
3.1\tgo\tgo\tVERB\t_\t_\t_\t_\t0:root\t_

# sent_id = s2
1\t#\t#\tSYM\t_\t_\t0\troot\t_\t_
"""


def test_conllu_skips_multi_word_tokens_and_empty_nodes(tmp_path):
    path = tmp_path / "a.conllu"
    path.write_text(CONLLU)
    first, second = read_conllu(path, Reading())
    assert (first.words, first.tags) == (["Do", "n't", "go"], ["AUX", "PART", "VERB"])
    assert (first.lines, first.comments["sent_id"]) == ([5, 6, 7], "s1")
    assert (second.words, second.comments) == (["#"], {"sent_id": "s2"})
    assert next(read_conllu(path, Reading(), tags="deprel")).tags == ["aux", "advmod", "root"]


@pytest.mark.parametrize(
    ("line", "column", "message"),
    [
        ("1\ta\ta\tX", "upos", "line 1: 4 columns, CoNLL-U has 10, separated by tabs"),
        (
            "one\ta\ta\tX\t_\t_\t0\troot\t_\t_",
            "upos",
            r"line 1: id 'one' is not a number, a range \(1-2\) or an empty node",
        ),
        ("1\ta\ta\tX\t_\t_\t0\troot\t_\t_", "xpos", "line 1: word 'a' has no xpos; fill it in, or set tags"),
        ("1\ta\ta\tX\t_\t_\t0\troot\t_\t_", "deprl", "CoNLL-U has no column 'deprl'; did you mean 'deprel'"),
    ],
)
def test_errors_name_the_line_of_conllu(tmp_path, line, column, message):
    path = tmp_path / "a.conllu"
    path.write_text(line + "\n")
    with pytest.raises(DataError, match=rf"a\.conllu(, |: ){message}"):
        list(read_conllu(path, Reading(), tags=column))
