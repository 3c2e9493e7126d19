"""Features of a frozen encoder: vectors of the right rows, computed once, cached by content."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from components.core.artifacts import MANIFEST
from components.core.errors import ArtifactError
from components.data.tasks.examples import read_split
from components.learners.finetuning import fit
from components.learners.finetuning.stage import FinetuneJob, finetune, fits_of
from components.learners.task_models.base import Encoded
from components.learners.task_models.features import VECTORS, cached, read_by_head, trim
from components.learners.task_models.heads import ClassificationHead
from components.learners.task_models.kinds import TASKS
from components.learners.task_models.model import TaskModel
from components.learners.task_models.predictor import Predictor
from components.learners.task_models.probe import HeadRows, train_head
from components.learners.task_models.sampler import collate, matrix
from components.learners.ways import WAYS
from components.models.encoder import load_encoder
from components.settings.finetune import FinetuneSettings
from components.settings.training import Training

#: Three rows with 2, 1 and 1 sequences of 2, 1, 3 and 0 units.
FIRST, SECOND, THIRD, FOURTH = np.split(np.arange(12, dtype=np.float32).reshape(6, 2), [2, 3, 6])
ROWS = [[FIRST, SECOND], [THIRD], [FOURTH]]
TABLE = [Encoded.of_vectors(row, [each.astype(np.int64) for each in row]) for row in ROWS]


def test_a_linear_head_alone_does_not_learn_at_the_rate_of_an_encoder():
    for changes, given, rate in (
        ({}, 1e-4, 0.01),
        ({"tagger": "crf"}, 1e-4, 0.01),
        ({"tagger": "bilstm_crf"}, 1e-4, 1e-4),
        ({"head_hidden": 8}, 1e-4, 1e-4),
        ({}, 0.05, 0.05),
    ):
        settings = FinetuneSettings(training=Training(rate=given, batch_size=8), method="features", **changes)
        assert WAYS["features"].training(settings).rate == rate


def test_a_batch_contains_the_vectors_of_its_rows_in_order():
    batch = collate([TABLE[1], TABLE[0]], [np.asarray([7.0]), np.asarray([8.0])])
    assert batch["rows"].tolist() == [0, 1, 1]
    assert batch["unit_lengths"].tolist() == [3, 2, 1]
    assert batch["features"].tolist() == [
        [[6, 7], [8, 9], [10, 11]],
        [[0, 1], [2, 3], [0, 0]],
        [[4, 5], [0, 0], [0, 0]],
    ]
    assert batch["offsets"][1].tolist() == [[0, 1], [2, 3], [-1, -1]]
    assert batch["targets"].tolist() == [[7], [8]]
    assert collate(TABLE[2:])["unit_lengths"].tolist() == [0]
    values = np.arange(6, dtype=np.float32)[:, None]
    batch = collate([Encoded.of_vectors(values[3:]), Encoded.of_vectors(values[:2])])
    assert batch["features"].flatten().tolist() == [3, 4, 5, 0, 1] and batch["rows"].tolist() == [0, 0, 0, 1, 1]


TEXTS = [("the old apple",), ("zinc",), ("a red goat is here 7",)]
PAIRS = [("the apple", "a pear"), ("iron", "zinc is here")]
CHOICES = [("the apple", "is red", "a goat"), ("iron", "zinc", "gold", "plum is here")]
WORDS = [("the", "apple", "1234"), ("iron",), ("red", "goat")]


@pytest.mark.parametrize(
    ("kind", "family", "rows", "mixes"),
    [
        ("classification", "bert", TEXTS, False),
        ("classification", "word2vec", TEXTS, False),
        ("classification", "fasttext", TEXTS, False),
        ("pair", "ulmfit", PAIRS, False),
        ("similarity", "gpt", PAIRS, False),
        ("choice", "bert", CHOICES, False),
        ("tagging", "bert", WORDS, False),
        ("classification", "gpt", TEXTS, True),
        ("similarity", "gpt", PAIRS, True),
        ("tagging", "gpt", WORDS, True),
    ],
)
def test_features_equal_the_inputs_of_the_head(kind, family, rows, mixes, make_encoder, settings, tmp_path):
    """A mix of layers is trained on the fixed features of all of them."""
    encoder, task = load_encoder(make_encoder(family)), TASKS[kind]
    settings = settings.model_copy(update={"layers": "mix", "pooling": "mean"} if mixes else {})
    model = TaskModel(encoder.model, task=task, settings=settings, labels=["O", "B-x"]).eval()
    encoded = task.encode(rows, encoder.tokenizer, encoder.model, settings)
    in_memory, on_disk = (
        Predictor(model).read(encoded),
        cached(tmp_path, "key", lambda: Predictor(model).tables(encoded)),
    )
    assert torch.equal(matrix(in_memory), matrix(on_disk))
    assert str(in_memory) == str(on_disk)
    if mixes:
        assert matrix(in_memory).shape[1] == 3 * encoder.model.config.width, "embedding and two layers, concatenated"
        assert model.features.mix is not None
        with torch.no_grad():
            model.features.mix.scores.copy_(torch.tensor([0.3, -1.0, 2.0]))
            model.features.mix.gamma.fill_(1.7)
    read = read_by_head(model, on_disk)
    assert len(read) == len(rows)
    for index, row in enumerate(encoded):
        with torch.inference_mode():
            expected = model.vectors(collate([row]))
        actual = collate([read[index]])["features"]
        for single, wanted, units in zip(actual, expected, row.units * len(expected), strict=False):
            real = len(units) if kind == "tagging" else None
            torch.testing.assert_close(single[:real], wanted[:real], atol=1e-5, rtol=1e-5)
    # They can be inputs of training.
    torch.nn.Linear(matrix(on_disk).shape[1], 1)(matrix(on_disk)).sum().backward()


def table(value: float, size: int = 4) -> Callable[[], list[list[Encoded]]]:
    """Two parts of consecutive rows."""
    rows = list(map(Encoded.of_vectors, np.full((size, 1, 1), value, dtype=np.float32)))
    return lambda: [rows[:1], rows[1:]]


def refuse() -> list[list[Encoded]]:
    raise AssertionError("computed again")


def test_a_table_is_computed_once(tmp_path):
    with pytest.raises(AssertionError):
        cached(tmp_path, "a", refuse)
    assert not list(tmp_path.iterdir()), "a failed computation leaves no files"
    assert matrix(cached(tmp_path, "a", table(1.0))).tolist() == [[1.0]] * 4
    assert matrix(cached(tmp_path, "a", refuse)).tolist() == [[1.0]] * 4
    assert matrix(cached(tmp_path, "b", table(2.0)))[0].item() == 2.0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"], "nothing else is left behind"


@pytest.mark.parametrize(("file", "end"), [(MANIFEST, None), (VECTORS, None), (VECTORS, b"abcd")])
def test_a_damaged_table_is_computed_again(file, end, tmp_path):
    cached(tmp_path, "a", table(1.0))
    path = tmp_path / "a" / file
    path.write_bytes(path.read_bytes()[:-4] + end if end else b"")
    assert matrix(cached(tmp_path, "a", table(3.0)))[0].item() == 3.0
    assert matrix(cached(tmp_path, "a", refuse))[0].item() == 3.0


def test_one_of_several_processes_computes_a_table_and_the_others_wait(tmp_path):
    begun = threading.Event()

    def slow() -> list[list[Encoded]]:
        begun.set()
        time.sleep(0.3)
        return table(1.0)()

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(cached, tmp_path, "a", slow)
        begun.wait()
        assert matrix(cached(tmp_path, "a", refuse)).tolist() == matrix(first.result()).tolist() == [[1.0]] * 4


def test_a_table_that_another_process_finished_first_is_kept(tmp_path):
    def overtaken():
        cached(tmp_path / "elsewhere", "a", table(1.0))
        (tmp_path / "elsewhere" / "a").rename(tmp_path / "a")
        return table(2.0)()

    assert matrix(cached(tmp_path, "a", overtaken)).tolist() == [[1.0]] * 4
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "elsewhere"], "nothing else is left behind"


def test_an_unwritable_cache_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ArtifactError, match=r"file.*cannot be written"):
        cached(tmp_path / "file", "a", table(1.0))


def test_the_least_recently_used_table_is_removed_first(tmp_path):
    for age, key in enumerate(["new", "old", "used"]):
        cached(tmp_path, key, table(1.0, size=1000))
        os.utime(tmp_path / key / MANIFEST, (1000 - age, 1000 - age))
    cached(tmp_path, "used", refuse)
    size = sum(file.stat().st_size for file in (tmp_path / "old").iterdir())
    trim(tmp_path, gigabytes=2.5 * size / 1e9)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "used"]
    trim(tmp_path, gigabytes=0)
    assert not list(tmp_path.iterdir())
    trim(tmp_path / "nowhere", gigabytes=1)


@pytest.fixture
def job(make_things_job: Callable[..., FinetuneJob]) -> Callable[..., FinetuneJob]:
    """job(name, trained=True, **settings) -> a job; all share one folder of features."""
    return lambda name, **changes: make_things_job("ulmfit", name=name, **changes)


@pytest.fixture
def nothing_learned(settings: FinetuneSettings) -> Training:
    """With it no run improves on its initial weights."""
    return settings.training.model_copy(update={"rate": 1e-12})


def test_all_budgets_seeds_and_heads_share_one_encoding_of_the_texts(job, nothing_learned, in_process, extracted):
    finetune(job("first", training=nothing_learned))
    # The union of the samples of budgets 2 and 4 with seeds 0 and 1, not all 36 rows.
    assert extracted[0] == 18 and 12 <= extracted[1] < 24, "dev, and the rows that are learned from"
    assert extracted[2:] == [24], "test, once for all runs that end as they began"
    finetune(job("second", epochs=1, head_penalties=[3.0], head_dropout=0.5))
    finetune(job("third", method="features"))
    assert len(extracted) == 3, "how a head learns changes no feature"
    finetune(job("fourth", method="features", pooling="mean"))
    assert len(extracted) == 6, "another pooling is another table"


def test_rows_of_a_seed_and_a_budget_that_only_a_study_has_have_their_features(job):
    made = job("study")
    (training,) = fits_of(made, made.settings, [(3, 7)])
    rows, whole = training.rows().drawn, read_split(made.examples, "train")
    model, tokenizer = fit.build(training)
    expected = Predictor(model).read(model.encode(whole.take(rows).fields, tokenizer))
    assert matrix(training.features("train", rows)).equal(matrix(expected))


def test_random_encoders_share_no_features_between_seeds(job, nothing_learned, in_process, extracted):
    finetune(job("scratch", trained=False, training=nothing_learned))
    assert extracted[:4] == [18, 12, 18, 12], "dev, and the larger budget, which holds the smaller, of each seed"
    assert extracted[4:] == [24, 24], "test of each seed, for both budgets"


# Dropout of heads that are trained on features.


def test_a_head_is_trained_with_dropout():
    """A task model is built in evaluation mode; its head alone must not be trained in that mode."""
    head = ClassificationHead(4, 2, hidden=3).eval()
    modes = []
    head.dropout.register_forward_pre_hook(lambda module, inputs: modes.append(module.training))
    inputs = list(map(Encoded.of_vectors, torch.randn(6, 1, 4).numpy()))
    targets = [np.asarray([row % 2], dtype=np.float32) for row in range(6)]
    train_head(head, rows=HeadRows(inputs, targets), settings=Training(rate=0.1, batch_size=3), steps=2, seed=0)
    assert modes == [True, True]
