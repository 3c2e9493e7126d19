"""A guessed encoding shows the character that decided."""

from components.data.formats.encoding import detect_encoding
from components.data.sampling import guessed_in_words, read_rows


def test_the_character_that_decided_is_shown(tmp_path):
    path = tmp_path / "a.csv"
    text = "text,label\n" + "".join(f"un été à la forêt {n},{'ab'[n % 2]}\n" for n in range(20)) + f"{'x ' * 60}où,a\n"
    path.write_bytes(text.encode("cp1252"))
    encoding = detect_encoding(path, path.read_bytes())
    assert encoding.name == "cp1252"
    raw, _, rest = encoding.telling.partition(" is ")
    character, _, other = rest.partition(", in ")
    name, shown = other.split(" ", 1)
    assert bytes.fromhex(raw).decode("cp1252") == character.strip("'")
    assert bytes.fromhex(raw).decode(name, errors="replace") == shown.strip("'") != character.strip("'")
    assert character.strip("'") in encoding.example
    assert f"({encoding.telling})" in "\n".join(read_rows(path).read)


def test_a_prediction_says_what_is_guessed_of_its_input(tmp_path):
    (tmp_path / "a.txt").write_bytes("un été\noù est-il\n".encode("cp1252"))
    (said,) = guessed_in_words(tmp_path / "a.txt")
    assert said == "the encoding is guessed (--encoding), as in: où est-il (f9 is 'ù', in cp1250 'ů')"
    (tmp_path / "a.json").write_text('{"intents": [{"tag": "a", "patterns": ["x"]}, {"tag": "b", "patterns": ["y"]}]}')
    assert "layout: the rows are the list intents" in guessed_in_words(tmp_path / "a.json")[0]
    (tmp_path / "a.csv").write_text("text\nx\n")
    assert guessed_in_words(tmp_path / "a.csv") == guessed_in_words(tmp_path / "none.csv") == []
