"""The stage `identity`: for each stage and item a JSON file with everything, apart from input data, that its result
depends on: the resolved settings, the code that it can reach, and the locked versions of its libraries. Each stage
depends on its own file."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final

from components.core.artifacts import digest_text, json_of, write_json, writing
from components.core.errors import ConfigError
from components.core.masking import masked_json
from components.pipeline.code_identity import SAMPLER, Entries, installed
from components.pipeline.jobs import PAIRS_KIND, PARALLEL, WHOLE, Arguments, out
from components.pipeline.stages import STAGES
from components.settings.finetune import FinetuneSettings
from components.settings.params import Params
from components.settings.section import Section, result_settings
from components.settings.systems import System
from components.settings.tokenizer import TokenizerSettings

KIND: Final = "identity"
STAGE: Final = "identity"
#: Arguments of a job that are output locations and do not affect the result.
PLACES: Final = ("output", "record", "out")
#: Argument of a job -> key in params.yaml, where the names differ.
KEYS: Final = {"seed": "run.seed", "families": "run.families", "tasks": "run.tasks", "starts": "run.starts"}
#: Arguments that are keys of a block in `pretrain`.
MODEL_KEYS: Final = ("preset", "model", "source", "digest", "vectors", "vectors_digest")
SCRATCH: Final = "scratch"
#: Tables whose entries depend on the settings, as "module:NAME".
FAMILIES: Final = "components.models:FAMILIES"
CONVERTERS: Final = "components.interchange.huggingface:CONVERTERS"
SAMPLERS: Final = "components.training.pretraining.samplers:SAMPLERS"
TOKENIZERS: Final = "components.tokenization.base:KINDS"
TASK_KINDS: Final = (
    "components.data.tasks.kinds:KINDS",
    "components.learners.task_models.kinds:TASKS",
    "components.learners.baselines:BASELINES",
    "components.learners.words.classifier:MODELS",
)
#: Module that imports published models; used only if `pretrain.<name>.source` is set.
IMPORTING: Final = "components.interchange.importing"


@dataclass(frozen=True)
class Identity:
    """Everything, apart from input data, that the result of one item of a stage depends on.

    Attributes:
        settings: dotted key in params.yaml -> value.
        code: path of a module -> digest.
        libraries: distribution -> locked version.
    """

    settings: Mapping[str, Any]
    code: Mapping[str, str]
    libraries: Mapping[str, str]

    @property
    def code_digest(self) -> str:
        """SHA-256 of the code and libraries, for the keys of checkpoints and caches."""
        return digest_text(json.dumps([self.code, self.libraries], sort_keys=True))

    @classmethod
    def read(cls, path: Path) -> Identity:
        """An identity from its file.

        Raises:
            OSError: the file cannot be read.
            ValueError: it does not contain an identity.
        """
        raw = json_of(path)
        try:
            return cls(**raw)
        except TypeError as error:
            raise ValueError(f"{path}: not the identity of a stage ({error})") from error

    def changes(self, before: Identity) -> list[str]:
        """The differences from an earlier identity, one line per setting, source file and library."""
        lines = []
        for part, (what, show, *forms) in _CHANGES.items():
            old, new = (getattr(each, part) for each in (before, self))
            for key in sorted({*old, *new}):
                if key not in old or key not in new or old[key] != new[key]:
                    form = forms[0 if key not in old else 1 if key not in new else 2]
                    lines.append(f"{what} {key}: {form.format(*(show(each.get(key)) for each in (old, new)))}")
        return lines


#: Part of an identity -> its name in a reason, value -> text, and how a reason says that something is new, that it is
#: gone, and that it has changed.
_CHANGES: Final[Mapping[str, tuple[str, Callable[[Any], str], str, str, str]]] = {
    "settings": ("setting", partial(json.dumps, ensure_ascii=False), "new, {1}", "removed, was {0}", "{0} -> {1}"),
    "code": ("code", str, "now used", "no longer used", "changed"),
    "libraries": ("library", str, "not used -> {1}", "{0} -> not used", "{0} -> {1}"),
}


class IdentityJob(Section):
    """Inputs of the stage.

    Attributes:
        output: directory of the identities: `<stage>/<item>.json`, or `<stage>.json` for a stage with a single item.
    """

    params: Params
    output: Path


def identity(job: IdentityJob) -> Path:
    """Write the identity of every stage and item; returns the directory."""
    with writing(job.output, kind=KIND) as draft:
        for stage, items in identities(job.params).items():
            for item, collected in items.items():
                path = draft.path / file_name(stage, item)
                path.parent.mkdir(parents=True, exist_ok=True)
                write_json(path, asdict(collected))
    return job.output


def identities(params: Params) -> dict[str, dict[str, Identity]]:
    """The identity of every item: stage -> item -> identity."""
    return {
        stage: {item: identity_of(stage, item, params) for item in STAGES[stage].items(params)}
        for stage in STAGES
        if stage != STAGE
    }


def identity_of(stage: str, item: str, params: Params) -> Identity:
    arguments = STAGES[stage].items(params)[item]
    block = params.block(_block(arguments))
    published = block is not None and block.published
    reached = installed().closure(
        STAGES[stage].module,
        entries=_entries(item, arguments, params),
        without=() if published or block is None else (IMPORTING,),
    )
    return Identity(_settings(arguments, params), reached.modules, reached.libraries)


def check_identity(stage: str, item: str, params: Params) -> Identity:
    """The current identity of an item, compared with the file of the stage `identity` if that exists.

    Raises:
        ConfigError: code or settings have changed since the stage `identity` ran.
    """
    now = identity_of(stage, item, params)
    path = out(params, STAGE, file_name(stage, item))
    if path.is_file() and (changes := now.changes(Identity.read(path))):
        raise ConfigError(
            f"{path}: code or settings have changed since it was written ({'; '.join(changes[:3])}); "
            "run `headstart retrain`, or `dvc repro` without --single-item"
        )
    return now


def file_name(stage: str, item: str) -> str:
    """Path of the identity of an item, relative to the output directory of the stage `identity`."""
    return f"{stage}.json" if item == WHOLE else f"{stage}/{item}.json"


def _block(arguments: Arguments) -> str:
    """The name of the block in `pretrain` that a job trains or continues; empty for jobs without a model."""
    is_encoder = not {"training", "teacher"}.isdisjoint(arguments)
    return str(arguments["name"] if is_encoder else arguments.get("family", "")).partition(" ")[0]


def _entries(item: str, arguments: Arguments, params: Params) -> Entries:
    """The entries of tables that a job uses; it may use all of a table that is left out."""
    name, collected = _block(arguments), dict[str, Collection[str]]()
    tokenizers = [arguments["kind"]] if "kind" in arguments else []
    if (block := params.block(name)) is not None:
        used = [block, *filter(None, map(params.block, block.parents))]
        families = {entry.family for entry in used}
        collected |= {FAMILIES: families, CONVERTERS: families, SAMPLERS: set(chain(*map(_samplers, families)))}
        # A vocabulary of words replaces the vocabulary of a teacher without word pieces.
        tokenizers = [*(entry.tokenizer for entry in used), *["word"] * bool(block.parents)]
    if tokenizers:
        collected[TOKENIZERS] = {PAIRS_KIND if kind == PARALLEL else kind for kind in tokenizers}
    if (kinds := _task_kinds(arguments, item, params)) is not None:
        collected |= dict.fromkeys(TASK_KINDS, kinds)
    return collected


def _samplers(family: str) -> Collection[str]:
    """The sampler that the file of a family names."""
    module, _, table = FAMILIES.partition(":")
    file = installed().module(module).tables[table].get(family)
    return installed().module(file).tables.get(SAMPLER, ()) if file else ()


def _task_kinds(arguments: Arguments, item: str, params: Params) -> Collection[str] | None:
    tasks = [arguments["task"]] if "task" in arguments else [item] if item in params.data.tasks else None
    if isinstance(examples := arguments.get("examples"), Mapping):
        tasks = list(examples)
    return None if tasks is None else {params.data.tasks[task].kind for task in tasks}


def _settings(arguments: Arguments, params: Params) -> dict[str, Any]:
    """The arguments of a job as dotted keys of params.yaml and values, with passwords masked: DVC pushes the file."""
    sections = {id(section): key for key, section in _sections(params, "")}
    block = _block(arguments)
    collected: dict[str, Any] = {}
    for name, value in arguments.items():
        if name in PLACES:
            continue
        if isinstance(value, Mapping) and value and all(isinstance(inner, Section) for inner in value.values()):
            for inner_name, inner in value.items():
                prefix = sections.get(id(inner), f"{name}.{inner_name}")
                collected |= {f"{prefix}.{key}": entry for key, entry in result_settings(inner).items()}
            continue
        if not isinstance(value, Section):
            key = KEYS.get(name, f"pretrain.{block}.{name}" if name in MODEL_KEYS else name)
            collected[key] = json.loads(json.dumps(value, default=str))
            continue
        values = result_settings(value)
        if isinstance(value, TokenizerSettings):
            # A vocabulary depends on the keys of its own kind: those that the job sets.
            values = {key: inner for key, inner in values.items() if key.partition(".")[0] in value.model_fields_set}
        system = System.of("", arguments["start"]) if isinstance(value, FinetuneSettings) else None
        if system is not None and (system.start != SCRATCH or system.way not in ("", "from")):
            values = {key: inner for key, inner in values.items() if not key.startswith("scratch.")}
        prefix = sections.get(id(value), "tokenizer" if isinstance(value, TokenizerSettings) else name)
        collected |= {f"{prefix}.{key}": inner for key, inner in values.items()}
    return dict(masked_json(collected))


def _sections(value: Any, key: str) -> Iterator[tuple[str, Section]]:
    """All sections of the settings, with their dotted keys."""
    if isinstance(value, Section):
        if key:
            yield key, value
        for name in type(value).model_fields:
            yield from _sections(getattr(value, name), f"{key}.{name}" if key else name)
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _sections(inner, f"{key}.{name}")
