"""Rows of text with masked pieces, without padding, and pairs of sentences, for BERT, RoBERTa and ALBERT."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Final

import numpy as np
import torch
from numpy.typing import NDArray

from components.core.errors import DataError
from components.models.base import Batch
from components.tokenization.special import END, FIRST_ORDINARY, MASK, START
from components.training.rng import counter_rng
from components.training.windows import Ids, Tokens, WindowSampler

#: Fraction of a row's pieces that are predicted. Of these, MASKED is the fraction replaced by [MASK], REPLACED the
#: fraction replaced by a random piece; the others stay unchanged in the input.
PREDICTED: Final = 0.15
MASKED: Final = 0.8
REPLACED: Final = 0.1
#: Prefix of WordPiece pieces inside a word.
INSIDE: Final = "##"
#: Prefixes of byte-level BPE and unigram pieces at the beginning of a word.
BEGINNINGS: Final = ("Ġ", "▁")

Uniform = NDArray[np.float64]


class Masking:
    """Masks K = round(0.15 window) pieces of each row, so that all rows have the same weight.

    Special pieces are predicted only if a row has fewer than K others. With whole-word masking (`pieces`: id -> piece),
    all pieces of a word are predicted (each is masked, replaced or kept separately), of the last word perhaps only a
    part."""

    def __init__(self, window: int, *, vocabulary: int, pieces: Sequence[str] = ()) -> None:
        self.window, self.vocabulary = window, vocabulary
        self.predicted = max(1, round(PREDICTED * window))
        self.inside = inside_words(pieces) if pieces else None

    @property
    def samples(self) -> int:
        return self.window + 2 * self.predicted

    def __call__(self, tokens: Ids, noise: Uniform) -> tuple[Ids, Ids, Ids]:
        """tokens (B, window), noise (B, samples) uniform in [0, 1) -> masked tokens (B, window); positions (B, K) of
        the predicted pieces, sorted; these pieces (B, K)."""
        order, chance, replacement = np.split(noise, [self.window, self.window + self.predicted], axis=1)
        order = order + (tokens < FIRST_ORDINARY)
        if self.inside is not None:
            order = np.stack([self._by_words(*row) for row in zip(tokens, order, strict=True)])
        positions = np.sort(np.argpartition(order, self.predicted - 1, axis=1)[:, : self.predicted], axis=1)
        targets = np.take_along_axis(tokens, positions, axis=1)
        disguised = _masked(targets, chance, replacement, vocabulary=self.vocabulary)
        tokens = tokens.copy()
        np.put_along_axis(tokens, positions, disguised, axis=1)
        return tokens, positions, targets

    def _by_words(self, tokens: Ids, order: Uniform) -> Uniform:
        """Ranks (window,) whose K lowest are whole words; words are ordered by the noise of their first piece."""
        assert self.inside is not None
        special = tokens < FIRST_ORDINARY
        # A special piece belongs to no word, and the next piece begins one.
        begins = ~self.inside[tokens] | special | np.concatenate(([True], special[:-1]))
        starts = np.flatnonzero(begins)
        lengths = np.diff(starts, append=len(tokens))
        ranks = np.empty(len(starts))
        room, later = self.predicted, len(starts)
        for rank, word in enumerate(np.argsort(order[starts], kind="stable")):
            # Words longer than the remaining number of predictions come after those that fit; special pieces last.
            fits = lengths[word] <= room and not special[starts[word]]
            ranks[word] = rank if fits else rank + later * (1 + special[starts[word]])
            room -= lengths[word] if fits else 0
        return np.repeat(ranks, lengths) + np.arange(len(tokens)) / len(tokens)


def _masked(targets: Ids, chance: Uniform, replacement: Uniform, *, vocabulary: int) -> Ids:
    """The input at the positions of predicted pieces; `chance` and `replacement` are uniform samples of their shape."""
    replacements = FIRST_ORDINARY + (replacement * max(1, vocabulary - FIRST_ORDINARY)).astype(np.int64)
    unmasked = np.where(chance < MASKED + REPLACED, np.minimum(replacements, vocabulary - 1), targets)
    return np.where(chance < MASKED, MASK, unmasked)


def inside_words(pieces: Sequence[str]) -> NDArray[np.bool_]:
    """(V,) whether a piece continues the word of the previous piece. The most frequent mark in the vocabulary decides:
    `##` inside a word, `Ġ` or `▁` at its beginning. Without any mark, every piece is a word."""
    marks = {mark: sum(piece.startswith(mark) and len(piece) > len(mark) for piece in pieces) for mark in BEGINNINGS}
    mark = max(marks, key=marks.__getitem__)
    continued = np.array([piece.startswith(INSIDE) and len(piece) > len(INSIDE) for piece in pieces])
    if marks[mark] <= continued.sum():
        return continued
    return np.array([not piece.startswith(mark) for piece in pieces])


class RowSampler(WindowSampler):
    """Rows of exactly `window` pieces, special pieces included; each begins with a sentence.

    An epoch covers the whole stream: rows begin at intervals of a row's length without special pieces, in an order
    sampled for the epoch. A document that ends within a row is followed by END and the next document. Masks are sampled
    for each row of each step (dynamic masking).

    Batch: `tokens` (B, window), `positions`, `targets` (B, K) of `Masking`, and the additions of a subclass. The
    model's config says whether whole words are masked (`whole_words`).

    Raises:
        DataError: the window is too small for special pieces and text.
    """

    #: Number of special pieces per row.
    frame: ClassVar[int]
    #: Number of uniform samples that select the text of a row.
    choices: int = 0

    def __init__(self, store: Tokens, *, window: int, **options: Any) -> None:
        super().__init__(store, window=window, **options)
        self.text = window - self.frame
        if self.text < 2:
            raise DataError(
                f"training.window {window} leaves no room for two pieces of text; choose at least {self.frame + 2}"
            )
        self.slots = max(1, store.tokens // self.text - 1)
        whole_words = getattr(self.config, "whole_words", False)
        self.masking = Masking(window, vocabulary=self.vocabulary, pieces=self.pieces if whole_words else ())
        self._order: tuple[int, Ids] = (-1, np.empty(0, np.int64))

    @abstractmethod
    def _texts(self, rows: Sequence[int], choices: NDArray[np.float64]) -> tuple[Ids, Batch]:
        """Unmasked pieces (B, window) of rows, and further entries of the batch."""

    def batch(self, step: int, rank: int = 0, world: int = 1) -> Batch:
        rows = self._rows(rank, world)
        share = slice(rows.start, rows.stop)
        # Sampled for the global batch, so that a row does not depend on the number of workers.
        rng = counter_rng(self.seed, "rows", step)
        choices = rng.random((self.batch_size, self.choices))[share]
        noise = rng.random((self.batch_size, self.masking.samples))[share]
        texts, more = self._texts([step * self.batch_size + row for row in rows], choices)
        tokens, positions, targets = self.masking(texts, noise)
        masked = {"tokens": tokens, "positions": positions, "targets": targets}
        return {name: torch.from_numpy(value) for name, value in masked.items()} | more

    def _sentence(self, row: int) -> tuple[int, int]:
        """Position in the stream of the sentence with which a row begins, and the index of its document."""
        epoch, slot = divmod(row, self.slots)
        if self._order[0] != epoch:
            self._order = epoch, counter_rng(self.seed, "slots", epoch).permutation(self.slots)
        # A random phase per epoch: rows begin at different positions in every epoch.
        phase = counter_rng(self.seed, "phase", epoch).integers(self.text) if self.slots > 1 else 0
        start = int(self._order[1][slot]) * self.text + int(phase)
        offsets = self.store.offsets
        document = int(np.searchsorted(offsets, start, side="right")) - 1
        starts = self.store.sentence_starts(document)
        inside = int(np.searchsorted(starts, start - offsets[document], side="right")) - 1
        return int(offsets[document]) + int(starts[max(0, inside)]), document


class FullSentencesSampler(RowSampler):
    """[CLS] text [SEP] of consecutive sentences, across documents (FULL-SENTENCES of Liu et al. 2019, section 4.2). The
    last sentence is truncated at the end of the row, so that rows need no padding."""

    frame = 2

    def _texts(self, rows: Sequence[int], choices: NDArray[np.float64]) -> tuple[Ids, Batch]:
        texts = [self.store.span(self._sentence(row)[0], self.text) for row in rows]
        return np.stack([np.concatenate(([START], text, [END]), dtype=np.int64) for text in texts]), {}


#: Label of a row whose text contains no pair: no sentence begins within a document. `cross_entropy` ignores it.
NO_PAIR = -100
#: Minimum fraction of the row for A and for B, if a sentence boundary allows it.
LEAST_SHARE = 1 / 8


class PairSampler(RowSampler):
    """[CLS] A [SEP] B [SEP] with `segments` (B, window) 0 up to the first [SEP], then 1; A and B have `window` - 3
    pieces together. If the row's text contains a pair, both begin with a sentence."""

    frame = 3

    def _joined(self, pairs: Sequence[tuple[Ids, Ids]]) -> tuple[Ids, Batch]:
        tokens = np.stack([np.concatenate(([START], a, [END], b, [END]), dtype=np.int64) for a, b in pairs])
        lengths = np.array([len(a) + 2 for a, _ in pairs])
        segments = (np.arange(self.window) >= lengths[:, None]).astype(np.int64)
        return tokens, {"segments": torch.from_numpy(segments)}

    def _sentences(self, start: int, document: int) -> tuple[Ids, NDArray[np.bool_]]:
        """Positions of the sentences of the row's documents, and whether each is the first of its document."""
        end = min(start + self.text, self.store.tokens)
        begins, firsts = [], []
        while document < self.store.documents and (offset := int(self.store.offsets[document])) < end:
            begins.append(offset + np.asarray(self.store.sentence_starts(document), dtype=np.int64))
            firsts.append(np.arange(len(begins[-1])) == 0)
            document += 1
        return np.concatenate(begins), np.concatenate(firsts)


class SentencePairSampler(PairSampler):
    """Rows for next-sentence prediction (Devlin et al. 2019, section 3.1 and appendices A.1 and A.2): with probability
    0.5 B follows A in the same document, otherwise it is from another, random document.

    Documents of one sentence contain no pair. A random B in all such rows would show the label by the form of A, so
    these rows train the masked pieces only.

    Batch: as of `PairSampler`, and `next_sentence` (B,), 0 if B follows A, 1 if it is random, `NO_PAIR` otherwise.

    Raises:
        DataError: the store contains only one document.
    """

    choices = 4

    def __init__(self, store: Tokens, **options: Any) -> None:
        super().__init__(store, **options)
        if store.documents < 2:
            raise DataError("next-sentence prediction needs at least two documents; the corpus contains one")

    def _texts(self, rows: Sequence[int], choices: NDArray[np.float64]) -> tuple[Ids, Batch]:
        pairs = [self._pair(row, *choice) for row, choice in zip(rows, choices, strict=True)]
        tokens, batch = self._joined([(a, b) for a, b, _ in pairs])
        return tokens, batch | {"next_sentence": torch.tensor([label for *_, label in pairs])}

    def _pair(self, row: int, cut: float, coin: float, document: float, sentence: float) -> tuple[Ids, Ids, int]:
        offsets = self.store.offsets
        start, here = self._sentence(row)
        cuts = self._cuts(start, here)
        if not len(cuts):
            length = self.text // 2
            return self.store.span(start, length), self.store.span(start + length, self.text - length), NO_PAIR
        second = int(cuts[int(cut * len(cuts))])
        length = second - start
        is_random = coin < 0.5
        if is_random:
            # Any document except the one in which A ends.
            ends_in = int(np.searchsorted(offsets, min(second, self.store.tokens) - 1, side="right")) - 1
            documents = self.store.documents
            other = (ends_in + 1 + int(document * (documents - 1))) % documents
            starts = self.store.sentence_starts(other)
            second = int(offsets[other]) + int(starts[int(sentence * len(starts))])
        return self.store.span(start, length), self.store.span(second, self.text - length), int(is_random)

    def _cuts(self, start: int, document: int) -> Ids:
        """Positions at which B may begin, possibly none: sentences other than the first of a document."""
        begins, first = self._sentences(start, document)
        end = min(start + self.text, self.store.tokens)
        margin = LEAST_SHARE * self.text
        inside = begins[~first & (begins > start) & (begins < end)]
        central = inside[(inside > start + margin) & (inside < end - margin)]
        return central if len(central) else inside


class SentenceOrderSampler(PairSampler):
    """Two parts of a text, one after the other, swapped with probability 0.5 (Lan et al. 2020, section 3.1).

    The form of the parts must not reveal their order: both begin with a sentence and have the same distribution of
    lengths. So the earlier part ends at a random position, and the later part begins with the next sentence of the same
    document. Rows without a pair train the masked pieces only.

    Batch: as of `PairSampler`, and `sentence_order` (B,), 0 if A is first in the text, 1 if B is, `NO_PAIR` otherwise.
    """

    choices = 2

    def _texts(self, rows: Sequence[int], choices: NDArray[np.float64]) -> tuple[Ids, Batch]:
        pairs, labels = [], []
        for row, (cut, coin) in zip(rows, choices, strict=True):
            earlier, later, is_pair = self._parts(row, cut)
            swap = is_pair and coin < 0.5
            pairs.append((later, earlier) if swap else (earlier, later))
            labels.append(int(swap) if is_pair else NO_PAIR)
        tokens, batch = self._joined(pairs)
        return tokens, batch | {"sentence_order": torch.tensor(labels)}

    def _parts(self, row: int, cut: float) -> tuple[Ids, Ids, bool]:
        """The earlier and the later part of a row, and whether they are a pair; `cut` is uniform in [0, 1)."""
        start, here = self._sentence(row)
        begins, first = self._sentences(start, here)
        before = np.concatenate(([start], begins[:-1]))
        margin = int(LEAST_SHARE * self.text)
        for least in (margin, 1):
            # Before each sentence, the earlier part has `room` possible ends, from position `lowest`.
            lowest = np.maximum(before + 1, start + least)
            room = np.maximum(0, np.minimum(begins, start + self.text - least) - lowest + 1) * ~first
            if room.any():
                ends = np.cumsum(room)
                sampled = int(cut * ends[-1])
                sentence = int(np.searchsorted(ends, sampled, side="right"))
                length = int(lowest[sentence] + sampled - (ends[sentence] - room[sentence])) - start
                second = int(begins[sentence])
                return self.store.span(start, length), self.store.span(second, self.text - length), True
        length = self.text // 2
        return self.store.span(start, length), self.store.span(start + length, self.text - length), False
