"""Adaptation with discriminative and slanted triangular learning rates."""

from __future__ import annotations

from pathlib import Path

import pytest

from components.models import FAMILIES
from components.models.encoder import build_model
from components.training.pretraining.adapt import adapt
from components.training.pretraining.language_model import parameter_groups
from components.training.pretraining.pretrain import pretrain
from tests.training.helpers import adapt_job, lm_settings, pretrain_job, run_with_kills, same_bits, weights


def test_a_killed_run_with_these_rates_ends_bit_identical(inputs: Path, tmp_path: Path) -> None:
    pretrained = pretrain(pretrain_job(inputs, "bert", tmp_path))
    settings = lm_settings(tokens=4 * 8 * 15, discriminative=2.6, schedule="slanted_triangular")
    whole = adapt_job(inputs, "bert", pretrained, tmp_path / "whole", training=settings)
    adapt(whole)
    killed = adapt_job(inputs, "bert", pretrained, tmp_path / "killed", training=settings)
    run_with_kills(adapt, killed, checkpoints=tmp_path / "killed" / "checkpoints", seed=4, kills=2)
    assert same_bits(weights(killed.output), weights(whole.output))


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_every_parameter_has_its_discriminative_rate(family: str) -> None:
    model = build_model(family, vocabulary=40, settings=FAMILIES[family].tiny)
    scales = {
        id(parameter): group.scale
        for group in parameter_groups(model, lm_settings(discriminative=2.6))
        for parameter in group.parameters
    }
    assert scales.keys() == {id(parameter) for parameter in model.parameters()}
    embeddings, *layers = model.layer_groups()
    assert {scales[id(parameter)] for parameter in embeddings} <= {1.0}
    for depth, layer in enumerate(reversed(layers)):
        assert [scales[id(parameter)] for parameter in layer] == pytest.approx([2.6**-depth] * len(layer))
