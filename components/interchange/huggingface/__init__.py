"""Conversion of weights and settings from and to Hugging Face's format, without the library transformers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from torch import Tensor

from components.core.errors import ArtifactError, nearest
from components.core.tables import LazyTable
from components.settings import recipes
from components.tokenization.special import PAD


class Restored(NamedTuple):
    """A published model as a family's: settings without `vocabulary`, the number of rows, tensors in float32, and
    published names of the tensors that the file lacks (`fresh`), which are initialised as in a new model."""

    settings: dict[str, Any]
    vocabulary: int
    tensors: dict[str, Tensor]
    fresh: list[str]


@dataclass(frozen=True)
class Converter:
    """The conversion of one family.

    Attributes:
        to_huggingface: model -> (content of config.json, tensors).
        from_huggingface: content of config.json, and tensors. Raises ArtifactError: config.json has unsupported values,
            or tensors are missing, surplus or misshapen.
        padding: id of the padding in the published class, whose tensors have the row of [PAD] there, and the row of the
            piece that is there in the place of [PAD].
    """

    to_huggingface: Callable[[Any], tuple[dict[str, Any], dict[str, Tensor]]]
    from_huggingface: Callable[[Mapping[str, Any], Mapping[str, Tensor]], Restored]
    padding: int = PAD


#: Family -> converter.
CONVERTERS: Final[LazyTable[Converter]] = LazyTable(
    {
        "bert": "components.interchange.huggingface.masked:BERT_CONVERTER",
        "roberta": "components.interchange.huggingface.masked:ROBERTA_CONVERTER",
        "albert": "components.interchange.huggingface.masked:ALBERT_CONVERTER",
        "mpnet": "components.interchange.huggingface.masked:MPNET_CONVERTER",
        "modernbert": "components.interchange.huggingface.modernbert:CONVERTER",
        "gpt": "components.interchange.huggingface.gpt:CONVERTER",
        "llama": "components.interchange.huggingface.llama:CONVERTER",
        "xlnet": "components.interchange.huggingface.xlnet:CONVERTER",
    }
)
#: `model_type` of config.json -> family.
MODEL_TYPES: Final = {kind: name for kind, name in recipes.MODEL_TYPES.items() if name in CONVERTERS}


def family_of(config: Mapping[str, Any]) -> str:
    """The family of a config.json, by its model_type.

    Raises:
        ArtifactError: no family has this model_type.
    """
    kind = config.get("model_type")
    if kind not in MODEL_TYPES:
        raise ArtifactError(f"config.json: no family supports model_type {kind!r}{nearest(str(kind), MODEL_TYPES)}")
    return MODEL_TYPES[kind]
