"""`method: auto`: several ways to learn are tried, and the one with the best score of selection is used."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from components.core.errors import ConfigError
from components.data.tasks.examples import read_split
from components.learners.finetuning import execution
from components.learners.finetuning.execution import LEAST_SHARE, attempt, cost_of, share_within
from components.learners.finetuning.fit import PROCESS, FinetuneJob, gpu_bytes
from components.learners.finetuning.stage import finetune, fits_of
from components.learners.task_models.kinds import TASKS
from components.learners.ways import ways_of
from components.learners.ways.finetune import Finetune
from components.models import FAMILIES
from components.settings.finetune import AutoSettings, FinetuneSettings
from tests.finetuning.interruption import BUDGET, digests, learned, records_of
from tests.finetuning.test_crossvalidation import chosen_of


@pytest.fixture
def every_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fine-tuning is tried with any number of rows, and no way is preferred."""
    monkeypatch.setattr(Finetune, "least_rows", 0)
    monkeypatch.setattr(execution, "PREFERRED", None)


def costs(job: FinetuneJob) -> dict[str, tuple[float, float, int]]:
    """Way to learn -> its cost."""
    ways = (job.settings.model_copy(update={"method": way}) for way in ("features", "finetune"))
    return {settings.method: cost_of(next(fits_of(job, settings))) for settings in ways}


@pytest.mark.parametrize("selection", ["budget", "dev"])
def test_the_best_way_is_used(selection, make_job, in_process, every_way):
    def job(method):
        # Which are not the defaults of all methods.
        changes = {"epochs": 3, "evaluations": 2, "head_norm": "auto", "label_names": "auto"}
        source = BUDGET | {"selection": selection}
        return make_job("bert", "classification", name=method, source=source, method=method, **changes)

    every = ["features", "contrastive", "finetune"]
    jobs, record = {way: job(way) for way in every}, learned(job("auto"))
    alone = {way: learned(jobs[way]) for way in every}
    scores = {actual["way"]: actual["score"] for actual in record["ways"]}
    assert scores == {way: execution.best_score(alone[way]) for way in every}
    best = record["way"]
    if selection == "dev":
        assert best == max(every, key=lambda way: scores[way])

    def weights(output: Path) -> dict[str, str]:
        """The settings name the method."""
        return {name: digest for name, digest in digests(output).items() if name.endswith(".safetensors")}

    assert weights(job("auto").output) == weights(jobs[best].output)


@pytest.mark.parametrize(
    ("preferred", "index", "way"),
    [(None, 0, "features"), ("contrastive", 0, "contrastive"), ("contrastive", 1, "features")],
)
def test_the_preferred_or_cheaper_way_is_kept_and_only_it_encodes_test(
    preferred, index, way, make_job, in_process, extracted, monkeypatch
):
    """The frozen encoder reads the test split if `features` is kept, once, and not if `contrastive` is."""
    monkeypatch.setattr(execution, "PREFERRED", preferred)
    real_best = execution._best

    def best(candidates):
        """The first of the ways is the preferred one."""
        with monkeypatch.context() as patched:
            patched.setattr(execution, "choose_of", chosen_of(index))
            return real_best(candidates)

    monkeypatch.setattr(execution, "_best", best)
    job = make_job("bert", "classification", source=BUDGET, method="auto")
    (record,) = records_of(finetune(job))
    assert record["way"] == way
    assert extracted.count(len(read_split(job.examples, "test"))) == (way == "features")


def test_a_way_that_costs_too_much_is_left_out(make_job, in_process, every_way, capsys):
    auto = AutoSettings(ways=["features", "finetune"], minutes=1e-9)
    (record,) = records_of(finetune(make_job("bert", "classification", source=BUDGET, method="auto", auto=auto)))
    first, second = record["ways"]
    assert record["way"] == "features" and first["score"] is not None
    assert second["score"] is None and second["minutes"] >= 0
    shown = capsys.readouterr()
    assert re.search(
        r"finetune: left out of 1 of 1 run\(s\): it costs \d\.\d minutes at a nominal speed, more than auto.minutes "
        r"\(1e-09\) leaves\n",
        shown.out,
    )
    assert "finetune folds" not in shown.err


def test_with_few_rows_contrastive_training_is_tried_instead_of_fine_tuning(make_job, in_process, monkeypatch, capsys):
    monkeypatch.setattr(Finetune, "least_rows", 13)
    (record,) = records_of(finetune(make_job("bert", "classification", source=BUDGET, method="auto")))
    tried = {actual["way"]: actual["score"] is not None for actual in record["ways"]}
    assert tried == {"features": True, "contrastive": True, "finetune": False}
    assert "finetune: left out of 1 of 1 run(s): fewer than 13 rows" in capsys.readouterr().out


def test_the_first_way_is_always_tried_and_costs_add_up(monkeypatch):
    monkeypatch.setattr(execution, "cost_of", lambda fit: (0.6, 0.0, 0))
    monkeypatch.setattr(execution, "replace", lambda fit, **changes: fit)

    def share(earlier, limit, ways):
        settings = SimpleNamespace(auto=AutoSettings(minutes=limit))
        fit = SimpleNamespace(settings=settings, task=SimpleNamespace(labels_rows=False))
        return attempt("finetune", dict.fromkeys(ways, (fit,)), earlier).share

    one, two = ["features", "finetune"], ["features", "contrastive", "finetune"]
    tried, left_out = SimpleNamespace(minutes=0.4, trained=True), SimpleNamespace(minutes=9, trained=False)
    for before, limit, ways, expected in (
        ([], 1e-9, ["finetune", "distil"], 1),
        # What was left out has cost nothing; half is left for a further way.
        ([tried, left_out], 1.0, two, 1),
        ([tried, left_out], 1.0, [*two, "distil"], 0),
        ([tried, left_out], 0.1, one, 0),
        ([tried, left_out], None, one, 1),
        # One way is always tried.
        ([left_out], 1e-9, ["contrastive", "finetune"], 1),
    ):
        assert share(before, limit, ways) == expected
    limits = {5.01: 1, 3.05: 20 / 40, 1.501: 5 / 40, 1.49: 0, 0.5: 0}
    assert {limit: share_within(limit, 1.0, 4.0, 40) for limit in limits} == limits and limits[1.501] == LEAST_SHARE
    assert share_within(1.0, 1.0, 0.0, 0) == 1 and share_within(0.9, 1.0, 0.0, 0) == 0


def test_a_way_that_costs_more_than_is_left_is_shortened(make_job, in_process, every_way, capsys):
    job = {"source": BUDGET, "method": "auto", "epochs": 8}
    whole = AutoSettings(ways=["features", "finetune"])
    made = make_job("bert", "classification", auto=whole, **job)
    (full,), of_ways = records_of(finetune(made)), costs(made)
    fixed, minutes, steps = of_ways["finetune"]
    half = of_ways["features"][0] + fixed + minutes * (steps // 2 + 0.5) / steps
    limited = whole.model_copy(update={"minutes": half})
    (record,) = records_of(finetune(make_job("bert", "classification", auto=limited, **job)))
    share = (steps // 2) / steps
    assert [actual["share"] for actual in record["ways"]] == [1, share]
    assert [actual["share"] for actual in full["ways"]] == [1, 1]
    assert 0.35 * full["ways"][1]["tokens"] < record["ways"][1]["tokens"] < 0.65 * full["ways"][1]["tokens"]
    assert sum(actual["minutes"] for actual in record["ways"]) <= half + 1e-3
    shown = f"finetune: shortened in 1 of 1 run(s), to {share:.0%} of its steps or more: the whole way costs "
    assert shown in capsys.readouterr().out


@pytest.mark.parametrize("kind", sorted(TASKS))
def test_ways_that_do_not_suit_the_kind_are_left_out(kind, settings):
    suitable = list(ways_of(TASKS[kind], settings.model_copy(update={"method": "auto"})))
    contrastive = TASKS[kind].labels_rows and kind != "pair"
    assert suitable == (["features", "contrastive", "finetune"] if contrastive else ["features", "finetune"])
    only = settings.model_copy(update={"method": "auto", "auto": AutoSettings(ways=["contrastive"])})
    if not TASKS[kind].labels_rows:
        with pytest.raises(ConfigError, match=f"none of contrastive suits kind {kind}"):
            ways_of(TASKS[kind], only)


def test_the_cost_of_a_way(make_job):
    # A forward pass costs 2 operations; 4 epochs of 2 folds and the final run cost 6 * 4 * 2, evaluations 2 * 3. An
    # epoch has 3 steps; of 12 steps at least, each fold and the final run have 12.
    for changes, expected in (({"epochs": 4}, 6 * 4 * 2), ({"epochs": 1, "min_steps": 12}, 6 * 12 / 3 * 3)):
        of_ways = costs(make_job("bert", "classification", source=BUDGET, evaluations=3, **changes))
        actual = sum(of_ways["finetune"][:2]) / of_ways["features"][0]
        assert actual == pytest.approx((2 + expected + 2 * 3) / 2)


def test_a_key_of_another_way_is_an_error_that_names_it():
    settings: dict[str, Any] = {"training": {"rate": 0.1, "batch_size": 2}}
    for key, value, method in (
        ("auto", {"minutes": 3.0}, "contrastive"),
        ("contrastive", {"epochs": 3.0}, "finetune"),
        ("discriminative", 1.5, "features"),
    ):
        with pytest.raises(ValueError, match=f"{key} belongs to method .*, and method is {method}; remove {key}"):
            FinetuneSettings.model_validate(settings | {"method": method, key: value})
    settings["method"] = "auto"
    defaults = FinetuneSettings.model_validate(settings)
    assert (defaults.head_norm, defaults.label_names) == ("auto", "auto")
    assert FinetuneSettings.model_validate(settings | {"head_norm": "fixed"}).head_norm == "fixed"


# Estimated memory of runs on a GPU.


def spec(folder: Path, family: str, *, preset: str | None = None, precision: str = "bf16") -> Any:
    sizes = dict(FAMILIES[family].presets[preset] if preset else FAMILIES[family].tiny) | {"vocabulary": 30_522}
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"family": family, "model": sizes, "tokenizer_fingerprint": ""}))
    given = {"training": {"rate": 1e-4, "batch_size": 32}, "max_length": 128}
    settings = FinetuneSettings.model_validate(given)
    return SimpleNamespace(job=SimpleNamespace(encoder=folder), precision=precision, settings=settings)


def test_the_memory_of_runs_on_a_gpu(tmp_path):
    weights, activations = 20 * 110e6, 32 * 128 * 12 * 768 * (34 + 5 * 128 / 64)
    base = spec(tmp_path / "a", "bert", preset="base")
    assert gpu_bytes([base]) == pytest.approx(PROCESS + weights + activations, rel=0.02)
    # float32 activations; and the largest of several runs.
    single = gpu_bytes([spec(tmp_path / "b", "bert", preset="base", precision="float32")])
    assert single - gpu_bytes([base]) == pytest.approx(activations, rel=0.02)
    assert gpu_bytes([spec(tmp_path / "c", "bert"), base]) == gpu_bytes([base])
    assert gpu_bytes([]) == 0
    for family in FAMILIES:
        assert PROCESS < gpu_bytes([spec(tmp_path / family, family)]) < 2 * PROCESS, family
