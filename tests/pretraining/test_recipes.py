"""The benchmark of pretraining recipes: reading recipes, equal processor time, the curve, and probing."""

from __future__ import annotations

import argparse
import importlib
import itertools
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import yaml

from components.errors import ConfigError
from components.training import threads
from tests.training.helpers import make_inputs


@pytest.fixture(scope="module")
def recipes() -> ModuleType:
    with pytest.MonkeyPatch.context() as patched:
        # The environment of the test process stays unchanged.
        patched.setattr(threads, "prepare", lambda: None)
        return importlib.import_module("benchmarks.recipes")


def arguments(params: Path = Path("params.yaml")) -> argparse.Namespace:
    return argparse.Namespace(params=params, block=None, general=10.0, domain=40.0)


def test_a_recipe_changes_its_block_only(recipes: ModuleType) -> None:
    words = ["wide", "training.optimizer=muon", "adapt.training.rate=0.002", "pretrain.model.layers=3", "general=15"]
    recipe = recipes.read_recipe(words, arguments())
    pretraining, adapting = recipe.params.pretrain["ulmfit"], recipe.params.adapt["ulmfit"]
    assert (pretraining.training.optimizer, adapting.training.optimizer) == ("muon", "muon")
    assert (adapting.training.rate, pretraining.model["layers"]) == (0.002, 3)
    # The time on both texts is the same in all recipes.
    assert (recipe.name, recipe.block, recipe.general, recipe.domain) == ("wide", "ulmfit", 15, 35)
    plain = recipes.read_recipe(["plain"], arguments())
    assert plain.params.adapt["ulmfit"].training.optimizer == "adamw"


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("training.rate", "'training.rate' is not KEY=VALUE"),
        ("trainin.rate=1", "unknown key 'trainin.rate'; did you mean 'training'"),
        ("block=bert", "no block pretrain.bert in params.yaml"),
        ("general=60", "general: 60 is more than the 50 seconds of a recipe"),
        ("training.optimizer=adam", "optimizer"),
    ],
)
def test_a_wrong_recipe_is_named(recipes: ModuleType, word: str, message: str) -> None:
    with pytest.raises((ConfigError, ValueError), match=message):
        recipes.read_recipe(["mine", word], arguments())


def test_the_time_to_a_perplexity_is_interpolated(recipes: ModuleType) -> None:
    curve = [(10, 1.0, 400.0), (20, 2.0, 100.0), (30, 3.0, 25.0)]
    phase = recipes.Phase(steps=30, tokens=300, seconds=3.0, curve=curve, metrics={})
    assert phase.reaching(200) == (15, pytest.approx(1.5))
    assert phase.reaching(100) == (20, pytest.approx(2.0))
    assert phase.reaching(500) == (10, 1.0)
    assert phase.reaching(20) is None
    assert [recipes._at(phase, share) for share in (0.1, 0.6, 1.0)] == [400, 100, 25]


def test_probing_is_cross_validated_within_the_sample(recipes: ModuleType) -> None:
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], 30)
    folds = np.tile(np.arange(5), 18)
    known = np.eye(3, dtype=np.float32)[y] + 0.01 * rng.normal(size=(90, 3)).astype(np.float32)
    assert recipes._cross_validated(known, y, folds, 1.0) == 1.0
    unknown = rng.normal(size=(90, 40)).astype(np.float32)
    # A model that were scored on its own rows would reach 1.
    assert recipes._cross_validated(unknown, y, folds, 0.01) < 0.5


def test_every_recipe_has_its_processor_time(
    recipes: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_inputs(tmp_path / "artifacts")
    settings = yaml.safe_load(Path("params.yaml").read_text())
    settings["pretrain"]["ulmfit"]["model"] = {"embedding": 8, "hidden": 8, "layers": 1}
    small = {"batch_size": 4, "window": 8, "precision": "float32"}
    for section in ("pretrain", "adapt"):
        settings[section]["ulmfit"]["training"] |= small
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(settings))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(recipes, "PIECES", 64)
    # Every reading of the processor's clock is 10 ms later than the one before.
    ticks = itertools.count()
    monkeypatch.setattr(recipes.time, "process_time", lambda: next(ticks) / 100)
    asked = arguments(tmp_path / "params.yaml")
    asked.general, asked.domain = 0.2, 0.4
    general, domain, encoder = recipes.train(recipes.read_recipe(["both"], asked), tmp_path / "both")
    assert (general.steps, domain.steps) == (20, 40)
    assert domain.curve[-1][2] > 1 and encoder == tmp_path / "both" / "adapted"
    none, alone, encoder = recipes.train(recipes.read_recipe(["domain", "general=0"], asked), tmp_path / "domain")
    assert none is None and encoder == tmp_path / "domain" / "pretrained"
    assert alone.steps == 60
