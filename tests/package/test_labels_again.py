"""A fit names labels that are not told apart, and training texts that are not answered with their own label."""

import random

import pytest

from headstart import fit

pytestmark = pytest.mark.usefixtures("in_process")
COMMON = ["please", "send", "invoice", "order", "today", "again", "address", "number", "parcel", "office"]
OWN = ["toner", "paper", "tray", "ink"]


def rows_of(overlap: bool) -> list[tuple[str, str]]:
    """100 rows of `billing` and of `orders`, in the same words if they overlap, and 20 of `printer`."""
    rng = random.Random(0)
    rows = []
    for number in range(200):
        label = ("billing", "orders")[number % 2]
        words = rng.sample(COMMON, 5) + ([] if overlap else [f"{label}{rng.randrange(3)}"])
        rows.append((" ".join(words), label))
    return rows + [(" ".join(rng.sample(OWN, 3) + rng.sample(COMMON, 2)), "printer") for _ in range(20)]


@pytest.mark.parametrize("overlap", [True, False])
def test_labels_that_overlap_are_named_with_the_rows_to_read_again(overlap):
    texts, labels = zip(*rows_of(overlap), strict=True)
    notes = fit(list(texts), label=list(labels), language="en", verbose=False).report.notes
    named = [note for note in notes if "not told apart" in note]
    assert len(named) == overlap
    if overlap:
        assert named[0].startswith("The labels 'billing' and 'orders' are not told apart: out of fold ")
        assert "Read again, the surest first: row " in named[0] and named[0].count("row ") == 10


@pytest.mark.parametrize(
    "rows",
    [
        rows_of(True),
        [
            (f"the printer {word}", "printer")
            for word in ["jams", "blinks", "beeps", "stops", "smells", "leaks", "hangs", "fails"]
        ]
        + [("forgot my password", "password"), ("password has expired", "password")],
        [("same text", "a"), ("same text", "b"), *((f"{label} text {n}", label) for n in range(6) for label in "ab")],
    ],
)
def test_a_training_text_is_answered_with_its_label_or_the_report_says_why_not(rows):
    texts, labels = (list(column) for column in zip(*rows, strict=True))
    model = fit(texts, label=labels, language="en", verbose=False)
    wrong = [row for row, label in enumerate(model.predict(texts)["label"]) if label != labels[row]]
    notes = [note for note in model.report.notes if "have another answer than their label" in note]
    assert len(notes) == bool(wrong)
    for row in wrong[:10]:
        assert f"row {row} (" in notes[0]
    if wrong:
        assert notes[0].startswith(f"{len(wrong)} of {len(rows)} training texts")
        copies = sum(len({label for text, label in rows if text == texts[row]}) > 1 for row in wrong)
        assert (f"{copies} of them have a copy with another label" in notes[0]) == (copies > 0)
