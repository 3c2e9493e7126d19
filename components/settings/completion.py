"""Defaults that depend on other settings, on the files of a task, or on the place of the settings file. Nothing is read
but the names of files, and the small JSON files of an imported encoder."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from components.settings.families import FAMILIES, Family
from components.settings.finetune import KEYS_OF_WAYS
from components.settings.hub import config_file
from components.settings.published import MODEL_TYPES
from components.settings.registry import find_repository
from components.settings.tasks import SPLITS

#: Kinds of tokenizers that an imported model can have.
_PUBLISHED: Final = ("wordpiece", "bpe", "unigram")
#: The model that is trained if text is given and no model: the larger model of `make full`.
OWN: Final = "ulmfit"
_OWN_MODEL: Final = {"embedding": 320, "hidden": 640, "layers": 2, "static": 320}
#: Budget of a training in tokens.
_TOKENS: Final = 3_000_000
#: Maximum number of passes over a text of families that predict the next piece: with more, the held-out loss of a
#: short text rises.
PASSES: Final = 4
#: Words of `data.unlabelled` from which a language model is trained that nobody asked for, and characters of a word:
#: the domain's text of `make run`, with which an adapted model is better than words models, has 5 million
#: (docs/results/make-run-differences.json); with 2 million words of reviews it is worse (docs/results/imdb.json).
LEAST_WORDS: Final = 5_000_000
CHARACTERS: Final = 6
#: An imported model is adapted with a smaller rate.
_IMPORTED_RATE: Final = 0.0003
#: How an imported encoder learns a task: benchmarks/comparison/headstart.py.
IMPORTED: Final = {
    "method": "auto",
    "words": "auto",
    "layers": "last",
    "pooling": "trained",
    "pairs": "apart",
    "head_norm": "length",
    "head_penalties": [0.3, 1.0, 3.0, 10.0, 30.0, 100.0],
    "discriminative": 1.2,
    "unfreeze_epochs": 0,
    "epochs": 4,
    "min_steps": 60,
    "evaluations": 3,
    "contrastive": {"embeddings": False},
}
IMPORTED_TRAINING: Final = {"rate": 0.00005, "schedule": "slanted_triangular", "batch_size": 16}
#: How an own language model learns a task: params.yaml of the repository.
TRAINED: Final = {
    "words": "auto",
    "label_names": "auto",
    "layers": "all",
    "pooling": "lead",
    "head_dropout": 0.0,
    "head_steps": 100,
    "head_penalties": [30.0, 100.0, 300.0, 1000.0],
    "epochs": 5,
    "min_steps": 40,
    "evaluations": 2,
}
TRAINED_TRAINING: Final = {"rate": 0.0005, "schedule": "slanted_triangular", "batch_size": 16}


@dataclass
class Completed:
    """Settings with the computed defaults.

    Attributes:
        reasons: dotted key -> from what the value is computed.
    """

    raw: dict[str, Any]
    reasons: dict[str, str] = field(default_factory=dict)

    def fill(self, keys: tuple[str, ...], value: Any, reason: str) -> None:
        """Set a key, or the missing keys of a section, and record the reason. A key that the file sets to null stays
        null."""
        *path, last = keys
        section = self.raw
        for key in path:
            if section.get(key) is None:
                section[key] = {}
            section = section[key]
            if not isinstance(section, dict):
                return  # reported as an invalid value
        if isinstance(value, Mapping) and isinstance(section.get(last), dict):
            for key, inner in value.items():
                self.fill((*keys, key), inner, reason)
        elif last not in section or (isinstance(value, Mapping) and section[last] is None):
            section[last] = dict(value) if isinstance(value, Mapping) else value
            self.reasons[".".join(keys)] = reason

    def at(self, *keys: str) -> Any:
        """A text, list or mapping; an empty mapping if there is none."""
        value: Any = self.raw
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        return value if isinstance(value, dict | list | str) else {}

    def blocks(self, *keys: str) -> dict[str, Any]:
        """A section of named blocks; empty if it is not one, which is reported when it is validated."""
        result = self.at(*keys)
        return {str(name): block for name, block in result.items()} if isinstance(result, dict) else {}


def complete(raw: Mapping[str, Any], *, file: Path) -> Completed:
    """The settings with all computed defaults.

    Args:
        file: its path; paths in it are relative to the root of its repository.
    """
    root = find_repository(file.resolve().parent)
    done = Completed(_copied(raw))
    _complete_tasks(done, root or Path())
    _complete_run(done, file, root)
    _complete_models(done, root or Path())
    _complete_tokenizer(done)
    for section in ("ingest", "evaluate"):
        if done.raw.get(section) is None:
            done.raw[section] = {}
    return done


def _copied(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _copied(inner) for key, inner in value.items()}
    return [_copied(inner) for inner in value] if isinstance(value, list) else value


def _complete_tasks(done: Completed, root: Path) -> None:
    for name, task in done.blocks("data", "tasks").items():
        if not isinstance(task, dict):
            continue
        keys = ("data", "tasks", name)
        done.fill((*keys, "budgets"), ["all"], "all labels are used")
        for split in SPLITS[1:]:
            if split in task:
                continue
            expected, folder = _name_of(split, task.get("train", "train.jsonl")), root / str(task.get("path", ""))
            if (folder / expected).exists() or not folder.exists():
                done.fill((*keys, split), expected, "a file of the folder")
            else:
                held = {"dev": "choices are made by cross-validation", "test": "a share of train (test_share)"}[split]
                done.fill((*keys, split), None, f"there is no {expected}; {held}")


def _name_of(split: str, train: Any) -> str:
    """The name that a split's file has by default: `test.csv` beside `train.csv`."""
    name = str(train[0] if isinstance(train, list) and train else train)
    return name.replace("train", split, 1) if "train" in name and "#" not in name else f"{split}.jsonl"


def _complete_run(done: Completed, file: Path, root: Path | None) -> None:
    folder = file.resolve().parent
    inside = root is not None and folder != root
    place = f"artifacts/{folder.name}" if inside else "artifacts"
    done.fill(("run", "out"), place, "the folder of the settings file" if inside else "the default folder")
    done.fill(("run", "seed"), 0, "the default seed")
    done.fill(("run", "tasks"), list(done.blocks("data", "tasks")), "all of data.tasks")
    named = [name for section in ("pretrain", "static") for name in done.blocks(section)]
    text = [key for key in ("general", "domain") if done.at("data", key)]
    text += ["unlabelled"] * _teaches_language(done, root or folder)
    # `pretrain: {}` asks for words models only.
    if not named and "families" not in done.at("run") and text and done.raw.get("pretrain") is None:
        done.fill(("pretrain", OWN), {}, f"data.{text[0]} is text to learn a language model from")
        named = [OWN]
    models = ", ".join(f"{section}.*" for section in ("pretrain", "static") if done.blocks(section))
    none = f"neither a model (pretrain) nor text of {LEAST_WORDS:,} words for one: words models only"
    why = f"all of {models}" if named else none
    done.fill(("run", "families"), named, why)
    for name in _texts(done.at("run", "families")):
        if name in FAMILIES and name not in named:
            done.fill(("pretrain", name), {}, f"run.families names {name}")
    if "starts" not in done.at("run"):
        starts, why = _starts(done, root or folder)
        done.fill(("run", "starts"), starts, why)


def _teaches_language(done: Completed, root: Path) -> bool:
    """Whether `data.unlabelled` is text enough for a language model, by the bytes of its files. A smaller text is read
    by words models and by `headstart suggest`."""
    listed = done.at("data", "unlabelled")
    paths = (
        [each.get("path") if isinstance(each, dict) else each for each in listed] if isinstance(listed, list) else []
    )
    files = [
        file
        for path in paths
        if isinstance(path, str)
        for file in ((root / path).rglob("*") if (root / path).is_dir() else [root / path])
    ]
    return sum(file.stat().st_size for file in files if file.is_file()) >= LEAST_WORDS * CHARACTERS


def _starts(done: Completed, root: Path) -> tuple[list[str], str]:
    """Initialisations that the given models and texts allow."""
    blocks = done.blocks("pretrain")
    trained = [name for name, block in blocks.items() if not _source(block)]
    if not done.at("run", "families"):
        return [], "no language model"
    if not trained:
        return ["pretrained"], "the encoders are imported"
    if not done.at("data", "general"):
        return ["scratch", "pretrained"], "no data.general: the domain's text is the text of pretraining"
    if done.at("data", "domain") or _teaches_language(done, root):
        return ["scratch", "pretrained", "adapted"], "data.general, and text of the domain"
    return ["scratch", "pretrained"], "data.general, and no text of the domain but that of the tasks"


def _complete_models(done: Completed, root: Path) -> None:
    starts, families = _texts(done.at("run", "starts")), _texts(done.at("run", "families"))
    run = {each for name in families for each in (name, *_origins(done, name))}
    for name, block in done.blocks("pretrain").items():
        if block is None or block == {}:
            if name == OWN:
                done.fill(("pretrain", name, "model"), _OWN_MODEL, "the size of make full")
                done.fill(("pretrain", name, "training"), {"vectors": True}, "the recipe of make full")
            else:
                done.raw["pretrain"][name] = {}
            block = done.raw["pretrain"][name]
        if not isinstance(block, dict):
            continue
        source = _source(block)
        if source and "family" not in block and name not in FAMILIES:
            kind = _json(config_file(source, root)).get("model_type")
            if isinstance(kind, str):
                done.fill(("pretrain", name, "family"), MODEL_TYPES.get(kind, kind), f"model_type of {source}")
        family = str(block.get("family") or name)
        usual = FAMILIES.get(family, Family())
        done.fill(("pretrain", name, "tokenizer"), usual.tokenizer, f"the usual one of {family}")
        _complete_training(done, ("pretrain", name, "training"), family=family, imported=bool(source))
        if "adapted" in starts and name in run and name not in done.blocks("adapt"):
            done.fill(("adapt", name), {}, "run.starts has adapted")
            if not source and isinstance(training := block.get("training"), dict):
                done.fill(("adapt", name, "training"), _copied(training), f"pretrain.{name}.training")
                _complete_passes(done, ("adapt", name, "training"), family=family)
    for name, block in done.blocks("adapt").items():
        made = done.at("pretrain", name)
        if isinstance(block, dict | None) and isinstance(made, dict) and made:
            family = str(made.get("family") or name)
            _complete_training(done, ("adapt", name, "training"), family=family, imported=bool(_source(made)))
    for name in families:
        if any(name in done.blocks(section) for section in ("pretrain", "static")):
            _complete_finetune(done, name)


def _complete_training(done: Completed, keys: tuple[str, ...], *, family: str, imported: bool) -> None:
    given = done.at(*keys)
    if not isinstance(given, dict):
        return
    if "tokens" not in given and "seconds" not in given:
        done.fill((*keys, "tokens"), _TOKENS, "the default budget")
        _complete_passes(done, keys, family=family)
    done.fill((*keys, "batch_size"), 32, "the default")
    rate = _IMPORTED_RATE if imported else FAMILIES.get(family, Family()).rate
    done.fill((*keys, "rate"), rate, f"the usual rate of {family}" + (", imported" if imported else ""))


def _complete_passes(done: Completed, keys: tuple[str, ...], *, family: str) -> None:
    """Fill in the maximum number of passes, for a budget that is not set in the file."""
    if FAMILIES.get(family, Family()).causal:
        done.fill((*keys, "passes"), PASSES, f"more passes over a short text raise the held-out loss of {family}")


def _complete_finetune(done: Completed, name: str) -> None:
    """Fill in the recipe, unless the block names rate, batch size and keys outside of `training`: it is complete
    then."""
    given = done.at("finetune", name)
    if not isinstance(given, dict) or not isinstance(given.get("training", {}), dict | None):
        return
    if {"rate", "batch_size"} <= (given.get("training") or {}).keys() and given.keys() != {"training"}:
        return
    origins = [name, *_origins(done, name)]
    sources = [source for each in origins if (source := _source(done.at("pretrain", each)))]
    recipe: dict[str, Any] = dict(IMPORTED if sources else TRAINED)
    why = f"recipe for imported encoders ({sources[0]})" if sources else "recipe for trained language models"
    for key, value in recipe.items():
        if key not in KEYS_OF_WAYS or done.at("finetune", name, "method") in KEYS_OF_WAYS[key]:
            done.fill(("finetune", name, key), value, why)
    done.fill(("finetune", name, "training"), IMPORTED_TRAINING if sources else TRAINED_TRAINING, why)


def _origins(done: Completed, name: str) -> list[str]:
    """The blocks that a computed block is made of."""
    teacher = done.at("static", name, "teacher")
    return [teacher] if isinstance(teacher, str) and teacher != name else []


def _complete_tokenizer(done: Completed) -> None:
    if done.raw.get("tokenizer") is None:
        done.raw["tokenizer"] = {}
    kinds = [block.get("tokenizer") for block in done.blocks("pretrain").values() if isinstance(block, dict)]
    kinds = list(dict.fromkeys(kind for kind in kinds if isinstance(kind, str) and kind != "parallel"))
    if kinds:
        done.fill(("tokenizer", "kinds"), kinds, "the tokenizers of pretrain.*")
    if not done.at("data", "domain") and not done.at("data", "unlabelled") and done.at("data", "general"):
        done.fill(("tokenizer", "domain_vocabulary"), "general", "there is no text of the domain but that of the tasks")
    # An imported model that is adapted reads the domain's text with its own vocabulary.
    for kind in (kind for kind in kinds if kind in _PUBLISHED and "adapted" in _texts(done.at("run", "starts"))):
        blocks = [block for block in done.blocks("pretrain").values() if block.get("tokenizer") == kind]
        sources = {_source(block) for block in blocks}
        if not done.at("data", "general") and len(sources) == 1 and (source := sources.pop()):
            done.fill(("tokenizer", kind, "source"), source, "the imported model")


def _source(block: Any) -> str:
    """The imported model of a block of `pretrain`; empty if there is none."""
    source = block.get("source") if isinstance(block, dict) else None
    return source if isinstance(source, str) else ""


def _json(path: Path) -> dict[str, Any]:
    """A JSON file of an imported model; empty if it cannot be read, which `headstart check` reports."""
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return result if isinstance(result, dict) else {}


def _texts(values: Any) -> list[str]:
    return [value for value in values if isinstance(value, str)] if isinstance(values, Iterable) else []
