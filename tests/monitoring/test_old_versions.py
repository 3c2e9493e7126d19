"""Which versions of a registered model are kept, and that deletion also frees their files."""

import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from components.core.errors import RegistryError
from components.pipeline.monitoring.garbage import keep, old_versions
from components.registry.ledger import Entry, State
from components.registry.register import register
from components.registry.tracking import Version, connect
from components.settings.loading import load_params
from components.settings.params import GcSettings
from tests.registry.conftest import Pipeline


def versions(count: int, **tags: dict[str, str]) -> list[Version]:
    return [
        Version("m", str(number), "", "", {"digest": f"d{number}", **tags.get(f"v{number}", {})})
        for number in range(1, count + 1)
    ]


def change(action: str, before: str | None, after: str) -> Entry:
    facts = {"action": action, "before": before, "after": after}
    return Entry(1, datetime(2026, 1, 1, tzinfo=UTC), "change", "m", "champion", "a@b", facts=facts)


def kept(state: State | None = None, aliased: set[str] | None = None, **tags: dict[str, str]) -> list[int]:
    actual = keep(versions(20, **tags), state, aliased or set(), newest=2, champions=3)
    return sorted(map(int, actual))


CHAMPIONS = State("m", "champion", champions=tuple((str(number), "") for number in (1, 3, 5, 7)))


def changed(action: str) -> State:
    return State("m", "champion", changes=(change(action, "6", "2"),))


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (None, [19, 20]),
        (CHAMPIONS, [3, 5, 7, 19, 20]),
        # What a person decided.
        (changed("rollback"), [2, 6, 19, 20]),
        (changed("assign"), [2, 6, 19, 20]),
        (changed("hand"), [2, 6, 19, 20]),
        (changed("promote"), [19, 20]),
        (State("m", "champion", vetoes={"d8": change("rollback", "9", "1")}), [8, 19, 20]),
    ],
)
def test_what_is_kept_beside_the_newest(state, expected):
    assert kept(state) == expected


def test_versions_with_an_alias_or_a_mark_are_kept():
    assert kept(aliased={"4"}) == [4, 19, 20]
    assert kept(v5={"tainted": "document 17"}, v6={"keep": "yes"}, v7={"task": "x"}) == [5, 6, 19, 20]


def test_a_deleted_version_takes_its_files_along(finished, tmp_path, monkeypatch):
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    pipeline = Pipeline(tmp_path)
    job = pipeline.register_job(starts=["scratch"])
    for knows in (14, 15):
        shutil.rmtree(pipeline.out / "finetuned" / "letters" / "ulmfit-scratch")
        pipeline.write_classifier("scratch", knows=knows)
        register(job)
    params = load_params(Path(__file__).parents[2] / "params.yaml")
    run = params.run.model_copy(update={"tasks": ["letters"]})
    params = params.model_copy(update={"registry": pipeline.settings, "run": run, "gc": GcSettings(keep_versions=1)})
    registry = connect(pipeline.settings)
    first, second = registry.versions("headstart-letters")
    registry.set_alias("headstart-letters", "champion", first)
    assert list(old_versions(params)) == []
    registry.set_alias("headstart-letters", "champion", second)
    (actual,) = old_versions(params)
    weights = len(list(tmp_path.glob("mlruns/**/head.safetensors")))
    assert actual.name == "headstart-letters/1" and actual.size > 1000 and weights == 2
    registry.set_alias("headstart-letters", "other", first)
    with pytest.raises(RegistryError, match="headstart-letters/1: has an alias now"):
        actual.delete()
    registry.client.delete_registered_model_alias("headstart-letters", "other")
    actual.delete()
    assert [version.number for version in registry.versions("headstart-letters")] == ["2"]
    assert len(list(tmp_path.glob("mlruns/**/head.safetensors"))) == 1
    assert registry.client.get_run(first.run_id).data.metrics


def test_a_list_makes_no_database(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert [*old_versions(load_params(Path(__file__).parents[2] / "params.yaml"))] == [*tmp_path.iterdir()] == []
