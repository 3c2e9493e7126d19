"""Loading of params.yaml: all problems in one `ConfigError`, each with its key and the allowed values or the nearest
name; and the source of each value."""

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from operator import eq
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import ValidationError

from components.core.artifacts import flatten
from components.core.errors import ConfigError, HeadstartError, nearest
from components.core.masking import masked_values
from components.settings.completion import Completed, complete
from components.settings.imports import localised
from components.settings.params import Params
from components.settings.section import BASELINE, WORDS_SYSTEMS, Section, Start

STARTS = get_args(Start)
#: Last part of the location of a problem with a key, in pydantic's errors.
KEY = "[key]"
#: Maximum number of values of a settings file, those of aliases counted each time.
VALUES = 100_000
#: Types of errors about what is no section.
OF_SECTIONS = ("model_type", "dict_type")
#: A location, and what is wrong there.
Problem = tuple[list[Any], Mapping[str, Any]]
MERGE = "tag:yaml.org,2002:merge"
#: Environment variables that take precedence over keys.
VARIABLES = {
    "RAY_ADDRESS": ("cluster", "address"),
    "HEADSTART_STORAGE": ("cluster", "storage"),
    "HEADSTART_GPUS": ("cluster", "gpus"),
    "HEADSTART_STAGES": ("cluster", "stages"),
}


def load_params(path: Path = Path("params.yaml")) -> Params:
    """Read and check params.yaml.

    Raises:
        ConfigError: as `resolve`.
    """
    return resolve(path)[0]


def resolve(path: Path) -> tuple[Params, Completed]:
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


def _resolved(raw: dict[str, Any], path: Path) -> tuple[Params, Completed]:
    given = {name: section for name, section in localised(raw)[0].items() if section is not None}
    raw = _copied(given)
    # Defaults are computed from values that are valid by themselves; a section that is null is empty.
    wrong = [
        (where, error)
        for where, error in _validated(given)[1]
        if error["type"] != "missing" and not (error["type"] == "value_error" and isinstance(error["input"], dict))
    ]
    for where, error in wrong:
        _leave_out(where, given, raw, section=error["type"] in OF_SECTIONS)
    wrong = [(where, error) for where, error in wrong if error["input"] is not None or error["type"] not in OF_SECTIONS]
    completed = complete(raw, file=Path(path))
    # Hosts that share one params.yaml may have different clusters and folders.
    for name, (section, key) in VARIABLES.items():
        if value := os.environ.get(name):
            raw.setdefault(section, {})[key] = value
    params, further = _validated(raw)
    # What follows from a value that was left out says nothing.
    further = [each for each in further if not any(all(map(eq, each[0], where)) for where, _ in wrong)]
    problems = _described(wrong + further) + _conflicts(completed) + _unknown_names(completed)
    if problems or params is None:
        raise ConfigError.listing(placed(problems, Path(path), completed.reasons), where=str(path))
    return params, completed


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(inner) for key, inner in value.items()}
    return [*map(_copied, value)] if isinstance(value, list) else value


def _validated(raw: dict[str, Any]) -> tuple[Params | None, list[Problem]]:
    try:
        return Params.model_validate(raw), []
    except ValidationError as error:
        return None, [(_location(each["loc"], raw), each) for each in error.errors()]


def _leave_out(where: Sequence[Any], given: Mapping[Any, Any], raw: dict[Any, Any], *, section: bool) -> None:
    """Remove the innermost value in mappings at a location of `given` from `raw`; `section`: leave an empty one."""
    key, *rest = where
    inner = given.get(key)
    if isinstance(inner, dict) and rest and rest[0] in inner and key in raw:
        _leave_out(rest, inner, raw[key], section=section)
    else:
        raw.pop(key, None)
        raw |= {key: {}} if section else {}


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
            if (node := loader.get_single_node()) is not None and _expanded(node, {}) > VALUES:
                raise ConfigError(f"{path}: its aliases repeat more than {VALUES:,} values; write them out")
            raw = None if node is None else loader.construct_document(node)
    except FileNotFoundError as error:
        raise ConfigError(
            f"{path}: does not exist; run from the project's folder, name it with --params, or write one with "
            "`headstart init LABELLED`"
        ) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not readable as YAML: {error}") from error
    if not isinstance(raw, dict):
        raise ConfigError(f"{path}: expected sections (run, data, pretrain ...), found {type(raw).__name__}")
    return raw


def _expanded(node: yaml.Node, sizes: dict[int, int]) -> int:
    """The number of values of a node, those of aliases counted each time."""
    if id(node) not in sizes:
        sizes[id(node)] = 1  # of a node inside of itself
        inner = node.value if isinstance(node, yaml.CollectionNode) else []
        nodes = [each for item in inner for each in (item if isinstance(item, tuple) else (item,))]
        sizes[id(node)] = 1 + sum(_expanded(each, sizes) for each in nodes)
    return sizes[id(node)]


def _unknown_names(done: Completed) -> list[str]:
    """Names that one section uses and no other defines."""
    families, tasks, starts = done.at("run.families"), done.at("run.tasks"), done.at("run.starts") or STARTS
    pretrain, static, together, distil = map(done.at, ("pretrain", "static", "together", "distil"))
    systems = [f"{family}-{start}" for family in families for start in starts]
    kinds = [*(done.at("tokenizer.kinds") or ["wordpiece"]), *(["parallel"] if done.at("data.parallel") else [])]
    # A block that is computed from another one has the initialisations of its teacher.
    adapted = [done.origins(family)[-1] for family in families] if "adapted" in starts else []
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
            (f"distil.{group}.{key}", block.get(key, ()), systems)
            for group, block in distil.items()
            for key in ("teachers", "students")
        ),
        *((section, done.at(section), tasks) for section in ("adapt_task", "intermediate_tasks")),
    ]
    return [
        f"{key}: unknown name {name!r}{nearest(name, defined)}"
        for key, names, defined in used
        for name in names
        if name not in [*defined]
    ]


def _conflicts(done: Completed) -> list[str]:
    """Names that are taken, and names in sections that they do not fit."""
    families, static, starts = done.at("run.families"), done.at("static"), done.at("run.starts")
    problems = []
    for name, members in done.at("evaluate.ensembles").items():
        if name in [*families, BASELINE]:
            problems.append(
                f"evaluate.ensembles: {name!r} is already the name of a family or of the baselines; choose another name"
            )
        if set(members) <= set(WORDS_SYSTEMS):
            problems.append(f"evaluate.ensembles.{name}: has no member with a language model; add one of run.families")
    problems += [
        f"static: {name!r} is already the name of a block of pretrain; choose another name"
        for name in static
        if name in done.at("pretrain")
    ]
    problems += [
        f"adapt_task: {name} is not trained, but computed from other encoders; remove it from run.families"
        for name in families
        if done.at("adapt_task") and name in static
    ]
    problems += [
        f"finetune.{name}.method: distil is how students of the section `distil` learn; name the system there, and "
        "choose features, contrastive, finetune or auto here"
        for name, block in done.at("finetune").items()
        if block.get("method") == "distil"
    ]
    if done.at("adapt_task") and starts and "adapted" not in starts:
        problems.append("adapt_task: continues from the adapted model; add adapted to run.starts")
    return problems


def _described(problems: Sequence[Problem]) -> list[str]:
    """One line per problem. A value that suits none of several types has one problem per type: they become one line."""
    lines: dict[tuple[Any, ...], list[str]] = {}
    for where, problem in problems:
        lines.setdefault((*where, repr(problem["input"])), []).append(_describe(problem, where))
    result = []
    for messages in lines.values():
        first, *others = (message.rpartition(" (found ") for message in messages)
        if others and all(message[1] for message in (first, *others)):
            kinds = " or ".join([first[0], *(message[0].partition(": ")[2] for message in others)])
            result.append(f"{kinds}{first[1]}{first[2]}")
        else:
            result += messages
    return result


def _location(where: Sequence[Any], raw: Any) -> list[Any]:
    """The location of a problem without the names of types, which pydantic adds for a value of several types."""
    result = []
    for place, part in enumerate(where):
        given = (isinstance(raw, dict) and part in raw) or (isinstance(raw, list) and isinstance(part, int))
        if given:
            raw = raw[part]
        elif part != KEY and (place + 1 < len(where) or not isinstance(raw, dict)):
            continue
        result.append(part)
    return result


def _describe(problem: Any, where: list[Any]) -> str:
    if not where:
        # Of several sections; the message names the key.
        return str(problem["msg"].removeprefix("Value error, "))
    if where[-1] == KEY:
        # The name of a block; its location is (section, ..., name, KEY).
        return f"{'.'.join(map(str, where[:-2]))}: {problem['input']!r} {problem['msg'].removeprefix('Value error, ')}"
    key = ".".join(str(part) for part in where)
    if problem["type"] == "extra_forbidden":
        return f"{key}: unknown key{nearest(str(where[-1]), _fields(where[:-1]))}"
    if problem["type"] == "missing":
        return f"{key}: missing"
    message = problem["msg"].removeprefix("Value error, ").replace("Input should be ", "must be ")
    # The value of a whole section is too long for a message.
    result = (
        ""
        if isinstance(problem["input"], dict)
        else f" (found {masked_values({where[-1]: problem['input']})[where[-1]]!r})"
    )
    return f"{key}: {message}{result}"


def _fields(path: list[Any]) -> list[str]:
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


def sources(path: Path) -> dict[str, tuple[Any, str]]:
    """Dotted key -> (value, source) of all settings.

    The source is FILE:LINE, `computed: ` and from what, `variable NAME`, or `default`.

    Raises:
        ConfigError: the settings are invalid.
    """
    params, completed = resolve(path)
    lines = _lines(path)
    variables = {f"cluster.{key}": name for name, key in VARIABLES.items() if os.environ.get(name)}

    def source(key: str) -> str:
        if key in variables:
            return f"variable {variables[key]}"
        if written := _nearest(lines, key):
            return f"{path}:{lines[written]}"
        filled = _nearest(completed.reasons, key)
        return f"computed: {completed.reasons[filled]}" if filled else "default"

    return {key: (value, source(key)) for key, value in flatten(masked_values(params.model_dump(mode="json")))}


def _nearest(names: Collection[str], key: str) -> str:
    """The key, or the innermost of the sections that it is in, that is one of the names; empty if none is."""
    while key not in names and key:
        key = key.rpartition(".")[0]
    return key
