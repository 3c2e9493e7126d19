"""Measuring a published encoder on a task: every kind, texts longer than the encoder reads at once."""

import math
import shutil
from pathlib import Path

import pytest

from components.cli.onboarding import starts
from components.data.tasks.kinds import KINDS, find_kind
from components.settings.tasks import TaskSource
from tests.example_task import ROWS, make_encoder, rows, write_jsonl  # noqa: F401


@pytest.fixture
def measured(tmp_path: Path, make_encoder, monkeypatch):  # noqa: F811
    """measured(kind, repeat, alone) -> the encoder on 36 rows, whose text has `repeat` copies of itself."""
    encoder = make_encoder("bert")
    monkeypatch.setattr(starts, "import_encoder", lambda folder, output: shutil.copytree(folder, output))

    def measure(kind: str, *, repeat: int = 1, alone: bool = True) -> starts.Measured:
        given = [ROWS[kind](row | {"text": " ".join([row["text"]] * repeat)}) for row in rows(12)]
        write_jsonl(tmp_path / "task" / "train.jsonl", given)
        source = TaskSource(path=str(tmp_path / "task"), kind=kind, dev=None, test=None)
        examples = find_kind(kind).read("task", source)
        return starts.measure(str(encoder), examples, source=source, name="mini", alone=alone)

    return measure


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("repeat", [1, 30])
def test_every_kind_is_measured_with_texts_of_any_length(measured, kind, repeat):
    result = measured(kind, repeat=repeat)
    assert 0 < result.texts_per_second < math.inf
    assert 0 < result.tokens_per_second < math.inf
    # What is longer than a sequence is read in windows where the kind has them.
    assert result.reading.cut == 0 or kind in ("pair", "similarity", "choice")


def test_evidence_is_computed_only_to_compare_starts(measured):
    assert math.isnan(measured("classification").logme)
    assert math.isfinite(measured("classification", alone=False).logme)
    assert math.isfinite(measured("pair", alone=False).logme)
    assert math.isnan(measured("questions", alone=False).logme)
