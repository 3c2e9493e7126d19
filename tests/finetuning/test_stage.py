"""The stage: every family, its output, and resuming of interrupted runs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from components.core.artifacts import json_of, read_manifest
from components.core.measurements import FILE, Lines, points_of
from components.learners.finetuning import execution, runs
from components.learners.finetuning.stage import FinetuneJob, finetune
from components.learners.task_models.classifier import load_members
from components.models.encoder import architecture_of
from components.settings.cluster import ClusterSettings
from components.settings.finetune import ScratchSettings
from components.training.precision import product_size
from tests.finetuning.interruption import contents, records_of, with_checkpoints


@pytest.fixture
def make_job(make_things_job: Callable[..., FinetuneJob], in_process: None) -> Callable[..., FinetuneJob]:
    return make_things_job


@pytest.fixture
def steps(watch: Callable[..., list[Any]]) -> list[tuple[Any, Any, Any]]:
    """(state of the training, head, report) of every step from now on."""
    return watch(lambda state, report: (state, state.model.parts[0].head, report))


def rows_of(output: Path) -> list[dict[str, Any]]:
    return pq.read_table(output / "runs.parquet").to_pylist()


def test_the_files_of_fine_tuning(make_job):
    job = make_job()
    output = finetune(job)
    table = pq.read_table(output / "runs.parquet")
    assert set(table.column("system").to_pylist()) == {"ulmfit-adapted"}
    assert table.num_rows == 2 * 2 * (18 + 24) + 24, "budgets x seeds x (dev + test rows), and the average on test"
    probabilities = np.asarray(table.column("answer").to_pylist())
    np.testing.assert_allclose(probabilities.sum(1), 1, atol=1e-5)
    test = table.filter((np.asarray(table.column("split")) == "test") & (np.asarray(table.column("seed")) == 0))
    assert test.column("slice").to_pylist()[:4] == ["even", "even", "even", "odd"]
    records = records_of(output)
    sizes = [(record["budget"], record["seed"], record["rows"]) for record in records]
    assert sizes == [(2, 0, 6), (2, 1, 6), (4, 0, 12), (4, 1, 12)]
    assert [point["step"] for point in records[-1]["curve"]] == [0, 3, 6]
    assert json_of(output / "labels.json") == ["animal", "fruit", "metal"]
    names = {f"ulmfit-adapted.{budget}.{name}" for budget in (2, 4) for name in ("dev_macro_f1", "seconds")}
    assert set(json_of(output / "metrics.json")) == names
    assert not list(Path(job.cluster.storage).rglob("*.safetensors")), "what is finished needs no checkpoints"
    facts = read_manifest(output / "classifier").facts
    assert (facts["budget"], facts["seeds"]) == (4, [0, 1])


def test_every_run_writes_its_curve_for_monitoring(make_job, tmp_path, monkeypatch):
    without = finetune(make_job(name="without"))
    file = tmp_path / "measurements.jsonl"
    monkeypatch.setenv(FILE, json.dumps({"path": str(file)}))
    output = finetune(make_job())
    assert contents(output) == contents(without), "monitoring changes no result"

    points = [point for line in Lines(file).read() for point in points_of(line)]
    quantities = ("loss", "rate", "gradient_norm", "tokens_per_second", "dev_macro_f1")
    pieces = [f"{budget} labels seed {seed}" for budget in (2, 4) for seed in (0, 1)]
    assert {point.key for point in points} == {f"{quantity}/{piece}" for quantity in quantities for piece in pieces}
    for record in records_of(output):
        piece = f"{record['budget']} labels seed {record['seed']}"
        scores = {point.step: point.value for point in points if point.key == f"dev_macro_f1/{piece}"}
        assert scores == {point["step"]: point["macro_f1"] for point in record["curve"]}
        steps = {point.step for point in points if point.key == f"loss/{piece}"}
        assert steps == set(range(1, record["steps"] + 1))


def test_random_weights_differ_by_seed_have_their_own_settings_and_are_never_scored_frozen(make_job):
    rows = rows_of(finetune(make_job(trained=False, head_steps=0, method="features", frozen=True)))
    assert {row["system"] for row in rows} == {"ulmfit-scratch"}
    first, second = (
        [row["answer"] for row in rows if (row["seed"], row["budget"], row["split"]) == (seed, 4, "test")]
        for seed in (0, 1)
    )
    assert not np.allclose(first, second)
    job = make_job(trained=False, name="other", method="features", scratch=ScratchSettings(epochs=1))
    assert {record["steps"] for record in records_of(finetune(job)) if record["budget"] == 4} == {3}


@pytest.mark.parametrize(("trained", "expected"), [(True, 0.01), (False, 1.0)])
def test_the_head_has_its_own_learning_rate(make_job, steps, trained, expected):
    finetune(make_job(trained=trained, head_scale=0.01))
    heads = [({id(each) for each in head.parameters()}, state.groups) for state, head, _ in steps]
    assert {g.scale for head, groups in heads for g in groups if head & {id(p) for p in g.parameters}} == {expected}


def test_finetuning_keeps_the_penalty_of_the_fitted_head(make_job, settings, steps):
    # Without dropout, with a rate of almost 0 and one batch per epoch: the first loss is the mean over all rows.
    training = settings.training.model_copy(update={"rate": 1e-12, "batch_size": 100})
    finetune(make_job(dropout=0.0, head_dropout=0.0, head_penalties=[30.0], training=training))
    first = [(head.penalty, report.loss) for _, head, report in steps if report.step == 1]
    penalties = [penalty for penalty, _ in first]
    assert penalties == [pytest.approx(30 / 12)] * 2 + [pytest.approx(30 / 6)] * 2, "largest budget first"
    # Reported is cross entropy and penalty: more than the cross entropy of a head that knows nothing would be wrong.
    assert all(0 < loss < np.log(3) + 1e-3 for _, loss in first)


def test_all_starts_have_the_precision_of_the_architecture(make_job, settings, monkeypatch):
    monkeypatch.setattr("components.training.precision.has_bf16", lambda device: True)
    sizes, training = {}, settings.training.model_copy(update={"precision": "auto"})

    def precision(name, *, trained=True):
        job = make_job(name=name, trained=trained, training=training)
        sizes[name] = product_size(architecture_of(job.encoder))
        output = finetune(job)
        assert not list(Path(job.cluster.storage).glob("*")), "nothing is kept for other starts"
        facts = [read_manifest(folder).facts["precision"] for folder in (output, output / "classifier")]
        assert facts == [load_members(output / "classifier")[0].precision] * 2
        return str(facts[0])

    assert precision("pretrained") == "float32"
    monkeypatch.setattr("components.training.precision.BF16_SIZE", sizes["pretrained"])
    assert precision("adapted") == precision("scratch", trained=False) == "bf16"
    assert len(set(sizes.values())) == 1


def test_the_encoder_reads_no_split_twice_with_the_same_weights(make_job, monkeypatch):
    answered = []

    class Counted(runs.Predictor):
        def answers(self, encoded, **named):
            answered.append(len(encoded))
            return super().answers(encoded, **named)

    monkeypatch.setattr(runs, "Predictor", Counted)
    job = make_job(epochs=4)
    records = records_of(finetune(job))
    learned = sum(record["best_step"] > 0 for record in records)
    assert 0 < learned < len(records)
    # Dev by the best weights is known; predictions of the initial weights are computed from features, also on test.
    assert sorted(answered) == [18] * job.settings.evaluations * len(records) + [24] * learned


def test_finished_runs_are_not_done_again(make_job, monkeypatch):
    real, executed = runs.execute, []

    def breaks_off(fits):
        if len(executed) == 2:
            executed.append("")
            raise KeyboardInterrupt
        executed.append(fits[0].key)
        return real(fits)

    monkeypatch.setattr(execution, "execute", breaks_off)
    with pytest.raises(KeyboardInterrupt):
        finetune(make_job())
    finetune(make_job())
    assert len(executed) == len(set(executed)) == 5


@pytest.mark.slow
def test_a_stage_killed_at_any_moment_ends_bit_identical(make_job, tmp_path):
    unbroken = finetune(make_job(name="unbroken"))
    job, storage = make_job(name="killed"), tmp_path / "elsewhere" / "store"
    # A checkpoint after every step, so that the stage is killed in the middle of its runs.
    cluster = ClusterSettings(launcher="local", storage=str(storage))
    job = with_checkpoints(job.model_copy(update={"cluster": cluster}))
    (tmp_path / "job.json").write_text(job.model_dump_json())
    script = tmp_path / "stage.py"
    script.write_text(
        "import sys\n"
        "from pathlib import Path\n"
        "from components.learners.finetuning.stage import FinetuneJob, finetune\n"
        'if __name__ == "__main__":\n'
        "    finetune(FinetuneJob.model_validate_json(Path(sys.argv[1]).read_text()))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"}

    def start():
        command = [sys.executable, str(script), str(tmp_path / "job.json")]
        return subprocess.Popen(command, env=environment, start_new_session=True)

    def farthest():
        """The last step of all complete checkpoints."""
        return max((int(path.parent.name[5:]) for path in storage.glob("finetune-*/*/step-*/state.json")), default=0)

    stage = start()
    # Kill the stage and all of its processes once a run is in the middle.
    while stage.poll() is None and farthest() < 4:
        time.sleep(0.002)
    os.killpg(stage.pid, signal.SIGKILL)
    assert stage.wait() == -signal.SIGKILL and not job.output.exists()
    assert start().wait() == 0
    assert contents(job.output) == contents(unbroken)


def test_the_frozen_encoder_is_scored_as_a_system(make_job):
    both = rows_of(finetune(make_job(name="both", frozen=True)))
    alone = rows_of(finetune(make_job(name="alone", method="features")))
    starts = {"ulmfit-adapted": "adapted", "ulmfit-adapted-frozen": "adapted-frozen"}
    assert {row["system"]: row["start"] for row in both} == starts
    names = {"system": "ulmfit-adapted", "start": "adapted"}
    assert [row | names for row in both if row["start"] == "adapted-frozen"] == alone
    assert [row for row in both if row["start"] == "adapted"] == rows_of(finetune(make_job(name="tuned")))
