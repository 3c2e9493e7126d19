"""How much of the texts is read, measured with the tokenizer."""

import numpy as np
import pytest

from components.learners.task_models.extent import LONGEST, Extent, reading_of
from components.learners.task_models.inputs import share_cut, sizes_of
from components.learners.task_models.kinds import find_task
from components.models.encoder import load_encoder

TEXT = "the apple is red here and there a pear a plum very old iron zinc gold"


@pytest.mark.parametrize(
    ("sizes", "single", "most", "expected"),
    [
        ([10] * 20, True, 512, Extent(64)),
        ([10] * 19 + [200], True, 512, Extent(64, None, 0.05)),
        ([10] * 18 + [200] * 2, True, 512, Extent(256)),
        ([10] * 18 + [600] * 2, True, 512, Extent(768, 256)),
        ([10] * 18 + [600] * 2, False, 512, Extent(256, None, 0.1)),
        ([10] * 18 + [600] * 2, True, None, Extent(768, 256)),
        ([100] * 20, True, 24, Extent(120, 24)),
        ([9000] * 20, True, 512, Extent(LONGEST, 256, 1.0)),
    ],
)
def test_long_texts_are_read_in_windows(sizes, single, most, expected):
    assert reading_of(np.asarray(sizes), single=single, most=most) == expected


def test_sizes_are_those_of_what_the_encoder_would_read(make_encoder, settings):
    encoder = load_encoder(make_encoder("xlnet"))
    rows = [(TEXT,), ("red apple",), (f"{TEXT} {TEXT}",)]
    uncut = settings.model_copy(update={"max_length": 1000, "chunk": None})
    for kind, given in (
        ("classification", rows),
        ("pair", [(text, "red apple") for (text,) in rows]),
        ("similarity", [(text, "red apple") for (text,) in rows]),
    ):
        for pairs in ("apart", "joined"):
            chosen, task = uncut.model_copy(update={"pairs": pairs}), find_task(kind)
            encoded = task.encode(given, encoder.tokenizer, encoder.model, chosen)
            expected = [max(map(len, row.pieces)) for row in encoded]
            actual = sizes_of(given, encoder.tokenizer, encoder.model, chosen, task=task)
            assert actual.tolist() == expected, (kind, pairs)
            limited = chosen.model_copy(update={"max_length": sorted(expected)[1]})
            assert share_cut(given, encoder.tokenizer, encoder.model, limited, task=task) == pytest.approx(1 / 3)


def test_windows_cut_only_what_is_longer_than_all_of_them(make_encoder, settings):
    encoder, task = load_encoder(make_encoder("bert")), find_task("classification")
    rows = [(f"{TEXT} {TEXT}",), ("red apple",)]
    whole = settings.model_copy(update={"max_length": 1000})
    limit = settings.model_copy(update={"max_length": 24})
    assert share_cut(rows, encoder.tokenizer, encoder.model, limit, task=task) == 0.5
    assert share_cut(rows, encoder.tokenizer, encoder.model, whole, task=task) == 0, "in windows of the 24 positions"
    windows = whole.model_copy(update={"chunk": 24})
    assert share_cut(rows, encoder.tokenizer, encoder.model, windows, task=task) == 0
    assert share_cut([], encoder.tokenizer, encoder.model, windows, task=task) == 0
