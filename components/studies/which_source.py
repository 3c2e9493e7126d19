"""Which encoder or source task suits a task best, ranked before fine-tuning by LogME (You et al. 2021)."""

import numpy as np
import torch

from components.core.artifacts import MANIFEST
from components.core.errors import ConfigError
from components.evaluation.aggregates import unit
from components.reporting.evaluations import labels_at
from components.studies.frame import STAGE_OF, Measured, Outputs, Row, Sheet
from components.studies.frozen import layer_vectors, logme, numbers_of
from components.studies.labelled import Labelled

#: Maximum number of vectors.
VECTORS = 4000


def measure(outputs: Outputs, *, task: str = "", encoders: str = "", budget: int = 0) -> Measured:
    """Which encoder suits a task, ranked before fine-tuning by LogME of its hidden states and the labels of a sample of
    train: language models, and encoders that were fine-tuned on other tasks (`intermediate_tasks`)."""
    data = Labelled.of(outputs, task, budget)
    name, sample = data.facts.task, data.sample(seed=data.facts.seeds[0])
    made = sorted((outputs.out / "encoder").glob(f"[!.]*/[!.]*/{MANIFEST}"))
    chosen = list(dict.fromkeys(outputs.split_name(of.strip()) for of in encoders.split(",") if of.strip())) or [
        (block, start)
        for block, start in (path.parts[-3:-1] for path in made)
        if block in outputs.params.run.families
        and STAGE_OF.get(start) != "scratch"
        and not start.endswith(f"-after-{name}")
    ]
    if len(chosen) < 2:
        raise ConfigError("--encoders: at least two candidates are needed")
    numbers, rows = numbers_of(sample), list[Row]()
    if len(np.unique(numbers)) < 2:
        raise ConfigError(f"{name}: the sample of train has only one label, so LogME is undefined; raise --budget")
    # Evenly spread, because files are often sorted by label.
    used = np.arange(min(VECTORS, len(numbers))) * len(numbers) // min(VECTORS, len(numbers))
    targets = np.eye(len(data.facts.labels))[numbers[used]]
    for block, start in chosen:
        settings = outputs.finetuning(block)
        layers = layer_vectors(outputs.encoder(block, start), sample, kind=data.facts.kind, settings=settings)
        evidence = logme(torch.cat(layers, dim=1)[used].double().numpy(), targets)
        rows.append({"encoder": f"{block}-{start}", "LogME": evidence})
    rows.sort(key=lambda row: -row["LogME"])
    text = f"Ranked on {labels_at(data.labels, unit(data.scoring))} of train, and no row of dev or test."
    return Measured([Sheet(rows, name, {"LogME": ".4f"}, "LogME")], [text])
