"""Without the packages of the extras, a command works or ends with one sentence that names the extra."""

import json
import re

from components.core.errors import EXTRAS
from tests.conftest import python
from tests.data.public_inputs import delimited

#: Refuses the packages of argument 1, as where they are not installed.
REFUSE = """
import contextlib, io, json, sys
refused = json.loads(sys.argv[1])
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in refused:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Refuse())
"""
#: Executes the commands of the other arguments, and prints the code and the errors of each.
RUN = (
    REFUSE
    + """
from components.cli.main import main
answers = []
for command in sys.argv[2:]:
    sys.argv, code, errors = ["headstart", *command.split()], 0, io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(errors):
        try:
            main()
        except SystemExit as ended:
            code = ended.code
    answers.append([code or 0, errors.getvalue()])
print(json.dumps(answers))
"""
)
PYTHON = (
    REFUSE
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
ALL = json.dumps([name for packages in EXTRAS.values() for name in packages])
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


def test_commands_without_the_extras(tmp_path):
    (tmp_path / "rows.csv").write_text(delimited())
    answers = json.loads(python("-c", RUN, ALL, *COMMANDS, cwd=tmp_path))
    for (command, extra), (code, errors) in zip(COMMANDS.items(), answers, strict=True):
        message = rf"error: the package \w+ is not installed; install it: pip install 'headstart\[{extra}\]'\n"
        assert (code, bool(re.fullmatch(message, errors))) == ((2, True) if extra else (0, False)), (command, errors)


def test_words_models_from_python_without_the_extras(tmp_path):
    (tmp_path / "rows.csv").write_text(delimited())
    said = python("-c", PYTHON, ALL, cwd=tmp_path)
    assert "the package torch is not installed; install it: pip install 'headstart[encoders]'" in said
