"""Tiny inputs of the stages, made once."""

from pathlib import Path

import pytest

from tests.example_task import make_encoder  # noqa: F401
from tests.tokenization.conftest import write_corpus  # noqa: F401
from tests.training.helpers import make_inputs, pretrained_by


class Pretrained(dict[str, Path]):
    """Family -> encoder directory, pretrained at its first use."""

    def __init__(self, inputs: Path, folder: Path) -> None:
        self.inputs, self.folder = inputs, folder

    def __missing__(self, family: str) -> Path:
        self[family] = pretrained_by(self.inputs, family, self.folder / family)
        return self[family]


@pytest.fixture(scope="session")
def pretrained(inputs: Path, tmp_path_factory: pytest.TempPathFactory) -> Pretrained:
    return Pretrained(inputs, tmp_path_factory.mktemp("pretrained"))


@pytest.fixture(scope="session")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_inputs(tmp_path_factory.mktemp("inputs"))


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
