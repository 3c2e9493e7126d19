"""Commands that outputs print: they exist, with these flags. `tests/onboarding/test_fit.py` runs those that a run
prints."""

import re
from pathlib import Path

import pytest

from components.core.steps import STEPS, step
from tests.test_documents import problem, programs

ROOT = Path(__file__).parents[1]
VALUES = {"task": "t", "version": "3", "file": "answers.csv"}
#: A command in a message: up to the end of the literal or of what surrounds it.
PRINTED = re.compile(r"headstart ([a-z][a-z-]+)((?: (?:--)?[A-Za-z{][^\s`\"';,()\\]*)*)")
#: `headstart stage` and words that follow the name of the product in sentences.
NOT_COMMANDS = {"cannot", "can", "has", "is", "does", "reads", "then", "leaves"}


@pytest.mark.parametrize("name", STEPS)
def test_a_next_step_is_a_command_with_its_flags(name):
    command = step(name, **VALUES)
    assert command.startswith("headstart ") and problem(command) == ""
    assert "NUMBER" not in command and "{" not in command


def test_commands_in_messages_exist_with_their_flags():
    checked = 0
    options = {
        verb: {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
        for verb, command in programs().items()
    }
    for folder in ("components", "flows", "headstart"):
        for path in (ROOT / folder).rglob("*.py"):
            for verb, rest in PRINTED.findall(path.read_text(encoding="utf-8")):
                if verb not in options:
                    assert verb in NOT_COMMANDS or not rest.strip().startswith("--"), f"{path}: headstart {verb}{rest}"
                    continue
                flags = {word.rstrip(":.") for word in rest.split() if word.startswith("--")}
                assert flags <= options[verb], f"{path}: headstart {verb}{rest}"
                checked += bool(flags)
    assert checked > 20
