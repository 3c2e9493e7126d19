"""Every command that a document shows and that needs less than a minute runs in a workspace with tiny data."""

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from components.cli import main as cli
from components.core.errors import ConfigError
from components.models.encoder import build_model
from components.pipeline.dvc_yaml import write_dvc_yaml
from components.pipeline.running import run_stage
from components.registry.exports.champion import export_encoder
from components.settings.loading import load_params
from components.settings.tasks import SPLITS
from components.tokenization.special import SPECIAL_PIECES
from tests.conftest import python
from tests.encoders import stored
from tests.test_documents import ROOT, shown
from tests.tokenizers import make_tokenizer

#: Quick commands -> values of their placeholders in the workspace.
QUICK: dict[str, dict[str, str]] = {
    "headstart": {},
    "headstart --help": {},
    "headstart check": {},
    "headstart dvc": {},
    "headstart check --accept REASON": {"REASON": "a second labelling team"},
    "headstart check --params experiments/trec-sst2/params.yaml": {},
    "headstart export DIR --output FOLDER": {"DIR": "encoder", "FOLDER": "exported"},
    "headstart import FOLDER --output DIR": {"FOLDER": "published", "DIR": "imported"},
    "headstart check --settings": {},
    "headstart check --settings --json": {},
    "headstart plan --json": {},
    "headstart try DIR --file text.txt": {"DIR": "encoder"},
    "headstart stage NAME --item ITEM": {"NAME": "ingest", "ITEM": "domain"},
    "headstart stage identity": {},
    "headstart starts": {},
    "headstart study": {},
    "headstart suggest FILE --count 50": {"FILE": "text.txt"},
    'headstart try DIR "The function returns"': {"DIR": "encoder"},
    "headstart why finetune": {},
    "headstart why --document ID": {"ID": "part-000.jsonl:1"},
    "headstart why --document part-000.jsonl:17": {},
}
#: Commands that end with an error in the workspace, which has no published model, and the error.
ERRORS = {
    "headstart check --params experiments/trec-sst2/params.yaml": (
        r"2 problem\(s\)\n  pretrain.minilm.source: datasets/minilm: does not exist \(line \d+\)\n"
        r"  datasets/trec/TREC.train.all: holds only one class .*$"
    )
}
#: Commands that replace their process by a flow.
FLOWS = ("headstart plan --json", "headstart why finetune")
#: Patterns of commands that are only parsed (`tests/test_documents.py`), and the reason.
NOT_RUN = {
    r"make (run|full|test|test-all|check|bench)( PYTHON=\S+| FLAGS=.*)?": "takes minutes",
    r"make install": "installs packages",
    r"headstart (plan|why)": "runs in tests/test_startup.py",
    r"headstart starts --install .*": "downloads a model",
    r"make infra-check": "runs the tests of infra/ and installs checkov",
    r"make ui": "starts a server",
    r"headstart (retrain|sync|fit)\b.*": "trains models",
    r"headstart init\b.*": "writes params.yaml: tests/onboarding",
    r"headstart ui\b.*": "starts servers",
    r"headstart schedule\b.*": "needs a Prefect server and runs until it is stopped",
    r"headstart serve\b.*": "needs a champion and runs until it is stopped",
    r"headstart (predict|drift|promote|rollback|champion)\b.*": "needs a champion",
    r"headstart label\b.*": "needs labels that a person gives, or many labelled rows",
    r"headstart suggest( FILE| new.csv --count 50)?": "runs with --count, and does not replace a file",
    r"headstart (trace|forget)\b.*": "needs a registered model",
    r"headstart gc\b.*": "needs a registry",
    r"make faults\b.*": "takes most of an hour",
    r"headstart export artifacts/.*": "needs a finished run",
    r"headstart export --.*": "needs a champion or a trained model",
    r"headstart study (NAME|layers|ngrams|transferability|prompts)\b(?!.* experiments/).*": "needs a run",
    r"headstart study .* --params experiments/.*": "needs a finished run",
    r'headstart try DIR "i am ___ excited"': "needs a bidirectional model",
    r"headstart lectures\b.*": "trains models",
    r"headstart data": "reads the documentation of all installed packages, for about a minute",
    r"python benchmarks/.*": "measures for minutes",
}
TEXT = "the function returns a list of names for each bucket that the user may read"


def without_comment(line: str) -> str:
    return re.sub(r"\s+#.*", "", line)


COMMANDS = sorted({without_comment(line) for _, line in shown()} | {"headstart --help"})


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout with tiny data, one encoder, its export and one corpus."""
    root = tmp_path_factory.mktemp("workspace")
    python("-m", "dvc", "init", "--quiet", "--no-scm", cwd=root)
    for name in ("README.md", "params.yaml", "dvc.yaml"):
        shutil.copy(ROOT / name, root / name)
    for name in ("docs", "experiments"):
        shutil.copytree(ROOT / name, root / name)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        for file in ("params.yaml", "experiments/trec-sst2/params.yaml"):
            data = load_params(Path(file)).data
            texts = [f"{TEXT[start:]} {TEXT[:start]}" for start in range(20)]
            for corpus in (data.general, data.domain):
                Path(corpus.path).mkdir(parents=True, exist_ok=True)
                lines = [json.dumps({corpus.text: text}) + "\n" for text in texts]
                (Path(corpus.path) / "part-000.jsonl").write_text("".join(lines))
            for task in data.tasks.values():
                Path(task.path).mkdir(parents=True, exist_ok=True)
                for split in SPLITS:
                    for name in task.files(split):
                        rows = [{task.text: f"{split} {label}", task.label: label} for label in ("one", "two")]
                        lines = [json.dumps(row | {str(task.slice): "s"}) + "\n" for row in rows]
                        (Path(task.path) / name.partition("#")[0]).write_text("".join(lines))
        Path("text.txt").write_text("the user may read\n")
        write_dvc_yaml(load_params(file := Path("params.yaml")), file)
        run_stage("examples", load_params(file), item="aws-type")
        run_stage("ingest", load_params(file), item="general")
        torch.manual_seed(0)

        model = build_model("gpt", vocabulary=len(SPECIAL_PIECES) + 28, settings={"width": 8, "layers": 1, "heads": 2})
        # The last piece is the space in byte-level BPE.
        tokenizer = make_tokenizer("bpe", "abcdefghijklmnopqrstuvwxyzT\u0120")
        export_encoder(stored(Path("encoder"), "gpt", model, tokenizer), output=Path("published"), form="huggingface")
    return root


def arguments(command: str) -> list[str]:
    """The command's arguments with the placeholders replaced."""
    return [QUICK[command].get(word, word) for word in shlex.split(command)[1:]]


@pytest.mark.parametrize("command", [command for command in COMMANDS if command in QUICK])
def test_a_quick_command_runs(command, workspace, monkeypatch):
    if command in FLOWS:
        said = python("-m", "components.cli", *arguments(command), cwd=workspace)
        assert ("has not run yet" if "plan" in command else "out of date") in said
        return
    monkeypatch.chdir(workspace)
    if command in ERRORS:
        with pytest.raises(ConfigError, match=ERRORS[command]):
            CliRunner().invoke(cli.app, arguments(command), catch_exceptions=False)
        return
    done = CliRunner().invoke(cli.app, arguments(command), catch_exceptions=False)
    # A group of commands without arguments prints its help and exits with 2.
    assert done.exit_code == (2 if command in ("headstart", "headstart study") else 0), done.output
    assert done.output


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_runs_or_is_listed_with_a_reason(command):
    listed = [pattern for pattern in NOT_RUN if re.fullmatch(pattern, command)]
    assert len(listed) + (command in QUICK) == 1
