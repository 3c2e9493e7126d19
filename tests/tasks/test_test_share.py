"""Splits that are held out of train by a hash of the text."""

from pathlib import Path

from components.data.tasks.data import Examples
from tests.tasks import labelled


def read(folder: Path, rows: list[tuple[str, str]], **keys: object) -> Examples:
    labelled.jsonl(folder / "train.jsonl", *({"text": text, "label": label} for text, label in rows))
    return labelled.read("classification", folder, dev=None, test=None, **keys)


ROWS = [(f"text {number}", "good" if number % 2 else "bad") for number in range(200)]


def test_added_and_reordered_rows_do_not_move_others(tmp_path):
    before = read(tmp_path, ROWS)
    assert 20 <= len(before.test) <= 60 and len(before.train) + len(before.test) == 200
    assert before.counts["test_rows_held_out"] == len(before.test)
    after = read(tmp_path, [*((f"more {number}", "good") for number in range(100)), *reversed(ROWS)])
    assert set(before.test.texts) == {text for text in after.test.texts if text.startswith("text")}


def test_a_label_is_not_left_without_rows_in_train(tmp_path):
    (held,) = list(read(tmp_path, ROWS).test.texts[:1])
    rows = [(text, "rare" if text == held else label) for text, label in ROWS]
    data = read(tmp_path, rows)
    assert data.labels == ["bad", "good", "rare"] and held in data.train.texts


def test_texts_that_differ_in_case_only_are_in_the_same_split(tmp_path):
    doubled = [*ROWS, *((text.upper(), label) for text, label in ROWS)]
    data = read(tmp_path, doubled)
    assert {text.lower() for text in data.train.texts}.isdisjoint(text.lower() for text in data.test.texts)


def test_dev_is_another_share_than_test(tmp_path):
    data = read(tmp_path, ROWS, selection="dev")
    assert min(len(data.dev), len(data.test)) >= 8 and len(data.train) + len(data.dev) + len(data.test) == 200
