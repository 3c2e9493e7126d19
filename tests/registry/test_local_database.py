"""A local registry: the champion is read without MLflow."""

import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
import yaml

from components.core.errors import ConfigError, RegistryError
from components.learners.prediction import predict_rows
from components.registry.champion import fetched_champion, find_champion, load_champion
from components.registry.exports import champion
from components.registry.ledger import Ledger
from components.registry.reading import Reading
from components.registry.tracking import connect
from components.settings.registry import RegistrySettings
from headstart import load
from tests.registry.conftest import Pipeline


@pytest.fixture
def promoted(pipeline: Pipeline) -> Pipeline:
    """A project whose champion is a words model."""
    pipeline.write_words()
    pipeline.registered(starts=["adapted"])
    pipeline.promoted()
    return pipeline


def database_of(promoted: Pipeline) -> Path:
    return Path(promoted.settings.tracking.removeprefix("sqlite:///"))


def without_mlflow(monkeypatch: pytest.MonkeyPatch, settings: RegistrySettings) -> Reading:
    """A reading that may not ask the registry."""
    reading = Reading(settings)
    monkeypatch.setattr(Reading, "registry", property(lambda _: pytest.fail("MLflow was asked")))
    return reading


def test_the_champion_is_the_one_of_mlflow(promoted, monkeypatch):
    settings = promoted.settings
    registry = connect(settings)
    expected, ledger = find_champion(registry, "letters"), Ledger(registry).entries()
    reading = without_mlflow(monkeypatch, settings)
    assert find_champion(reading, "letters") == expected and Ledger(reading).entries() == ledger
    assert reading.find_number(expected.name, expected.number) == registry.find_number(expected.name, expected.number)
    with fetched_champion(settings, "letters") as (version, bundle):
        assert version == expected and (bundle / "manifest.json").is_file()
    assert not bundle.exists()
    with fetched_champion(settings, "letters", number=expected.number) as (version, _):
        assert version == expected, "a copy was removed, not the stored model"
    with (
        pytest.raises(RegistryError, match="has no version 99; existing versions: "),
        fetched_champion(settings, "letters", number="99"),
    ):
        pass


def test_a_registered_version_is_exported_by_its_label(promoted, tmp_path, monkeypatch):
    monkeypatch.setattr(champion, "_labelled_rows", lambda _: (None, "test"))
    settings, export = promoted.settings, champion.Export(tmp_path / "out", "container")
    params = SimpleNamespace(registry=settings, run=SimpleNamespace(tasks=["letters"], out=str(promoted.out)))
    champion.export_champion(params, "", export, label=f"{settings.model_name('letters')}/1")
    assert (tmp_path / "out" / "model" / "manifest.json").is_file()
    expected = rf"versions of this project are {settings.model_name('letters')}/NUMBER"
    for label in ("letters/1", "artifacts/nothing", settings.model_name("letters")):
        with pytest.raises(ConfigError, match=rf"{label}: is neither a folder nor a registered version; {expected}"):
            champion.export_champion(params, "", export, label=label)
    with pytest.raises(RegistryError, match="has no version 7; existing versions: 1"):
        champion.export_champion(params, "", export, label=f"{settings.model_name('letters')}/7")


def test_what_a_person_changes_in_mlflow_is_seen(promoted):
    settings = promoted.settings
    registry = connect(settings)
    first = find_champion(registry, "letters")
    registry.client.delete_registered_model_alias(first.name, settings.alias)
    assert Reading(settings).alias(first.name, settings.alias) is None
    with pytest.raises(RegistryError, match="the alias was deleted in MLflow"):
        load_champion(settings, "letters")
    registry.set_alias(first.name, settings.alias, first)
    assert Reading(settings).alias(first.name, settings.alias) == first


@pytest.mark.parametrize("content", ["", "{", "[]", '{"state": 1}'])
def test_mlflow_is_asked_if_the_file_is_damaged_or_of_another_state(promoted, content):
    settings = promoted.settings
    expected = find_champion(connect(settings), "letters")
    (database_of(promoted).parent / ".headstart" / "mlflow.db.json").write_text(content)
    assert find_champion(Reading(settings), "letters") == expected


def test_a_folder_that_cannot_be_written_has_no_file(promoted):
    folder = database_of(promoted).parent / ".headstart"
    shutil.rmtree(folder)
    folder.touch()
    assert find_champion(Reading(promoted.settings), "letters").number


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


# Registered models from Python (`headstart.load`).


TEXTS = ["aaa", "bbb", "ccc"]


def test_the_champion_and_a_version(pipeline, tmp_path):
    params = yaml.safe_load((Path(__file__).parents[2] / "params.yaml").read_text())
    params["registry"] = {"tracking": pipeline.settings.tracking}
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(params))
    pipeline.registered(starts=["adapted"])
    pipeline.promoted()
    model = load("letters", params=tmp_path / "params.yaml")
    served = predict_rows(pipeline.champion(), [(text,) for text in TEXTS])
    actual = model.predict(TEXTS)
    assert actual["confidence"].tolist() == [answer["confidence"] for answer in served if answer]
    assert actual["label"].tolist() == [answer["label"] for answer in served if answer]
    saved = load(model.save(tmp_path / "saved"))
    pd.testing.assert_frame_equal(saved.predict(TEXTS), actual, check_exact=True)
    pd.testing.assert_frame_equal(load(pipeline.out).predict(TEXTS), actual, check_exact=True)
    version = load("letters/1", params=tmp_path / "params.yaml")
    pd.testing.assert_frame_equal(version.predict(TEXTS), actual, check_exact=True)
    with pytest.raises(RegistryError, match="has no version 7"):
        load("letters/7", params=tmp_path / "params.yaml")
    with pytest.raises(RegistryError, match="no version"):
        load("others", params=tmp_path / "params.yaml")


def test_commands_that_read_make_no_database(tmp_path, monkeypatch):
    from components.registry.explain import describe_champion, history

    monkeypatch.chdir(tmp_path)
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
