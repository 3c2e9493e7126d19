"""Tiny pretraining runs whose losses and gradient norms are stored, and the command that stores them.

    python -m tests.golden.runs NAME ...        # records these runs anew; without names, all of them

A file `tests/golden/NAME.json` holds the complete settings of its run, so a later change of a family's test sizes does
not affect it, and the values of every step. Record again only after a change that is meant to alter what is learned,
and say so in the commit. Files are never written by a test.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any, Final

import torch

from components.models import FAMILIES
from components.pretraining.language_model import LanguageModelRun, work
from components.settings.training import LanguageModelTraining
from components.training import threads
from components.training.checkpoint import CheckpointStore
from components.training.distributed import Worker
from tests.training.helpers import TINY, lm_settings, make_inputs

FOLDER: Final = Path(__file__).parent
STEPS: Final = 20
#: Significant digits of a stored value.
DIGITS: Final = 8
#: Stored values of a step -> column of the training curve, which has one row a step in a run of 20 steps.
COLUMNS: Final = {"losses": "loss", "gradient_norms": "gradient_norm", "heldout_losses": "heldout"}
BATCH_SIZE: Final = 16
#: Every dropout that a family's test sizes leave at its default.
DROPOUT: Final = 0.1
#: Runs besides one per family: name -> (family, settings of the model, settings of the training).
VARIANTS: Final[dict[str, tuple[str, dict[str, Any], dict[str, Any]]]] = {
    "ulmfit-backward": ("ulmfit", {"direction": "backward"}, {}),
    "ulmfit-asgd": (
        "ulmfit",
        {"activation": 2.0, "slowness": 1.0},
        {"optimizer": "asgd", "average": "asgd", "schedule": "slanted_triangular"},
    ),
    "bert-ema": ("bert", {}, {"average": "ema"}),
    "transformer-xl-adaptive": ("transformer-xl", {"cutoffs": [20, 45], "divide": 2}, {}),
}


def settings_of(name: str) -> dict[str, Any]:
    """The settings with which a run is recorded anew."""
    family, model, changes = VARIANTS.get(name, (name, {}, {}))
    tokenizer, sizes = TINY[family]
    dropout = {key: DROPOUT for key in FAMILIES[family].config.model_fields if key.startswith("dropout")}
    budget = {"batch_size": BATCH_SIZE, "tokens": BATCH_SIZE * 8 * STEPS, "checkpoint_seconds": 3600}
    training = lm_settings(**budget, **changes).model_dump()
    settings = {"family": family, "tokenizer": tokenizer, "model": dropout | sizes | model, "training": training}
    return json.loads(json.dumps(settings))


def run(settings: dict[str, Any], *, inputs: Path, folder: Path) -> dict[str, list[float]]:
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
    )
    with threads.limited(1):
        work(job, Worker())
    checkpoint = CheckpointStore(job.storage, key=job.key).latest()
    assert checkpoint is not None
    curve = checkpoint.numbers["progressed"]["curve"]
    assert len(curve) == STEPS
    return {name: [row[column] for row in curve] for name, column in COLUMNS.items()}


def main() -> None:
    """Record the runs named on the command line."""
    names = [*FAMILIES, *VARIANTS]
    parser = argparse.ArgumentParser(description="Record the golden values anew.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"runs; all by default ({', '.join(names)})")
    chosen = parser.parse_args().names or names
    if unknown := sorted(set(chosen) - set(names)):
        parser.error(f"unknown: {', '.join(unknown)}; known: {', '.join(names)}")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as temporary:
        inputs = make_inputs(Path(temporary) / "inputs")
        for name in chosen:
            settings = settings_of(name)
            values = run(settings, inputs=inputs, folder=Path(temporary) / name)
            rounded = {key: [float(f"{value:.{DIGITS}g}") for value in column] for key, column in values.items()}
            text = json.dumps({"settings": settings, **rounded}, indent=1)
            (FOLDER / f"{name}.json").write_text(text + "\n", encoding="utf-8")
            print(f"{FOLDER / name}.json")


if __name__ == "__main__":
    main()
