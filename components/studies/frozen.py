"""A task for the studies of encoders, features of a frozen encoder for its rows, per layer, and how well they suit the
labels (LogME; You et al. 2021).

Shape suffixes: S sequences, U units, M vectors of N rows, D width, F features, R rank, C labels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from components.core.errors import ConfigError
from components.data.scoring import Scoring
from components.data.scoring.base import Floats
from components.data.tasks.budgets import ALL, sample_rows
from components.data.tasks.data import Split
from components.data.tasks.examples import TaskFacts, read_facts, read_split, strata_of
from components.data.tasks.kinds import scoring_for
from components.evaluation.aggregates import unit
from components.learners.task_models.kinds import find_task
from components.learners.task_models.model import run_over
from components.learners.task_models.pooling import masked_mean
from components.models.base import Batch
from components.models.encoder import Encoder
from components.reporting.evaluations import labels_at
from components.settings.finetune import FinetuneSettings
from components.studies.frame import Outputs

#: Kinds of task with exactly one label per row or word.
LABELLED = ("classification", "pair", "tagging")
#: Largest default budget in labels per class: with many labels encoders and layers differ little.
MOST = 50


@dataclass(frozen=True)
class Labelled:
    """A task for the studies of encoders: labels are sampled from train; dev is empty if none is named."""

    facts: TaskFacts
    train: Split
    dev: Split

    @classmethod
    def of(cls, outputs: Outputs, task: str) -> Labelled:
        """Read a task. The test split is not read."""
        directory = outputs.of("examples", task)
        facts = read_facts(directory)
        if facts.kind not in LABELLED:
            raise ConfigError(
                f"{task}: this study needs one label per text or word, which {facts.kind} does not have; it supports "
                f"{', '.join(LABELLED)}"
            )
        return cls(facts, read_split(directory, "train"), read_split(directory, "dev"))

    @property
    def scoring(self) -> Scoring:
        """The metrics of the task."""
        return scoring_for(self.facts.kind, self.facts.labels)

    @property
    def where(self) -> str:
        """Where fine-tuned systems are scored."""
        return "on dev" if self.facts.selection == "dev" else "by cross-validation"

    def budget(self, requested: int) -> int:
        """`requested`; if it is 0 the task's largest budget up to `MOST`, or its smallest if all are larger."""
        small = [budget for budget in self.facts.budgets if budget != ALL and budget <= MOST]
        return requested or max(small, default=self.facts.budgets[0])

    def described(self, budget: int) -> str:
        """A label budget as text, such as "20 labels a class"."""
        return labels_at(budget, unit(self.scoring))

    def sample(self, budget: int, *, seed: int) -> Split:
        """The train rows of a run with this budget and seed."""
        return self.train.take(sample_rows(strata_of(self.train, self.facts.kind), budget, seed=seed)[0])


def numbers_of(split: Split) -> NDArray[np.int64]:
    """(M,) labels of all vectors of a split, in the order of the rows."""
    return np.concatenate([*split.targets, np.zeros(0)]).astype(np.int64)


def layer_vectors(encoder: Encoder, split: Split, *, kind: str, settings: FinetuneSettings) -> list[Tensor]:
    """(M, D_l) float32 features of the embedding and of each layer, lowest first, in the order of the rows. Of texts,
    the mean of the hidden states, over the sequences of a row; words have their `unit_states`."""
    model = encoder.model
    task = find_task(kind)
    encoded = task.encode(split.fields, encoder.tokenizer, model, settings)
    widths: list[int] = []

    def of_batch(batch: Batch) -> list[Tensor]:
        hidden = model.hidden_states(batch["tokens"], batch["lengths"], batch.get("segments"))
        widths[:] = [layer.shape[-1] for layer in hidden]
        counts = torch.bincount(batch["rows"])
        if task.reads == "units":
            words_SUD = torch.cat([model.unit_states(layer, batch["units"]).float() for layer in hidden], dim=-1)
            # The sequences of a row stand together.
            lengths = batch["unit_lengths"].tolist()
            words = [of[:length] for of, length in zip(words_SUD, lengths, strict=True)]
            ends = counts.cumsum(0).tolist()
            return [torch.cat(words[end - count : end]) for end, count in zip(ends, counts.tolist(), strict=True)]
        pooled_SD = torch.cat([masked_mean(layer, batch["lengths"]).float() for layer in hidden], dim=-1)
        sums = pooled_SD.new_zeros(len(counts), pooled_SD.shape[1]).index_add_(0, batch["rows"], pooled_SD)
        return list((sums / counts[:, None]).unsqueeze(1))

    # A clone outside of inference mode can be used for training.
    joined = torch.cat(run_over(of_batch, model, encoded)).clone()
    if len(joined) != sum(len(target) for target in split.targets):
        raise ConfigError(
            f"{kind}: an input is longer than finetune.<family>.max_length; raise the limit for this study"
        )
    return list(joined.split(widths, dim=1))


#: Bounds of the logarithm of alpha / beta, for features whose largest singular value is 1.
BOUNDS = (-30.0, 30.0)


def logme(features_NF: Floats, targets_NC: Floats) -> float:
    """The maximum log evidence in nats per row, mean over the columns of the targets (You et al. 2021).

    A linear model y = F w + noise with w ~ N(0, 1/alpha) and noise ~ N(0, 1/beta) has the evidence p(y | F, alpha,
    beta). With r = alpha / beta, U and s of the SVD of F, and the best beta,

        log p / N = -(log(2 pi m) + 1) / 2 - sum log(1 + s^2 / r) / 2N,    m = (|y|^2 - sum s^2 (U y)^2 / (s^2 + r)) / N

    Args:
        features_NF: features of N rows, neither centred nor scaled, as in the paper.
        targets_NC: one column per label, 1 for the rows with this label; or one column of values. Constant columns are
            ignored.
    """
    from scipy.optimize import minimize_scalar  # the import takes half a second

    u_NR, sizes_R, _ = np.linalg.svd(np.asarray(features_NF, dtype=np.float64), full_matrices=False)
    # The evidence does not depend on the scale of the features, but the bounds of r do.
    squares_R = np.square(sizes_R / max(sizes_R[0], 1e-300))
    count, values = len(u_NR), []
    for y_N in (column for column in np.asarray(targets_NC, dtype=np.float64).T if np.ptp(column)):
        along_R = np.square(u_NR.T @ y_N)

        def lost(logarithm: float, along_R: Floats = along_R, total: float = float(y_N @ y_N)) -> float:
            ratio = math.exp(logarithm)
            mean = max((total - float((squares_R / (squares_R + ratio) * along_R).sum())) / count, 1e-12)
            return (math.log(2 * math.pi * mean) + 1 + float(np.log1p(squares_R / ratio).sum()) / count) / 2

        values.append(-minimize_scalar(lost, bounds=BOUNDS, method="bounded", options={"xatol": 1e-6}).fun)
    return float(np.mean(values))
