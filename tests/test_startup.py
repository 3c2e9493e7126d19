"""Commands that answer at once do not load what they do not need."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.data.public_inputs import delimited

HEAVY = {"torch", "sklearn", "matplotlib", "mlflow", "prefect", "dvc", "ray", "pandas", "transformers", "fastapi"}
#: Command -> further modules that it does not load.
COMMANDS = {
    "--help": {"numpy", "pyarrow", "pydantic", "yaml", "scipy"},
    "init --help": {"numpy", "pyarrow", "yaml", "scipy"},
    "init rows.csv": set(),
    "check --settings": set(),
    "check": set(),
}
SCRIPT = """
import atexit, json, sys
atexit.register(lambda: print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules}))))
from components.cli.main import main
sys.argv = ["headstart", *sys.argv[1:]]
main()
"""


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_loads_only_what_it_needs(command, tmp_path):
    (tmp_path / "rows.csv").write_text(delimited())
    if command == "check --settings":
        (tmp_path / "params.yaml").write_text((Path(__file__).parents[1] / "params.yaml").read_text())
    elif command == "check":
        run("init", "rows.csv", folder=tmp_path)
    needless = run(*command.split(), folder=tmp_path) & (HEAVY | COMMANDS[command])
    assert not needless


def run(*arguments: str, folder: Path) -> set[str]:
    """Execute a command; returns the packages that it has loaded."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *arguments], cwd=folder, capture_output=True, text=True, check=True
    )
    return set(json.loads(done.stdout.splitlines()[-1]))
