"""A guessed encoding shows the character that decided."""

from components.data.formats.encoding import detect_encoding
from components.data.sampling import read_rows


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
