"""The preset `ulmfit` and experiments/ulmfit are the recipe of Howard and Ruder (2018), sections 3 and 4.1; the sizes
and dropouts of the experiment are for two cores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from components.models.encoder import build_model
from components.settings.loading import load_params

ROOT = Path(__file__).parents[2]


def test_the_preset_has_the_published_sizes() -> None:
    config = vars(build_model("ulmfit", vocabulary=9, preset="ulmfit", settings={}).config)
    dropouts = ("dropout_embedding", "dropout_input", "dropout_weight", "dropout_hidden", "dropout_output")
    values = [config[name] for name in ("embedding", "hidden", "layers", *dropouts)]
    assert values == [400, 1152, 3, 0.05, 0.4, 0.5, 0.3, 0.4]


def test_the_experiment_is_the_whole_recipe() -> None:
    params = load_params(ROOT / "experiments/ulmfit/params.yaml")
    directions = []
    for name in params.run.families:
        block = params.pretrain[name]
        config: Any = build_model("ulmfit", vocabulary=9, preset=block.preset, settings=block.model).config
        directions.append(config.direction)
        assert config.layers == 3
        assert (config.activation, config.slowness) == (2.0, 1.0)
        adapted, tuned = params.adapt[name].training, params.finetune[name]
        assert block.training.dropout == adapted.dropout == tuned.dropout == 1.0
        assert block.training.window == adapted.window == tuned.chunk == 70 and adapted.window_jitter > 0
        assert block.training.betas == adapted.betas == tuned.training.betas == (0.7, 0.99)
        assert adapted.schedule == tuned.training.schedule == "slanted_triangular"
        assert adapted.discriminative == tuned.discriminative == 2.6
        assert (adapted.rate, tuned.training.rate, tuned.training.batch_size) == (0.004, 0.01, 16)
        assert (tuned.method, tuned.unfreezing, tuned.unfreeze_epochs) == ("finetune", "gradual", 1)
        assert (tuned.layers, tuned.pooling, tuned.head_hidden, tuned.head_norm) == ("last", "concat", 50, "batch")
        assert tuned.chunks_learned * tuned.chunk >= tuned.max_length, "BPT3C: all chunks receive gradients"
        assert (tuned.head_dropout, tuned.discriminative_from) == ([0.4, 0.1], "head")
        assert (tuned.unfreeze_schedule, tuned.activation_penalty) == ("stages", 1)
        assert tuned.head_steps == 0, "the head learns in the first epoch of gradual unfreezing"
    assert directions == ["forward", "backward"]
    assert list(params.evaluate.ensembles.values()) == [params.run.families]
