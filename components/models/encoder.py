"""Encoder directories, the output of pretraining and adaptation (contract 3).

config.json         {family, model: the family's config, tokenizer_fingerprint}
model.safetensors   weights, float32
tokenizer/          a copy of the tokenizer's directory
manifest.json       facts: `trained` (false for random weights), `parent`, ... (components.core.artifacts)
"""

import csv
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from pydantic import ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.overrides import TorchFunctionMode

from components.core.artifacts import MANIFEST, Manifest, json_of, read_manifest, write_json
from components.core.errors import ArtifactError, ConfigError, nearest
from components.models import family as family_named
from components.models.base import LanguageModel
from components.models.sentence import TextVectors
from components.settings.training import LanguageModelTraining
from components.tokenization import Tokenizer, load_tokenizer

KIND: Final = "encoder"
CONFIG: Final = "config.json"
WEIGHTS: Final = "model.safetensors"
TOKENIZER: Final = "tokenizer"
#: Values of a matrix from which it is too large to be trained for few labels.
LARGE: Final = 40_000_000
#: Columns of curve.csv.
CURVE: Final = ("step", "tokens", "seconds", "loss", "heldout", "rate", "gradient_norm")


@dataclass(frozen=True)
class Encoder:
    """A model with its tokenizer. `manifest` is None for a directory inside another output."""

    family: str
    model: LanguageModel
    tokenizer: Tokenizer
    manifest: Manifest | None = None

    @property
    def trained(self) -> bool:
        """False for random weights (initialisation `scratch`); fine-tuning then samples new ones for each seed."""
        return self.manifest is None or bool(self.manifest.facts.get("trained", True))


def with_trained_positions(
    settings: Mapping[str, Any], *, family: str, preset: str | None, training: LanguageModelTraining
) -> dict[str, Any]:
    """The settings of a new model, with at most as many positions as the longest window of its training has tokens, so
    that it cannot read at positions that were never trained. Families without positions keep their settings."""
    member = family_named(family)
    if "positions" not in member.config.model_fields:
        return dict(settings)
    published = member.presets.get(preset or "", {})
    default = member.config.model_fields["positions"].default
    positions = {"positions": default, **published, **settings}["positions"]
    # An invalid number is refused with the other keys.
    if isinstance(positions, int):
        positions = min(positions, training.longest(positions))
    return {**settings, "positions": positions}


def build_model(
    family: str,
    *,
    vocabulary: int,
    preset: str | None = None,
    settings: Mapping[str, Any] | None = None,
    tokenizer: str | None = None,
) -> LanguageModel:
    """A model with initial weights, sampled from torch's global generator (seed it beforehand).

    Args:
        settings: keys of the family's config class; they override the preset.

    Raises:
        ConfigError: unknown family or preset; or unknown keys, invalid values and an unsupported tokenizer, all listed.
    """
    member = family_named(family)
    if preset is not None and preset not in member.presets:
        raise ConfigError(f"unknown preset {preset!r}{nearest(preset, member.presets)}", where=family)
    values = {**(member.presets[preset] if preset else {}), **(settings or {}), "vocabulary": vocabulary}
    problems = []
    if tokenizer is not None and tokenizer not in member.tokenizers:
        problems.append(f"tokenizer {tokenizer!r} is not supported; choose {' or '.join(member.tokenizers)}")
    config = None
    try:
        config = member.config(**values)
    except ValidationError as error:
        keys = [name for name in member.config.model_fields if name != "vocabulary"]
        for problem in error.errors():
            key = ".".join(map(str, problem["loc"]))
            unknown = problem["type"] == "extra_forbidden"
            message = (
                f"unknown key{nearest(key, keys)}" if unknown else f"{problem['msg']} (found {problem['input']!r})"
            )
            problems.append(f"model.{key}: {message}" if key else problem["msg"].removeprefix("Value error, "))
    if problems or config is None:
        raise ConfigError("\n  ".join([f"{len(problems)} problem(s)", *problems]), where=family)
    model = member.build(config)
    if config.reading is not None:
        model.sentence = TextVectors(config.reading)
    return model


def save_encoder(directory: Path, *, family: str, model: LanguageModel, tokenizer: Path) -> None:
    """Write an encoder into `directory`, usually a draft of `components.core.artifacts.writing(..., kind=KIND)`.

    Raises:
        ArtifactError: the tokenizer is damaged, or its number of pieces is not the model's number of rows.
    """
    loaded = load_tokenizer(tokenizer)
    if loaded.vocab_size != model.config.vocabulary:
        raise ArtifactError(
            f"{tokenizer}: {loaded.vocab_size} pieces, but the model has {model.config.vocabulary} rows; "
            "it was trained with another tokenizer"
        )
    directory.mkdir(parents=True, exist_ok=True)
    config = {
        "family": family,
        "model": model.config.model_dump(mode="json"),
        "tokenizer_fingerprint": loaded.fingerprint(),
    }
    write_json(directory / CONFIG, config)
    save_weights(directory / WEIGHTS, model)
    shutil.copytree(tokenizer, directory / TOKENIZER, ignore=shutil.ignore_patterns(MANIFEST), dirs_exist_ok=True)


def write_untrained(directory: Path, model: LanguageModel, *, precision: str = "float32", **further: float) -> None:
    """Write metrics.json and curve.csv of an encoder that was imported or computed from others: no steps."""
    numbers = {
        "parameters": count_parameters(model),
        "tokens": 0,
        "steps": 0,
        "seconds": 0.0,
        "tokens_per_second": 0.0,
        "precision": precision,
    }
    write_json(directory / "metrics.json", numbers | further)
    with (directory / "curve.csv").open("w", newline="", encoding="utf-8") as file:
        csv.DictWriter(file, CURVE).writeheader()


def load_encoder(directory: Path, *, verify: bool = False, part: bool = False) -> Encoder:
    """Read an encoder directory; the model is in evaluation mode, on the CPU, in float32.

    Args:
        verify: compare every file with its digest first.
        part: the directory is part of a larger output and has no manifest of its own.

    Raises:
        ArtifactError: the directory is incomplete or altered; the weights do not fit the config (lists missing,
            unexpected and wrongly shaped tensors); the tokenizer is not the one that the model was trained with.
    """
    directory = Path(directory)
    manifest = None if part else read_manifest(directory, kind=KIND, verify=verify)
    family, sizes, fingerprint = _read_config(directory)
    vocabulary = sizes["vocabulary"]
    tokenizer = load_tokenizer(directory / TOKENIZER)
    if tokenizer.fingerprint() != fingerprint:
        raise ArtifactError(
            f"{directory / TOKENIZER}: not the tokenizer that this model was trained with (its fingerprint differs); "
            "run the stage again"
        )
    if tokenizer.vocab_size != vocabulary:
        raise ArtifactError(f"{directory}: {tokenizer.vocab_size} pieces for {vocabulary} rows; run the stage again")
    model = _empty_model(directory, family, sizes).to_empty(device="cpu")
    load_weights(directory / WEIGHTS, model)
    model.bind(tokenizer)
    return Encoder(family, model.eval(), tokenizer, manifest)


def family_of(directory: Path) -> str:
    """The family of the encoder in `directory`, without reading its weights.

    Raises:
        ArtifactError: there is no encoder, or its config is damaged.
    """
    return _read_config(Path(directory))[0]


def architecture_of(directory: Path) -> LanguageModel:
    """The model of the encoder in `directory` on the meta device: shapes without weights. Raises as `family_of`."""
    family, sizes, _ = _read_config(directory)
    model = _empty_model(directory, family, sizes)
    if model.config.reading is not None:
        # The prompt takes room.
        model.bind(load_tokenizer(directory / TOKENIZER))
    return model


def has_large_table(model: LanguageModel) -> bool:
    """Whether training would take most of its time in the embedding table, as in multilingual models; for few labels,
    only heads on the features of such a model are trained."""
    return max(parameter.numel() for parameter in model.parameters()) > LARGE


class _Uninitialised(TorchFunctionMode):
    """Leaves out the random initial values of parameters that are read from a file. On the meta device they would take
    seconds: torch imports its compiler for them."""

    def __torch_function__(self, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        options = options or {}
        if (
            function in (Tensor.normal_, Tensor.uniform_)
            or getattr(function, "__module__", "") == torch.nn.init.__name__
        ):
            return arguments[0] if arguments else options["tensor"]
        return function(*arguments, **options)


def empty_model(family: str, **options: Any) -> LanguageModel:
    """`build_model` on the meta device, for weights of a file."""
    with torch.device("meta"), _Uninitialised():
        return build_model(family, **options)


def _empty_model(directory: Path, family: str, sizes: Mapping[str, Any]) -> LanguageModel:
    settings = dict(sizes)
    vocabulary = settings.pop("vocabulary")
    try:
        for name in REMOVED.keys() & settings.keys() - family_named(family).config.model_fields.keys():
            if (value := settings.pop(name)) != REMOVED[name]:
                raise ConfigError(f"model.{name}: {value} is an option of an earlier version; train the model again")
        return empty_model(family, vocabulary=vocabulary, settings=settings)
    except ConfigError as error:
        raise ArtifactError(f"{directory / CONFIG}: {error}") from error


#: Options of earlier versions in config.json, and the value with which a model can still be read.
REMOVED: Final = {
    "bigrams": 0, "value_embeddings": 0, "norm": "post", "glu": False, "rotary": False, "biases": True, "causal": 0.0,
    "norm_first": False, "same_length": False, "masking": 0.15,
}  # fmt: skip


def _read_config(directory: Path) -> tuple[str, dict[str, Any], str]:
    try:
        config = json_of(directory / CONFIG)
        family, sizes, fingerprint = config["family"], dict(config["model"]), config["tokenizer_fingerprint"]
        sizes["vocabulary"]
    except FileNotFoundError as error:
        raise ArtifactError(f"{directory}: no encoder here ({CONFIG} is missing)") from error
    except (KeyError, ValueError, TypeError) as error:
        raise ArtifactError(f"{directory / CONFIG}: damaged ({error!r}); run the stage again") from error
    return family, sizes, fingerprint


def save_weights(path: Path, model: torch.nn.Module) -> None:
    save_file({name: value.detach().float().cpu().contiguous() for name, value in model.state_dict().items()}, path)


def misfits(expected: Mapping[str, tuple[int, ...]], given: Mapping[str, tuple[int, ...]]) -> list[str]:
    """The missing, surplus and wrongly shaped tensors among given ones, in words, sorted."""
    return sorted(
        [
            *(f"missing {name}" for name in expected.keys() - given.keys()),
            *(f"surplus {name}" for name in given.keys() - expected.keys()),
            *(
                f"{name} is {given[name]}, expected {expected[name]}"
                for name in expected.keys() & given.keys()
                if given[name] != expected[name]
            ),
        ]
    )


def load_weights(path: Path, model: torch.nn.Module) -> None:
    """Copy the tensors of a safetensors file into a module, whose names and shapes must be the same.

    Raises:
        ArtifactError: the file cannot be read, or its tensors differ (lists missing, unexpected, wrongly shaped ones).
    """
    expected: dict[str, Tensor] = model.state_dict()
    try:
        with safe_open(path, framework="pt") as file:
            given = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118 (no iterator)
        problems = misfits({name: tuple(value.shape) for name, value in expected.items()}, given)
        if problems:
            raise ArtifactError(f"{path}: does not fit the model: {'; '.join(problems)}")
        weights = load_file(path)
    except FileNotFoundError as error:
        raise ArtifactError(f"{path}: does not exist; run the stage that makes it") from error
    except (SafetensorError, OSError) as error:
        raise ArtifactError(f"{path}: not readable as safetensors ({error}); run the stage again") from error
    with torch.no_grad():
        for name, value in expected.items():
            value.copy_(weights[name])


def count_parameters(model: LanguageModel) -> int:
    return sum(parameter.numel() for parameter in model.parameters())
