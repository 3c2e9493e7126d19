"""fastai's AWD-LSTM weight files, in and out: the published ULMFiT models and whatever `fastai` has trained.

A file holds a language model (`learn.save`, with or without the optimizer) or an encoder alone (`learn.save_encoder`);
beside it lies its vocabulary, a list of words as .json. The gates stand in the same order as here; fastai's two biases
a gate are one here, their sum.

fastai's xxpad, xxunk and xxbos are our [PAD], [UNK] and [SEP] (what stands before a document). Its other marks (xxmaj,
xxup ...) stay ordinary words, which our word tokenizer never makes. [CLS] and [MASK] have no counterpart: they are
rows of zeros with a bias of `NEVER`, so that no probability falls to them.
"""

from __future__ import annotations

import json
import pickle
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from components.errors import ArtifactError
from components.tokenization.special import END, FIRST_ORDINARY, PAD, SPECIAL_PIECES, UNK

#: fastai's marks that are special pieces here.
MARKS: Final = {"xxpad": PAD, "xxunk": UNK, "xxbos": END}
#: Bias of a piece that fastai does not know.
NEVER: Final = -50.0
#: Words that fastai appends until the vocabulary is a multiple of 8; the only ones that may stand there twice.
FILLER: Final = "xxfake"
#: Copies of the embedding under other names.
_COPIES: Final = re.compile(r"encoder_dp\.emb\.weight|encoder_with_dropout\.embed\.weight|decoder\.weight")
_LSTM: Final = re.compile(r"rnns\.(\d+)\.(?:module\.)?(weight_ih|weight_hh|bias_ih|bias_hh)_l0(_raw)?")


@dataclass(frozen=True)
class FastaiModel:
    """A weight file in our terms.

    Attributes:
        settings: keys of `AWDLSTMConfig` without `vocabulary`.
        pieces: our vocabulary, the special pieces first.
        tensors: what `AWDLSTM.state_dict()` holds.
    """

    settings: dict[str, Any]
    pieces: list[str]
    tensors: dict[str, Tensor]


def from_fastai(state: Mapping[str, Tensor], vocabulary: Sequence[str]) -> FastaiModel:
    """fastai's tensors and words as ours.

    Raises:
        ArtifactError: tensors are missing, surplus or of shapes that do not go together; the softmax is not tied to the
            embedding; the vocabulary is of another size or holds a word twice.
    """
    # The language model's encoder is the first part of a sequence, its decoder the second.
    plain = {re.sub(r"^[01]\.", "", name): tensor for name, tensor in state.items()}
    table = plain.pop("encoder.weight", None)
    if table is None or table.ndim != 2:
        raise ArtifactError("no AWD-LSTM of fastai: there is no table 0.encoder.weight")
    table = table.float()
    bias = plain.pop("decoder.bias", torch.zeros(len(table))).float()
    lstms: dict[int, dict[str, Tensor]] = {}
    surplus = []
    for name, tensor in plain.items():
        if found := _LSTM.fullmatch(name):
            parts = lstms.setdefault(int(found[1]), {})
            # Beside the weights (raw) there may stand what one dropout mask has left of them.
            parts[found[2]] = tensor.float() if found[3] else parts.get(found[2], tensor.float())
        elif not _COPIES.fullmatch(name):
            surplus.append(f"surplus {name}")
        elif tensor.shape != table.shape or not torch.equal(tensor.float(), table):
            surplus.append(f"{name} is not the embedding; only a tied softmax can be taken over")
    if problems := [*surplus, *_shape_problems(table, bias, lstms)]:
        raise ArtifactError(f"no AWD-LSTM of fastai: {'; '.join(sorted(problems))}")
    pieces, rows = _our_pieces(vocabulary, len(table))
    known = torch.tensor(rows) >= 0
    embedding = torch.zeros(len(rows), table.shape[1])
    output = torch.full((len(rows),), NEVER)
    embedding[known] = table[[row for row in rows if row >= 0]]
    output[known] = bias[[row for row in rows if row >= 0]]
    tensors = {"embedding": embedding, "bias": output}
    for layer, parts in lstms.items():
        tensors |= {f"lstms.{layer}.{part}": parts[part].clone() for part in ("weight_ih", "weight_hh")}
        tensors[f"lstms.{layer}.bias"] = parts["bias_ih"] + parts["bias_hh"]
    hidden = lstms[0]["weight_hh"].shape[1]
    return FastaiModel({"embedding": table.shape[1], "hidden": hidden, "layers": len(lstms)}, pieces, tensors)


def read_fastai(weights: Path, vocabulary: Path) -> FastaiModel:
    """Read a weight file and its vocabulary; nothing in them is unpickled but plain tensors.

    Args:
        weights: .pth, as `learn.save` writes it.
        vocabulary: .json, a list of words in the order of their ids.

    Raises:
        ArtifactError: a file is missing or damaged, holds anything but tensors and a list of words, or does not fit
            the other.
    """
    if vocabulary.suffix != ".json":
        raise ArtifactError(
            f"{vocabulary}: a vocabulary is read from .json only, for a pickle may run anything; write the list of its "
            "words with json.dump where it was made"
        )
    try:
        words = json.loads(vocabulary.read_text(encoding="utf-8"))
        held = torch.load(weights, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise ArtifactError(f"{error.filename}: does not exist") from error
    except (pickle.UnpicklingError, RuntimeError, EOFError, OSError) as error:
        raise ArtifactError(
            f"{weights}: not readable as tensors alone; save it with learn.save(..., with_opt=False) "
            f"({str(error).splitlines()[0] if str(error) else type(error).__name__})"
        ) from error
    except ValueError as error:
        raise ArtifactError(f"{vocabulary}: not readable as JSON ({error})") from error
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise ArtifactError(f"{vocabulary}: expected a list of words")
    state = held.get("model", held) if isinstance(held, dict) else held
    if not isinstance(state, dict) or not all(isinstance(tensor, Tensor) for tensor in state.values()):
        raise ArtifactError(f"{weights}: expected the tensors of a model by name")
    try:
        return from_fastai(state, words)
    except ArtifactError as error:
        raise ArtifactError(f"{weights}: {error}") from error


def _shape_problems(table: Tensor, bias: Tensor, lstms: Mapping[int, Mapping[str, Tensor]]) -> list[str]:
    """What keeps the tensors from being one AWD-LSTM over `table`."""
    problems = [] if bias.shape == table.shape[:1] else [f"1.decoder.bias is {tuple(bias.shape)}"]
    if not lstms or sorted(lstms) != list(range(len(lstms))):
        return [*problems, f"found LSTM layers {sorted(lstms)}"]
    width = table.shape[1]
    hidden = lstms[0]["weight_hh"].shape[-1] if "weight_hh" in lstms[0] else 0
    widths = [width, *[hidden] * (len(lstms) - 1), width]
    for layer, parts in sorted(lstms.items()):
        gates = 4 * widths[layer + 1]
        expected = {
            "weight_ih": (gates, widths[layer]),
            "weight_hh": (gates, widths[layer + 1]),
            "bias_ih": (gates,),
            "bias_hh": (gates,),
        }
        for part, shape in expected.items():
            name = f"0.rnns.{layer}.{part}_l0"
            if part not in parts:
                problems.append(f"missing {name}")
            elif tuple(parts[part].shape) != shape:
                problems.append(f"{name} is {tuple(parts[part].shape)}, expected {shape}")
    return problems


def _our_pieces(vocabulary: Sequence[str], rows: int) -> tuple[list[str], list[int]]:
    """Our vocabulary, and for each piece fastai's row, -1 for none."""
    if len(vocabulary) != rows:
        raise ArtifactError(f"{len(vocabulary)} words in the vocabulary for {rows} rows of the embedding")
    words = list(vocabulary)
    for index in range(1, len(words)):
        if words[index] == FILLER and FILLER in words[:index]:
            words[index] = f"{FILLER}{index}"
    counts = Counter([*words, *SPECIAL_PIECES])
    if twice := [word for word, count in counts.items() if count > 1]:
        raise ArtifactError(f"{twice[0]!r} stands in the vocabulary twice, or is the name of a special piece here")
    place = {word: index for index, word in enumerate(words)}
    special = [-1] * FIRST_ORDINARY
    for mark, ours in MARKS.items():
        special[ours] = place.get(mark, -1)
    ordinary = [word for word in words if word not in MARKS]
    return [*SPECIAL_PIECES, *ordinary], [*special, *(place[word] for word in ordinary)]
