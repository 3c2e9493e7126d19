"""Defaults that depend on other settings, on the files of a task, or on the place of the settings file. Nothing is read
but the names of files, and the small JSON files of an imported encoder."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from components.settings.checks import RECORD
from components.settings.families import FAMILIES, Family
from components.settings.finetune import KEYS_OF_WAYS
from components.settings.hub import config_file
from components.settings.published import MODEL_TYPES
from components.settings.registry import find_repository

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
#: Split without a file -> where its rows come from.
HELD: Final = {"dev": "choices are made by cross-validation", "test": "a share of train (test_share)"}


@dataclass
class Completed:
    """Settings with the computed defaults.

    Attributes:
        raw: sections, whose values have the types of `Params`; keys may be missing.
        reasons: dotted key -> from what the value is computed.
    """

    raw: dict[str, Any]
    reasons: dict[str, str] = field(default_factory=dict)

    def fill(self, keys: str, value: Any, reason: str) -> None:
        """Set a key, or the missing keys of a section, and record the reason. A key that the file sets to null stays
        null."""
        *path, last = keys.split(".")
        section = self.raw
        for key in path:
            section = section.setdefault(key, {})
        if last not in section:
            section[last] = deepcopy(value)
            self.reasons[keys] = reason
        elif isinstance(value, Mapping):
            for key, inner in value.items():
                self.fill(f"{keys}.{key}", inner, reason)

    def at(self, keys: str) -> Any:
        """The value of a key; an empty mapping if there is none."""
        value: Any = self.raw
        for key in keys.split("."):
            value = value.get(key) or {}
        return value

    def origins(self, name: str) -> list[str]:
        """A block, and the one that it is computed from."""
        return [name, *filter(None, [self.at(f"static.{name}.teacher")])]


def complete(raw: dict[str, Any], *, file: Path) -> Completed:
    """The settings with all computed defaults.

    Args:
        raw: as of `Completed`; changed in place.
        file: its path; paths in it are relative to the root of its repository.
    """
    root = find_repository(file.resolve().parent)
    done = Completed(raw)
    _complete_places(done, file.resolve().parent, root)
    _complete_tasks(done, root or Path())
    _complete_run(done, root or file.resolve().parent)
    _complete_models(done, root or Path())
    _complete_tokenizer(done)
    return done


def _complete_places(done: Completed, folder: Path, root: Path | None) -> None:
    """What depends on the folder of the settings file: without a prefix and an alias of its own, a production run, an
    experiment and `make full` would move each other's champions."""
    inside, why = root is not None and folder != root, "the folder of the settings file"
    done.fill("run.out", f"artifacts/{folder.name}" if inside else "artifacts", why if inside else "the default")
    if root is not None and inside:
        name = re.sub(r"[^A-Za-z0-9_.-]+", "-", folder.name)
        done.fill("registry.prefix", f"headstart-{name}", why)
        done.fill("registry.production", False, why)
        done.fill("checks.record", (folder.relative_to(root) / RECORD).as_posix(), why)


def _complete_tasks(done: Completed, root: Path) -> None:
    for name, task in done.at("data.tasks").items():
        keys = f"data.tasks.{name}"
        done.fill(f"{keys}.budgets", ["all"], "all labels are used")
        for split, held in HELD.items():
            expected, folder = _name_of(split, task.get("train", "train.jsonl")), root / str(task.get("path", ""))
            if (folder / expected).exists() or not folder.exists():
                done.fill(f"{keys}.{split}", expected, "a file of the folder")
            else:
                done.fill(f"{keys}.{split}", None, f"there is no {expected}; {held}")


def _name_of(split: str, train: str | list[str]) -> str:
    """The name that a split's file has by default: `test.csv` beside `train.csv`."""
    name = train[0] if isinstance(train, list) and train else str(train)
    return name.replace("train", split, 1) if "train" in name and "#" not in name else f"{split}.jsonl"


def _complete_run(done: Completed, root: Path) -> None:
    done.fill("run.seed", 0, "the default seed")
    done.fill("run.tasks", [*done.at("data.tasks")], "all of data.tasks")
    named = [*done.at("pretrain"), *done.at("static")]
    teaches = _teaches_language(done, root)
    text = [key for key in ("general", "domain") if done.at(f"data.{key}")] + ["unlabelled"] * teaches
    # `pretrain: {}` asks for words models only.
    if not named and "families" not in done.at("run") and text and "pretrain" not in done.raw:
        done.fill(f"pretrain.{OWN}", {}, f"data.{text[0]} is text to learn a language model from")
        named = [OWN]
    models = ", ".join(f"{section}.*" for section in ("pretrain", "static") if done.at(section))
    none = f"neither a model (pretrain) nor text of {LEAST_WORDS:,} words for one: words models only"
    done.fill("run.families", named, f"all of {models}" if named else none)
    for name in done.at("run.families"):
        if name in FAMILIES and name not in named:
            done.fill(f"pretrain.{name}", {}, f"run.families names {name}")
    done.fill("run.starts", *_starts(done, teaches))


def _teaches_language(done: Completed, root: Path) -> bool:
    """Whether `data.unlabelled` is text enough for a language model, by the bytes of its files. A smaller text is read
    by words models and by `headstart suggest`."""
    listed = [each if isinstance(each, str) else each.get("path") for each in done.at("data.unlabelled")]
    files = [file for path in filter(None, listed) for file in (root / path, *(root / path).rglob("*"))]
    return sum(file.stat().st_size for file in files if file.is_file()) >= LEAST_WORDS * CHARACTERS


def _starts(done: Completed, teaches: bool) -> tuple[list[str], str]:
    """Initialisations that the given models and texts allow."""
    if not done.at("run.families"):
        return [], "no language model"
    if all(block.get("source") for block in done.at("pretrain").values()):
        return ["pretrained"], "the encoders are imported"
    if not done.at("data.general"):
        return ["scratch", "pretrained"], "no data.general: the domain's text is the text of pretraining"
    if done.at("data.domain") or teaches:
        return ["scratch", "pretrained", "adapted"], "data.general, and text of the domain"
    return ["scratch", "pretrained"], "data.general, and no text of the domain but that of the tasks"


def _complete_models(done: Completed, root: Path) -> None:
    adapts, families = "adapted" in done.at("run.starts"), done.at("run.families")
    run = {each for name in families for each in done.origins(name)}
    for name, block in done.at("pretrain").items():
        if name == OWN and not block:
            done.fill(f"pretrain.{name}.model", _OWN_MODEL, "the size of make full")
            done.fill(f"pretrain.{name}.training", {"vectors": True}, "the recipe of make full")
        source = block.get("source")
        if source and "family" not in block and name not in FAMILIES:
            with suppress(OSError, ValueError, KeyError, TypeError):  # which `headstart check` reports
                kind = str(json.loads(config_file(source, root).read_text(encoding="utf-8"))["model_type"])
                done.fill(f"pretrain.{name}.family", MODEL_TYPES.get(kind, kind), f"model_type of {source}")
        family = block.get("family") or name
        usual = FAMILIES.get(family, Family())
        done.fill(f"pretrain.{name}.tokenizer", usual.tokenizer, f"the usual one of {family}")
        _complete_training(done, f"pretrain.{name}.training", block, name)
        if adapts and name in run and name not in done.at("adapt"):
            done.fill(f"adapt.{name}", {}, "run.starts has adapted")
            if not source:
                done.fill(f"adapt.{name}.training", block["training"], f"pretrain.{name}.training")
                _complete_passes(done, f"adapt.{name}.training", family)
    for name in done.at("adapt"):
        if made := done.at(f"pretrain.{name}"):
            _complete_training(done, f"adapt.{name}.training", made, name)
    for name in families:
        if name in done.at("pretrain") or name in done.at("static"):
            _complete_finetune(done, name)


def _complete_training(done: Completed, keys: str, block: Mapping[str, Any], name: str) -> None:
    """Fill in the training of a language model; `block`: of `pretrain`."""
    family, imported = block.get("family") or name, bool(block.get("source"))
    if not {"tokens", "seconds"} & {*done.at(keys)}:
        done.fill(f"{keys}.tokens", _TOKENS, "the default budget")
        _complete_passes(done, keys, family)
    done.fill(f"{keys}.batch_size", 32, "the default")
    rate = _IMPORTED_RATE if imported else FAMILIES.get(family, Family()).rate
    done.fill(f"{keys}.rate", rate, f"the usual rate of {family}" + (", imported" if imported else ""))


def _complete_passes(done: Completed, keys: str, family: str) -> None:
    """Fill in the maximum number of passes, for a budget that is not set in the file."""
    if FAMILIES.get(family, Family()).causal:
        done.fill(f"{keys}.passes", PASSES, f"more passes over a short text raise the held-out loss of {family}")


def _complete_finetune(done: Completed, name: str) -> None:
    """Fill in the recipe, unless the block names rate, batch size and keys outside of `training`: it is complete
    then."""
    given = done.at(f"finetune.{name}")
    if {"rate", "batch_size"} <= {*done.at(f"finetune.{name}.training")} and given.keys() != {"training"}:
        return
    source = next(filter(None, (done.at(f"pretrain.{each}.source") for each in done.origins(name))), None)
    recipe = IMPORTED | {"training": IMPORTED_TRAINING} if source else TRAINED | {"training": TRAINED_TRAINING}
    why = f"recipe for imported encoders ({source})" if source else "recipe for trained language models"
    method = given.get("method", recipe.get("method"))
    fitting = {key: value for key, value in recipe.items() if method in KEYS_OF_WAYS.get(key, (method,))}
    done.fill(f"finetune.{name}", fitting, why)


def _complete_tokenizer(done: Completed) -> None:
    blocks = done.at("pretrain").values()
    kinds = [kind for kind in dict.fromkeys(block["tokenizer"] for block in blocks) if kind != "parallel"]
    if kinds:
        done.fill("tokenizer.kinds", kinds, "the tokenizers of pretrain.*")
    if not done.at("data.domain") and not done.at("data.unlabelled") and done.at("data.general"):
        done.fill("tokenizer.domain_vocabulary", "general", "there is no text of the domain but that of the tasks")
    # An imported model that is adapted reads the domain's text with its own vocabulary.
    if "adapted" in done.at("run.starts") and not done.at("data.general"):
        for kind in (kind for kind in kinds if kind in _PUBLISHED):
            sources = {block.get("source") for block in blocks if block["tokenizer"] == kind}
            if len(sources) == 1 and (source := sources.pop()):
                done.fill(f"tokenizer.{kind}.source", source, "the imported model")
