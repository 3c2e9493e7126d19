"""Compilation: which runs are compiled (on a GPU), and for how many graphs (counted on the CPU)."""

from itertools import chain, repeat
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from components.cluster.distributed import World
from components.models import FAMILIES
from components.models.base import LanguageModel
from components.models.encoder import build_model
from components.settings.training import LanguageModelTraining
from components.training.loop import LEAST_SECONDS, LEAST_STEPS, StepReport, is_compiled
from components.training.pretraining import language_model
from components.training.pretraining.samplers import WindowSampler, sampler_for
from tests.training.helpers import lm_settings, numbered_store, tiny_model

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def model_and_sampler(family: str, *, jitter: float = 0) -> tuple[LanguageModel, WindowSampler]:
    torch.manual_seed(0)
    model = build_model(family, vocabulary=500, settings=dict(FAMILIES[family].tiny))
    sampler = sampler_for(
        family,
        numbered_store(),
        config=model.config,
        pieces=[f"w{number}" for number in range(500)],
        batch_size=4,
        window=16,
        seed=0,
        jitter=jitter,
    )
    return model, sampler


def decided(family: str, *, steps: int | None, device: torch.device = CUDA, jitter: float = 0, **budget: Any) -> bool:
    model, sampler = model_and_sampler(family, jitter=jitter)
    settings = lm_settings(**budget) if budget else lm_settings()
    return is_compiled(model, sampler, settings=settings, steps=steps, device=device)


def test_long_runs_of_transformers_with_constant_shapes_are_compiled_on_a_gpu():
    for family in ("albert", "bert", "gpt", "roberta", "xlnet"):
        # Their samplers ignore the jitter of windows, which the settings have by default.
        assert decided(family, steps=LEAST_STEPS, jitter=5), family
    assert not decided("bert", steps=LEAST_STEPS, device=CPU)
    assert not decided("bert", steps=LEAST_STEPS - 1)
    # cuDNN computes recurrent layers; the windows of a stream vary in length.
    for family in ("ulmfit", "elmo", "flair", "word2vec", "transformer-xl"):
        assert not decided(family, steps=LEAST_STEPS, jitter=5), family


@pytest.mark.slow
@pytest.mark.parametrize("family", ["bert", "gpt", "xlnet"])
def test_a_run_is_compiled_for_few_graphs(family):
    """Memory grows during the first windows; after that no step is compiled again."""
    import torch._dynamo as dynamo

    dynamo.reset()
    graphs: list[int] = []

    def counting(graph, inputs):
        graphs.append(step)
        return graph.forward

    model, sampler = model_and_sampler(family)
    # Masks of dropout are made in another way on the CPU.
    model.set_dropout(0.0)
    losses_of = torch.compile(model.train().losses, backend=counting)
    carry: tuple[torch.Tensor, ...] = ()
    with dynamo.config.patch(recompile_limit=4, fail_on_recompile_limit_hit=True):
        for step in range(6):
            losses = losses_of(sampler.batch(step), carry)
            losses.loss.backward()
            carry = losses.carry
    assert graphs and max(graphs) <= 2, graphs


def test_a_budget_in_seconds_begins_after_the_warm_up(monkeypatch):
    """Three steps of 20 seconds, which compile, and then 0.1 seconds each: 60 seconds are 600 steps."""
    clock = 0.0

    def train(*arguments, total_steps, **options):
        nonlocal clock
        for step, seconds in zip(range(total_steps), chain([20.0] * 3, repeat(0.1)), strict=False):
            clock += seconds
            yield StepReport(step + 1, 1.0, 0.1, 1.0, 32)

    monkeypatch.setattr(language_model, "train", train)
    monkeypatch.setattr(language_model, "time", SimpleNamespace(perf_counter=lambda: clock))
    monkeypatch.setattr(language_model, "initial_model", lambda run: tiny_model())
    monkeypatch.setattr(language_model, "_fresh_state", lambda *arguments: None)
    settings: LanguageModelTraining = lm_settings(tokens=None, seconds=60.0)
    run = language_model.LanguageModelRun.model_construct(training=settings, seed=0)
    assert language_model._steps_in_time(run, None, "float32", World()) == 600


def test_budgets_in_seconds_are_decided_by_the_budget():
    assert decided("bert", steps=None, tokens=None, seconds=LEAST_SECONDS)
    assert not decided("bert", steps=None, tokens=None, seconds=LEAST_SECONDS - 1)
