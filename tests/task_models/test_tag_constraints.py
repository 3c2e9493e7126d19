"""Legal transitions of tags."""

from components.data.scoring.spans import legal_transitions

BIO = ["B-LOC", "B-PER", "I-LOC", "I-PER", "O"]


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


def test_tags_without_spans_follow_in_any_order():
    free = legal_transitions(["NOUN", "VERB", "O"])
    assert free.start.all() and free.step.all() and free.end.all()
