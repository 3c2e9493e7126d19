"""Training and prediction on a simulated GPU: devices are not mixed, the host rarely waits, kernels are deterministic.

What a simulation cannot show, `benchmarks/gpu.py` measures on a card.
"""

import math
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gpu_simulation.cases import READ_EVERY, finetuning, pretraining
from tests.gpu_simulation.conftest import LIMIT

# The first test of a group waits for its process.
pytestmark = pytest.mark.timeout(900)

#: Events of READ_EVERY steps of pretraining, and of a step of fine-tuning.
PRETRAINING_EVENTS, FINETUNING_EVENTS = 2, 2
#: Events of a step with a table of sparse gradients: the numbers of rows that were read, and of new ones.
SPARSE_EVENTS = 2

#: Operators that raise an error with deterministic algorithms, as torch documents them.
RAISING = {
    "_adaptive_avg_pool2d_backward", "_adaptive_avg_pool3d_backward", "_ctc_loss_backward", "_cudnn_ctc_loss",
    "adaptive_max_pool2d_backward", "avg_pool3d_backward", "bincount with weights", "cumsum of floats",
    "embedding_bag with max", "fractional_max_pool2d_backward", "fractional_max_pool3d_backward",
    "grid_sampler_2d_backward", "grid_sampler_3d_backward", "histc", "max_unpool2d", "max_unpool3d", "median.dim",
    # Only the two-dimensional loss does: aten/src/ATen/native/cuda/NLLLoss2d.cu.
    "nll_loss2d_backward", "nll_loss2d_forward", "put_", "reflection_pad1d_backward", "reflection_pad2d_backward",
    "reflection_pad3d_backward", "resize_ quantized", "scatter_reduce with prod", "upsample_bicubic2d_backward",
    "upsample_bilinear2d_backward", "upsample_linear1d_backward", "upsample_trilinear3d_backward",
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("case", pretraining(), ids=lambda case: case.name)
def test_pretraining_waits_twice_per_logging_interval(case, outcomes):
    outcome = outcomes("pretraining")[case.name]
    assert outcome["error"] is None, outcome["error"]
    # Pretraining and adaptation of six steps each.
    assert len(outcome["steps"]) == 12
    read = [loss for loss in outcome["losses"] if loss is not None]
    assert len(read) == 12 // READ_EVERY and all(map(math.isfinite, read))
    limit = PRETRAINING_EVENTS + (SPARSE_EVENTS * READ_EVERY if case.model.get("sparse") else 0)
    for first in range(0, 12, READ_EVERY):
        events = [event for step in outcome["steps"][first : first + READ_EVERY] for event in step]
        assert len(events) <= limit, events


@pytest.mark.slow
@pytest.mark.parametrize("case", finetuning(), ids=lambda case: case.name)
def test_finetuning_waits_twice_per_step(case, outcomes):
    outcome = outcomes("finetuning")[case.name]
    assert outcome["error"] is None, outcome["error"]
    for events in outcome["steps"]:
        assert len(events) <= FINETUNING_EVENTS, events


def test_hidden_states_have_the_types_of_the_cpu(outcomes):
    """Autocast has other rules on CUDA, by which layer norm would return float32."""
    compared = {name: outcome["types"] for name, outcome in outcomes("pretraining").items() if outcome["types"]}
    assert {"bert", "gpt", "xlnet", "transformer-xl", "ulmfit"} <= compared.keys()
    for name, (on_cpu, on_card) in compared.items():
        assert on_card == on_cpu, name


@pytest.mark.parametrize("group", ["pretraining", pytest.param("finetuning", marks=pytest.mark.slow)])
def test_no_operator_raises_with_deterministic_algorithms(group, outcomes):
    for case, outcome in outcomes(group).items():
        used = {name for full in outcome["operators"] for name in (full, full.partition(".")[0])}
        assert used & RAISING == set(), case


@pytest.mark.parametrize(("case", "dtype"), [("ulmfit", "bfloat16"), ("flair", "bfloat16"), ("cove", "bfloat16")])
def test_lstms_use_cudnn_in_the_type_of_training(case, dtype, outcomes):
    operators = outcomes("pretraining")[case]["operators"]
    assert operators[f"cudnn_lstm.{dtype}"] > 0 and operators["cudnn_lstm.float32"] > 0
    # Inside autocast torch would compute in float16.
    assert operators["cudnn_lstm.autocast"] == 0 and "cudnn_lstm.float16" not in operators


@pytest.mark.parametrize("family", ["bert", "roberta", "albert"])
def test_attention_without_padding_has_no_mask(family, outcomes):
    """Flash attention supports no mask."""
    pretrained = outcomes("pretraining")[family]["operators"]
    assert pretrained["attention.bfloat16.none"] > 0
    masks = {name.rpartition(".")[2] for name in pretrained if name.startswith("attention.")}
    assert masks == {"none"}


@pytest.mark.slow
def test_whole_runs_pass_on_a_card(guard):
    """Cross-validation, several tasks and words beside an encoder share one encoder between runs. In the first
    comparison with a card, every one of them failed: the second run found the encoder there and its inputs here."""
    root = Path(__file__).parents[2]
    learned = "(learns_within and (classification or tagging) and (features or finetune or contrastive))"
    selected = f"{learned} or every_task_gets or (last_bit and classification and budget)"
    files = [f"tests/finetuning/test_{name}.py" for name in ("learners", "together", "words")]
    command = [sys.executable, str(Path(__file__).with_name("process.py")), str(guard), "pytest", *files]
    ran = subprocess.run([*command, "-k", selected], cwd=root, capture_output=True, text=True, timeout=LIMIT)
    assert ran.returncode == 0, ran.stdout[-4000:]


@pytest.mark.slow
def test_answers_on_a_card_are_those_of_the_cpu(outcomes):
    compared = {name: outcome for name, outcome in outcomes("finetuning").items() if outcome["answers"]}
    assert len(compared) == 3
    for name, outcome in compared.items():
        on_card, on_cpu = outcome["answers"]
        assert len(on_card) == len(on_cpu) > 0
        for actual, expected in zip(on_card, on_cpu, strict=True):
            assert actual == pytest.approx(expected, abs=1e-5), name
