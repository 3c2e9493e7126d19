"""Published encoders that a model can start from: measured speed, and which of several suits a task."""

import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import torch

from components.data.tasks.data import Examples
from components.interchange.importing import import_encoder, source_digest
from components.interchange.starts.language import other_language
from components.interchange.starts.registry import folder_of
from components.learners.task_models.extent import Extent, reading_of
from components.learners.task_models.inputs import sizes_of
from components.learners.task_models.kinds import find_task
from components.learners.task_models.predictor import sentence_vectors
from components.models.encoder import has_large_table, load_encoder
from components.settings.finetune import FinetuneSettings
from components.settings.hub import pinned
from components.settings.tasks import LABELLED, TaskSource
from components.settings.training import Training
from components.studies.logme import logme

#: Rows that an encoder is measured on, and pieces of them if its evidence is not needed; at least one row.
ROWS: Final = 200
PIECES: Final = 4096


@dataclass(frozen=True)
class Measured:
    """An encoder on a sample of the task's texts.

    Attributes:
        texts_per_second, tokens_per_second: forward, with the cores of this process.
        warning: that the vocabulary is of another language; empty if it is not.
        large: whether only heads on its features are trained (`has_large_table`).
        logme: evidence of the labels given the mean of the last layer (You et al. 2021); NaN without classes, and if no
            other start is measured.
        reading: what is read of the texts, by the pieces of its tokenizer.
    """

    name: str
    folder: str
    digest: str
    parameters: int
    texts_per_second: float
    tokens_per_second: float
    warning: str
    large: bool
    logme: float
    reading: Extent


def measure(start: str, examples: Examples, *, source: TaskSource, name: str, alone: bool = False) -> Measured:
    """Encode some rows of train.

    Args:
        alone: whether it is compared with no other start, so that its evidence is not computed.

    Raises:
        ArtifactError: the folder holds no model that can be imported.
        ConfigError: there is no such folder or start.
    """
    folder = folder_of(start).absolute()
    rows = np.random.default_rng(0).permutation(len(examples.train))[:ROWS]
    sample = examples.train.take(rows)
    with tempfile.TemporaryDirectory() as directory:
        output = Path(directory) / "encoder"
        import_encoder(folder, output=output)
        encoder = load_encoder(output)
    settings = FinetuneSettings(training=Training(rate=1e-4, batch_size=16), pairs="apart", max_length=128)
    task, model = find_task(source.kind), encoder.model
    encoded = task.encode(sample.fields, encoder.tokenizer, model, settings)
    compares = not alone and source.kind in LABELLED and not source.several
    pieces = np.cumsum([sum(map(len, row.pieces)) for row in encoded])
    if not compares:
        encoded = encoded[: max(1, int((pieces <= PIECES).sum()))]
    began, used = time.perf_counter(), time.process_time()
    vectors = sentence_vectors(model, encoded)
    # Where other processes take the cores, less processor time is used than has passed.
    seconds = min(time.perf_counter() - began, time.process_time() - used)
    sizes = sizes_of(examples.train.fields, encoder.tokenizer, model, settings, task=task)
    reading = reading_of(sizes, single=task.single, most=model.max_tokens)
    if task.reads == "units":
        # Long inputs are read in overlapping windows.
        reading = replace(reading, cut=0.0)
    texts = [text for fields in sample.fields for text in fields]
    return Measured(
        name=name,
        folder=pinned(start, folder),
        digest=source_digest(folder),
        parameters=sum(weights.numel() for weights in model.parameters()),
        texts_per_second=len(encoded) / seconds,
        tokens_per_second=float(pieces[len(encoded) - 1]) / seconds,
        warning=other_language(Path(start).name, encoder.tokenizer, texts, language=source.language),
        large=has_large_table(model),
        logme=logme(np.stack(vectors), sample.labels) if compares else float("nan"),
        reading=reading,
    )


def own_speed() -> float:
    """Tokens per second at which the default own language model is trained, from its matrix products.

    A token costs 6 operations per parameter in training. The speed of products of this size is measured in processor
    time, so that other processes do not affect it.
    """
    parameters = 6_000_000
    first, second = torch.ones(512, 640), torch.ones(640, 2560)
    products, began = 0, time.process_time()
    while (used := (time.process_time() - began) / torch.get_num_threads()) < 0.5:
        first @ second
        products += 1
    rate = 2 * first.numel() * second.shape[1] * products / used
    return rate / (6 * parameters)
