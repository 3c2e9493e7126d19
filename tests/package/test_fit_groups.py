"""`fit` with copies and groups: folds keep them together, and the report says so."""

import numpy as np
import pandas as pd
import pytest

from headstart import fit
from headstart.report import Report
from headstart.tables import InputError
from tests.example_task import rows


def chance(count: int = 30) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    texts = [f"{' '.join(rng.choice(list('abcdefgh'), 5))} word{number}" for number in range(count)]
    return pd.DataFrame({"text": texts, "label": rng.choice(["x", "y"], count)})


def test_copies_of_random_rows_have_the_score_of_chance():
    once = chance()
    copies = [once, once.assign(text=once.text.str.upper() + "!"), once.assign(text="\u200b" + once.text)]
    report = fit(pd.concat(copies, ignore_index=True), verbose=False).report
    assert report.selected[0] < 0.75
    assert all(single.score < 0.75 for single in report.tried)
    assert "60 rows repeat an earlier text; copies of a text are in one fold." in str(report)
    assert Report.of(report.as_dict()).selected == list(report.selected) or report.selected


def test_groups_are_in_one_fold():
    """The group determines the label and has a word of its own: only rows of the same group tell the label."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        [
            {"text": f"customer{group} {' '.join(rng.choice(list('abcdefgh'), 4))} n{row}", "label": "xy"[group % 2]}
            for group in range(20)
            for row in range(4)
        ]
    )
    groups = [f"c{number // 4}" for number in range(len(frame))]
    alone = fit(frame, verbose=False).report
    by_list = fit(frame, group=groups, verbose=False).report
    by_column = fit(frame.assign(customer=groups), group="customer", verbose=False).report
    assert alone.selected[0] > 0.9
    proposed = fit(frame.assign(customer=groups), verbose=False).report
    assert by_list.selected == by_column.selected == proposed.selected and by_list.selected[0] < 0.75
    assert any(note.startswith("column 'customer' is the group: 20 values, 4.0 rows each") for note in proposed.notes)
    assert "The 80 rows are in 20 groups, whose rows are in one fold." in by_list.notes


def test_a_rare_class_has_fewer_folds():
    frame = pd.DataFrame(rows(6))[["text", "label"]]
    rare = frame[(frame.label != "fruit") | (frame.groupby("label").cumcount() < 3)]
    report = fit(rare, verbose=False).report
    assert report.folds == 3 and "3-fold cross-validation" in str(report)


def test_wrong_groups_are_refused():
    frame = pd.DataFrame(rows(3))[["text", "label"]]
    with pytest.raises(InputError, match="no column 'author'"):
        fit(frame, group="author", verbose=False)
    with pytest.raises(InputError, match="groups for 9 rows; give one group for each"):
        fit(frame, group=["a", "b"], verbose=False)
    with pytest.raises(Exception, match="9 training row.* one group"):
        fit(frame, group=["a"] * 9, verbose=False)
