"""Translation pairs in batches of similar length, and BLEU on held-out ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

import numpy as np
import torch

from components.core.errors import DataError, extras
from components.models.base import Batch, LanguageModel
from components.models.layers.host import to_device
from components.models.translation import TranslationModel
from components.tokenization.special import PAD, START, UNK
from components.training.rng import counter_rng
from components.training.windows import Ids, Tokens, WindowSampler

if TYPE_CHECKING:
    from components.tokenization import Tokenizer

#: Pairs are sorted by their length times a random factor between 1 and 1 + LENGTH_NOISE, so that batches differ between
#: epochs.
LENGTH_NOISE: Final = 0.1
#: Pairs that BLEU is measured on at most, and pairs that are translated together.
SCORED: Final = 500
TOGETHER: Final = 64


@runtime_checkable
class Pairs(Protocol):
    """A token store of translation pairs, whose documents are the sources."""

    def pair_lengths(self) -> Ids:
        """(documents, 2) number of pieces of each document and of its target, END included."""

    def document(self, index: int) -> Any:
        """(n,) pieces of a source, END included."""

    def target(self, index: int) -> Any:
        """(n,) pieces of its translation, END included."""


class TranslationSampler(WindowSampler):
    """Sources and their translations, each truncated to `window` pieces.

    The rows of a batch have similar lengths, so that it contains little padding. A batch has `batch_size` rows of
    `window` pieces, or a multiple of `batch_size` shorter rows, so that all batches have a similar cost and their rows
    can be divided among any number of workers. An epoch visits every pair once (a few twice, to fill the last batch);
    batches and their order are sampled for the epoch.

    Batch: `tokens` (B, T), sources padded with 0, and their `lengths` (B,); `decoder_tokens` (B, U), START and the
    target without its last piece, padded; `targets` (N,), the pieces to predict, row by row; `places` (N,), their
    indices in the flattened (B, U) of the global batch; `whole` (B, 2), in every row the numbers of targets and of rows
    of the global batch, over which the loss is averaged.

    Raises:
        DataError: the store contains no pairs.
    """

    def __init__(self, store: Tokens, *, batch_size: int, window: int, **options: Any) -> None:
        super().__init__(store, batch_size=batch_size, window=window, **options)
        if not isinstance(store, Pairs):
            raise DataError("the corpus contains no pairs; a translation family needs data.parallel")
        self.pairs = store
        lengths = np.minimum(store.pair_lengths(), window)
        # The repeated pairs are the same in every epoch, so the boundaries of batches are as well.
        self.members = np.resize(np.arange(len(lengths)), len(lengths) + -len(lengths) % batch_size)
        self.lengths: Ids = lengths
        self.longest = lengths.max(axis=1)[self.members]
        self.cuts = self._cuts(np.sort(self.longest))
        self.epoch_tokens = int(lengths[self.members, 0].sum())
        self._plans: dict[int, tuple[Ids, Ids, Ids]] = {}

    @property
    def has_constant_shapes(self) -> bool:
        return False

    def tokens_before(self, step: int) -> int:
        epoch, index = divmod(step, len(self.cuts) - 1)
        read = int(self._plan(epoch)[2][index - 1]) if index else 0
        return epoch * self.epoch_tokens + read

    def batch(self, step: int, rank: int = 0, world: int = 1) -> Batch:
        epoch, index = divmod(step, len(self.cuts) - 1)
        order, batches, _ = self._plan(epoch)
        all_rows = order[self.cuts[batches[index]] : self.cuts[batches[index] + 1]]
        multiple = len(all_rows) // self.batch_size
        share = self._rows(rank, world)
        first, last = share.start * multiple, share.stop * multiple
        rows = all_rows[first:last]
        lengths, (longest, longest_target) = self.lengths[rows], self.lengths[all_rows].max(axis=0)
        tokens = np.full((len(rows), longest), PAD, dtype=np.int64)
        decoder_tokens = np.full((len(rows), longest_target), PAD, dtype=np.int64)
        decoder_tokens[:, 0] = START
        targets = []
        for row, (pair, (length, target_length)) in enumerate(zip(rows.tolist(), lengths.tolist(), strict=True)):
            tokens[row, :length] = self.pairs.document(pair)[:length]
            target = self.pairs.target(pair)[:target_length]
            decoder_tokens[row, 1:target_length] = target[:-1]
            targets.append(target)
        in_row, columns = np.nonzero(np.arange(longest_target) < lengths[:, 1:])
        whole = [self.lengths[all_rows, 1].sum(), len(all_rows)]
        return {
            "tokens": torch.from_numpy(tokens),
            "lengths": torch.from_numpy(np.ascontiguousarray(lengths[:, 0])),
            "decoder_tokens": torch.from_numpy(decoder_tokens),
            "targets": torch.from_numpy(np.concatenate(targets).astype(np.int64)),
            "places": torch.from_numpy((first + in_row) * longest_target + columns),
            "whole": torch.from_numpy(np.tile(np.array(whole, dtype=np.int64), (len(rows), 1))),
        }

    def scores(self, model: LanguageModel, tokenizer: Tokenizer) -> dict[str, float]:
        """BLEU, in percent, of greedy translations of the first SCORED pairs, the same on every worker. Sources and
        translations have at most `window` pieces, references all of theirs."""
        assert isinstance(model, TranslationModel)
        references = [tokenizer.decode(self.pairs.target(pair).tolist()) for pair in range(len(self.lengths[:SCORED]))]
        return {"bleu": bleu(self.translations(model, tokenizer), references, tokenizer)}

    def translations(self, model: TranslationModel, tokenizer: Tokenizer) -> list[str]:
        """The greedy translations of the first SCORED pairs, without unknown words."""
        lengths, texts = self.lengths[:SCORED, 0], dict[int, str]()
        order = np.argsort(lengths, kind="stable")
        for rows in np.split(order, range(TOGETHER, len(order), TOGETHER)):
            tokens = np.full((len(rows), lengths[rows].max()), PAD, dtype=np.int64)
            for row, pair in enumerate(rows.tolist()):
                tokens[row, : lengths[pair]] = self.pairs.document(pair)[: lengths[pair]]
            batch = {"tokens": torch.from_numpy(tokens), "lengths": torch.from_numpy(lengths[rows])}
            words = model.translate(**to_device(batch, next(model.parameters()).device), most=self.window)
            for pair, ids in zip(rows.tolist(), words.tolist(), strict=True):
                texts[pair] = tokenizer.decode(id_ for id_ in ids if id_ != UNK)
        return [texts[pair] for pair in range(len(texts))]

    def _cuts(self, longest: Ids) -> Ids:
        """Boundaries of the batches in the pairs sorted by length, in multiples of `batch_size` rows."""
        wanted, cuts = self.batch_size * self.window, [0]
        while cuts[-1] < len(longest):
            start, end = cuts[-1], cuts[-1] + self.batch_size
            while (more := end + self.batch_size) <= len(longest) and (
                (more - start) * longest[more - 1] + (end - start) * longest[end - 1] <= 2 * wanted
            ):
                end = more
            cuts.append(end)
        return np.array(cuts)

    def _plan(self, epoch: int) -> tuple[Ids, Ids, Ids]:
        """The pairs of an epoch by length, the order of the batches, and cumulative source pieces."""
        if epoch not in self._plans:
            rng = counter_rng(self.seed, "translation", epoch)
            noisy = self.longest * (1 + LENGTH_NOISE * rng.random(len(self.longest)))
            order = self.members[np.argsort(noisy, kind="stable")]
            batches = rng.permutation(len(self.cuts) - 1)
            read = np.add.reduceat(self.lengths[order, 0], self.cuts[:-1])[batches]
            # The current epoch, and the previous or the next one.
            self._plans = {kept: plan for kept, plan in self._plans.items() if abs(kept - epoch) == 1}
            self._plans[epoch] = order, batches, np.cumsum(read)
        return self._plans[epoch]


def bleu(translations: Sequence[str], references: Sequence[str], tokenizer: Tokenizer) -> float:
    """BLEU in percent of a corpus (Papineni et al. 2002; Post 2018). Words of scripts without spaces are separated
    first. Unknown words match nothing.

    Raises:
        ConfigError: the package sacrebleu is not installed.
    """
    with extras():
        from sacrebleu.metrics import BLEU

    spaced = tokenizer.segmentation.spaced
    whole = [spaced(text.replace(tokenizer.pieces[UNK], "\ufffd")) for text in references]
    return float(BLEU(force=True).corpus_score(list(map(spaced, translations)), [whole]).score)
