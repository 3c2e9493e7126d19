"""Files of the kinds that people have are read rightly, at every entry point."""

from __future__ import annotations

from pathlib import Path

import pytest

from components.cli.common import InitOptions
from components.cli.onboarding.command import init
from components.data.formats.lines import Reading
from components.data.formats.rows import open_rows
from components.data.ingestion.readers import read_texts
from components.data.tasks.kinds import find_kind
from components.settings.data import CorpusSource
from components.settings.loading import load_params
from headstart.tasks import read_task
from tests.data.public_inputs import CASES, Case

EVERY = pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])


@pytest.fixture
def file(case: Case, tmp_path: Path) -> Path:
    path = tmp_path / case.name
    path.write_bytes(case.content)
    return path


def rows(values) -> list[tuple[str, str]]:
    return sorted(values)


def expected(case: Case) -> list[tuple[str, str]]:
    return rows(zip(case.texts, map(str, case.labels), strict=True))


@EVERY
def test_init_and_a_run(case: Case, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "project"
    root.mkdir()
    monkeypatch.chdir(root)
    said = "\n".join(init(InitOptions(file), root=root))
    ((name, source),) = load_params(root / "params.yaml").data.tasks.items()
    label = source.score if case.kind == "regression" else source.label
    assert (source.kind, source.text, label) == (case.kind, case.text, case.label)
    for part in case.says:
        assert part in said
    examples = find_kind(source.kind).read(name, source)
    read = [
        (fields[0], examples.labels[int(target[0])] if examples.labels else str(target[0]))
        for split in (examples.train, examples.test)
        for fields, target in zip(split.fields, split.targets, strict=True)
    ]
    assert rows(read) == expected(case)


@EVERY
def test_fit_in_python(case: Case, file: Path) -> None:
    task = read_task(str(file), text=None, label=None, kind=None, language=None)
    assert task.kind == case.kind
    assert rows(zip((fields[0] for fields in task.fields), map(str, task.targets), strict=True)) == expected(case)


@EVERY
def test_texts_without_labels(case: Case, file: Path) -> None:
    if file.suffix in (".txt", ".json"):
        pytest.skip("a txt file holds documents; a JSON document is no corpus")
    reading = Reading()
    texts = [text for _, text, _ in read_texts(file, CorpusSource(path=str(file), text=case.text), reading)]
    assert texts == list(case.texts)
    assert reading.skipped["rows_malformed"] == case.left_out


@EVERY
def test_predict(case: Case, file: Path) -> None:
    bad: list[str] = []
    table = open_rows(file, rejected=lambda error, row: bad.append(str(error)))
    assert [row[case.text] for _, row in table.rows] == list(case.texts)
    assert len(bad) == case.left_out
