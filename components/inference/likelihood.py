"""How probable a language model finds a text: of pieces that come next, and of pieces for gaps.

Shape suffixes: B rows, T positions, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from components.errors import ConfigError, DataError
from components.models.base import Carry, LanguageModel
from components.tokenization.special import END, MASK, UNK

#: Logits of a batch at most: 128 MiB.
LOGITS: Final = 1 << 25
#: Pieces of a stretch, where a model carries its state along.
STRETCH: Final = 256

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Gap:
    """Pieces with some of them wanted.

    Attributes:
        pieces: a whole input, special pieces included.
        places: where the wanted ones stand.
    """

    pieces: Sequence[int]
    places: Sequence[int]


@torch.no_grad()
def next_pieces(model: LanguageModel, inputs: Sequence[Gap]) -> list[Floats]:
    """log p(piece | all pieces before it), in nats, of the wanted pieces of each input; for causal families.

    Raises:
        ConfigError: the model predicts no pieces, or not those that come next.
    """
    return _scored(model, inputs, shift=1)


@torch.no_grad()
def gaps(model: LanguageModel, inputs: Sequence[Gap]) -> list[Floats]:
    """log p(piece | the input with [MASK] at all wanted places), in nats, of the wanted pieces of each input; for
    masked families (Petroni et al. 2019, Language Models as Knowledge Bases; several masks: Schick and Schütze 2021).

    Raises:
        ConfigError: the model predicts no pieces.
    """
    return _scored(model, inputs, shift=0)


def _scored(model: LanguageModel, inputs: Sequence[Gap], *, shift: int) -> list[Floats]:
    model.eval()
    found: list[Floats] = [np.zeros(0)] * len(inputs)
    for rows in _batches([len(entry.pieces) for entry in inputs], model.config.vocabulary):
        logits_BTV = _logits(model, [inputs[row] for row in rows], masked=not shift)
        for row, logits_TV in zip(rows, logits_BTV, strict=True):
            places = np.asarray(inputs[row].places, dtype=np.int64)
            wanted = torch.tensor([_known(model, inputs[row].pieces[place]) for place in places])
            # Wherever the piece at a place is said: there, or one place before.
            shares = logits_TV[torch.from_numpy(places - shift)].double().log_softmax(-1).cpu()
            found[row] = shares.gather(1, wanted[:, None]).squeeze(1).numpy()
    return found


def _logits(model: LanguageModel, inputs: Sequence[Gap], *, masked: bool) -> Tensor:
    tokens = np.asarray([entry.pieces for entry in inputs], dtype=np.int64)
    if masked:
        for row, entry in zip(tokens, inputs, strict=True):
            row[list(entry.places)] = MASK
    return model.predict(torch.from_numpy(tokens).to(next(model.parameters()).device))[0]


def _batches(lengths: Sequence[int], vocabulary: int) -> Iterator[list[int]]:
    """Inputs of one length together, as many as memory is for: `predict` takes no padding."""
    by_length: dict[int, list[int]] = {}
    for row, length in enumerate(lengths):
        by_length.setdefault(length, []).append(row)
    for length, rows in sorted(by_length.items()):
        most = max(1, LOGITS // (length * vocabulary))
        for start in range(0, len(rows), most):
            yield rows[start : start + most]


def _known(model: LanguageModel, piece: int) -> int:
    """A piece that only an open vocabulary has is an unknown one to the output layer."""
    return piece if piece < model.config.vocabulary else UNK


@torch.no_grad()
def running_text(model: LanguageModel, pieces: Sequence[int]) -> Floats:
    """log p(piece | those before it) of every piece of a text, (len(pieces),) in nats; for causal families.

    END stands before the text, as it does in pretraining. A model that carries its state has read everything before;
    one of limited positions reads the text in windows that overlap by a half, and so has read at least half a window.

    Raises:
        ConfigError: the model predicts no pieces, or not those that come next.
    """
    tokens = [END, *pieces]
    model.eval()
    if model.max_tokens is None:
        parts = []
        carry: Carry = ()
        device = next(model.parameters()).device
        wanted = torch.tensor([_known(model, piece) for piece in pieces], dtype=torch.int64)
        for start in range(0, len(pieces), STRETCH):
            read = torch.tensor([tokens[start : start + min(STRETCH, len(pieces) - start)]], device=device)
            logits_1TV, carry = model.predict(read, carry)
            shares_TV = logits_1TV[0].double().log_softmax(-1).cpu()
            parts.append(shares_TV.gather(1, wanted[start : start + STRETCH, None]).squeeze(1).numpy())
        return np.concatenate([*parts, np.zeros(0)])
    inputs = []
    done = 1
    while done < len(tokens):
        start = 0 if done == 1 else max(0, done - model.max_tokens // 2)
        end = min(len(tokens), start + model.max_tokens)
        inputs.append(Gap(tokens[start:end], range(done - start, end - start)))
        done = end
    return np.concatenate([*next_pieces(model, inputs), np.zeros(0)])


def pseudo(model: LanguageModel, pieces: Sequence[int]) -> Floats:
    """log p(piece | all the others) of every piece of a text, (len(pieces),) in nats; for masked families.

    Each piece in turn is the only [MASK] (Salazar et al. 2020, Masked Language Model Scoring): as many inputs as
    pieces. A longer text is cut into stretches that the model has positions for.

    Raises:
        ConfigError: the model predicts no pieces.
    """
    around = len(model.special_tokens([]))
    room = len(pieces) if model.max_tokens is None else model.max_tokens - around
    lead = model.special_tokens([-1]).index(-1)
    found = [np.zeros(0)]
    for start in range(0, len(pieces), max(1, room)):
        stretch = list(pieces[start : start + room])
        whole = model.special_tokens(stretch)
        shares = gaps(model, [Gap(whole, [lead + place]) for place in range(len(stretch))])
        found.append(np.concatenate(shares))
    return np.concatenate(found)


def fitted(
    model: LanguageModel, before: Sequence[int], answer: Sequence[int], after: Sequence[int], *, causal: bool
) -> Gap:
    """An answer between two texts as an input in which its pieces are wanted; of a causal model also those behind it,
    which have to follow from it.

    What is too long for the model's positions loses the beginning of `before`, then the end of `after`.

    Raises:
        DataError: the answer has no piece, or alone has more than the model has positions for.
    """
    specials = len(model.special_tokens([]))
    room = None if model.max_tokens is None else model.max_tokens - specials - len(answer)
    if not answer:
        raise DataError("an answer without a piece that the vocabulary knows: write it otherwise")
    if room is not None and room < 0:
        raise DataError(f"an answer of {len(answer)} pieces is longer than what the model reads at once")
    if room is not None:
        after = after[:room]
        before = before[len(before) - min(len(before), room - len(after)) :]
    whole = model.special_tokens([*before, *answer, *after])
    lead = model.special_tokens([-1]).index(-1)
    first = lead + len(before)
    if causal and first == 0:
        raise ConfigError(f"{type(model).__name__} has nothing that stands before a text: give the prompt a beginning")
    last = first + len(answer) + (len(after) if causal else 0)
    return Gap(whole, range(first, last))
