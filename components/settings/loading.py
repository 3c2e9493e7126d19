"""Loading of params.yaml: the defaults that depend on other settings, on the files of a task or on the place of the
file; all problems in one `ConfigError`, each with its key and the allowed values or the nearest name; and the source of
each value. Nothing is read but the settings, the names of files, and the small JSON files of an imported encoder."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, get_args

import yaml
from pydantic import ValidationError

from components.core.artifacts import flatten, json_of
from components.core.errors import ConfigError, HeadstartError, nearest
from components.core.masking import masked_values
from components.settings import recipes
from components.settings.checks import RECORD
from components.settings.finetune import KEYS_OF_WAYS
from components.settings.hub import config_file
from components.settings.imports import localised
from components.settings.params import Params
from components.settings.recipes import FAMILIES, OWN, Family
from components.settings.registry import find_repository
from components.settings.section import BASELINE, WORDS_SYSTEMS, Section, Start
from components.settings.tasks import MISFITS, named_files

#: Last part of the location of a problem with a key, in pydantic's errors.
KEY = "[key]"
#: Maximum number of values of a settings file, those of aliases counted each time.
VALUES = 100_000
#: Maximum number of blocks and lists that a value is in.
DEPTH = 50
#: Types of errors about what is no section.
OF_SECTIONS = ("model_type", "dict_type")
MERGE = "tag:yaml.org,2002:merge"
#: Environment variables that take precedence over keys of `cluster`: hosts that share one params.yaml may have
#: different clusters and folders.
VARIABLES = {
    "RAY_ADDRESS": "address",
    "HEADSTART_STORAGE": "storage",
    "HEADSTART_GPUS": "gpus",
    "HEADSTART_STAGES": "stages",
}
#: Split without a file -> where its rows come from.
HELD = {"dev": "choices are made by cross-validation", "test": "a share of train (test_share)"}


def load_params(path: Path = Path("params.yaml")) -> Params:
    """Read and check params.yaml; errors as of `resolve`."""
    return resolve(path)[0]


def resolve(path: Path) -> tuple[Params, Settings]:
    """Read and check params.yaml: all settings, and from what the defaults among them were computed.

    Raises:
        ConfigError: the file is missing or not YAML, or has unknown or missing keys, invalid values or undefined names;
            the message lists all problems.
    """
    return _resolved(read_file(path), path)


def valid_tasks(path: Path) -> Params | None:
    """The tasks of a settings file with problems whose own keys have none, in words models only, so that their data can
    be checked too; None if there is none."""
    data = read_file(path).get("data")
    tasks = data.get("tasks") if isinstance(data, dict) else None
    valid: dict[str, Any] = {}
    for name, task in tasks.items() if isinstance(tasks, dict) else ():
        with suppress(HeadstartError):
            _resolved({"data": {"tasks": {name: task}}, "pretrain": {}}, path)
            valid[name] = task
    return _resolved({"data": {"tasks": valid}, "pretrain": {}}, path)[0] if valid else None


def _resolved(raw: dict[str, Any], path: Path) -> tuple[Params, Settings]:
    raw = _copied({name: section for name, section in localised(raw)[0].items() if section is not None})
    # Defaults are computed from values that are valid by themselves; a section that is null is empty.
    wrong = [each for each in _validated(raw)[1] if each.of_value]
    for each in wrong:
        mapping, key = each.cut
        # A block whose name is refused stays away, and so does a list that holds what is no section.
        if key in mapping:
            del mapping[key]
            if each.of_section and all(isinstance(part, str) for part in each.where):
                mapping[key] = {}
    wrong = [each for each in wrong if each.error["input"] is not None or not each.of_section]
    done = Settings(raw).complete(Path(path).resolve().parent)
    given = {key: value for name, key in VARIABLES.items() if (value := os.environ.get(name))}
    raw["cluster"] = raw.get("cluster", {}) | given
    params, further = _validated(raw)
    # What follows from a value that was left out says nothing.
    cut = [of.where for of in wrong]
    further = [each for each in further if all(each.where[: len(of)] != of[: len(each.where)] for of in cut)]
    problems = [*_described([*wrong, *further]), *_conflicts(done), *_unknown_names(done)]
    if problems or params is None:
        raise ConfigError.listing(placed(problems, Path(path), done.reasons), where=str(path))
    return params, done


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(inner) for key, inner in value.items()}
    return [*map(_copied, value)] if isinstance(value, list) else value


class Problem(NamedTuple):
    """A problem that pydantic has found: its location, without the names of types that pydantic adds for a value of
    several types; the innermost mapping there that is in no list, with its key; and pydantic's error."""

    where: list[Any]
    cut: tuple[dict[Any, Any], Any]
    error: Mapping[str, Any]

    @property
    def of_section(self) -> bool:
        """Whether it is about what is no section."""
        return self.error["type"] in OF_SECTIONS

    @property
    def of_value(self) -> bool:
        """Whether it is about one value, rather than what is missing or does not fit together."""
        kind, value = self.error["type"], self.error["input"]
        return kind != "missing" and not (kind == "value_error" and isinstance(value, dict))


def _validated(raw: dict[str, Any]) -> tuple[Params | None, list[Problem]]:
    try:
        return Params.model_validate(raw), []
    except ValidationError as error:
        return None, [_problem(each, raw) for each in error.errors()]


def _problem(error: Any, value: Any) -> Problem:
    where: list[Any] = []
    cut: tuple[dict[Any, Any], Any] = {None: value}, None
    for part in error["loc"]:
        if isinstance(value, dict) and part in value:
            cut = (value, part) if cut[0][cut[1]] is value else cut
            value = value[part]
        elif isinstance(value, list) and isinstance(part, int):
            # A list may be too short.
            value = value[part] if part < len(value) else None
        elif part != KEY and error["type"] not in ("missing", "invalid_key"):
            continue
        where.append(part)
    return Problem(where, cut, error)


def _described(problems: Sequence[Problem]) -> list[str]:
    """One line per problem. A value that suits none of several types has one problem per type: they become one line."""
    lines: dict[tuple[Any, ...], list[str]] = {}
    for problem in problems:
        lines.setdefault((*problem.where, repr(problem.error["input"])), []).append(_describe(problem))
    result = []
    for messages in lines.values():
        (first, mark, value), *others = (message.rpartition(" (found ") for message in messages)
        if mark and others and all(other[1] for other in others):
            messages = [" or ".join([first, *(other[0].partition(": ")[2] for other in others)]) + mark + value]
        result += messages
    return result


def _describe(problem: Problem) -> str:
    where, value, kind = problem.where, problem.error["input"], problem.error["type"]
    message = problem.error["msg"].removeprefix("Value error, ")
    if not where:
        return str(message)  # of several sections; the message names the key
    if where[-1] == KEY:
        # The name of a block; its location is (section, ..., name, KEY).
        return f"{'.'.join(map(str, where[:-2]))}: {value!r} {message}"
    key = ".".join(map(str, where))
    if kind == "extra_forbidden":
        choices = {*_fields(where[:-1])}
        if where[:2] == ["data", "tasks"]:
            choices -= MISFITS.get(problem.cut[0].get("kind", "classification"), set())
        return f"{key}: unknown key{nearest(str(where[-1]), choices)}"
    if kind == "missing":
        return f"{key}: missing"
    # The value of a whole section is too long for a message.
    shown = "" if isinstance(value, dict) else f" (found {masked_values({where[-1]: value})[where[-1]]!r})"
    return f"{key}: {message.replace('Input should be ', 'must be ')}{shown}"


def _fields(path: Sequence[Any]) -> list[str]:
    """The keys of the section at a path; what is no key of a section is the name of a block."""
    section: type[Section] = Params
    for part in path:
        if part in section.model_fields:
            section = next(_sections(section.model_fields[part].annotation), section)
    return list(section.model_fields)


def _sections(kind: Any) -> Iterator[type[Section]]:
    if isinstance(kind, type) and issubclass(kind, Section):
        yield kind
    for inner in get_args(kind):
        yield from _sections(inner)


def placed(problems: Sequence[str], path: Path, computed: Mapping[str, str]) -> Sequence[str]:
    """The problems with the line of their key. One of a key that was `computed` (key -> from what) is left out, because
    its cause is a key of the file, which has a problem too."""
    lines = _lines(path, sections=True)
    result = []
    for problem in problems:
        key = problem.partition(":")[0].partition(" ")[0]
        written = _nearest(lines, key)
        if len(written) >= len(_nearest(computed, key)):
            result.append(problem + (f" (line {lines[written]})" if written else ""))
    # All of them, if no key of the file is to blame.
    return result or problems


def sources(path: Path) -> dict[str, tuple[Any, str]]:
    """Dotted key -> (value, source) of all settings.

    The source is FILE:LINE, `computed: ` and from what, `variable NAME`, or `default`.

    Raises:
        ConfigError: the settings are invalid.
    """
    params, done = resolve(path)
    origin = {key: f"computed: {reason}" for key, reason in done.reasons.items()}
    written = {key: f"{path}:{line}" for key, line in _lines(path).items()}
    variables = {f"cluster.{key}": f"variable {name}" for name, key in VARIABLES.items() if os.environ.get(name)}

    def source(key: str) -> str:
        return next((of[near] for of in (variables, written, origin) if (near := _nearest(of, key))), "default")

    return {key: (value, source(key)) for key, value in flatten(masked_values(params.model_dump(mode="json")))}


def _nearest(names: Collection[str], key: str) -> str:
    """The key, or the innermost of the sections that it is in, that is one of the names; empty if none is."""
    while key not in names and key:
        key = key.rpartition(".")[0]
    return key


def _lines(path: Path, *, sections: bool = False) -> dict[str, int]:
    """Dotted key -> line of every value of a file, and of every section, whose keys an empty one does not give; a key
    in a merged mapping (`<<`) has its line there."""

    def walk(node: Any, key: str) -> Iterator[tuple[str, int]]:
        pairs = node.value if isinstance(node, yaml.MappingNode) else ()
        # What a mapping merges comes first, so that its own keys take precedence.
        for name, value in sorted(pairs, key=lambda pair: pair[0].tag != MERGE):
            if name.tag == MERGE:
                for parent in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                    yield from walk(parent, key)
                continue
            inner = f"{key}.{name.value}" if key else str(name.value)
            if sections or not isinstance(value, yaml.MappingNode):
                yield inner, name.start_mark.line + 1
            yield from walk(value, inner)

    return dict(walk(yaml.compose(path.read_text(encoding="utf-8")), ""))


def read_file(path: Path) -> dict[str, Any]:
    """The content of a settings file.

    Raises:
        ConfigError: it is missing or not YAML, or does not hold sections.
    """
    try:
        # From the file instead of its text: YAML's errors name it, with line and column.
        with Path(path).open(encoding="utf-8") as file:
            loader = yaml.SafeLoader(file)
            raw: Any = loader.get_single_node()
            if raw is not None:
                # Before merge keys (`<<`) copy what aliases repeat.
                _check(raw, loader, iter(range(VALUES)))
                raw = loader.construct_document(raw)
    except FileNotFoundError as error:
        raise ConfigError(
            f"{path}: does not exist; run from the project's folder, name it with --params, or write one with "
            "`headstart init LABELLED`"
        ) from error
    except StopIteration as error:
        raise ConfigError(f"{path}: its aliases repeat more than {VALUES:,} values; write them out") from error
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:
        do = "; save it as UTF-8 text" * isinstance(error, UnicodeError)
        raise ConfigError(f"{path}: not readable as YAML: {error}{do}") from error
    if not isinstance(raw, dict):
        raise ConfigError(f"{path}: expected sections (run, data, pretrain ...), found {type(raw).__name__}")
    return raw


def _check(node: yaml.Node, loader: yaml.SafeLoader, left: Iterator[int], depth: int = 0) -> None:
    """Refuse what YAML reads and no setting can be: a value in too many others, as with an alias inside of its own
    value; what is not of its type; characters that no file can hold; and a key that occurs twice, of which YAML would
    keep the last value. Raises StopIteration: more values than are `left`, those of aliases counted each time."""
    next(left)
    what = ""
    if depth > DEPTH:
        what = f"more than {DEPTH} values inside of each other, or an alias inside of its own value; write it out"
    elif isinstance(node, yaml.ScalarNode) and node.tag != MERGE:
        what = (
            f"{node.value!r:.60} is no {node.tag.removeprefix('tag:yaml.org,2002:')}; correct it, or put it in quotes"
        )
        if re.search("[\0\ud800-\udfff]", node.value):
            what = f"{node.value!r:.60} has NUL or half of a character; write the character itself, or remove it"
        else:
            with suppress(Exception):
                what = str(loader.construct_object(node))[:0]
    if what:
        raise yaml.MarkedYAMLError(what, node.start_mark)
    names: set[str] = set()
    for each in node.value if isinstance(node, yaml.CollectionNode) else ():
        key, *values = each if isinstance(each, tuple) else (each,)
        if values and str(key.value) in names:
            raise yaml.MarkedYAMLError(f"key {key.value!r:.60} occurs twice", key.start_mark)
        names.add(str(key.value))
        for inner in (key, *values):
            _check(inner, loader, left, depth + 1)


@dataclass
class Settings:
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
            section[last] = _copied(value)
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

    def complete(self, folder: Path) -> Settings:
        """Fill in the computed defaults; `folder`: of the file. Paths are relative to the root of its repository."""
        root = find_repository(folder)
        self._places(folder, root)
        self._tasks(root or Path())
        self._run(root or folder)
        self._models(root or Path())
        self._tokenizer()
        return self

    def _places(self, folder: Path, root: Path | None) -> None:
        """What depends on the folder of the settings file: without a prefix and an alias of its own, a production run,
        an experiment and `make full` would move each other's champions."""
        if root is None or folder == root:
            return
        name, record = re.sub(r"[^A-Za-z0-9_.-]+", "-", folder.name), (folder.relative_to(root) / RECORD).as_posix()
        for key, value in {
            "run.out": f"artifacts/{folder.name}",
            "registry.prefix": f"headstart-{name}",
            "registry.production": False,
            "checks.record": record,
        }.items():
            self.fill(key, value, "the folder of the settings file")

    def _tasks(self, root: Path) -> None:
        for name, task in self.at("data.tasks").items():
            self.fill(f"data.tasks.{name}.budgets", ["all"], "all labels are used")
            first = next(iter(named_files(task.get("train", "train.jsonl"))), "")
            for split, held in HELD.items():
                # `test.csv` beside `train.csv`.
                named = "train" in first and "#" not in first
                expected = first.replace("train", split, 1) if named else f"{split}.jsonl"
                folder, key = root / str(task.get("path", "")), f"data.tasks.{name}.{split}"
                if (folder / expected).exists() or not folder.exists():
                    self.fill(key, expected, "a file of the folder")
                else:
                    self.fill(key, None, f"there is no {expected}; {held}")

    def _run(self, root: Path) -> None:
        self.fill("run.tasks", [*self.at("data.tasks")], "all of data.tasks")
        named = [*self.at("pretrain"), *self.at("static")]
        # Text without labels from which a language model can learn, by the bytes of its files. A smaller one is read by
        # words models and by `headstart suggest`.
        listed = [each if isinstance(each, str) else each.get("path") for each in self.at("data.unlabelled")]
        files = [file for path in filter(None, listed) for file in (root / path, *(root / path).rglob("*"))]
        size = sum(file.stat().st_size for file in files if file.is_file())
        teaches = size >= recipes.LEAST_WORDS * recipes.CHARACTERS
        text = [key for key in ("general", "domain") if self.at(f"data.{key}")] + ["unlabelled"] * teaches
        # `pretrain: {}` asks for words models only.
        if not named and "families" not in self.at("run") and text and "pretrain" not in self.raw:
            self.fill(f"pretrain.{OWN}", {}, f"data.{text[0]} is text to learn a language model from")
            named = [OWN]
        models = ", ".join(f"{section}.*" for section in ("pretrain", "static") if self.at(section))
        none = f"neither a model (pretrain) nor text of {recipes.LEAST_WORDS:,} words for one: words models only"
        self.fill("run.families", named, f"all of {models}" if named else none)
        for name in self.at("run.families"):
            if name in FAMILIES and name not in named:
                self.fill(f"pretrain.{name}", {}, f"run.families names {name}")
        self.fill("run.starts", *self._starts(teaches))

    def _starts(self, teaches: bool) -> tuple[list[str], str]:
        """Initialisations that the given models and texts allow."""
        if not self.at("run.families"):
            return [], "no language model"
        if all(block.get("source") for block in self.at("pretrain").values()):
            return ["pretrained"], "the encoders are imported"
        if not self.at("data.general"):
            return ["scratch", "pretrained"], "no data.general: the domain's text is the text of pretraining"
        if self.at("data.domain") or teaches:
            return ["scratch", "pretrained", "adapted"], "data.general, and text of the domain"
        return ["scratch", "pretrained"], "data.general, and no text of the domain but that of the tasks"

    def _models(self, root: Path) -> None:
        adapts, families = "adapted" in self.at("run.starts"), self.at("run.families")
        run = {each for name in families for each in self.origins(name)}
        for name, block in self.at("pretrain").items():
            if name == OWN and not block:
                self.fill(f"pretrain.{name}.model", recipes.OWN_MODEL, "the size of make full")
                self.fill(f"pretrain.{name}.training", {"vectors": True}, "the recipe of make full")
            source = block.get("source")
            if source and "family" not in block and name not in FAMILIES:
                with suppress(OSError, ValueError, KeyError, TypeError):  # which `headstart check` reports
                    kind = str(json_of(config_file(source, root))["model_type"])
                    self.fill(f"pretrain.{name}.family", recipes.MODEL_TYPES.get(kind, kind), f"model_type of {source}")
            family, usual = self._family(name)
            self.fill(f"pretrain.{name}.tokenizer", usual.tokenizer, f"the usual one of {family}")
            self._training(f"pretrain.{name}.training", name)
            if adapts and name in run and name not in self.at("adapt"):
                self.fill(f"adapt.{name}", {}, "run.starts has adapted")
                if not source:
                    self.fill(f"adapt.{name}.training", block["training"], f"pretrain.{name}.training")
                    self._passes(f"adapt.{name}.training", name)
        for name in self.at("adapt"):
            if self.at(f"pretrain.{name}"):
                self._training(f"adapt.{name}.training", name)
        for name in families:
            if name in self.at("pretrain") or name in self.at("static"):
                self._finetune(name)

    def _family(self, name: str) -> tuple[str, Family]:
        family = self.at(f"pretrain.{name}.family") or name
        return family, FAMILIES.get(family, Family())

    def _training(self, keys: str, name: str) -> None:
        """Fill in the training of a language model."""
        (family, usual), imported = self._family(name), bool(self.at(f"pretrain.{name}.source"))
        if not {"tokens", "seconds"} & {*self.at(keys)}:
            self.fill(f"{keys}.tokens", recipes.TOKENS, "the default budget")
            self._passes(keys, name)
        rate = recipes.IMPORTED_RATE if imported else usual.rate
        self.fill(f"{keys}.rate", rate, f"the usual rate of {family}" + (", imported" if imported else ""))

    def _passes(self, keys: str, name: str) -> None:
        """Fill in the maximum number of passes, for a budget that is not set in the file."""
        family, usual = self._family(name)
        if usual.causal:
            why = f"more passes over a short text raise the held-out loss of {family}"
            self.fill(f"{keys}.passes", recipes.PASSES, why)

    def _finetune(self, name: str) -> None:
        """Fill in the recipe, unless the block names rate, batch size and keys outside of `training`: it is complete
        then."""
        given = self.at(f"finetune.{name}")
        if {"rate", "batch_size"} <= {*self.at(f"finetune.{name}.training")} and given.keys() != {"training"}:
            return
        source = next(filter(None, (self.at(f"pretrain.{each}.source") for each in self.origins(name))), None)
        recipe, training, why = (
            (recipes.IMPORTED, recipes.IMPORTED_TRAINING, f"recipe for imported encoders ({source})")
            if source
            else (recipes.TRAINED, recipes.TRAINED_TRAINING, "recipe for trained language models")
        )
        method = given.get("method", recipe.get("method"))
        fitting = {key: value for key, value in recipe.items() if method in KEYS_OF_WAYS.get(key, (method,))}
        self.fill(f"finetune.{name}", {**fitting, "training": training}, why)

    def _tokenizer(self) -> None:
        blocks = self.at("pretrain").values()
        kinds = [kind for kind in dict.fromkeys(block["tokenizer"] for block in blocks) if kind != "parallel"]
        if kinds:
            self.fill("tokenizer.kinds", kinds, "the tokenizers of pretrain.*")
        if not self.at("data.domain") and not self.at("data.unlabelled") and self.at("data.general"):
            why = "there is no text of the domain but that of the tasks"
            self.fill("tokenizer.domain_vocabulary", "general", why)
        # An imported model that is adapted reads the domain's text with its own vocabulary.
        if "adapted" in self.at("run.starts") and not self.at("data.general"):
            for kind in (kind for kind in kinds if kind in recipes.PUBLISHED):
                named = {block.get("source") for block in blocks if block["tokenizer"] == kind}
                if len(named) == 1 and (source := named.pop()):
                    self.fill(f"tokenizer.{kind}.source", source, "the imported model")


def _unknown_names(done: Settings) -> Iterator[str]:
    """Names that one section uses and no other defines."""
    families, tasks, starts = done.at("run.families"), done.at("run.tasks"), done.at("run.starts") or get_args(Start)
    pretrain, static, together, distil = map(done.at, ("pretrain", "static", "together", "distil"))
    kinds = [*(done.at("tokenizer.kinds") or ["wordpiece"]), *["parallel"] * bool(done.at("data.parallel"))]
    # A block that is computed from another one has the initialisations of its teacher.
    adapted = [done.origins(family)[-1] for family in families if "adapted" in starts]
    used: list[tuple[str, Iterable[str], Iterable[str]]] = [
        ("run.families (pretrain)", families, [*pretrain, *static]),
        ("run.families (adapt)", adapted, done.at("adapt")),
        ("run.families (finetune)", families, done.at("finetune")),
        *((f"static.{name}.teacher", done.origins(name)[1:], pretrain) for name in static),
        *((f"pretrain.{name}.tokenizer", [block["tokenizer"]], kinds) for name, block in pretrain.items()),
        ("run.tasks", tasks, done.at("data.tasks")),
        *(
            (f"evaluate.ensembles.{name}", members, [*families, *WORDS_SYSTEMS])
            for name, members in done.at("evaluate.ensembles").items()
        ),
        *((f"together.{group}.tasks", block.get("tasks", ()), tasks) for group, block in together.items()),
        *(
            (f"distil.{group}.{key}", block.get(key, ()), [f"{each}-{start}" for each in families for start in starts])
            for group, block in distil.items()
            for key in ("teachers", "students")
        ),
        *((section, done.at(section), tasks) for section in ("adapt_task", "intermediate_tasks")),
    ]
    for key, names, defined in used:
        yield from (f"{key}: unknown name {name!r}{nearest(name, defined)}" for name in names if name not in [*defined])


def _conflicts(done: Settings) -> Iterator[str]:
    """Names that are taken, and names in sections that they do not fit."""
    families, static, starts = done.at("run.families"), done.at("static"), done.at("run.starts")
    other = "choose another name"
    for name, members in done.at("evaluate.ensembles").items():
        if name in [*families, BASELINE]:
            yield f"evaluate.ensembles: {name!r} is already the name of a family or of the baselines; {other}"
        if set(members) <= set(WORDS_SYSTEMS):
            yield f"evaluate.ensembles.{name}: has no member with a language model; add one of run.families"
    for name in static:
        if name in done.at("pretrain"):
            yield f"static: {name!r} is already the name of a block of pretrain; {other}"
    for name in families:
        if done.at("adapt_task") and name in static:
            yield f"adapt_task: {name} is not trained, but computed from other encoders; remove it from run.families"
    for name, block in done.at("finetune").items():
        if block.get("method") == "distil":
            yield (
                f"finetune.{name}.method: distil is how students of the section `distil` learn; name the system there, "
                "and choose features, contrastive, finetune or auto here"
            )
    if done.at("adapt_task") and starts and "adapted" not in starts:
        yield "adapt_task: continues from the adapted model; add adapted to run.starts"
