"""A local registry: the champion is read without MLflow, a new database is the one that MLflow's migrations make."""

import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pandas as pd
import pytest
import yaml

from components.core.errors import RegistryError
from components.learners.baselines.stage import BaselineJob, baseline
from components.learners.prediction import predict_rows
from components.registry.champion import fetched_champion, find_champion, load_champion, local_champion
from components.registry.promote import promote
from components.registry.stage import register
from components.registry.tracking import connect
from components.registry.tracking.new_database import DUMP, create_database, dump_database
from components.settings.registry import RegistrySettings
from headstart import load
from tests.registry.conftest import Pipeline


@pytest.fixture
def promoted(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    """A project whose champion is a words model."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    pipeline.write_examples(budgets=["all"])
    words = pipeline.out / "finetuned" / "letters" / "baselines"
    baseline(BaselineJob(examples=pipeline.out / "examples" / "letters", output=words))
    register(pipeline.register_job(starts=["adapted"]))
    promote(pipeline.promote_job())
    return pipeline


def test_the_champion_is_the_one_of_mlflow(promoted):
    settings = promoted.settings
    registry = connect(settings)
    expected = find_champion(registry, "letters")
    local = local_champion(settings, "letters")
    assert local is not None and local[0] == expected
    with fetched_champion(settings, "letters") as (version, bundle):
        assert version == expected and (bundle / "manifest.json").is_file()
    assert not bundle.exists() and local[1].is_dir(), "a copy was removed, not the stored model"

    assert local_champion(settings, "others") is None
    database = settings.tracking.removeprefix("sqlite:///")
    with closing(sqlite3.connect(database)) as changed, changed:
        changed.execute("UPDATE alembic_version SET version_num = 'later'")
    assert local_champion(settings, "letters") is None, "another version of MLflow has migrated the database"


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM registered_model_aliases",
        "UPDATE model_versions SET current_stage = 'Deleted_Internal'",
        "UPDATE model_versions SET storage_location = 's3://bucket/model'",
        "UPDATE model_versions SET storage_location = NULL",
        "DROP TABLE model_versions",
    ],
)
def test_mlflow_is_asked_about_everything_else(promoted, change):
    with closing(sqlite3.connect(promoted.settings.tracking.removeprefix("sqlite:///"))) as database, database:
        database.execute(change)
    assert local_champion(promoted.settings, "letters") is None


def test_a_registry_that_is_no_local_database(tmp_path, promoted):
    for address in ("http://127.0.0.1:9", f"sqlite:///{tmp_path}/none.db"):
        assert local_champion(promoted.settings.model_copy(update={"tracking": address}), "letters") is None
    assert not (tmp_path / "none.db").exists()


def test_prediction_imports_neither_mlflow_nor_torch_nor_scikit_learn(promoted):
    script = (
        "import sys\nfrom components.registry.champion import load_champion\n"
        "from components.settings.registry import RegistrySettings\n"
        "model = load_champion(RegistrySettings.model_validate_json(sys.argv[1]), 'letters')\n"
        "print(len(model.answer([('a',)])), sorted({'mlflow', 'torch', 'sklearn', 'pandas'} & {*sys.modules}))"
    )
    command = [sys.executable, "-c", script, promoted.settings.model_dump_json()]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "1 []\n"


def test_the_dump_is_the_one_of_the_installed_mlflow():
    """The migrations create indices and constraints in any order."""

    def parts(dump):
        return sorted(sorted(re.split(r", |\(|\)|;", line)) for line in dump.splitlines())

    assert parts(dump_database()) == parts(DUMP.read_text()), (
        "run `python -m components.registry.tracking.new_database`"
    )


def test_a_database_that_exists_is_kept(tmp_path):
    (tmp_path / "mlflow.db").write_bytes(b"content")
    create_database(tmp_path / "mlflow.db")
    assert (tmp_path / "mlflow.db").read_bytes() == b"content"
    create_database(tmp_path / "new.db")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mlflow.db", "new.db"]


# Registered models from Python (`headstart.load`).


TEXTS = ["aaa", "bbb", "ccc"]


def test_the_champion_and_a_version(pipeline, tmp_path):
    params = yaml.safe_load((Path(__file__).parents[2] / "params.yaml").read_text())
    params["registry"] = {"tracking": pipeline.settings.tracking}
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(params))
    register(pipeline.register_job(starts=["adapted"]))
    promote(pipeline.promote_job())
    model = load("letters", params=tmp_path / "params.yaml")
    served = predict_rows(load_champion(pipeline.settings, "letters"), [(text,) for text in TEXTS])
    actual = model.predict(TEXTS)
    assert actual["confidence"].tolist() == [answer["confidence"] for answer in served if answer]
    assert actual["label"].tolist() == [answer["label"] for answer in served if answer]
    saved = load(model.save(tmp_path / "saved"))
    pd.testing.assert_frame_equal(saved.predict(TEXTS), actual, check_exact=True)
    pd.testing.assert_frame_equal(load(pipeline.out).predict(TEXTS), actual, check_exact=True)
    version = load("letters/1", params=tmp_path / "params.yaml")
    pd.testing.assert_frame_equal(version.predict(TEXTS), actual, check_exact=True)
    with pytest.raises(RegistryError, match="has no version '7'"):
        load("letters/7", params=tmp_path / "params.yaml")
    with pytest.raises(RegistryError, match="no version"):
        load("others", params=tmp_path / "params.yaml")


def test_commands_that_read_make_no_database(tmp_path, monkeypatch):
    from components.registry.aliases import describe_champion, history

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    settings = RegistrySettings()
    for ask in (lambda: describe_champion(settings, "letters"), lambda: history(settings)):
        with pytest.raises(RegistryError, match="no model is registered yet; `headstart fit` trains the first one"):
            ask()
    with (
        pytest.raises(RegistryError, match="no model is registered yet"),
        fetched_champion(settings, "letters", directory=tmp_path / "model"),
    ):
        pass
    assert not [*tmp_path.glob("*.db*")]


def test_a_version_is_fetched_by_its_number(promoted):
    """Also while nothing is promoted."""
    settings = promoted.settings
    champion = local_champion(settings, "letters")
    assert champion is not None
    with closing(sqlite3.connect(settings.tracking.removeprefix("sqlite:///"))) as database, database:
        database.execute("DELETE FROM registered_model_aliases")
    assert local_champion(settings, "letters") is None
    assert local_champion(settings, "letters", champion[0].number) == champion
    with (
        pytest.raises(RegistryError, match="has no version 99; versions: "),
        fetched_champion(settings, "letters", number="99"),
    ):
        pass
