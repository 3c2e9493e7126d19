"""The files of sentence-transformers beside a published encoder: what `components.models.sentence.Reading` is read from
and written as.

modules.json                          modules in order: Transformer, Pooling, then Dense and Normalize in any order
sentence_bert_config.json             max_seq_length, do_lower_case; in the folder of the Transformer
N_Pooling/config.json                 pooling, and whether the prompt is pooled
N_Dense/config.json, model.safetensors
config_sentence_transformers.json     prompts by name, and the name of the one that is the default
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from components.core.artifacts import write_json
from components.core.errors import ArtifactError
from components.models.base import LanguageModel
from components.models.sentence import ACTIVATIONS, NORMALIZE, Dense, Pool, Reading
from components.tokenization.published import json_content, reading_config

MODULES: Final = "modules.json"
PROMPTS: Final = "config_sentence_transformers.json"
CONFIG: Final = "config.json"
WEIGHTS: Final = "model.safetensors"
#: Names of poolings in a pooling's config.json -> ours, in the order of concatenation; and in files of older versions.
POOLS: Final[dict[str, Pool]] = {
    "cls": "first", "max": "max", "mean": "mean", "mean_sqrt_len_tokens": "root", "weightedmean": "weighted",
    "lasttoken": "last",
}  # fmt: skip
_FLAGS: Final = {
    f"pooling_mode_{name}": pool
    for name, pool in zip(
        ("cls_token", "max_tokens", "mean_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken"),
        POOLS.values(),
        strict=True,
    )
}
#: Keys of a Dense module, and the values that we support.
_DENSE: Final[Mapping[str, tuple[Any, ...]]] = {
    "module_input_name": ("sentence_embedding",),
    "module_output_name": ("sentence_embedding", None),
    "use_residual": (False,),
}


def modules_of(folder: Path) -> list[tuple[str, Path]]:
    """(kind, folder) of each module in order; empty: the folder is not one of sentence-transformers.

    Raises:
        ArtifactError: modules.json is damaged, or names a folder outside.
    """
    path = folder / MODULES
    if not path.is_file():
        return []
    try:
        modules = [(str(entry["type"]).rsplit(".", 1)[-1], str(entry["path"])) for entry in json_content(path)]
    except (KeyError, TypeError) as error:
        raise ArtifactError(f"{path}: damaged ({error!r}); download it again") from error
    for _, name in modules:
        if not (folder / name).resolve().is_relative_to(folder.resolve()):
            raise ArtifactError(f"{path}: names {name}, which is outside of the folder; use another copy of the model")
    return [(kind, folder / name) for kind, name in modules]


def transformer_folder(folder: Path) -> Path:
    """The folder of config.json, the weights and the tokenizer."""
    return next((path for kind, path in modules_of(folder) if kind == "Transformer"), folder)


def reading_files(folder: Path) -> list[Path]:
    """The files that `read_reading` reads, if they exist."""
    inner = [path / name for kind, path in modules_of(folder)[1:] for name in (CONFIG, WEIGHTS)]
    return [folder / MODULES, folder / PROMPTS, reading_config(transformer_folder(folder)), *inner]


def read_reading(folder: Path) -> tuple[Reading | None, dict[str, Tensor]]:
    """How the encoder of a folder was trained to read, and the tensors of its `TextVectors`; None: no file says it.

    Raises:
        ArtifactError: a file is damaged, or a module, a pooling or an activation is not supported.
    """
    modules = modules_of(folder)
    if not modules:
        return None, {}
    (first, _), *rest = modules
    if first != "Transformer" or not rest or rest[0][0] != "Pooling":
        raise _unsupported(folder, " + ".join(kind for kind, _ in modules[:2]), "Transformer, then Pooling")
    pooling, pool_prompt = _pooling(rest[0][1] / CONFIG)
    after: list[Any] = []
    tensors: dict[str, Tensor] = {}
    for kind, path in rest[1:]:
        if kind == "Normalize":
            after.append(NORMALIZE)
        elif kind == "Dense":
            number = sum(isinstance(layer, Dense) for layer in after)
            layer, weights = _dense(path)
            after.append(layer)
            tensors |= {f"dense.{number}.{name.removeprefix('linear.')}": value for name, value in weights.items()}
        else:
            raise _unsupported(folder, kind, "Dense and Normalize after Pooling")
    prompts = _object(folder / PROMPTS)
    name, texts = prompts.get("default_prompt_name"), prompts.get("prompts") or {}
    if name is not None and name not in texts:
        raise ArtifactError(f"{folder / PROMPTS}: default_prompt_name {name!r} is none of prompts; download it again")
    length = _object(reading_config(transformer_folder(folder))).get("max_seq_length")
    if length is not None and (not isinstance(length, int) or length < 1):
        raise ArtifactError(f"{folder}: max_seq_length is {length!r}; set a positive whole number")
    reading = Reading(
        pooling=tuple(pooling),
        after=tuple(after),
        prompt=texts[name] if name is not None else "",
        pool_prompt=pool_prompt,
        max_length=length or _longest(transformer_folder(folder)),
    )
    return reading, tensors


def _longest(folder: Path) -> int | None:
    """The maximum length that the tokenizer names, if there is no other."""
    value = _object(folder / "tokenizer_config.json").get("model_max_length")
    # transformers writes 1e30 for no maximum.
    return int(value) if isinstance(value, int | float) and 0 < value < 1 << 20 else None


def _unsupported(folder: Path, what: str, supported: str) -> ArtifactError:
    return ArtifactError(f"{folder / MODULES}: {what} is not supported, only {supported}; choose another encoder")


def _object(path: Path) -> dict[str, Any]:
    content = json_content(path) if path.is_file() else {}
    if not isinstance(content, dict):
        raise ArtifactError(f"{path}: expected an object; download it again")
    return content


def _pooling(path: Path) -> tuple[list[Pool], bool]:
    config = _object(path)
    named = config.get("pooling_mode")
    if named is None:
        pools = [pool for flag, pool in _FLAGS.items() if config.get(flag)] or ["mean"]
        unknown = [key for key, value in config.items() if key.startswith("pooling_mode_") and value]
        unknown = [key for key in unknown if key not in _FLAGS]
    else:
        names = [named] if isinstance(named, str) else list(named)
        unknown = [str(name) for name in names if name not in POOLS]
        pools = [POOLS[name] for name in names if name in POOLS]
    if unknown:
        raise ArtifactError(
            f"{path}: pooling {', '.join(unknown)} is not supported, only {', '.join(POOLS)}; choose another encoder"
        )
    return pools, bool(config.get("include_prompt", True))


def _dense(folder: Path) -> tuple[Dense, dict[str, Tensor]]:
    path = folder / CONFIG
    config = _object(path)
    activation = str(config.get("activation_function", "Tanh")).rsplit(".", 1)[-1].lower()
    problems = [f"activation_function {activation}"] if activation not in ACTIVATIONS else []
    problems += [
        f"{key} {config[key]}" for key, allowed in _DENSE.items() if config.get(key, allowed[0]) not in allowed
    ]
    if problems:
        raise ArtifactError(f"{path}: {', '.join(problems)} is not supported; choose another encoder")
    if not (folder / WEIGHTS).is_file():
        raise ArtifactError(
            f"{folder}: no {WEIGHTS}; a pickle can execute code, so only safetensors are read: save the model again "
            "with sentence-transformers where you trust it"
        )
    try:
        layer = Dense.model_validate(
            {"inputs": config["in_features"], "outputs": config["out_features"], "bias": config.get("bias", True)}
            | {"activation": activation}
        )
        return layer, load_file(folder / WEIGHTS)
    except (KeyError, ValueError, OSError, SafetensorError) as error:
        raise ArtifactError(f"{folder}: damaged ({error!r}); download it again") from error


def write_reading(folder: Path, model: LanguageModel) -> list[str]:
    """Write the files of a sentence encoder, so that sentence-transformers reads the folder; returns log lines."""
    if (reading := model.config.reading) is None or model.sentence is None:
        return []
    weights = [{f"linear.{name}": value.detach().contiguous() for name, value in layer.state_dict().items()}
               for layer in model.sentence.dense]  # fmt: skip
    write_modules(folder, reading, weights=weights, width=int(getattr(model.config, "width", 0)))
    return [f"{MODULES}: read as it was trained, by sentence-transformers too"]


def write_modules(folder: Path, reading: Reading, *, width: int, weights: Sequence[Mapping[str, Tensor]] = ()) -> None:
    """Write the files of `read_reading`; `width`: of the hidden states; `weights`: of each Dense module."""
    kinds = [
        "Transformer",
        "Pooling",
        *("Dense" if isinstance(layer, Dense) else "Normalize" for layer in reading.after),
    ]
    paths = ["", *(f"{number}_{kind}" for number, kind in enumerate(kinds[1:], 1))]
    modules = [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for number, (kind, path) in enumerate(zip(kinds, paths, strict=True))
    ]
    write_json(folder / MODULES, modules, sort_keys=False)
    if reading.max_length is not None:
        write_json(folder / "sentence_bert_config.json", {"max_seq_length": reading.max_length, "do_lower_case": False})
    (folder / paths[1]).mkdir()
    flags = {flag: pool in reading.pooling for flag, pool in _FLAGS.items()}
    sizes = {"word_embedding_dimension": width, **flags, "include_prompt": reading.pool_prompt}
    write_json(folder / paths[1] / CONFIG, sizes)
    numbered = iter(weights)
    for path, layer in zip(paths[2:], reading.after, strict=True):
        (folder / path).mkdir()
        if isinstance(layer, Dense):
            activation = ACTIVATIONS[layer.activation]
            sizes = {"in_features": layer.inputs, "out_features": layer.outputs, "bias": layer.bias}
            name = f"{activation.__module__}.{activation.__name__}"
            write_json(folder / path / CONFIG, sizes | {"activation_function": name})
            save_file(dict(next(numbered)), folder / path / WEIGHTS)
    prompts = {"default": reading.prompt} if reading.prompt else {}
    write_json(folder / PROMPTS, {"prompts": prompts, "default_prompt_name": "default" if prompts else None})
