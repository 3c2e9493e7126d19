"""The text of a corpus in several languages, with small languages repeated."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from components.tokenization.languages import repetitions
from components.tokenization.selection import Selection
from components.tokenization.store import TokenStore
from components.training.rng import counter_rng

#: Name of the documents that have no language, such as general text that is repeated during adaptation.
OTHER: Final = "other"


class Balanced(Selection):
    """A view of a corpus in which each language is repeated as often as `repetitions` says; a fraction of a pass is a
    random sample of its documents. The documents of a language follow each other. Documents without a language keep
    their share of the text. Samplers read an epoch in random order, so batches have the language shares of the view.

    Args:
        store: the corpus.
        chosen: (n,) numbers of documents of `store`.
        exponent: alpha of `repetitions`.
        seed: of the samples.

    Attributes:
        languages: in the order of the view.
        starts: (len(languages) + 1,) position in the stream of the view at which each language begins, and the end.
        distinct: (len(languages),) number of different documents of each language.
    """

    def __init__(self, store: TokenStore, chosen: NDArray[np.int64], *, exponent: float, seed: int) -> None:
        own = {name: np.intersect1d(documents, chosen) for name, documents in store.languages.items()}
        lengths = np.diff(store.offsets)
        sizes = {name: int(lengths[documents].sum()) for name, documents in own.items() if len(documents)}
        times = repetitions(sizes, exponent)
        parts = {
            name: _repeated(own[name], lengths, times=times[name], rng=counter_rng(seed, "language", name))
            for name in sizes
        }
        rest = np.setdiff1d(chosen, np.concatenate([*own.values()]))
        if len(rest):
            share = sum(sizes[name] * times[name] for name in sizes) / sum(sizes.values())
            parts[OTHER] = _repeated(rest, lengths, times=share, rng=counter_rng(seed, "language", OTHER))
            own[OTHER] = rest
        super().__init__(store, np.concatenate([*parts.values()]))
        self.languages = [*parts]
        self._firsts = np.cumsum([0, *map(len, parts.values())])
        self.starts: NDArray[np.int64] = self.offsets[self._firsts]
        self.distinct = np.array([len(own[name]) for name in parts])

    def shares(self) -> dict[str, float]:
        """Language -> its share of the tokens of the view: p_i."""
        parts = np.diff(self.starts) / self.tokens
        return dict(zip(self.languages, parts.tolist(), strict=True))

    def another(self, document: int, chance: float) -> int:
        """A different document of the same language; of any language if it has no other."""
        language = int(np.searchsorted(self._firsts, document, side="right")) - 1
        first, distinct = int(self._firsts[language]), int(self.distinct[language])
        if distinct < 2:
            return super().another(document, chance)
        # The first pass has each document once, in ascending order.
        own = int(np.searchsorted(self.chosen[first : first + distinct], self.chosen[document]))
        return first + (own + 1 + int(chance * (distinct - 1))) % distinct


def _repeated(
    documents: NDArray[np.int64], lengths: NDArray[np.int64], *, times: float, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Documents in ascending order, as often as `times` says; the last document is not cut."""
    passes = int(times)
    order = rng.permutation(documents)
    read = np.cumsum(lengths[order])
    wanted = (times - passes) * read[-1]
    # The number of documents whose tokens come nearest to the fraction of a pass.
    nearest = int(np.abs(np.concatenate(([0], read)) - wanted).argmin())
    return np.concatenate([*[documents] * passes, np.sort(order[:nearest])])
