"""`method: auto`: several ways to learn are tried, and the one with the best score of selection is used."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from components.core.artifacts import read_manifest
from components.core.errors import ConfigError
from components.data.tasks.examples import read_split
from components.data.tasks.results import best_score
from components.learners.finetuning import execution, fit
from components.learners.finetuning.execution import LEAST_SHARE, Attempt, Cost, attempt, cost_of
from components.learners.finetuning.fit import PROCESS, gpu_bytes
from components.learners.finetuning.stage import finetune
from components.learners.task_models.classifier import load_classifier
from components.learners.task_models.kinds import TASKS
from components.learners.task_models.predictor import Predictor
from components.learners.ways import ways_of
from components.learners.ways.finetune import Finetune
from components.models import FAMILIES
from components.settings import contrastive
from components.settings.contrastive import ContrastiveSettings
from components.settings.finetune import AutoSettings, FinetuneSettings
from tests.finetuning.test_crossvalidation import chosen_of

BUDGET: dict[str, Any] = {"selection": "budget", "folds": 2}


@pytest.fixture
def every_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fine-tuning is tried with any number of rows, and no way is preferred."""
    monkeypatch.setattr(Finetune, "least_rows", 0)
    monkeypatch.setattr(execution, "PREFERRED", None)


def weights(output: Path) -> dict[str, str]:
    """Digests of the classifier's weights; its settings name the method."""
    files = read_manifest(output / "classifier").files.items()
    return {name: entry["sha256"] for name, entry in files if name.endswith(".safetensors")}


@pytest.mark.parametrize("selection", ["budget", "dev"])
def test_the_best_way_is_used(selection, make_job, in_process, every_way):
    def job(method):
        source = BUDGET | {"selection": selection}
        changes = {"epochs": 3, "evaluations": 2}
        # Which are not the defaults of all methods.
        changes |= {"head_norm": "auto", "label_names": "auto"}
        return make_job("bert", "classification", name=method, source=source, method=method, **changes)

    every = ["features", "contrastive", "finetune"]
    alone = {way: finetune(job(way)) for way in every}
    scores = {}
    for way, output in alone.items():
        (record,) = json.loads((output / "runs.json").read_text())
        scores[way] = best_score(record)
    output = finetune(job("auto"))
    (record,) = json.loads((output / "runs.json").read_text())
    assert {actual["way"]: actual["score"] for actual in record["ways"]} == scores
    best = record["way"]
    if selection == "dev":
        assert best == max(every, key=lambda way: scores[way])
    assert weights(output) == weights(alone[best])
    served = load_classifier(output / "classifier")
    assert len(served.answer(read_split(job("auto").examples, "test").fields)) == 6
    assert not list(Path(job("auto").cluster.storage).rglob("*.safetensors")), "no way leaves checkpoints"


@pytest.mark.parametrize(
    ("preferred", "index", "way"),
    [(None, 0, "features"), ("contrastive", 0, "contrastive"), ("contrastive", 1, "features")],
)
def test_the_preferred_or_cheaper_way_is_kept_and_only_it_encodes_test(
    preferred, index, way, make_job, in_process, monkeypatch
):
    """The frozen encoder reads the test split if `features` is kept, once, and not if `contrastive` is."""
    calls = []

    class Recorded(Predictor):
        def tables(self, encoded, **named):
            calls.append(len(encoded))
            return super().tables(encoded, **named)

    monkeypatch.setattr(fit, "Predictor", Recorded)
    monkeypatch.setattr(execution, "PREFERRED", preferred)
    real_best = execution._best

    def best(candidates):
        """The first of the ways is the preferred one."""
        with monkeypatch.context() as patched:
            patched.setattr(execution, "_chosen", chosen_of(index))
            return real_best(candidates)

    monkeypatch.setattr(execution, "_best", best)
    job = make_job("bert", "classification", source=BUDGET, method="auto")
    (record,) = json.loads((finetune(job) / "runs.json").read_text())
    assert record["way"] == way
    assert calls.count(len(read_split(job.examples, "test"))) == (way == "features")


def test_a_way_that_costs_too_much_is_left_out(make_job, in_process, every_way, capsys):
    auto = AutoSettings(ways=["features", "finetune"], minutes=1e-9)
    output = finetune(make_job("bert", "classification", source=BUDGET, method="auto", auto=auto))
    (record,) = json.loads((output / "runs.json").read_text())
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
    output = finetune(make_job("bert", "classification", source=BUDGET, method="auto"))
    (record,) = json.loads((output / "runs.json").read_text())
    assert {actual["way"]: actual["score"] is not None for actual in record["ways"]} == {
        "features": True,
        "contrastive": True,
        "finetune": False,
    }
    assert "finetune: left out of 1 of 1 run(s): fewer than 13 rows" in capsys.readouterr().out


def test_the_first_way_is_always_tried_and_costs_add_up(monkeypatch):
    monkeypatch.setattr(execution, "cost_of", lambda fit: Cost(0.6))

    def share(earlier, limit, ways):
        auto = AutoSettings(minutes=limit)
        fit = SimpleNamespace(settings=SimpleNamespace(auto=auto), task=SimpleNamespace(labels_rows=False))
        return attempt("finetune", dict.fromkeys(ways, (fit,)), earlier).share

    def tried(minutes, *trained):
        return Attempt((), Cost(minutes), trained=trained)

    assert share([], 1e-9, ["finetune"]) == share([], 1e-9, ["finetune", "distil"]) == 1
    earlier = [tried(0.4, "model"), tried(9.0)]
    assert share(earlier, 1.0, ["features", "contrastive", "finetune"]) == 1, "what was left out has cost nothing"
    assert share(earlier, 1.0, ["features", "contrastive", "finetune", "distil"]) == 0, "half is left for a further way"
    assert share(earlier, 0.1, ["features", "finetune"]) == 0
    assert share([tried(9.0)], 1e-9, ["contrastive", "finetune"]) == 1, "one way is always tried"
    assert share(earlier, None, ["features", "finetune"]) == 1


def test_the_share_of_the_steps_within_a_limit():
    cost = Cost(fixed=1.0, step=0.1, steps=40)
    assert cost.of(1.0) == pytest.approx(5)
    limits = {5.01: 1, 3.05: 20 / 40, 1.501: 5 / 40, 1.49: 0, 0.5: 0}
    assert {minutes: cost.share_within(minutes) for minutes in limits} == limits and limits[1.501] == LEAST_SHARE
    assert Cost(fixed=1.0).share_within(1.0) == 1 and Cost(fixed=1.0).share_within(0.9) == 0


@pytest.mark.parametrize("way", ["contrastive", "finetune"])
def test_a_way_that_costs_more_than_is_left_is_shortened(way, make_job, in_process, every_way, monkeypatch, capsys):
    costs: dict[str, Cost] = {}

    def noted(given):
        costs[given.settings.method] = cost_of(given)
        return costs[given.settings.method]

    monkeypatch.setattr(execution, "cost_of", noted)
    monkeypatch.setattr(contrastive, "ROWS", 4)
    job = {"source": BUDGET, "method": "auto", "epochs": 8, "contrastive": ContrastiveSettings(epochs=8)}
    whole = AutoSettings(ways=["features", way])
    (full,) = json.loads((finetune(make_job("bert", "classification", auto=whole, **job)) / "runs.json").read_text())
    half = costs["features"].of(1.0) + costs[way].fixed + costs[way].step * (costs[way].steps // 2 + 0.5)
    limited = whole.model_copy(update={"minutes": half})
    output = finetune(make_job("bert", "classification", auto=limited, **job))
    (record,) = json.loads((output / "runs.json").read_text())
    share = (costs[way].steps // 2) / costs[way].steps
    assert [actual["share"] for actual in record["ways"]] == [1, round(share, 3)]
    assert [actual["share"] for actual in full["ways"]] == [1, 1]
    assert 0.35 * full["ways"][1]["tokens"] < record["ways"][1]["tokens"] < 0.65 * full["ways"][1]["tokens"]
    assert sum(actual["minutes"] for actual in record["ways"]) <= half + 1e-3
    shown = f"{way}: shortened in 1 of 1 run(s), to {share:.0%} of its steps or more: the whole way costs "
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


def test_the_cost_of_a_way(make_job, in_process, every_way, monkeypatch):
    actual: dict[str, float] = {}

    def noted(given):
        actual[given.settings.method] = cost_of(given).of(1.0)
        return cost_of(given)

    monkeypatch.setattr(execution, "cost_of", noted)
    auto = AutoSettings(ways=["features", "finetune"])
    job = {"source": BUDGET, "method": "auto", "auto": auto, "evaluations": 3}
    finetune(make_job("bert", "classification", epochs=4, **job))
    # A forward pass costs 2 operations; 4 epochs of 2 folds and the final run cost 6 * 4 * 2, evaluations 2 * 3.
    assert actual["finetune"] / actual["features"] == pytest.approx((2 + 6 * 4 * 2 + 2 * 3) / 2)
    finetune(make_job("bert", "classification", epochs=1, min_steps=12, **job))
    # An epoch has 3 steps. Each fold and the final run have 12.
    assert actual["finetune"] / actual["features"] == pytest.approx((2 + 6 * 12 / 3 * 3 + 2 * 3) / 2)


@pytest.mark.parametrize(
    ("key", "method"), [("auto", "contrastive"), ("contrastive", "finetune"), ("discriminative", "features")]
)
def test_a_key_of_another_way_is_an_error_that_names_it(key, method):
    given = {"auto": {"minutes": 3.0}, "contrastive": {"epochs": 3.0}, "discriminative": 1.5}
    with pytest.raises(ValueError, match=f"{key} belongs to method .*, and method is {method}; remove {key}"):
        FinetuneSettings.model_validate({"training": {"rate": 0.1, "batch_size": 2}, "method": method, key: given[key]})
    settings = {"training": {"rate": 0.1, "batch_size": 2}, "method": "auto"}
    defaults = FinetuneSettings.model_validate(settings)
    assert (defaults.head_norm, defaults.label_names) == ("auto", "auto")
    assert FinetuneSettings.model_validate(settings | {"head_norm": "fixed"}).head_norm == "fixed"


# Estimated memory of runs on a GPU.


def spec(folder: Path, family: str, *, preset: str | None = None, precision: str = "bf16", **settings: Any) -> Any:
    sizes = dict(FAMILIES[family].presets[preset] if preset else FAMILIES[family].tiny) | {"vocabulary": 30_522}
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"family": family, "model": sizes, "tokenizer_fingerprint": ""}))
    given = {"training": {"rate": 1e-4, "batch_size": 32}, "max_length": 128} | settings
    settings = FinetuneSettings.model_validate(given)
    return SimpleNamespace(job=SimpleNamespace(encoder=folder), precision=precision, settings=settings)


def test_the_memory_of_bert_base(tmp_path):
    base = "base"
    weights = 20 * 110e6
    activations = 32 * 128 * 12 * 768 * (34 + 5 * 128 / 64)
    actual = gpu_bytes([spec(tmp_path / "a", "bert", preset=base)])
    assert actual == pytest.approx(PROCESS + weights + activations, rel=0.02)
    # float32 activations; and the largest of several runs.
    single = gpu_bytes([spec(tmp_path / "b", "bert", preset=base, precision="float32")])
    assert single - actual == pytest.approx(activations, rel=0.02)
    tiny = spec(tmp_path / "c", "bert")
    assert gpu_bytes([tiny, spec(tmp_path / "a", "bert", preset=base)]) == actual
    assert gpu_bytes([]) == 0


def test_every_family_has_an_estimate(tmp_path):
    for family in FAMILIES:
        assert PROCESS < gpu_bytes([spec(tmp_path / family, family)]) < 2 * PROCESS, family
