"""Adaptation with discriminative and slanted triangular learning rates."""

from __future__ import annotations

from pathlib import Path

from components.training.pretraining.adapt import adapt
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
