"""Multi-task training: the task of a step, the output, and bit-identical resuming."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from components.core.artifacts import read_manifest
from components.core.errors import ConfigError
from components.data.tasks.examples import ExamplesJob, examples, read_split
from components.data.tasks.results import read_averages
from components.learners.finetuning.together import ShareJob, TogetherJob, together
from components.learners.task_models.base import Encoded
from components.learners.task_models.classifier import load_classifier
from components.learners.task_models.kinds.texts import CLASSIFICATION
from components.learners.task_models.model import TaskModel
from components.learners.task_models.sampler import ExampleSampler
from components.learners.ways.base import TaskMixture, Way, shares
from components.models.encoder import load_encoder
from components.settings.cluster import ClusterSettings
from components.settings.finetune import FinetuneSettings
from components.settings.tasks import TaskSource
from tests.example_task import rows, write_jsonl
from tests.finetuning.interruption import contents, finish_interrupted, records_of, with_checkpoints

pytestmark = pytest.mark.usefixtures("in_process")


def sampler_of(count: int, seed: int) -> ExampleSampler:
    encoded = [Encoded.of_texts([np.arange(5, 7 + number % 3)]) for number in range(count)]
    return ExampleSampler(encoded, [np.asarray([float(n % 2)]) for n in range(count)], batch_size=4, seed=seed)


def test_tasks_are_sampled_by_size_and_temperature():
    assert shares([100, 400], 1).tolist() == pytest.approx([0.2, 0.8])
    assert shares([100, 400], 2).tolist() == pytest.approx([1 / 3, 2 / 3])
    assert shares([100, 400, 900], 1e9).tolist() == pytest.approx([1 / 3] * 3)


def test_a_step_is_the_next_batch_of_its_task():
    single, probabilities = [sampler_of(10, 1), sampler_of(30, 2)], np.asarray([0.25, 0.75])
    mixture = TaskMixture(single, probabilities, steps=400, seed=5)
    assert np.bincount(mixture.tasks).tolist()[0] == pytest.approx(100, abs=30)
    seen = [0, 0]
    for step in range(40):
        batch = mixture.batch(step)
        task = int(batch.pop("task"))
        expected = single[task].batch(seen[task])
        assert batch.keys() == expected.keys()
        assert all(torch.equal(value, expected[name]) for name, value in batch.items())
        tokens = sum(sampler.tokens_before(count) for sampler, count in zip(single, seen, strict=True))
        assert mixture.tokens_before(step) == tokens
        # Two workers share the same batch.
        for rank in range(2):
            ours = mixture.batch(step, rank, 2)
            assert int(ours["task"]) == task
            assert torch.equal(ours["targets"], expected["targets"][rank::2])
        seen[task] += 1
    # Random access, independent of the number of steps.
    longer = TaskMixture(single, probabilities, steps=1000, seed=5)
    assert torch.equal(longer.batch(39)["tokens"], batch["tokens"])
    assert not np.array_equal(TaskMixture(single, probabilities, steps=400, seed=6).tasks, mixture.tasks)


def test_a_batch_has_gradients_for_its_head_and_the_encoder(make_encoder, settings):
    encoder = load_encoder(make_encoder("ulmfit"))
    models = [
        TaskModel(encoder.model, task=CLASSIFICATION, settings=settings, labels=labels)
        for labels in (["a", "b", "c"], ["even", "odd"])
    ]
    whole = Way().trained(models)
    assert len(list(whole.parameters())) == len({id(p) for m in models for p in m.parameters()})
    batch = sampler_of(10, 1).batch(0)
    loss = whole.losses(batch | {"task": torch.tensor(1)}).loss
    torch.testing.assert_close(loss, models[1].loss(batch))
    loss.backward()
    assert all(parameter.grad is None for parameter in models[0].head.parameters())
    assert all(parameter.grad is not None for parameter in models[1].head.parameters())
    assert encoder.model.layer_groups()[0][0].grad is not None


@pytest.fixture
def make_job(
    task: Path,
    source: TaskSource,
    make_encoder: Callable[..., Path],
    settings: FinetuneSettings,
    cluster: ClusterSettings,
    tmp_path: Path,
) -> Callable[..., TogetherJob]:
    """make_job(name="out", trained=True, **settings) -> a job of the task with three classes, and of another one:
    whether the number in a text is even."""
    folder = tmp_path / "parity"
    for split, count, offset in (("train", 10, 300), ("dev", 5, 400), ("test", 6, 500)):
        write_jsonl(folder / f"{split}.jsonl", rows(count, offset=offset))
    other = source.model_copy(update={"path": str(folder), "label": "part", "slice": None, "budgets": [4, 8]})
    parity = examples(ExamplesJob(task="parity", source=other, output=tmp_path / "examples-parity"))

    def make(family: str = "ulmfit", *, name: str = "out", trained: bool = True, **changes: object) -> TogetherJob:
        return TogetherJob(
            group="both",
            family=family,
            start="adapted" if trained else "scratch",
            examples={"things": task, "parity": parity},
            encoder=make_encoder(family, trained=trained),
            output=tmp_path / name,
            settings=settings.model_copy(update=changes),
            temperature=2.0,
            cluster=cluster.model_copy(update={"storage": f"{cluster.storage}-{name}"}),
        )

    return make


def test_every_task_gets_the_output_of_finetuning(make_job, tmp_path):
    job = make_job("bert")
    output = together(job)
    assert not list(Path(job.cluster.storage).rglob("*.safetensors")), "what is finished needs no checkpoints"
    # Budgets 2 and 4 of one task are paired with 4 and 8 of the other.
    for task, dev, test, few, sizes in (("things", 18, 24, 2, [6, 12]), ("parity", 15, 18, 4, [8, 16])):
        shared = together(ShareJob(task=task, together=output, output=tmp_path / "shared" / task))
        facts = read_manifest(shared, kind="finetuned", verify=True).facts
        assert (facts["system"], facts["start"]) == ("bert-adapted-with-both", "adapted-with-both")
        assert facts["examples"] == read_manifest(job.examples[task]).facts["digests"]
        table = pq.read_table(shared / "runs.parquet").to_pylist()
        trained = [(budget, seed) for budget in (few, 2 * few) for seed in (0, 1)]
        assert {(row["budget"], row["seed"]) for row in table} == set(trained)
        assert len(table) == 4 * (dev + test) + test, "runs x (dev + test rows), and the average on test"
        records = records_of(shared)
        assert [(record["budget"], record["seed"]) for record in records] == trained
        # 12 rows of three classes and 16 of two: three and four steps per epoch, two epochs.
        assert [point["step"] for point in records[-1]["curve"]] == [0, 7, 14]
        assert [record["rows"] for record in records[1:3]] == sizes
        stored = read_manifest(shared / "classifier").facts
        served = load_classifier(shared / "classifier").answer(read_split(job.examples[task], "test").fields)
        (average,) = read_averages(shared, averages=True).values()
        assert (average.budget, average.seeds) == (stored["budget"], stored["seeds"]) == (2 * few, [0, 1])
        # A card adds in another order.
        np.testing.assert_allclose(np.stack(served), np.stack(average.answers), rtol=0, atol=1e-5)


def test_an_interrupted_run_ends_bit_identical(make_job, monkeypatch):
    changes = {"epochs": 4, "lm_weight": 0.3, "unfreeze_epochs": 0.5}
    unbroken, broken = (with_checkpoints(make_job(name=name, **changes)) for name in ("unbroken", "broken"))
    together(unbroken)
    assert finish_interrupted(broken, monkeypatch, every=16, stage=together) > 2
    for task in ("things", "parity"):
        assert contents(broken.output / task) == contents(unbroken.output / task)


def test_tasks_that_do_not_pair_and_a_frozen_encoder_are_refused(make_job, source, tmp_path):
    job = make_job()
    for changes, message in (
        ({"budgets": [3]}, r"must have the same number of budgets, found things 3; parity 4, 8$"),
        ({"seeds": [7]}, r"must have a common seed, found things 7; parity 0, 1$"),
    ):
        other = source.model_copy(update=changes)
        third = examples(ExamplesJob(task="third", source=other, output=tmp_path / next(iter(changes))))
        with pytest.raises(ConfigError, match=f"together.both: its tasks {message}"):
            together(job.model_copy(update={"examples": job.examples | {"things": third}}))
    with pytest.raises(ConfigError, match="finetune.ulmfit.method: multi-task learning trains the encoder"):
        together(make_job(method="features"))


def test_random_encoders_are_trained_jointly(make_job):
    table = pq.read_table(together(make_job(trained=False)) / "things" / "runs.parquet")
    assert set(table.column("system").to_pylist()) == {"ulmfit-scratch-with-both"}
