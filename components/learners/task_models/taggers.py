"""Heads that predict one tag per unit (word): linear, CRF, biLSTM-CRF; legal transitions between tags, by name.

Shapes: S sequences of B rows, U units, F features, C tags, W units of a row (in all its sequences), N units in total.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from components.data.scoring.spans import legal_transitions
from components.data.tasks.data import Answer
from components.learners.task_models.heads import Head, shape_of
from components.learners.task_models.pooling import Inside
from components.models.base import Batch
from components.models.layers.chunks import Texts
from components.models.layers.crf import Legal, LinearChainCRF, illegal_scores, viterbi
from components.models.layers.dropout import LockedDropout, WordDropout
from components.models.layers.host import move, on_host
from components.models.layers.lstm import BiLSTM
from components.settings.finetune import FinetuneSettings

#: Width of each direction of the biLSTM, and rate at which whole units are dropped before it (Akbik et al. 2018).
LSTM_WIDTH = 256
WORD_DROPOUT = 0.05


class Tagger(Head):
    """Scores of the tags at each unit, by the layers of `Head`.

    `linear`: a softmax per unit; the prediction is the most probable legal sequence. `crf`: the scores are the
    emissions of a linear-chain CRF. `bilstm_crf`: before the CRF, a linear projection and a biLSTM (Akbik et al. 2018),
    with word dropout, and with `head_dropout` as the rate of a dropout that has one mask for all units of a sequence.

    The windows of a row are concatenated before loss and decoding, and before the LSTM, so that neither the sequence of
    tags nor the states of the LSTM end at window borders.

    Args:
        labels: names of the tags, which determine the legal transitions.
        settings: `tagger`, and the head's normalisation, dropout and (without LSTM) hidden layer.
    """

    reads_units = True
    _start: Tensor
    _step: Tensor
    _end: Tensor

    def __init__(self, settings: FinetuneSettings, features: int, labels: Sequence[str]) -> None:
        recurrent = settings.tagger == "bilstm_crf"
        shape = shape_of(settings)
        super().__init__(features, len(labels), **shape | ({"hidden": 0} if recurrent else {}))
        self.lstm: BiLSTM | None = None
        if recurrent:
            self.drop_words, self.drop_features = WordDropout(WORD_DROPOUT), LockedDropout(shape["dropout"][0])
            self.projection = nn.Linear(features, features)
            self.lstm = BiLSTM(features, LSTM_WIDTH)
            self.output = nn.Linear(2 * LSTM_WIDTH, len(labels))
        legal = Legal(*map(torch.from_numpy, legal_transitions(labels)))
        self.crf = LinearChainCRF(len(labels), legal=legal) if settings.tagger != "linear" else None
        for name, scores in zip(("start", "step", "end"), illegal_scores(legal), strict=True):
            # Derived from the labels, therefore not stored.
            self.register_buffer(f"_{name}", scores, persistent=False)

    def forward(self, features: Tensor, batch: Batch | None = None) -> Tensor:
        """(S, U, F) -> scores (S, U, C), 0 at padding; the LSTM reads the windows of a row as one sequence."""
        if self.lstm is None:
            return super().forward(features, batch)
        assert batch is not None, "a tagger reads units"
        units = Inside.of(batch["unit_lengths"], features.shape[1])
        x_SUF = self._locked(self.drop_words(units.put(self.norm(units.take(features)))))
        x_BWF, lengths_B = _of_rows(self.projection(x_SUF), batch)
        states_BWH = self.lstm(x_BWF, Texts(lengths_B))
        x_SUH = self._locked(units.put(Inside.of(lengths_B, x_BWF.shape[1]).take(states_BWH)))
        return units.put(self.output(units.take(x_SUH)))

    def _locked(self, x_SUF: Tensor) -> Tensor:
        return self.drop_features(x_SUF.transpose(0, 1)).transpose(0, 1)

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        """Mean negative log-likelihood per unit: of the tags, or of the rows' sequences by the CRF."""
        if self.crf is None:
            return super().loss(outputs, batch)
        scores_BWC, lengths_B = _of_rows(outputs.float(), batch)
        tags_BW = batch["targets"].nan_to_num().long()
        return -self.crf.log_likelihood(scores_BWC, tags_BW, lengths_B).sum().float() / lengths_B.sum()

    def logits(self, outputs: Tensor, batch: Batch) -> Tensor:
        return Inside.of(batch["unit_lengths"], outputs.shape[1]).take(outputs)

    def values(self, batch: Batch) -> Tensor:
        targets_BW = batch["targets"]
        return Inside.of(_units_of_rows(batch), targets_BW.shape[1]).take(targets_BW).long()

    def shares(self, batch: Batch) -> Tensor:
        targets_BWC = batch["targets"].unflatten(1, (-1, self.output.out_features))
        return Inside.of(_units_of_rows(batch), targets_BWC.shape[1]).take(targets_BWC)

    def taught(self, outputs: Tensor, batch: Batch) -> list[Answer]:
        """Probabilities (W * C,) of the tags at each unit of each row; not of a CRF."""
        counts = on_host(_units_of_rows(batch)).tolist()
        shares = self.logits(outputs.float(), batch).softmax(-1).cpu().split(counts)
        return [each.flatten().numpy() for each in shares]

    def answers(self, outputs: Tensor, batch: Batch) -> list[Answer]:
        """Tag indices (W,) of each row: the best legal sequence."""
        scores_BWC, lengths_B = _of_rows(outputs.float(), batch)
        if self.crf is None:
            # Scores instead of log-probabilities: they differ by a constant per unit.
            found_BW = viterbi(scores_BWC, lengths_B, start=self._start, step=self._step, end=self._end)
        else:
            found_BW = self.crf.decode(scores_BWC, lengths_B)
        tags = found_BW.cpu().numpy().astype(np.float32)
        return [row[:length] for row, length in zip(tags, on_host(lengths_B).tolist(), strict=True)]


def _units_of_rows(batch: Batch) -> Tensor:
    rows, lengths = on_host(batch["rows"]), on_host(batch["unit_lengths"])
    # `rows` is ascending and every row has a sequence, so the last entry gives B.
    return move(lengths.new_zeros(int(rows[-1]) + 1).index_add(0, rows, lengths), batch["unit_lengths"].device)


def _of_rows(outputs_SUC: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    """The outputs of each row, its sequences concatenated (B, W, C), and (B,) numbers of units."""
    lengths_B = _units_of_rows(batch)
    of_windows = Inside.of(batch["unit_lengths"], outputs_SUC.shape[1])
    of_rows = Inside.of(lengths_B, int(on_host(lengths_B).max()))
    return of_rows.put(of_windows.take(outputs_SUC)), lengths_B
