"""Tiny pretraining runs whose losses and gradient norms are stored: one per family, and variants."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from components.cluster.distributed import Worker
from components.core import threads
from components.models import FAMILIES
from components.settings.training import LanguageModelTraining
from components.training.checkpoint import CheckpointStore
from components.training.pretraining.language_model import LanguageModelRun, work
from tests.training.helpers import lm_settings, tokenizer_of

STEPS: Final = 20
#: Stored values of a step -> column of the training curve, which has one row per step in a run of 20 steps.
COLUMNS: Final = {"losses": "loss", "gradient_norms": "gradient_norm", "heldout_losses": "heldout"}
BATCH_SIZE: Final = 16
#: Every dropout that a family's test sizes leave at its default.
DROPOUT: Final = 0.1
#: Learning rates of families whose run the usual one makes unstable: the rounding of a processor grows within 20 steps
#: to a few percent of a gradient norm.
RATES: Final = {"transformer": 0.003}
#: Runs in addition to one per family: name -> (family, settings of the model, settings of the training).
VARIANTS: Final[dict[str, tuple[str, dict[str, Any], dict[str, Any]]]] = {
    "ulmfit-backward": ("ulmfit", {"direction": "backward"}, {}),
    "ulmfit-asgd": (
        "ulmfit",
        {"activation": 2.0, "slowness": 1.0},
        {"optimizer": "asgd", "schedule": "slanted_triangular"},
    ),
    "transformer-xl-adaptive": ("transformer-xl", {"cutoffs": [20, 45], "divide": 2}, {}),
}


def names() -> list[str]:
    """The runs."""
    return [*FAMILIES, *VARIANTS]


def settings_of(name: str) -> dict[str, Any]:
    """The settings with which a run is recorded."""
    family, model, changes = VARIANTS.get(name, (name, {}, {}))
    tokenizer, sizes = tokenizer_of(family), dict(FAMILIES[family].tiny)
    dropout = {key: DROPOUT for key in FAMILIES[family].config.model_fields if key.startswith("dropout")}
    budget = {"batch_size": BATCH_SIZE, "tokens": BATCH_SIZE * 8 * STEPS}
    rate = {"rate": RATES[family]} if family in RATES else {}
    training = lm_settings(**budget, **rate, **changes).model_dump()
    settings = {"family": family, "tokenizer": tokenizer, "model": dropout | sizes | model, "training": training}
    return json.loads(json.dumps(settings))


def pretrain(settings: dict[str, Any], *, inputs: Path, folder: Path) -> dict[str, list[float]]:
    """Pretrain in this process, in float32 on one thread, as the stage's worker does; returns the values per step.

    Args:
        settings: what `settings_of` returned.
        inputs: what `make_inputs` wrote.
        folder: for the checkpoints.
    """
    job = LanguageModelRun(
        name="golden",
        family=settings["family"],
        model=settings["model"],
        tokens=inputs / "tokens" / f"general-{settings['tokenizer']}",
        tokenizer=inputs / "tokenizer" / f"general-{settings['tokenizer']}",
        training=LanguageModelTraining.model_validate(settings["training"]),
        storage=str(folder),
        key="golden",
        checkpoint_seconds=3600,
    )
    with threads.limited(1):
        work(job, Worker())
    checkpoint = CheckpointStore(job.storage, key=job.key).latest()
    assert checkpoint is not None
    curve = checkpoint.numbers["progressed"]["curve"]
    assert len(curve) == STEPS
    return {name: [row[column] for row in curve] for name, column in COLUMNS.items()}
