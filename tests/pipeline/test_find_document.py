"""`headstart why --document`: the corpora of a run are searched by id or position."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from components.cli import main as cli
from components.core.errors import ArtifactError, ConfigError, DataError
from components.data.ingestion.stage import IngestJob, ingest
from components.pipeline.lineage.documents import find_document
from components.pipeline.stages import STAGES
from components.settings.loading import load_params
from components.settings.params import Params

ROOT = Path(__file__).parents[2]
TEXTS = {"general": ["one text here", "", "another text here"], "domain": ["a third text", "a third text", "a fourth"]}


@pytest.fixture
def params_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    raw = yaml.safe_load((ROOT / "params.yaml").read_text())
    raw["run"]["out"] = "run"
    for corpus, texts in TEXTS.items():
        folder = tmp_path / corpus
        folder.mkdir()
        (folder / f"{corpus}.csv").write_text("text\n" + "".join(f'"{text}"\n' for text in texts))
        raw["data"][corpus] = {"path": str(folder)}
    path = tmp_path / "params.yaml"
    path.write_text(yaml.safe_dump(raw))
    return path


def run(params: Params, corpus: str) -> None:
    ingest(IngestJob(**{**STAGES["ingest"].items(params)[corpus], "judged": {}}))


def test_a_document_is_found_in_its_corpus(params_file):
    params = load_params(params_file)
    for corpus in TEXTS:
        run(params, corpus)
    ((corpus, fate),) = find_document(params, "domain.csv:3")
    assert (corpus, fate.reason) == ("domain", "exact_duplicate")
    assert find_document(params, "domain.csv:3", corpus="domain") == [(corpus, fate)]
    with pytest.raises(DataError, match=r"run/corpus/general: no raw file 'domain\.csv'"):
        find_document(params, "domain.csv:3", corpus="general")
    with pytest.raises(DataError, match=r"(?s)corpus/general: no document 'x'.*corpus/domain: no document 'x'"):
        find_document(params, "x")
    with pytest.raises(ConfigError, match=r"unknown corpus 'domian'; did you mean 'domain'\?"):
        find_document(params, "x", corpus="domian")


def test_a_corpus_that_was_not_ingested_is_named(params_file):
    params = load_params(params_file)
    with pytest.raises(ArtifactError, match=r"run/corpus/general: not a complete output"):
        find_document(params, "domain.csv:3")
    run(params, "domain")
    assert len(find_document(params, "domain.csv:3")) == 1
    with pytest.raises(DataError, match=r"(?s)corpus/general: not a complete output.*corpus/domain: no document"):
        find_document(params, "domain.csv:99x")


def test_the_command_explains_either_a_stage_or_a_document(params_file):
    call = CliRunner().invoke(cli.app, ["why", "ingest", "--document", "1", "--params", str(params_file)])
    assert call.exit_code == 2
    assert "give either a stage or --document ID" in call.output


def test_the_command_prints_the_fate(params_file):
    run(load_params(params_file), "general")
    call = CliRunner().invoke(cli.app, ["why", "--document", "general.csv:3", "--params", str(params_file)])
    assert (call.exit_code, call.stdout) == (0, "general: general.csv:3: dropped: no text is left after cleaning\n")
