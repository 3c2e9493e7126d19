"""The training loop, and the learning-rate schedules: the rate as a fraction of its peak, a function of the step.

The loop yields after every step; the caller evaluates, saves checkpoints and logs. Arguments of a schedule: `step`,
counted from 0; `total` number of steps; `warmup`, a fraction of them; `final` rate, a fraction of the peak.
"""

from __future__ import annotations

import math
import os
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, Protocol, cast

import torch
from torch import Tensor, nn

from components.cluster.distributed import World
from components.core.errors import TrainingError
from components.models.base import Batch, Carry, LanguageModel, Losses
from components.models.layers.host import to_device
from components.settings.training import LanguageModelTraining, Training
from components.training.optim import ParameterGroup, WeightAverage, average_of, make_optimizer
from components.training.precision import Precision, computing
from components.training.rng import counter_seed
from components.training.windows import Sampler

#: Highest rate of the slanted triangular schedule divided by the lowest (Howard and Ruder 2018, section 3.2).
SLANT_RATIO = 32


def constant(step: int, total: int, *, warmup: float, final: float) -> float:
    """Linear warm-up, then the peak rate. `final` has no effect."""
    return _warming(step, total, warmup) or 1.0


def linear(step: int, total: int, *, warmup: float, final: float) -> float:
    """Linear warm-up, then linear decay to `final`."""
    return _warming(step, total, warmup) or 1 - (1 - final) * _after_warmup(step, total, warmup)


def cosine(step: int, total: int, *, warmup: float, final: float) -> float:
    """Linear warm-up, then cosine decay to `final` (Loshchilov and Hutter 2017, without restarts)."""
    share = _after_warmup(step, total, warmup)
    return _warming(step, total, warmup) or final + (1 - final) * (1 + math.cos(math.pi * share)) / 2


def slanted_triangular(step: int, total: int, *, warmup: float, final: float) -> float:
    """ULMFiT's schedule (Howard and Ruder 2018, section 3.2, equation 3), with cut_frac = `warmup`.

    cut = floor(T * cut_frac); p = t / cut if t < cut, else 1 - (t - cut) / (cut * (1 / cut_frac - 1)); rate = (1 + p *
    (ratio - 1)) / ratio with ratio 32. `final` has no effect. The paper's p may be negative in the last steps; here it
    is at least 0."""
    cut = max(1, math.floor(total * warmup))
    # With a warm-up of 0 or 1 the formula for the fall would divide by zero.
    falls = cut * (1 / warmup - 1) if 0 < warmup < 1 else total
    p = step / cut if step < cut else 1 - (step - cut) / falls
    return (1 + max(0.0, p) * (SLANT_RATIO - 1)) / SLANT_RATIO


def _warming(step: int, total: int, warmup: float) -> float | None:
    """The rate during warm-up, above 0 in the first step; None afterwards."""
    steps = math.floor(total * warmup)
    return (step + 1) / steps if step < steps else None


def _after_warmup(step: int, total: int, warmup: float) -> float:
    """Fraction of the steps after warm-up: 0 at the peak, 1 in the last step."""
    steps = math.floor(total * warmup)
    return min(1.0, max(0.0, (step - steps) / max(1, total - 1 - steps)))


Schedule = Callable[..., float]

SCHEDULES: dict[str, Schedule] = {
    "constant": constant,
    "linear": linear,
    "cosine": cosine,
    "slanted_triangular": slanted_triangular,
}


#: Steps between two reads of the loss on a GPU, where a read waits for all queued kernels.
READ_EVERY = 20
#: Warm-up, as a fraction of all steps: cut_frac of the slanted triangular schedule (section 3.2).
WARMUP: Final = 0.1
#: Learning rate of the last step, as a fraction of the peak.
FINAL_RATE: Final = 0.05
#: Least number of steps, or seconds of a budget in seconds, of a compiled run.
LEAST_STEPS: Final = 500
LEAST_SECONDS: Final = 300.0


class Trainable(Protocol):
    def losses(self, batch: Batch, carry: Carry = ()) -> Losses: ...


@dataclass
class StepReport:
    """Result of a step; `gradient_norm` (L2, all gradients, before clipping) is None where it is not read."""

    step: int
    loss: float | None
    rate: float
    gradient_norm: float | None
    tokens: int


@dataclass
class TrainingState:
    """Everything, apart from counters, that a step depends on; a checkpoint contains all of it."""

    model: nn.Module
    groups: Sequence[ParameterGroup]
    optimizer: torch.optim.Optimizer
    average: WeightAverage | None
    precision: Precision
    step: int = 0
    carry: Carry = ()

    @classmethod
    def fresh(
        cls, model: nn.Module, groups: Sequence[ParameterGroup], *, settings: Training, precision: Precision = "float32"
    ) -> TrainingState:
        """The state before the first step. Parameters outside of all groups are frozen."""
        learning = [parameter for group in groups for parameter in group.parameters]
        present = {id(parameter) for parameter in learning}
        for parameter in model.parameters():
            parameter.requires_grad_(id(parameter) in present)
        optimizer = make_optimizer(groups, settings=settings)
        return cls(model, groups, optimizer, average_of(learning, settings=settings), precision)

    def tensors(self, world: World) -> dict[str, Tensor]:
        """The state as named tensors on the CPU. Every worker must call it, because the carry of all is gathered."""
        held = {f"model.{name}": tensor for name, tensor in _named(self.model).items()}
        for index, values in self.optimizer.state_dict()["state"].items():
            held |= {f"optimizer.{index}.{key}": value for key, value in values.items() if value is not None}
        if self.average is not None:
            held |= {f"average.{index}": tensor for index, tensor in enumerate(self.average.tensors)}
        held |= {f"carry.{index}": world.gather_rows(tensor) for index, tensor in enumerate(self.carry)}
        return {name: tensor.detach().cpu().contiguous() for name, tensor in held.items()}

    def numbers(self) -> dict[str, int | str | None]:
        """The part of the state that does not consist of tensors."""
        average = self.average
        return {
            "step": self.step,
            "precision": self.precision,
            "averaged": average.count if average else 0,
            "average_begins": average.begins if average else None,
        }

    @torch.no_grad()
    def restore(self, tensors: dict[str, Tensor], numbers: dict[str, int | str | None], *, world: World) -> None:
        """Set the state to stored `tensors` and `numbers`, bit-identically.

        Raises:
            TrainingError: the tensors do not fit the model.
        """
        named = _named(self.model)
        stored = {name.removeprefix("model."): tensor for name, tensor in tensors.items() if name.startswith("model.")}
        if stored.keys() != named.keys() or any(stored[name].shape != named[name].shape for name in named):
            raise TrainingError("the checkpoint belongs to another model; remove it to restart training")
        for name, tensor in named.items():
            tensor.copy_(stored[name])
        optimizer: dict[int, dict[str, Tensor]] = {}
        for name, tensor in tensors.items():
            if name.startswith("optimizer."):
                _, position, key = name.split(".")
                optimizer.setdefault(int(position), {})[key] = tensor
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": optimizer, "param_groups": groups})
        if self.average is not None:
            for index, tensor in enumerate(self.average.tensors):
                tensor.copy_(tensors[f"average.{index}"])
            self.average.count = int(numbers["averaged"] or 0)
            begins = numbers["average_begins"]
            self.average.begins = None if begins is None else int(begins)
        carry = [tensors[f"carry.{index}"] for index in range(sum(name.startswith("carry.") for name in tensors))]
        self.carry = tuple(world.own_rows(tensor).to(world.device) for tensor in carry)
        self.step = int(numbers["step"] or 0)
        self.precision = "bf16" if numbers["precision"] == "bf16" else "float32"


def train(
    state: TrainingState,
    sampler: Sampler,
    *,
    settings: Training,
    total_steps: int,
    seed: int,
    world: World | None = None,
    compiled: bool = False,
    in_stages: bool = False,
) -> Iterator[StepReport]:
    """Take the steps from `state.step` to `total_steps`; each item of the iterator is one step.

    A step is a function of the state and of counters: the batch depends on (seed, step), dropout on (seed, step, rank).
    So training that resumes from a stored state is bit-identical to uninterrupted training.

    Args:
        state: changed in place. Between two steps the caller may store it, evaluate the model or stop.
        total_steps: also the length of the learning-rate schedule.
        compiled: whether the loss is compiled (`is_compiled`).
        in_stages: whether the schedule starts anew whenever the trained groups change (`stages_of`).

    Raises:
        TrainingError: the loss or the gradient is no longer finite.
    """
    world = world or World()
    device, model = world.device, state.model
    losses_of = cast(Trainable, model).losses
    if compiled:
        losses_of = torch.compile(losses_of)
    be_deterministic(device)
    refuse_tf32(device)
    read_every = 1 if device.type == "cpu" else READ_EVERY
    starts = stages_of(state.groups, total_steps) if in_stages else [0]
    for step, batch in _batches(sampler, state.step, total_steps, world):
        if not model.training:
            model.train()
        begins, ends = stage_at(step, starts, total_steps)
        share = SCHEDULES[settings.schedule](step - begins, ends - begins, warmup=WARMUP, final=FINAL_RATE)
        rate = settings.rate * share * sampler.rate_scale(step)
        for options, group in zip(state.optimizer.param_groups, state.groups, strict=True):
            options["lr"] = rate * group.scale
            for parameter in group.parameters:
                parameter.requires_grad_(group.learns(step))
        _reseed(counter_seed(seed, "dropout", step, world.rank), device)
        with computing(state.precision, device):
            losses = losses_of(batch, state.carry)
        state.optimizer.zero_grad(set_to_none=True)
        # With chain-thaw the loss may depend on frozen layers only; the step then changes no weights.
        if losses.loss.requires_grad:
            losses.loss.backward()
        state.carry = losses.carry
        loss = losses.loss.detach()
        world.average_gradients(list(model.parameters()), loss)
        is_read = (step + 1) % read_every == 0 or step + 1 == total_steps
        value, norm = _update(state, loss, clip=settings.clip, is_read=is_read, rate=rate) or (None, None)
        yield StepReport(step=state.step, loss=value, rate=rate, gradient_norm=norm, tokens=sampler.tokens(step))


def stages_of(groups: Sequence[ParameterGroup], total: int) -> list[int]:
    """The steps below `total` at which training of some group begins, ascending; the first is 0."""
    return sorted({0} | {first for group in groups for first, _ in group.spans if first < total})


def stage_at(step: int, starts: Sequence[int], total: int) -> tuple[int, int]:
    """First step of the stage of a step, and the step after its last one; `starts` as from `stages_of`."""
    number = bisect_right(starts, step)
    return starts[number - 1], starts[number] if number < len(starts) else total


def _update(
    state: TrainingState, loss: Tensor, *, clip: float, is_read: bool, rate: float
) -> tuple[float, float] | None:
    """Change the weights by the clipped gradients; returns the loss and their norm if they are read."""
    trained = [parameter for group in state.groups for parameter in group.parameters if parameter.grad is not None]
    gradients = [_values(cast(Tensor, parameter.grad)) for parameter in trained]
    norm = torch.nn.utils.get_total_norm(gradients)
    read = _read(loss, norm) if is_read else None
    if read:
        _check_finite(*read, step=state.step, rate=rate)
    # If the norm has been read and is below the limit, clipping would not change the gradients.
    if gradients and clip > 0 and not (read and read[1] <= clip):
        _clip(trained, clip, norm)
    state.optimizer.step()
    state.step += 1
    if state.average is not None:
        state.average.update(state.step)
    return (float(read[0]), float(read[1])) if read else None


def _read(loss: Tensor, norm: Tensor) -> tuple[Tensor, Tensor]:
    """Loss and gradient norm on the CPU, in one copy: each copy waits for all queued kernels."""
    if loss.device.type == "cpu":
        return loss, norm
    values = torch.stack([loss.float(), norm.float().to(loss.device)]).cpu()
    return values[0], values[1]


def _values(gradient: Tensor) -> Tensor:
    return gradient.values() if gradient.is_sparse else gradient


def _clip(trained: Sequence[nn.Parameter], limit: float, norm: Tensor) -> None:
    dense = [parameter for parameter in trained if not cast(Tensor, parameter.grad).is_sparse]
    torch.nn.utils.clip_grads_with_norm_(dense, limit, norm)
    for parameter in trained:
        if (gradient := cast(Tensor, parameter.grad)).is_sparse:
            # The factor of `clip_grads_with_norm_`.
            gradient.values().mul_((limit / (norm + 1e-6)).clamp(max=1.0))


def _batches(sampler: Sampler, step: int, total_steps: int, world: World) -> Iterator[tuple[int, Batch]]:
    """The batches of the remaining steps, on the device. On a GPU the next batch is made while one is computed."""
    if world.device.type == "cpu":
        # A second thread would compete with the computing threads.
        for now in range(step, total_steps):
            yield now, sampler.batch(now, world.rank, world.size)
        return

    def make(now: int) -> Batch:
        batch = sampler.batch(now, world.rank, world.size)
        return {name: tensor.pin_memory() for name, tensor in batch.items()}

    with ThreadPoolExecutor(max_workers=1) as pool:
        ahead: Future[Batch] | None = pool.submit(make, step) if step < total_steps else None
        for now in range(step, total_steps):
            assert ahead is not None
            batch = ahead.result()
            ahead = pool.submit(make, now + 1) if now + 1 < total_steps else None
            yield now, to_device(batch, world.device)


def _reseed(seed: int, device: torch.device) -> None:
    """`torch.manual_seed` for one device, without queueing a call for devices that are not initialised."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)


def _check_finite(loss: Tensor, norm: Tensor, *, step: int, rate: float) -> None:
    for name, value in (("loss", float(loss)), ("gradient norm", float(norm))):
        if not math.isfinite(value):
            raise TrainingError(
                f"the {name} became {value} at step {step + 1} (learning rate {rate:.3g}); "
                "lower training.rate or training.clip, or set training.precision: float32"
            )


def _named(model: nn.Module) -> dict[str, Tensor]:
    return dict(model.named_parameters()) | dict(model.named_buffers())


def refuse_tf32(device: torch.device) -> None:
    """Switch TF32 off for matrix products and for cuDNN, which have different defaults in torch."""
    if device.type == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False


def be_deterministic(device: torch.device) -> None:
    """Use deterministic algorithms. On a GPU, operators without one raise an error: with warnings instead, torch would
    also use the non-deterministic backward pass of fused attention."""
    if device.type == "cuda":
        # torch requires this setting of cuBLAS's work space; it must be set before the first matrix product.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=device.type == "cpu")
    # Filling would only help to detect reads of uninitialised memory, and costs a pass over every new tensor.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]


def is_compiled(
    model: nn.Module, sampler: Sampler, *, settings: LanguageModelTraining, steps: int | None, device: torch.device
) -> bool:
    """Whether a run is compiled (torch.compile), which fuses the operators between matrix products.

    Compilation takes about as long as some hundred steps, and is repeated for batches of other shapes and for other
    sets of trained parameters. So only long runs with constant shapes on a GPU are compiled: pretraining and adaptation
    of Transformers. A recurrent layer is not: torch would replace cuDNN's kernel by one operator per step. The decision
    depends on settings alone, because compiled and uncompiled steps differ in the last bits.

    Args:
        steps: of the budget; None for a budget in seconds.
    """
    if device.type != "cuda" or not isinstance(model, LanguageModel) or not model.compiles:
        return False
    long = (settings.seconds or 0) >= LEAST_SECONDS if steps is None else steps >= LEAST_STEPS
    return long and sampler.has_constant_shapes
