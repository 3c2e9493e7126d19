"""Features of a frozen encoder for a task's rows, per layer: one vector per text, or per word for tagging; and logistic
regressions on them and on the scalar mix of the layers.

Shape suffixes: S sequences, U units, L layers, M vectors of N rows, D width, C labels.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from torch import Tensor
from torch.nn import functional as F

from components.core.errors import ConfigError
from components.data.scoring import Scoring
from components.data.tasks.budgets import ALL, sample_rows
from components.data.tasks.data import Answer, Split
from components.data.tasks.examples import TaskFacts, read_facts, read_split, strata_of
from components.data.tasks.kinds import scoring_for
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

    @property
    def scoring(self) -> Scoring:
        """The metrics of the task."""
        return scoring_for(self.facts.kind, self.facts.labels)

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
    """(M, D_l) float32 features of the embedding and of each layer, lowest first, in the order of the rows. Of texts,
    the mean of the hidden states, over the sequences of a row; words have their `unit_states`."""
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


#: Strengths of the L2 penalty (1 / C), the strongest first, and maximum number of solver steps.
PENALTIES = (1000.0, 100.0, 10.0, 1.0)
STEPS = 100

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]


def normalised(train_LMD: Tensor, dev_LMD: Tensor) -> tuple[Tensor, Tensor]:
    """Every feature with mean 0 and std 1 on train."""
    mean, std = train_LMD.mean(1, keepdim=True), train_LMD.std(1, correction=0, keepdim=True)
    std = std.where(std > 1e-6, 1.0)
    return (train_LMD - mean) / std, (dev_LMD - mean) / std


def regressed(x_MD: Floats, labels: Labels, dev_MD: Floats, *, classes: int) -> list[Floats]:
    """(M, C) probabilities on dev of logistic regressions, one per penalty. Labels that are not in the sample have
    probability 0."""
    if len(np.unique(labels)) == 1:
        return [np.eye(classes)[np.full(len(dev_MD), labels[0])]]
    # Each fit is initialised with the previous one, which has a stronger penalty.
    regression = LogisticRegression(max_iter=STEPS, warm_start=True)
    predicted: list[Floats] = []
    for penalty in PENALTIES:
        with warnings.catch_warnings():
            # Reaching the maximum number of steps is acceptable.
            warnings.simplefilter("ignore", ConvergenceWarning)
            regression.set_params(C=1 / penalty).fit(x_MD, labels)
        probabilities = np.zeros((len(dev_MD), classes))
        probabilities[:, regression.classes_] = regression.predict_proba(dev_MD)
        predicted.append(probabilities)
    return predicted


def mixed(x_LMD: Tensor, labels: Labels, dev_LMD: Tensor, *, classes: int, penalty: float) -> tuple[Floats, Floats]:
    """Logistic regression on a scalar mix of layers (Peters et al. 2018, equation 1), fitted jointly by L-BFGS, with
    the same penalty as `regressed`.

    Returns:
        (M, C) probabilities on dev, and the (L,) weights of the layers, which sum to 1.
    """
    scores_L = torch.zeros(len(x_LMD), requires_grad=True)
    weight_CD = torch.zeros(classes, x_LMD.shape[2], requires_grad=True)
    bias_C = torch.zeros(classes, requires_grad=True)
    targets = torch.from_numpy(labels)
    # Of two labels, scikit-learn penalises the difference of the weights, whose square is twice the sum of theirs.
    strength = penalty if len(np.unique(labels)) == 2 else penalty / 2
    solver = torch.optim.LBFGS(
        [scores_L, weight_CD, bias_C], max_iter=STEPS, tolerance_grad=1e-4, line_search_fn="strong_wolfe"
    )

    def logits(x: Tensor) -> Tensor:
        return F.linear(torch.einsum("l,lmd->md", scores_L.softmax(0), x), weight_CD, bias_C)

    def closure() -> Tensor:
        solver.zero_grad()
        loss = F.cross_entropy(logits(x_LMD), targets, reduction="sum") + strength * weight_CD.square().sum()
        loss.backward()
        return loss

    solver.step(closure)
    with torch.no_grad():
        return logits(dev_LMD).softmax(1).numpy(), scores_L.softmax(0).numpy()
