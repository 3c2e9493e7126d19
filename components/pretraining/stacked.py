"""The stages `stacked-*`: two encoders as one, whose states at each word are concatenated."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch

from components.artifacts import read_manifest, writing
from components.models.encoder import KIND, build_model, load_encoder, save_encoder, write_untrained
from components.models.stacked import Stacked
from components.settings.derive import StackedSettings
from components.settings.params import STACKED
from components.settings.section import Section
from components.tokenization.stacked import StackedTokenizer


class StackedJob(Section):
    """Inputs and output of the stage.

    Attributes:
        first, second: encoder directories.
        output: encoder directory.
        settings: `stacked.<name>`.
    """

    first: Path
    second: Path
    output: Path
    settings: StackedSettings


def stacked(job: StackedJob) -> Path:
    """Write an encoder directory with both encoders; returns it.

    Raises:
        ArtifactError: an encoder is incomplete.
    """
    parts = [load_encoder(job.first), load_encoder(job.second)]
    tokenizer = StackedTokenizer.of([part.tokenizer for part in parts])
    described = [
        {"family": part.family, "model": part.model.config.model_dump(mode="json"), "layers": job.settings.layers}
        for part in parts
    ]
    model = build_model(STACKED, vocabulary=tokenizer.vocab_size, settings={"parts": described})
    assert isinstance(model, Stacked)
    for own, part in zip(model.encoders(), parts, strict=True):
        own.load_state_dict(part.model.state_dict())
    with writing(job.output, kind=KIND) as draft, tempfile.TemporaryDirectory() as folder:
        tokenizer.save(Path(folder))
        save_encoder(draft.path, family=STACKED, model=model, tokenizer=Path(folder))
        write_untrained(draft.path, model)
        digests = [read_manifest(directory).digest for directory in (job.first, job.second)]
        draft.facts |= {
            "trained": any(part.trained for part in parts),
            "family": STACKED,
            "tokenizer": tokenizer.fingerprint(),
            "parent": digests[0],
            "parents": digests,
            "settings": job.settings.model_dump(mode="json"),
            "torch": torch.__version__,
        }
    return job.output
