"""Features of a frozen encoder for a task's rows, per layer: one vector per text, or per word for tagging.

Shape suffixes: S sequences, U units, M vectors of N rows, D width, C labels.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from components.core.errors import ConfigError
from components.data.tasks.budgets import ALL, sample_rows
from components.data.tasks.data import Answer, Split
from components.data.tasks.examples import TaskFacts, read_facts, read_split, strata_of
from components.learners.task_models.kinds import find_task
from components.learners.task_models.model import run_over
from components.learners.task_models.pooling import masked_mean
from components.models.base import Batch
from components.models.encoder import Encoder
from components.settings.finetune import FinetuneSettings
from components.studies.frame import Outputs

#: Kinds of task with exactly one label per row or word.
LABELLED = ("classification", "pair", "tagging")
#: Largest default budget in labels per class: with many labels encoders and layers differ little.
MOST = 50


@dataclass(frozen=True)
class Labelled:
    """A task for the studies of frozen encoders: labels are sampled from train; dev is empty if none is named."""

    facts: TaskFacts
    train: Split
    dev: Split

    @classmethod
    def of(cls, outputs: Outputs, task: str) -> Labelled:
        """Read a task. The test split is not read."""
        directory = outputs.examples(task)
        facts = read_facts(directory)
        if facts.kind not in LABELLED:
            raise ConfigError(
                f"{task}: this study needs one label per text or word, which {facts.kind} does not have; it supports "
                f"{', '.join(LABELLED)}"
            )
        return cls(facts, read_split(directory, "train"), read_split(directory, "dev"))

    def budget(self, requested: int) -> int:
        """`requested`; if it is 0 the task's largest budget up to `MOST`, or its smallest if all are larger."""
        small = [budget for budget in self.facts.budgets if budget != ALL and budget <= MOST]
        return requested or max(small, default=self.facts.budgets[0])

    def sample(self, budget: int, *, seed: int) -> Split:
        """The train rows of a run with this budget and seed."""
        return self.train.take(sample_rows(strata_of(self.train, self.facts.kind), budget, seed=seed)[0])


def numbers_of(split: Split) -> NDArray[np.int64]:
    """(M,) labels of all vectors of a split, in the order of the rows."""
    return np.concatenate([*split.targets, np.zeros(0)]).astype(np.int64)


def answers_of(kind: str, split: Split, probabilities_MC: NDArray[np.floating]) -> list[Answer]:
    """(M, C) probabilities of vectors -> answers to the rows: probabilities of a text, tag numbers of a sentence."""
    if kind != "tagging":
        return list(probabilities_MC.astype(np.float32))
    ends = np.cumsum([len(target) for target in split.targets])
    return [part.argmax(1).astype(np.float32) for part in np.split(probabilities_MC, ends[:-1])]


def layer_vectors(encoder: Encoder, split: Split, *, kind: str, settings: FinetuneSettings) -> list[Tensor]:
    """(M, D_l) float32 features of the embedding and of each layer, lowest first, in the order of the rows.

    Of texts, the mean of the hidden states, over the sequences of a row; words have their `unit_states`.
    """
    model = encoder.model
    task = find_task(kind)
    encoded = task.encode(split.fields, encoder.tokenizer, model, settings)
    widths: list[int] = []

    def of_batch(batch: Batch) -> list[Tensor]:
        hidden = model.hidden_states(batch["tokens"], batch["lengths"], batch.get("segments"))
        widths[:] = [layer.shape[-1] for layer in hidden]
        if task.reads == "units":
            words_SUD = torch.cat([model.unit_states(layer, batch["units"]).float() for layer in hidden], dim=-1)
            parts: dict[int, list[Tensor]] = {}
            for row, words, length in zip(
                batch["rows"].tolist(), words_SUD, batch["unit_lengths"].tolist(), strict=True
            ):
                parts.setdefault(row, []).append(words[:length])
            return [torch.cat(parts[row]) for row in sorted(parts)]
        pooled_SD = torch.cat([masked_mean(layer, batch["lengths"]).float() for layer in hidden], dim=-1)
        counts = torch.bincount(batch["rows"])
        sums = pooled_SD.new_zeros(len(counts), pooled_SD.shape[1]).index_add_(0, batch["rows"], pooled_SD)
        return list((sums / counts[:, None]).unsqueeze(1))

    # A clone outside of inference mode can be used for training.
    joined = torch.cat(run_over(of_batch, model, encoded)).clone()
    if len(joined) != sum(len(target) for target in split.targets):
        raise ConfigError(
            f"{kind}: an input is longer than finetune.<family>.max_length; raise the limit for this study"
        )
    return list(joined.split(widths, dim=1))
