"""`ingest.near_duplicates`: the band width follows from threshold and permutations."""

from __future__ import annotations

import re

import pytest
from pydantic import ValidationError

from components.settings.ingest import NearDuplicates


@pytest.mark.parametrize(
    ("threshold", "permutations", "rows"),
    [(0.8, 64, 4), (0.9, 64, 4), (1.0, 4, 4), (0.7, 64, 3), (0.5, 64, 2), (0.5, 256, 3), (0.8, 10, 2)],
)
def test_rows_of_a_band(threshold: float, permutations: int, rows: int) -> None:
    assert NearDuplicates(threshold=threshold, permutations=permutations).rows == rows


@pytest.mark.parametrize(("threshold", "permutations"), [(0.8, 3), (0.5, 16), (0.1, 64), (1.0, 1), (1e-9, 64)])
def test_too_few_permutations_are_an_error_that_names_enough(threshold: float, permutations: int) -> None:
    message = f"{permutations} permutations cannot find 99% of the pairs at threshold {threshold:g}; set permutations"
    with pytest.raises(ValidationError, match=message) as caught:
        NearDuplicates(threshold=threshold, permutations=permutations)
    if threshold > 0.01:
        enough = int(re.findall(r"at least (\d+)", str(caught.value))[0])
        assert NearDuplicates(threshold=threshold, permutations=enough).rows == 2
        with pytest.raises(ValidationError):
            NearDuplicates(threshold=threshold, permutations=enough - 1)
