"""Without the packages of the extras, a command works or ends with one sentence that names the extra."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from components.core.errors import EXTRAS
from tests.data.public_inputs import delimited

#: Refuses the packages of argument 1, as where they are not installed; then executes the other arguments.
SCRIPT = """
import sys
refused = set(sys.argv[1].split(","))
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in refused:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Refuse())
sys.argv = ["headstart", *sys.argv[2:]]
"""
COMMAND = SCRIPT + "from components.cli.main import main\nmain()\n"
PYTHON = (
    SCRIPT
    + """
import headstart
model = headstart.fit("rows.csv", verbose=False)
model.save("saved")
print(headstart.load("saved").predict(["Great value"])["label"][0])
try:
    headstart.fit("rows.csv", start="saved", verbose=False)
except headstart.HeadstartError as error:
    print(error)
assert "torch" not in sys.modules
"""
)
ALL = ",".join(name for packages in EXTRAS.values() for name in packages)
#: Command -> the extra that its message names; empty: it works.
COMMANDS = {
    "--help": "",
    "init rows.csv": "",
    "check": "",
    "starts": "",
    "fit rows.csv": "pipeline",
    "retrain": "pipeline",
    "plan": "pipeline",
    "label": "pipeline",
    "ui": "pipeline",
    "serve": "server",
    "study layers": "encoders",
}


def run(script: str, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-c", script, ALL, *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_without_the_extras(command, tmp_path):
    (tmp_path / "rows.csv").write_text(delimited())
    if not command.startswith(("init", "fit")):
        assert run(COMMAND, "init", "rows.csv", folder=tmp_path).returncode == 0
    done = run(COMMAND, *command.split(), folder=tmp_path)
    if extra := COMMANDS[command]:
        assert done.returncode == 2
        message = rf"error: the package \w+ is not installed; install it: pip install 'headstart\[{extra}\]'\n"
        assert re.fullmatch(message, done.stderr)
    else:
        assert done.returncode == 0, done.stderr


def test_words_models_from_python_without_the_extras(tmp_path):
    (tmp_path / "rows.csv").write_text(delimited())
    done = run(PYTHON, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "the package torch is not installed; install it: pip install 'headstart[encoders]'" in done.stdout
