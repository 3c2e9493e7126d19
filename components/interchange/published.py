"""A converted published model of any format."""

import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from components.core.errors import ArtifactError, ConfigError, nearest
from components.models import family as family_named
from components.models.base import LanguageModel
from components.models.encoder import build_model
from components.tokenization import Tokenizer

#: Output bias of pieces without a counterpart.
NEVER: Final = -50.0
#: Suffixes of the names of the output bias in published files.
OUTPUT_BIASES: Final = ("predictions.bias", "lm_head.bias", "lm_loss.bias", "vocab_projector.bias", "softmax/b")


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

    @property
    def learned_output(self) -> bool:
        """Whether the source has an output layer over the vocabulary; embedding models lack it."""
        return not any(name.endswith(OUTPUT_BIASES) for name in self.fresh)


def chosen_rows(table: Tensor, rows: Tensor, missing: float) -> Tensor:
    """The rows of a table (V, ...); `missing` where the row is -1."""
    result = torch.full((len(rows), *table.shape[1:]), missing)
    result[rows >= 0] = table[rows[rows >= 0]]
    return result


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
    vocabulary, kind = imported.model.config.vocabulary, imported.tokenizer.kind
    model = build_model(imported.family, vocabulary=vocabulary, settings=config, tokenizer=kind)
    model.load_state_dict(imported.model.state_dict())
    model.bind(imported.tokenizer)
    return replace(imported, model=model.eval())


def unfit(family: str, source: Path, takers: tuple[str, ...]) -> ConfigError:
    return ConfigError(f"{source}: not supported by the family {family!r}{nearest(family, takers)}")
