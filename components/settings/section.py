"""Base class, common field types and shared names of the sections of params.yaml."""

import re
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, PositiveInt

Fraction = Annotated[float, Field(ge=0, le=1)]
Positive = PositiveInt
Seed = Annotated[int, Field(ge=0, lt=2**32)]
#: `Field(..., json_schema_extra=NO_EFFECT)`: no value of this key changes a result, so no stage depends on it.
NO_EFFECT: Final[dict[str, JsonValue]] = {"affects_result": False}


class Section(BaseModel):
    """A section of params.yaml: immutable; unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())


def result_settings(section: Section) -> dict[str, Any]:
    """The settings that can change a result, defaults included: dotted key -> JSON value."""
    if section.model_config.get("json_schema_extra") == NO_EFFECT:
        return {}
    collected: dict[str, Any] = {}
    values = section.model_dump(mode="json")
    for name, declared in type(section).model_fields.items():
        value = getattr(section, name)
        if declared.json_schema_extra == NO_EFFECT:
            continue
        if isinstance(value, Section):
            collected |= {f"{name}.{key}": inner for key, inner in result_settings(value).items()}
        else:
            collected[name] = values[name]
    return collected


#: Initialisation of the encoder before fine-tuning.
Start = Literal["scratch", "vectors", "pretrained", "adapted"]
#: The model of pretraining before its first step: word vectors of the text, all other weights random.
VECTORS = "vectors"
#: Family name of systems without a language model.
BASELINE = "baseline"
#: Folder of the results of systems without a language model, next to the results of the families.
BASELINES = "baselines"
#: Name of the system of a kind that answers the same for every row.
MOST_FREQUENT = "most-frequent"
#: Systems without a language model whose answers can be part of an ensemble.
WORDS_SYSTEMS = (
    "tfidf-words",
    "tfidf-words-pairs",
    "latent-words",
    "tfidf-words-characters",
    "svm-words-characters",
    "tfidf-cosine",
    "tfidf-both",
    "tfidf-overlap",
    "ridge-words",
    "ridge-words-pairs",
    "ridge-words-characters",
)
#: Hidden states that a head reads.
LayerChoice = Literal["last", "second_to_last", "sum", "sum_last_four", "concat_last_four", "first", "mix", "all"]
#: Kind of a tokenizer.
TokenizerKind = Literal["wordpiece", "word", "open_word", "char", "bpe", "unigram"]


def _named(pattern: str, characters: str) -> AfterValidator:
    def checked(name: str) -> str:
        if not re.fullmatch(pattern, name):
            raise ValueError(
                f"is not a valid name; use letters (A-Z, a-z), digits, {characters}, and start with a letter or a digit"
            )
        return name

    return AfterValidator(checked)


def _folder(path: str) -> str:
    if not all(re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", part) for part in path.split("/")):
        raise ValueError(
            "is not a valid folder; name one below the repository, with letters (A-Z, a-z), digits, '-', '_' and '.', "
            "for example artifacts/imdb"
        )
    return path


#: Name of a block. It is part of paths, of commands and parameters in dvc.yaml (where a dot separates keys), of URLs of
#: the model registry, and of MLflow's metric keys, which are ASCII.
BlockName = Annotated[str, _named(r"[A-Za-z0-9][A-Za-z0-9_-]*", "'-' and '_'")]
#: Stem of a file, or part of the name of a registered model.
FileName = Annotated[str, _named(r"[A-Za-z0-9][A-Za-z0-9_.-]*", "'-', '_' and '.'")]
#: Folder relative to the repository. It is part of paths in dvc.yaml.
Folder = Annotated[str, AfterValidator(_folder)]
