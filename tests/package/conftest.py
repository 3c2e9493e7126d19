import pandas as pd
import pytest

from headstart import Model, fit
from tests.example_task import cluster, in_process, make_encoder, make_job, make_task, rows, settings  # noqa: F401


@pytest.fixture(scope="session")
def frame() -> pd.DataFrame:
    """10 rows of each of three classes, which are determined by one word."""
    actual = pd.DataFrame(rows(10))[["text", "label"]]
    return actual.sample(frac=1, random_state=0)


@pytest.fixture(scope="session")
def later() -> pd.DataFrame:
    """Other rows, with an index of texts."""
    actual = pd.DataFrame(rows(4, offset=300))[["text", "label"]]
    return actual.set_index(pd.Index([f"row-{number}" for number in range(len(actual))]))


@pytest.fixture(scope="session")
def fitted(frame: pd.DataFrame) -> Model:
    """The model of these rows."""
    return fit(frame, verbose=False)
