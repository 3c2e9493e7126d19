"""Findings of a study are written and read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from components.core.artifacts import read_manifest
from components.core.errors import ArtifactError
from components.reporting import findings
from components.reporting.findings import Chapter, Drawing, Findings, Table

FOUND = Findings(
    Chapter(
        "Layers",
        lead=["The last wins."],
        text=["On dev."],
        tables=[Table(["layer", "score"], [["last", "0.9"]], "aws-type")],
        figures=[Drawing("<svg>\n</svg>", "By layer."), Drawing("<svg/>", "By task.")],
    ),
    {"last": 0.9},
)


def write(out: Path, result: Findings = FOUND) -> Path:
    return findings.write(out, "layers", result, options={"encoder": "bert"}, inputs={"encoder/bert": "ab"})


def test_reading_restores_the_findings(tmp_path):
    directory = write(tmp_path)
    assert directory == tmp_path / "studies" / "layers"
    assert findings.read(directory) == FOUND
    assert findings.read_all(tmp_path) == {"layers": FOUND}
    manifest = read_manifest(directory, kind="study", verify=True)
    assert manifest.facts == {"study": "layers", "options": {"encoder": "bert"}, "inputs": {"encoder/bert": "ab"}}
    assert set(manifest.files) == {"study.json", "figure-1.svg", "figure-2.svg"}


def test_damaged_findings_are_named(tmp_path):
    assert findings.read_all(tmp_path) == {}
    directory = write(tmp_path)
    content = json.loads((directory / "study.json").read_text())
    with pytest.raises(ArtifactError, match="layers: not a complete output"):
        (directory / "manifest.json").rename(tmp_path / "manifest.json")
        findings.read(directory)
    (tmp_path / "manifest.json").rename(directory / "manifest.json")
    (directory / "study.json").write_text("x" * (directory / "study.json").stat().st_size)
    with pytest.raises(ArtifactError, match=r"study\.json: damaged .*; run `headstart study layers` again"):
        findings.read_all(tmp_path)
    text = json.dumps(content | {"schema": 1}, indent=1) + "\n"
    (directory / "study.json").write_text(text)
    with pytest.raises(ArtifactError, match="written by another version; run `headstart study layers` again"):
        findings.read(directory)


def test_nan_is_refused(tmp_path):
    with pytest.raises(ValueError, match="Out of range float"):
        write(tmp_path, Findings(FOUND.chapter, {"last": float("nan")}))
    assert not (tmp_path / "studies" / "layers").exists()


def test_the_metrics_file_changes_with_the_findings(tmp_path):
    metrics = tmp_path / "metrics" / "study" / "layers.json"
    write(tmp_path)
    before = metrics.read_bytes()
    write(tmp_path)
    assert metrics.read_bytes() == before
    write(tmp_path, Findings(FOUND.chapter, {"last": 0.91}))
    assert metrics.read_bytes() != before
