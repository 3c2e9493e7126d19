"""Commands that outputs print: they exist, with these flags. `tests/onboarding/test_fit.py` runs those that a run
prints."""

import importlib
import re
import shlex
from pathlib import Path

import pytest
import typer

from components.cli.main import app
from components.cli.programs import FLOWS, program_of
from components.core.steps import STEPS, step

ROOT = Path(__file__).parents[1]
VALUES = {"task": "t", "version": "3", "file": "answers.csv"}
#: A command in a message: up to the end of the literal or of what surrounds it.
PRINTED = re.compile(r"headstart ([a-z][a-z-]+)((?: (?:--)?[A-Za-z{][^\s`\"';,()\\]*)*)")
#: `headstart stage` and words that follow the name of the product in sentences.
NOT_COMMANDS = {"cannot", "can", "has", "is", "does", "reads", "then", "leaves"}
GROUP = typer.main.get_command(app)
COMMANDS = GROUP.commands  # type: ignore[attr-defined]


def options_of(verb: str) -> set[str]:
    """The flags of a command; those of a flow are of its own program."""
    command = COMMANDS[verb]
    if verb in FLOWS:
        program = typer.Typer()
        program.command()(importlib.import_module(f"flows.{program_of(verb)}").command)
        command = typer.main.get_command(program)
    return {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}


@pytest.mark.parametrize("name", STEPS)
def test_a_next_step_is_a_command_with_its_flags(name):
    program, verb, *arguments = shlex.split(step(name, **VALUES))
    assert program == "headstart" and verb in COMMANDS
    flags = {argument for argument in arguments if argument.startswith("--")}
    assert flags <= options_of(verb)
    assert "NUMBER" not in arguments and not any("{" in argument for argument in arguments)


def test_commands_in_messages_exist_with_their_flags():
    checked = 0
    for folder in ("components", "flows", "headstart"):
        for path in (ROOT / folder).rglob("*.py"):
            for verb, rest in PRINTED.findall(path.read_text(encoding="utf-8")):
                if verb not in COMMANDS:
                    assert verb in NOT_COMMANDS or not rest.strip().startswith("--"), f"{path}: headstart {verb}{rest}"
                    continue
                flags = {word.rstrip(":.") for word in rest.split() if word.startswith("--")}
                assert flags <= options_of(verb), f"{path}: headstart {verb}{rest}"
                checked += bool(flags)
    assert checked > 20
