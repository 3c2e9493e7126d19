"""Estimated memory of runs on a GPU."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from components.learners.finetuning.specs import PROCESS, gpu_bytes
from components.models import FAMILIES
from components.settings.finetune import FinetuneSettings


def spec(folder: Path, family: str, *, preset: str | None = None, precision: str = "bf16", **settings: Any) -> Any:
    sizes = dict(FAMILIES[family].presets[preset] if preset else FAMILIES[family].tiny) | {"vocabulary": 30_522}
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"family": family, "model": sizes, "tokenizer_fingerprint": ""}))
    given = {"training": {"rate": 1e-4, "batch_size": 32}, "max_length": 128} | settings
    return SimpleNamespace(encoder=folder, precision=precision, settings=FinetuneSettings.model_validate(given))


def test_the_memory_of_bert_base(tmp_path: Path) -> None:
    base = "base"
    weights = 20 * 110e6
    activations = 32 * 128 * 12 * 768 * (34 + 5 * 128 / 64)
    found = gpu_bytes([spec(tmp_path / "a", "bert", preset=base)])
    assert found == pytest.approx(PROCESS + weights + activations, rel=0.02)
    # float32 activations; and the largest of several runs.
    single = gpu_bytes([spec(tmp_path / "b", "bert", preset=base, precision="float32")])
    assert single - found == pytest.approx(activations, rel=0.02)
    tiny = spec(tmp_path / "c", "bert")
    assert gpu_bytes([tiny, spec(tmp_path / "a", "bert", preset=base)]) == found
    assert gpu_bytes([]) == 0


@pytest.mark.parametrize("family", list(FAMILIES))
def test_every_family_has_an_estimate(family: str, tmp_path: Path) -> None:
    assert PROCESS < gpu_bytes([spec(tmp_path / family, family)]) < 2 * PROCESS
