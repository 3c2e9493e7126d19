"""Legal transitions of each tagging scheme."""

from components.data.scoring.spans import legal_transitions

BIO = ["B-LOC", "B-PER", "I-LOC", "I-PER", "O"]
IOBES = ["B-X", "E-X", "I-X", "O", "S-X"]


def test_legal_transitions_of_bio():
    legal = legal_transitions(BIO)
    assert [BIO[tag] for tag in range(5) if legal.start[tag]] == ["B-LOC", "B-PER", "O"]
    assert legal.end.all()
    after = {before: {BIO[tag] for tag in range(5) if legal.step[row, tag]} for row, before in enumerate(BIO)}
    opens = {"B-LOC", "B-PER", "O"}
    assert after == {
        "B-LOC": opens | {"I-LOC"},
        "I-LOC": opens | {"I-LOC"},
        "B-PER": opens | {"I-PER"},
        "I-PER": opens | {"I-PER"},
        "O": opens,
    }


def test_legal_transitions_of_iobes():
    legal = legal_transitions(IOBES)
    after = {before: {IOBES[tag] for tag in range(5) if legal.step[row, tag]} for row, before in enumerate(IOBES)}
    opens = {"O", "B-X", "S-X"}
    assert after == {"B-X": {"I-X", "E-X"}, "I-X": {"I-X", "E-X"}, "E-X": opens, "S-X": opens, "O": opens}
    assert {IOBES[tag] for tag in range(5) if legal.start[tag]} == opens
    assert {IOBES[tag] for tag in range(5) if legal.end[tag]} == {"O", "E-X", "S-X"}


def test_legal_transitions_of_iob1():
    tags = ["B-X", "I-X", "I-Y", "O"]
    legal = legal_transitions([*tags, "B-Y"])
    after = {before: {tags[tag] for tag in range(4) if legal.step[row, tag]} for row, before in enumerate(tags)}
    # B and I of both types are BIO; without B the scheme is IOB1, in which all transitions are legal.
    assert after["O"] == {"B-X", "O"}
    free = legal_transitions(["I-X", "I-Y", "O"])
    assert free.start.all() and free.step.all() and free.end.all()
