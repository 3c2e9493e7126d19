"""`headstart drift`: from the log of a server, or a file, to the result in words, in the report and in the summary."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from components.core.errors import ConfigError, DataError, RegistryError
from components.learners.prediction import predict_rows
from components.pipeline.monitoring.drift_check import check_file, check_traffic, publish, read_inputs
from components.registry.champion import find_champion, load_champion
from components.registry.contest import promote
from components.registry.drift.measurements import REFERENCE, find_reference, measure
from components.registry.drift.traffic import logged, read_traffic, traffic_folder
from components.registry.register import register
from components.registry.tracking import connect
from components.reporting import findings
from components.settings.loading import load_params
from components.settings.params import Params
from flows import summary
from tests.registry.conftest import LETTERS, Pipeline

#: As the rows of train and dev: each letter as often as the others, repeated up to ten times.
USUAL = [(LETTERS[row % 26] * (1 + row // 26),) for row in range(260)]


@pytest.fixture(scope="module")
def pipeline(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    """A project with a champion, for all tests, because registration takes seconds."""
    root = tmp_path_factory.mktemp("project")
    shutil.copytree(finished, root, dirs_exist_ok=True)
    made = Pipeline(root)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("components.registry.contest.LATENCY_ROWS", 10)
        register(made.register_job())
        promote(made.promote_job())
    return made


@pytest.fixture
def params(pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Params:
    """The settings with a log of their own; the working directory is the root of the project."""
    monkeypatch.chdir(pipeline.root)
    monkeypatch.setattr("components.registry.drift.comparison.LEAST_ROWS", 60)
    monkeypatch.setenv("HEADSTART_TRAFFIC", str(tmp_path / "traffic"))
    actual = load_params(Path(__file__).parents[2] / "params.yaml")
    return actual.model_copy(update={"registry": pipeline.settings})


def answer(params: Params, rows: list[tuple[str, ...]], **drift: object) -> list[object]:
    """Answer rows as `serve` and `label` do."""
    version = find_champion(connect(params.registry), "letters")
    settings = params.drift.model_copy(update=drift)
    return list(predict_rows(logged(load_champion(params.registry, "letters"), version, "letters", settings), rows))


def test_the_reference_travels_with_the_challenger(params, pipeline):
    registry = connect(params.registry)
    version = find_champion(registry, "letters")
    reference = find_reference(registry, version)
    assert reference is not None and reference.unseen is not None
    assert (len(reference), reference.unseen.sum(), reference.labels) == (520, 260, ("x", "y", "z"))
    others = [other for other in registry.versions(version.name) if other.number != version.number]
    assert others and all(registry.document(other, REFERENCE) is None for other in others)


def test_the_log_does_not_change_an_answer(params):
    assert answer(params, USUAL) == answer(params, USUAL, log=False)
    digest = find_champion(connect(params.registry), "letters").digest
    assert len(read_traffic(traffic_folder(), task="letters", digest=digest)) == 260


def test_other_traffic_is_found_and_described(params):
    answer(params, [("ж" * 30 + "a",)] * 100)
    actual = check_traffic(params, "letters")
    assert actual.drift
    assert "the median length is 31 characters instead of " in actual.sentence
    assert "the share of unknown pieces is 93.8% instead of 0.0%" in actual.sentence
    assert not actual.examples


def test_the_result_is_in_the_report_and_in_the_summary(params, pipeline):
    answer(params, [("ж" * 30,)] * 100, text=True)
    actual = check_traffic(params, "letters")
    assert actual.examples == ("ж" * 30,) * 3
    publish(actual, out=pipeline.out, name="letters")
    study = findings.read(pipeline.out / "studies" / "drift-letters")
    assert study.chapter.title == "Drift: letters" and "the median length is" in study.chapter.lead[0]
    assert study.numbers["drift"] is True and study.numbers["examples"] == []
    assert "ж" not in json.dumps(study.numbers, ensure_ascii=False)
    assert (pipeline.out / "metrics" / "study" / "drift-letters.json").is_file()
    (line,) = summary.drift(pipeline.out)
    assert line.startswith("drift: headstart-letters/") and "(checked " in line


def test_a_file_is_compared_without_a_log(params, tmp_path, capsys):
    usual = tmp_path / "usual.jsonl"
    usual.write_text("\n".join(json.dumps({"body": text}) for (text,) in USUAL))
    params.data.tasks["letters"] = params.data.tasks["aws-type"]
    actual = check_file(params, "letters", usual)
    assert capsys.readouterr().out == f"{usual}: column 'body' is the text (--column)\n"
    # A text a line, as `headstart predict` reads them, also if all have one comma.
    (commas := tmp_path / "commas.txt").write_text("".join(f"{text}, {text}\n" for (text,) in USUAL))
    assert check_file(params, "letters", commas).rows == 260
    assert not actual.drift and actual.rows == 260, actual.sentence
    other = tmp_path / "other.csv"
    other.write_text("text\n" + "\n".join(text * 3 for (text,) in USUAL))
    actual = check_file(params, "letters", other)
    assert actual.drift and "the median length is" in actual.sentence
    assert not traffic_folder().exists()


def test_bad_rows_of_a_file_are_left_out(tmp_path):
    file = tmp_path / "batch.jsonl"
    file.write_text('{"text": "a"}\n{"text": 5}\n{"text": ""}\nnot json\n{"other": "b"}\n{"text": "c"}\n')
    assert read_inputs(file, kind="classification") == [("a",), ("c",)]
    pq.write_table(pa.table({"text": pa.array(["a", "b", "a"]).dictionary_encode()}), tmp_path / "batch.parquet")
    assert read_inputs(tmp_path / "batch.parquet", kind="classification") == [("a",), ("b",), ("a",)]
    for name, content, message in (
        ("none.jsonl", '{"text": ""}\n', "no row has the task's input"),
        ("batch.csv", "body\na\n", "has no column 'text'; found: body"),
        ("batch.bin", "a", "the format is not recognised"),
        ("batch.txt", "\n\n", "no row has the task's input"),
    ):
        (tmp_path / name).write_text(content)
        with pytest.raises(DataError, match=message):
            read_inputs(tmp_path / name, kind="classification")
    with pytest.raises(DataError, match="does not exist"):
        read_inputs(tmp_path / "missing.csv", kind="classification")
    with pytest.raises(ConfigError, match="the task has no input 'txt'; did you mean 'text'"):
        read_inputs(file, kind="classification", columns={"txt": "body"})


def test_the_reference_of_another_champion_is_measured_from_the_examples(params, pipeline):
    registry = connect(params.registry)
    name = params.registry.model_name("letters")
    champion = find_champion(registry, "letters")
    other = next(version for version in registry.versions(name) if version.number != champion.number)
    registry.set_alias(name, "champion", other)
    try:
        away = params.model_copy(update={"run": params.run.model_copy(update={"out": "away"})})
        assert check_traffic(away, "letters").too_few == "0 rows of at least 60"
        answer(params, USUAL)
        with pytest.raises(RegistryError, match="has no reference for drift, and .* does not exist; run `headstart"):
            check_traffic(away, "letters")
        assert not check_traffic(params, "letters").drift
        assert registry.document(other, REFERENCE) is not None
    finally:
        registry.set_alias(name, "champion", champion)


def test_usual_traffic_has_no_drift(params):
    answer(params, USUAL[:59])
    actual = check_traffic(params, "letters")
    assert actual.too_few == "59 rows of at least 60" and not actual.drift
    answer(params, USUAL[59:])
    actual = check_traffic(params, "letters")
    assert not actual.drift and actual.rows == 260, actual.sentence
    assert [feature.name for feature in actual.features] == ["length", "unknown", "content", "score", "classes"]


def test_sketches_do_not_depend_on_the_batch(pipeline):
    classifier = pipeline.classifier("adapted")
    _, together = measure(classifier, USUAL)
    alone = [measure(classifier, [row])[1].rows for row in USUAL[:20]]
    np.testing.assert_allclose(together.rows["sketch"][:20], np.concatenate(alone)["sketch"], atol=1e-2)
    assert together.rows["pieces"].tolist() == [1 + len(text) for (text,) in USUAL]
    assert (together.rows["label"] >= 0).all() and np.isfinite(together.rows["score"]).all()
