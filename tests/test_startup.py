"""Commands that answer at once do not load what they do not need."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from components.registry.reading import state_of
from components.registry.version import PROVENANCE
from tests.conftest import python
from tests.data.public_inputs import delimited

HEAVY = {"torch", "sklearn", "matplotlib", "mlflow", "prefect", "dvc", "ray", "pandas", "transformers", "fastapi"}
#: Command -> further modules that it does not load.
COMMANDS = {
    "--help": {"numpy", "pyarrow", "pydantic", "yaml", "scipy"},
    "init --help": {"numpy", "pyarrow", "yaml", "scipy"},
    "check --settings": set(),
    "check": set(),
    "study --help": {"numpy", "pyarrow", "scipy"},
    "starts": {"pyarrow", "scipy"},
    "dvc": set(),
    "champion --history": {"pyarrow", "scipy"},
    "trace rows": set(),
}
SCRIPT = """
import atexit, json, sys
atexit.register(lambda: print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules}))))
from components.cli.entry import main
sys.argv = ["headstart", *sys.argv[1:]]
main()
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project that `init` has made, with a registry."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "rows.csv").write_text(delimited())
    needless = run("init", "rows.csv", folder=folder) & HEAVY
    assert not needless
    write_registry(folder)
    return folder


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_loads_only_what_it_needs(command, project):
    needless = run(*command.split(), folder=project) & (HEAVY | COMMANDS[command])
    assert not needless


def write_registry(folder: Path) -> None:
    """A registry of which a file beside its database knows a champion; the database itself is none of MLflow's."""
    model = {"name": "headstart-rows", "number": "1", "source": "", "run_id": "", "tags": {"digest": "d"}}
    change = {"action": "promote", "before": None, "after": "1", "before_digest": "", "after_digest": "d"}
    entry = {"schema": 2, "event": "change", "model": model["name"], "alias": "champion", "by": "x", "run": ""}
    entry |= {"time": "2026-01-01T00:00:00+00:00", "facts": {**change, "reasons": [], "vetoes": []}}
    (folder / "mlflow.db").write_bytes(bytes(100))
    answers = [
        (["models"], [model["name"]]),
        (["versions", model["name"]], [model]),
        (["alias", model["name"], "champion"], model),
        (["read_log"], [{"1": json.dumps(entry)}, {}]),
        (["document", model, PROVENANCE], None),
    ]
    recorded = {json.dumps(call, sort_keys=True): answer for call, answer in answers}
    content = {"state": state_of(folder / "mlflow.db"), "answers": recorded}
    (folder / ".headstart").mkdir(exist_ok=True)
    (folder / ".headstart" / "mlflow.db.json").write_text(json.dumps(content))


@pytest.mark.parametrize("verb", ["plan", "why"])
def test_plan_and_why_load_dvc_only(verb, project):
    loaded = run(verb, folder=project)
    assert not loaded & (HEAVY - {"dvc", "pandas"}), "DVC imports pandas"


def run(*arguments: str, folder: Path) -> set[str]:
    """Execute a command; returns the packages that it has loaded."""
    return set(json.loads(python("-c", SCRIPT, *arguments, cwd=folder).splitlines()[-1]))


@pytest.mark.parametrize(("verb", "code"), [("retrain", 74), ("plan", 0)])
def test_a_flow_whose_output_nobody_reads_does_not_end_as_if_it_were_done(verb, code):
    script = f"""
import sys
from components.cli import entry
def run(*arguments):
    raise BrokenPipeError
entry._run, sys.argv = run, ["headstart", {verb!r}]
entry.main()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (code, "")
