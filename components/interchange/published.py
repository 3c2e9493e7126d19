"""A converted published model of any format."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from components.core.errors import ArtifactError, ConfigError, nearest
from components.models import family as family_named
from components.models.base import LanguageModel
from components.models.encoder import empty_model
from components.tokenization import Tokenizer

#: Output bias of pieces without a counterpart.
NEVER: Final = -50.0
#: Suffixes of the names of the output bias in published files.
OUTPUT_BIASES: Final = (
    "predictions.bias", "lm_head.bias", "lm_loss.bias", "vocab_projector.bias", "decoder.bias", "softmax/b"
)  # fmt: skip


@dataclass(frozen=True)
class Imported:
    """The result of an import.

    Attributes:
        model: embedding rows in the order of the tokenizer's pieces.
        fresh: names of tensors that the source lacks; they are initialised as in a new model.
    """

    family: str
    model: LanguageModel
    tokenizer: Tokenizer
    digest: str
    log: list[str]
    fresh: list[str] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        family: str,
        settings: Mapping[str, Any],
        tensors: Mapping[str, Tensor],
        tokenizer: Tokenizer,
        digest: str,
        log: list[str],
        fresh: Sequence[str] = (),
    ) -> Imported:
        """With the model of these settings, without `vocabulary`, and tensors."""
        size, kind = tokenizer.vocab_size, tokenizer.kind
        model = empty_model(family, vocabulary=size, settings=settings, tokenizer=kind).to_empty(device="cpu")
        model.load_state_dict(tensors)
        model.bind(tokenizer)
        return cls(family, model.eval(), tokenizer, digest, log, list(fresh))

    @property
    def learned_output(self) -> bool:
        """Whether the source has an output layer over the vocabulary; embedding models lack it."""
        return not any(name.endswith(OUTPUT_BIASES) for name in self.fresh)


@contextmanager
def errors_of(source: Path) -> Iterator[None]:
    """Errors of what is read name the source first."""
    try:
        yield
    except ArtifactError as error:
        raise ArtifactError(f"{source}: {error}") from error


def texts_in(value: Any, wrong: str) -> list[str]:
    """The value, if it is a list of texts. `wrong`: the message of the error about another one."""
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ArtifactError(wrong)
    return value


def chosen_rows(table: Tensor, rows: Tensor, missing: float) -> Tensor:
    """The rows of a table (V, ...); `missing` where the row is -1."""
    result = torch.full((len(rows), *table.shape[1:]), missing)
    result[rows >= 0] = table[rows[rows >= 0]]
    return result


def read_tensors(files: Sequence[Path]) -> dict[str, Tensor]:
    """All tensors of safetensors files, or of one file of `torch.save`, by name.

    Raises:
        ArtifactError: a file is damaged.
    """
    tensors: dict[str, Tensor] = {}
    for path in files:
        try:
            tensors |= load_file(path) if path.suffix == ".safetensors" else plain_tensors(path)
        except (SafetensorError, OSError) as error:
            raise ArtifactError(f"{path}: not readable as safetensors ({error}); download it again") from error
    return tensors


def plain_tensors(path: Path, *, remedy: str = "download it again") -> dict[str, Tensor]:
    """The tensors of a file of `torch.save`, which may be nested in `model`. Raises as `plain_content`."""
    content = plain_content(path, remedy=remedy)
    state = content.get("model", content) if isinstance(content, dict) else content
    if not isinstance(state, dict) or not all(isinstance(tensor, Tensor) for tensor in state.values()):
        raise ArtifactError(f"{path}: expected the tensors of a model by name")
    return state


def plain_content(path: Path, *, remedy: str) -> Any:
    """The content of a file of `torch.save`: only tensors and plain containers are unpickled.

    Raises:
        ArtifactError: the file is damaged or has other content; the message ends with the remedy.
    """
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise ArtifactError(f"{path}: does not exist") from error
    except (pickle.UnpicklingError, RuntimeError, EOFError, OSError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ArtifactError(f"{path}: does not consist of tensors only; {remedy} ({reason})") from error


def fixed_keys(family: str, settings: Mapping[str, Any]) -> list[str]:
    """The keys of a model's settings that published weights determine."""
    free = family_named(family).config.of_training()
    return [key for key in settings if key not in free]


def with_settings(imported: Imported, settings: Mapping[str, Any], *, source: Path) -> Imported:
    """The imported model with other dropout rates and penalties, and the same weights.

    Raises:
        ConfigError: the source determines a key, or a value is invalid.
    """
    if not settings:
        return imported
    if fixed := fixed_keys(imported.family, settings):
        raise ConfigError(
            f"{source}: the source determines {', '.join(fixed)}; remove {'it' if len(fixed) == 1 else 'them'} "
            "(pretrain.<name>.model)"
        )
    config = imported.model.config.model_dump(exclude={"vocabulary"}) | dict(settings)
    kept = imported.tokenizer, imported.digest, imported.log, imported.fresh
    return Imported.of(imported.family, config, imported.model.state_dict(), *kept)


def check_family(family: str | None, source: Path, *takers: str) -> None:
    """Raises ConfigError: a source of these families is requested as another one."""
    if family not in (None, *takers):
        raise ConfigError(f"{source}: not supported by the family {family!r}{nearest(str(family), takers)}")
