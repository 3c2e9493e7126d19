"""README.md and docs/: links lead somewhere, commands and keys exist, numbers come from docs/results."""

import ast
import functools
import importlib
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import pytest
import typer
import yaml

from benchmarks import results
from components.cli import main as cli
from components.cli.programs import FLOWS, PROGRAMS
from components.settings.params import Params
from components.settings.section import Section
from components.settings.training import LanguageModelTraining
from components.studies import command as studies

ROOT = Path(__file__).parents[1]
DOCUMENTS = [*results.documents(ROOT), ROOT / "infra" / "README.md"]
NAMES = [str(path.relative_to(ROOT)) for path in DOCUMENTS]
FENCE = re.compile(r"(?ms)^```(\w*)\n(.*?)^```$")
SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
LINK = re.compile(r"\]\(([^)\s]+)\)")
BLOCK = re.compile(r"(?ms)^<!-- results:.*?^<!-- /results -->$")
#: A placeholder, such as NAME or FOLDER.
PLACEHOLDER = re.compile(r"[A-Z]{2,}")
#: What is measured: fractions with three digits, intervals, and amounts with units of speed, time or memory.
MEASURED = re.compile(
    r"\b0\.\d{3}\b|\[[-+]?\d+\.\d+, [-+]?\d+\.\d+\]|"
    r"\b\d[\d,.]*( x\b(?! \d)| ?%| (seconds|minutes|hours|ms|MB/s|GB/s)\b| tokens (a|per) second)"
)


def prose(text: str) -> str:
    """A document without rendered blocks, code blocks and code spans."""
    return SPAN.sub("", FENCE.sub("", BLOCK.sub("", text)))


def slug(heading: str) -> str:
    """The anchor that GitHub gives a heading."""
    kept = re.sub(r"[^\w\- ]", "", heading.replace("`", "").strip().lower())
    return kept.replace(" ", "-")


def anchors(path: Path) -> set[str]:
    text = FENCE.sub("", path.read_text(encoding="utf-8"))
    return {slug(heading) for heading in re.findall(r"(?m)^#+ (.+)$", text)}


@pytest.mark.parametrize("name", NAMES)
def test_every_relative_link_and_anchor_resolves(name):
    path = ROOT / name
    broken = []
    for target in LINK.findall(FENCE.sub("", path.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+://|mailto:", target):
            continue
        file, _, anchor = target.partition("#")
        result = (path.parent / file).resolve() if file else path
        if not result.exists() or (anchor and anchor not in anchors(result)):
            broken.append(target)
    assert broken == []


def commands(text: str) -> Iterator[str]:
    """The commands of a document: in code blocks (fenced or indented) and in code spans."""
    blocks = [body for language, body in FENCE.findall(text) if language != "yaml"]
    blocks += re.findall(r"(?m)^    (\S.*)$", FENCE.sub("", text))
    lines = [line.strip() for block in blocks for line in block.splitlines()]
    for line in [*lines, *SPAN.findall(FENCE.sub("", text))]:
        for part in line.split(" && "):
            if re.match(r"(headstart|make)( |$)|python benchmarks/", command := part.removeprefix(".venv/bin/")):
                yield command


def shown() -> list[tuple[str, str]]:
    result = [(name, command) for name in NAMES for command in commands((ROOT / name).read_text(encoding="utf-8"))]
    return list(dict.fromkeys(result))


@functools.cache
def programs() -> Mapping[str, Any]:
    """Verb -> its parser; for `study` and flows, the parser of the program that the verb starts."""
    group = typer.main.get_command(cli.app)
    result = dict(group.commands)
    for verb in FLOWS:
        app = typer.Typer(add_completion=False)
        app.command()(importlib.import_module(f"flows.{PROGRAMS.get(verb, verb)}").command)
        result[verb] = typer.main.get_command(app)
    result["study"] = study = typer.main.get_command(studies.application())
    for name in studies.STUDIES:
        study.commands[name] = typer.main.get_command(studies.application(name)).commands[name]
    return result


def parse(command: Any, arguments: list[str]) -> str:
    """Parse arguments without running anything; returns what is wrong with them."""
    subcommands = getattr(command, "commands", {})
    if arguments and (arguments[0] in subcommands or (subcommands and not arguments[0].startswith("-"))):
        if PLACEHOLDER.fullmatch(arguments[0]):
            return ""
        if arguments[0] not in subcommands:
            return f"no command {arguments[0]!r}"
        return parse(subcommands[arguments[0]], arguments[1:])
    if subcommands and not arguments:
        return ""
    try:
        command.make_context(command.name, list(arguments))
    except Exception as error:
        # A printed help is no error.
        return "" if getattr(error, "exit_code", 1) == 0 else f"{type(error).__name__}: {error}"
    return ""


def problem(line: str) -> str:
    """What is wrong with a command line that a document shows; empty if nothing is."""
    program, *arguments = shlex.split(line, comments=True)
    if program == "make":
        targets = set(re.findall(r"(?m)^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8")))
        return "; ".join(f"no target {word}" for word in arguments if "=" not in word and word not in targets)
    if program == "python":
        script = ROOT / arguments[0]
        if not script.is_file():
            return f"no file {arguments[0]}"
        source = script.read_text(encoding="utf-8")
        options = [word.partition("=")[0] for word in arguments[1:] if word.startswith("--")]
        listed = {"--record"} if "add_record_option" in source else set()
        return "; ".join(f"no option {each}" for each in options if f'"{each}"' not in source and each not in listed)
    if not arguments or arguments[0].startswith("-"):
        return parse(typer.main.get_command(cli.app), arguments)
    verb, *rest = arguments
    if PLACEHOLDER.fullmatch(verb):
        return ""
    if verb not in programs():
        return f"no command {verb!r}"
    if not rest:
        return ""
    return parse(programs()[verb], rest)


@pytest.mark.parametrize(("name", "line"), shown())
def test_every_command_that_is_shown_exists_with_its_options(name, line):
    assert problem(line) == ""


def test_documents_equal_their_data():
    assert results.differences(ROOT) == []


def test_every_result_is_shown():
    text = "".join(path.read_text(encoding="utf-8") for path in DOCUMENTS)
    recorded = {path.stem for path in (ROOT / results.RESULTS).glob("*.json")}
    assert recorded - set(re.findall(r"(?m)^<!-- results:(\S+)", text)) == set()


# lectures.md is written from docs/lectures/lectures.json.
@pytest.mark.parametrize("name", [name for name in NAMES[:-1] if name != "docs/lectures.md"])
def test_no_measured_number_is_written_by_hand(name):
    assert [match[0] for match in MEASURED.finditer(prose((ROOT / name).read_text(encoding="utf-8")))] == []


def inner(annotation: Any, key: str) -> Any:
    """The type below a key of a section or of a mapping; None if there is no such key."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return annotation.model_fields[key].annotation if key in annotation.model_fields else None
    if getattr(annotation, "__origin__", None) is dict:
        return get_args(annotation)[1]
    for option in get_args(annotation):
        if (result := inner(option, key)) is not None:
            return result
    return None


def unknown_key(path: list[str]) -> bool:
    model: Any = LanguageModelTraining if path[0] == "training" else Params
    for key in path[1:] if path[0] == "training" else path:
        model = inner(model, key)
        if model is None:
            return True
    return False


@pytest.mark.parametrize("name", NAMES)
def test_every_key_of_the_settings_exists(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    roots = {*Params.model_fields, "training"}
    spans = SPAN.findall(FENCE.sub("", text))
    keys = [match[1].split(".") for span in spans if (match := re.match(r"([a-z_]+(?:\.[a-z_<>-]+)+)(?=[: ]|$)", span))]
    # `params.yaml` and the like are files.
    keys = [key for key in keys if key[0] in roots and key[-1] not in ("yaml", "dvc", "json", "py", "parquet")]
    blocks = [body for language, body in FENCE.findall(text) if language == "yaml"]
    keys += [key for block in blocks for key in keys_of(yaml.safe_load(block)) if "model" not in key[:-1]]
    assert [".".join(key) for key in keys if unknown_key(key)] == []


def keys_of(raw: Any, prefix: tuple[str, ...] = ()) -> Iterator[list[str]]:
    for key, value in raw.items():
        yield [*prefix, key]
        if isinstance(value, dict):
            yield from keys_of(value, (*prefix, key))


@functools.cache
def messages() -> str:
    """The text constants of the code, each on a line; `{}` stands for a value in a formatted text."""
    result = []
    for file in (file for folder in ("components", "flows") for file in (ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = (part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
                result.append("".join(str(part) for part in parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                result.append(node.value)
    return "\n".join(result)


def test_the_messages_of_troubleshooting_are_those_of_the_code():
    text = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    rows = [line.split(" | ")[0].removeprefix("| ") for line in text.splitlines() if line.startswith("| `")]
    assert len(rows) > 30
    unknown = []
    for row in rows:
        message = row.strip("`").replace("``", "`")
        parts = [re.escape(part) for part in re.split(r"\s*\.\.\.\s*", message) if part]
        if not re.search(r"[^\n]*?".join(parts), messages()):
            unknown.append(message)
    assert unknown == []
