"""Execution of the cases on the simulated device, in the process of `process`."""

import json
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from components.cluster import launcher as cluster
from components.cluster.distributed import Worker, World
from components.data.tasks.examples import read_split
from components.learners.finetuning import runs
from components.learners.finetuning.fit import FinetuneJob, Fit, load_initial_encoder
from components.learners.finetuning.stage import fits_of
from components.learners.task_models.classifier import TextClassifier
from components.learners.task_models.model import TaskModel
from components.learners.task_models.probe import HeadCandidate
from components.models import FAMILIES
from components.models.encoder import build_model
from components.models.layers.host import move
from components.settings.cluster import ClusterSettings
from components.settings.finetune import FinetuneSettings
from components.settings.training import Training
from components.training import loop
from components.training.precision import computing
from components.training.pretraining import language_model
from components.training.pretraining.adapt import adapt
from components.training.pretraining.pretrain import pretrain
from tests import example_task
from tests.gpu_simulation.cases import READ_EVERY, WITHOUT_VECTORS, Case, finetuning, pretraining
from tests.gpu_simulation.device import RECORD, pretend_cuda, simulating
from tests.training import helpers

CUDA = torch.device("cuda", 0)
GROUPS = {"pretraining": pretraining, "finetuning": finetuning}
#: Losses, and the events of each step, of all calls of `train` in a case.
LOSSES: list[float | None] = []
STEPS: list[list[str]] = []
#: Types of hidden states on the CPU and on the device, of families that read pieces.
TYPES: list[list[str]] = []
#: Answers on the device and on the CPU, of cases with answers.
ANSWERS: list[list[list[float]]] = []


def observed(train: Callable[..., Iterator[loop.StepReport]]) -> Callable[..., Iterator[loop.StepReport]]:
    """`train`, with the events of each step noted."""

    def observe(*arguments: Any, **options: Any) -> Iterator[loop.StepReport]:
        reports = train(*arguments, **options)
        while True:
            before = len(RECORD.events)
            report = next(reports, None)
            if report is None:
                return
            STEPS.append([f"{single.kind} {single.operator} {single.place}" for single in RECORD.events[before:]])
            LOSSES.append(report.loss)
            yield report

    return observe


def launch(function: Any, job: Any, *, settings: Any, rows: int = 0, progress: Any = lambda numbers: None) -> None:
    """`cluster.launch` with one worker on the simulated device."""
    with simulating():
        function(job, Worker(World(device=CUDA), progress))


def types_of_states(case: Case) -> list[list[str]]:
    """The types of all hidden states under autocast in bf16, on the CPU and on the device. Its operators are not
    recorded: the texts are padded."""
    actual, operators = [], RECORD.operators.copy()
    tokens, lengths = torch.tensor([[7, 8, 9, 6], [8, 9, 0, 0]]), torch.tensor([4, 2])
    for device in (torch.device("cpu"), CUDA):
        with simulating(), computing("bf16", device):
            model = build_model(case.family, vocabulary=20, settings={**FAMILIES[case.family].tiny, **case.model})
            states = model.to(device).eval().hidden_states(move(tokens, device), move(lengths, device))
            actual.append([str(state.dtype) for state in states])
    RECORD.operators.clear()
    RECORD.operators.update(operators)
    return actual


def pretrain_and_adapt(case: Case, inputs: Path, folder: Path) -> None:
    """Pretrain the family's test model in bf16, and adapt it in float32 to a corpus with another vocabulary."""
    vectors = case.family not in WITHOUT_VECTORS
    model = {**FAMILIES[case.family].tiny, **case.model}
    training = helpers.lm_settings(precision="bf16", vectors=vectors)
    pretrained = pretrain(helpers.pretrain_job(inputs, case.family, folder, model=model, training=training))
    training = helpers.lm_settings(precision="float32", vectors=vectors)
    adapt(helpers.adapt_job(inputs, case.family, pretrained, folder, training=training))
    if FAMILIES[case.family].objective in ("masked", "permuted", "causal") and case.family not in ("elmo", "flair"):
        TYPES.extend(types_of_states(case))


def finetune(case: Case, examples: Path, encoder: Path, folder: Path) -> None:
    """Execute the run of one label budget and seed."""
    training = Training(rate=0.01, batch_size=4, precision=case.precision, schedule="slanted_triangular")
    small = {
        "epochs": 1, "evaluations": 1, "head_steps": 2, "head_penalties": [10.0], "max_length": 24, "pooling": "mean",
        "layers": "last", **({} if case.settings.get("method") == "features" else {"unfreeze_epochs": 0}),
    }  # fmt: skip
    job = FinetuneJob(
        task="things",
        family=case.family,
        start="adapted",
        examples=examples,
        encoder=encoder,
        output=folder / "out",
        settings=FinetuneSettings(training=training, **{**small, **case.settings}),
        cluster=ClusterSettings(launcher="local", storage=str(folder / "store")),
    )
    (fit,) = fits_of(job, job.settings)
    with simulating():
        runs.execute((replace(fit, head=HeadCandidate(None, 10.0)),))
    if case.answers:
        ANSWERS.append(answers(fit, CUDA))
        ANSWERS.append(answers(fit, torch.device("cpu")))


def answers(fit: Fit, device: torch.device) -> list[list[float]]:
    """The answers of the model before training to the test rows, on a device."""
    encoder, tokenizer = load_initial_encoder(fit)
    torch.manual_seed(0)
    model = TaskModel(encoder, task=fit.task, settings=fit.settings, labels=fit.facts.labels).eval()
    classifier = TextClassifier(model, tokenizer)
    rows = read_split(fit.job.examples, "test").fields
    if device.type == "cpu":
        return [answer.tolist() for answer in classifier.answer(rows)]
    with simulating():
        return [answer.tolist() for answer in classifier.on(device).answer(rows)]


def made(fixture: Any, root: Path) -> Callable[..., Path]:
    """The function that a fixture of `tests.example_task` gives."""
    function: Callable[..., Path] = fixture.__wrapped__(root)
    return function


def results(group: str, chosen: Sequence[str], root: Path) -> dict[str, Any]:
    """Name of a case -> its results, for the chosen cases of a group, `pretraining` or `finetuning`; all if none is
    chosen."""
    cases = [case for case in GROUPS[group]() if not chosen or case.name in chosen]
    if group == "pretraining":
        inputs = helpers.make_inputs(root / "inputs")
        runs_of = [partial(pretrain_and_adapt, case, inputs) for case in cases]
    else:
        make_encoder, make_task = made(example_task.make_encoder, root), made(example_task.make_task, root)
        encoders = {family: make_encoder(family) for family in dict.fromkeys(case.family for case in cases)}
        tasks = {kind: make_task(kind) for kind in dict.fromkeys(case.kind for case in cases)}
        runs_of = [partial(finetune, case, tasks[case.kind], encoders[case.family]) for case in cases]
    return {case.name: outcome(run, root / case.name) for case, run in zip(cases, runs_of, strict=True)}


def outcome(run: Callable[[Path], None], folder: Path) -> dict[str, Any]:
    """What a case did."""
    LOSSES.clear()
    STEPS.clear()
    ANSWERS.clear()
    TYPES.clear()
    RECORD.events.clear()
    RECORD.operators.clear()
    error = None
    folder.mkdir()
    try:
        run(folder)
    except Exception:
        error = traceback.format_exc(limit=-8)
    return {
        "error": error,
        "losses": LOSSES[:],
        "steps": STEPS[:],
        "operators": dict(RECORD.operators),
        "answers": ANSWERS[:],
        "types": TYPES[:],
    }


class OnSimulatedCard:
    """A plugin of pytest: every test runs on the simulated card."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Iterator[None]:
        with simulating():
            return (yield)


def run_tests(arguments: list[str]) -> int:
    """Run pytest on the simulated card; returns its exit status."""
    pretend_cuda()
    torch.set_num_threads(1)
    return pytest.main(["-q", "-p", "no:cacheprovider", *arguments], plugins=[OnSimulatedCard()])


def write_results(group: str, chosen: Sequence[str], output: Path) -> None:
    """Execute cases and write their results as JSON."""
    pretend_cuda()
    torch.set_num_threads(1)
    loop.READ_EVERY = READ_EVERY
    # Measurements on held-out text are of one or two batches.
    language_model.CURVE_PIECES = 64
    language_model.CURVE_POINTS = 1
    cluster.launch = launch
    language_model.train = observed(loop.train)
    runs.train = observed(loop.train)
    with tempfile.TemporaryDirectory() as root:
        output.write_text(json.dumps(results(group, chosen, Path(root))), encoding="utf-8")
