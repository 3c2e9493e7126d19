"""Consistency of a model's predictions for two views of a text without labels, beside the loss of labelled rows.

The teacher is an average of the model's weights (Tarvainen and Valpola 2017, "Mean teachers") that reads the whole text
without dropout. The model reads the text without some of its pieces and with dropout, and learns the teacher's
sharpened predictions (UDA, Xie et al. 2020, section 2; FixMatch, Sohn et al. 2020, section 2.2) where they are
confident. Their distribution over the classes is first aligned with that of the labelled rows (ReMixMatch, Berthelot et
al. 2020, section 3.1), so that the model does not predict ever fewer classes.

Shapes: B labelled rows, U unlabelled rows of a batch, C labels.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from components.models.base import Batch, Carry, LanguageModel, Losses, count_tensor
from components.settings.unlabelled import UnlabelledSettings
from components.task_models.base import Encoded
from components.task_models.heads import LabelHead
from components.task_models.model import TaskModel, evaluating
from components.task_models.sampler import ExampleSampler, collate
from components.tokenization import Tokenizer
from components.tokenization.special import FIRST_ORDINARY, UNK
from components.training.rng import counter_rng
from components.training.windows import Sampler

#: Prefixes of the tensors of a batch: what the teacher reads, and what the model reads.
WHOLE, PARTIAL = "whole.", "partial."
#: Decay of the mean of the teacher's predictions.
MEAN_DECAY = 0.99


class ConsistencySampler(Sampler):
    """Batches of labelled rows, with two views of unlabelled rows.

    Args:
        labelled: batches of labelled rows.
        encoded: unlabelled rows.
        ratio: unlabelled rows per labelled row.
        dropped: share of the pieces that are left out of the second view.
        kept: ids of pieces that are never left out.
        seed: of the order and of the pieces.
    """

    def __init__(
        self,
        labelled: ExampleSampler,
        encoded: Sequence[Encoded],
        *,
        ratio: int,
        dropped: float,
        kept: frozenset[int],
        seed: int,
    ) -> None:
        self.labelled, self.encoded, self.dropped, self.seed = labelled, encoded, dropped, seed
        self.kept = np.asarray(sorted(kept), dtype=np.int64)
        size = min(len(encoded), ratio * min(labelled.batch_size, len(labelled.encoded)))
        self.unlabelled = ExampleSampler(encoded, [], batch_size=size, seed=seed)

    def batch(self, step: int, rank: int = 0, world: int = 1) -> Batch:
        """The batch of a step, or the part of it on one rank."""
        rows = self.unlabelled.rows(step)[rank::world]
        whole = [self.encoded[row] for row in rows]
        partial = [self._partial(step, int(row)) for row in rows]
        batch = self.labelled.batch(step, rank, world)
        for prefix, view in ((WHOLE, whole), (PARTIAL, partial)):
            batch |= {f"{prefix}{name}": tensor for name, tensor in collate(view).items()}
        return batch

    def tokens_before(self, step: int) -> int:
        """Number of tokens before a step; of an unlabelled row those of one view."""
        return self.labelled.tokens_before(step) + self.unlabelled.tokens_before(step)

    def _partial(self, step: int, row: int) -> Encoded:
        rng = counter_rng(self.seed, "dropped", step, row)
        pieces, segments = [], []
        for own, segment in zip(self.encoded[row].pieces, self.encoded[row].segments, strict=True):
            stays = (rng.random(len(own)) >= self.dropped) | (own < FIRST_ORDINARY) | np.isin(own, self.kept)
            if len(own) and not stays.any():
                stays[int(rng.integers(len(own)))] = True
            pieces.append(own[stays])
            segments.append(segment[stays])
        found = Encoded.of_texts(pieces, segments)
        return found.with_units() if any(map(len, self.encoded[row].units)) else found


def kept_pieces(encoder: LanguageModel) -> frozenset[int]:
    """Ids of the pieces that a family adds to texts."""
    return frozenset([*encoder.special_tokens([UNK]), *encoder.pair_tokens([UNK], [UNK])[0]]) - {UNK}


class ConsistentModel(nn.Module):
    """A task model that learns from labelled and from unlabelled rows.

    Args:
        model: encoder and head; the head has one probability per label.
        settings: of the consistency loss.
        shares: (C,) shares of the labels among the labelled rows, with which exclusive labels are aligned.
        tokenizer: of the encoder, which may refer to it; the teacher refers to the same one.
    """

    shares: Tensor
    mean: Tensor
    updates: Tensor

    def __init__(
        self,
        model: TaskModel,
        *,
        settings: UnlabelledSettings,
        shares: NDArray[np.float64],
        tokenizer: Tokenizer | None = None,
    ) -> None:
        super().__init__()
        assert isinstance(model.head, LabelHead)
        self.model = model
        self.settings = settings
        self.exclusive = model.head.exclusive
        self.register_buffer("shares", torch.from_numpy(shares).float())
        #: Running mean of the teacher's predictions.
        self.register_buffer("mean", torch.from_numpy(shares).float())
        #: Number of steps so far.
        self.register_buffer("updates", torch.zeros((), dtype=torch.int64))
        self.teacher = copy.deepcopy(model, {} if tokenizer is None else {id(tokenizer): tokenizer})
        self.teacher.requires_grad_(False)
        self.eval()

    @torch.no_grad()
    def restart(self) -> None:
        """Set the teacher to the model as it is."""
        self.teacher.load_state_dict(self.model.state_dict())

    def train(self, mode: bool = True) -> ConsistentModel:
        """Training mode of the model; the teacher never has dropout."""
        super().train(mode)
        self.teacher.eval()
        return self

    def losses(self, batch: Batch, carry: Carry = ()) -> Losses:
        """The loss of the labelled rows, plus `consistency` times that of the unlabelled rows."""
        self._follow()
        labelled = {name: tensor for name, tensor in batch.items() if not name.startswith((WHOLE, PARTIAL))}
        found = self.model.losses(labelled)
        targets = self._targets(_view(batch, WHOLE))
        outputs = self.model(_view(batch, PARTIAL))
        loss = self.loss(outputs, targets)
        count = count_tensor(len(targets), loss)
        return Losses(
            found.loss + self.settings.consistency * loss, found.sums | {"unlabelled": (loss.detach() * count, count)}
        )

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Cross entropy of sharpened targets, averaged over all unlabelled rows; 0 for a row that is not confident. For
        independent labels, binary cross entropies, averaged over rows and labels; 0 for labels that are not confident.

        Args:
            outputs: (U, C) logits.
            targets: (U, C) probabilities of the teacher, aligned.
        """
        outputs, threshold, inverse = outputs.float(), self.settings.confidence, 1 / self.settings.temperature
        if self.exclusive:
            sure = targets.amax(1) >= threshold
            sharp = targets.pow(inverse)
            sharp = sharp / sharp.sum(1, keepdim=True)
            return (-(sharp * outputs.log_softmax(1)).sum(1) * sure).mean()
        sure = torch.maximum(targets, 1 - targets) >= threshold
        yes, no = targets.pow(inverse), (1 - targets).pow(inverse)
        entropies = nn.functional.binary_cross_entropy_with_logits(outputs, yes / (yes + no), reduction="none")
        return (entropies * sure).mean()

    @torch.no_grad()
    def _follow(self) -> None:
        """Move the teacher towards the model; in the first steps faster, as `WeightAverage`."""
        if not self.training:
            return
        count = int(self.updates) + 1
        self.updates.fill_(count)
        keep = min(self.settings.decay, (1 + count) / (10 + count))
        own = [parameter.data for parameter in self.model.parameters()]
        torch._foreach_lerp_([parameter.data for parameter in self.teacher.parameters()], own, 1 - keep)
        for mine, theirs in zip(self.teacher.buffers(), self.model.buffers(), strict=True):
            mine.copy_(theirs)

    @torch.no_grad()
    def _targets(self, batch: Batch) -> Tensor:
        """(U, C) probabilities by the teacher; exclusive ones aligned with the shares of the labels."""
        with evaluating(self.teacher):
            outputs = self.teacher(batch).float()
        if not self.exclusive:
            return outputs.sigmoid()
        found = outputs.softmax(1)
        self.mean.lerp_(found.mean(0), 1 - MEAN_DECAY)
        aligned = found * (self.shares / self.mean.clamp(min=1e-6))
        return aligned / aligned.sum(1, keepdim=True).clamp(min=1e-12)


def _view(batch: Batch, prefix: str) -> Batch:
    return {name.removeprefix(prefix): tensor for name, tensor in batch.items() if name.startswith(prefix)}
