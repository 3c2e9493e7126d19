from pathlib import Path
from typing import Any

import pytest

from components.core.errors import DataError
from components.data.formats.lines import Reading
from components.data.formats.rows import open_rows, read_columns
from components.data.formats.tables import Layout


def conll(tmp_path: Path, text: str, *columns: str, form: str = "conll") -> list[tuple[Any, ...]]:
    path = tmp_path / f"a.{form}"
    path.write_text(text)
    return [values for _, values in read_columns(path, form, columns or ("0", "-1"), Layout(nested=True), Reading())]


def test_columns_separated_by_white_space(tmp_path):
    text = "-DOCSTART- -X- -X- O\n\nEU NNP  I-NP B-ORG\nrejects VBZ I-VP O\n\n\n# NN I-NP O\n"
    assert conll(tmp_path, text) == [(["EU", "rejects"], ["B-ORG", "O"]), (["#"], ["O"])]
    assert conll(tmp_path, text, "0", "1")[0] == (["EU", "rejects"], ["NNP", "VBZ"])
    assert conll(tmp_path, text, "-3", "-2")[0] == (["NNP", "VBZ"], ["I-NP", "I-VP"])


def test_a_hash_is_a_word_or_a_comment_in_files_with_tabs(tmp_path):
    """A `#` with a tab is a word (WNUT17), one without is a comment; a word may hold a space."""
    text = "# id = 7\n#\tO\nNew York\tB-x\n\t\n#tag\tO\n# not = this\tO\n"
    first, second = conll(tmp_path, text, "0", "-1", "lines", "id")
    assert first == (["#", "New York"], ["O", "B-x"], [2, 3], "7")
    assert second == (["#tag", "# not = this"], ["O", "O"], [5, 6], None)
    assert [row.partition(", ")[2] for row, _ in open_rows(tmp_path / "a.conll").rows] == ["line 1", "line 5"]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("conll", "a O\n\nb c O", "3: 3 columns, the first line has 2; set delimiter if words contain white space"),
        ("conll", "a", "1: no column 1; there are 1, numbered from 0"),
        ("conllu", "1\ta\ta\tX", "1: 4 columns, CoNLL-U has 10, separated by tabs"),
        ("conllu", "one" + "\t_" * 9, r"1: id 'one' is not a number, a range \(1-2\) or an empty node"),
    ],
)
def test_errors_name_the_line(tmp_path, name, text, message):
    with pytest.raises(DataError, match=rf"a\.{name}, line {message}"):
        conll(tmp_path, text, "0" if name == "conll" else "form", "1", form=name)


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
    first, second = conll(tmp_path, CONLLU, "form", "upos", "lines", "sent_id", form="conllu")
    assert first == (["Do", "n't", "go"], ["AUX", "PART", "VERB"], [5, 6, 7], "s1")
    assert second == (["#"], ["SYM"], [11], "s2")
    assert conll(tmp_path, CONLLU, "deprel", form="conllu")[0] == (["aux", "advmod", "root"],)
