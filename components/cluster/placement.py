"""How many workers or runs there are at once, and which processors and GPUs each has: `plan_workers` for the workers of
one training, `plan_runs` for runs that do not communicate, several of which may share a GPU."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from components.core.errors import ConfigError

#: Memory of a GPU in bytes that is assumed if it is not known.
UNKNOWN_GPU: Final = 16 * 10**9
#: Part of a GPU's memory that runs may fill; the rest is for kernels and fragmentation.
FILLED: Final = 0.9
#: Maximum number of runs on a GPU. A GPU executes the kernels of several processes in turn, so that more runs help only
#: while the others compute on the CPU.
RUNS_PER_GPU: Final = 4
#: Memory of a run that shares its GPU with no other one.
WHOLE_GPU: Final = sys.maxsize
#: Variable with the GPUs that a process sees; and the environment of a process that computes on the CPU, also on a
#: machine with GPUs.
VISIBLE_GPUS: Final = "CUDA_VISIBLE_DEVICES"
HIDDEN_GPUS: Final = {VISIBLE_GPUS: ""}


@dataclass(frozen=True)
class Node:
    """A machine."""

    cpus: int
    gpus: int = 0
    gpu_bytes: int = UNKNOWN_GPU


@dataclass(frozen=True)
class WorkerPlan:
    """Workers of one training; `spread`: each is on a node of its own."""

    workers: int
    cpus: int
    gpu: bool
    spread: bool


@dataclass(frozen=True)
class RunPlan:
    """Runs that do not communicate. Each has one processor.

    Attributes:
        at_once: maximum number of runs at the same time, on all nodes.
        per_gpu: runs that share a GPU; 0: runs have no GPU.
    """

    at_once: int
    per_gpu: int = 0

    @property
    def gpus(self) -> float:
        """GPUs of each run: 1 / `per_gpu`, rounded down to the four decimals that Ray distinguishes."""
        return int(10_000 / self.per_gpu) / 10_000 if self.per_gpu else 0.0


def check_gpus(nodes: Sequence[Node], wanted: int | None) -> None:
    """Check that there are as many GPUs as `cluster.gpus` asks for (None: any number).

    Raises:
        ConfigError: there are fewer.
    """
    held = sum(node.gpus for node in nodes)
    if wanted is not None and held < wanted:
        raise ConfigError(
            f"cluster.gpus: {wanted}, but there are {held} GPUs on {len(nodes)} node(s); add GPUs, or set it to null "
            "to compute on what there is"
        )


def plan_workers(
    nodes: Sequence[Node], *, workers: int | Literal["auto"], rows: int, wanted: int | None = None, grows: bool = False
) -> WorkerPlan:
    """One worker per GPU; without GPUs one per node with all of its processors.

    Args:
        grows: the cluster may still become large enough for the number of workers.
        rows: of the global batch; `auto` uses the largest number of workers that divides it. 0: no restriction.
        wanted: `cluster.gpus`; `auto` uses at most so many.

    Raises:
        ConfigError: more workers than GPUs, or than processors if there is no GPU; or fewer GPUs than `wanted`.
    """
    check_gpus(nodes, wanted)
    gpus, cpus = sum(node.gpus for node in nodes), sum(node.cpus for node in nodes)
    owned = gpus or cpus
    most = wanted or gpus or len(nodes)
    divides = next((number for number in range(most, 1, -1) if rows % number == 0), min(most, 1))
    count = divides if workers == "auto" else workers
    if not (0 < count <= owned or (grows and workers != "auto")):
        raise ConfigError(
            f"cluster.workers: {count}, but the cluster has {gpus} GPUs and {cpus} processors "
            f"on {len(nodes)} node(s); choose at most {owned}"
        )
    if gpus:
        return WorkerPlan(count, max(1, _processors_per_gpu(nodes)), gpu=True, spread=False)
    a_node = -(-count // len(nodes))
    share = max(1, min(node.cpus for node in nodes) // a_node)
    return WorkerPlan(count, share, gpu=False, spread=a_node == 1 and count > 1)


def plan_runs(nodes: Sequence[Node], *, runs: int, gpu_bytes: int | None) -> RunPlan:
    """Plan the placement of runs that need `gpu_bytes` of a GPU (None: runs compute on the CPU): as many share a GPU as
    its memory and the node's processors allow. No GPU stays idle."""
    gpus = sum(node.gpus for node in nodes)
    if gpu_bytes is None or not gpus:
        return RunPlan(max(1, sum(node.cpus for node in nodes)))
    fit = min(int(FILLED * node.gpu_bytes) // max(1, gpu_bytes) for node in nodes if node.gpus)
    per_gpu = max(1, min(fit, _processors_per_gpu(nodes), runs // gpus, RUNS_PER_GPU))
    return RunPlan(max(1, sum(min(node.cpus, node.gpus * per_gpu) for node in nodes)), per_gpu)


def _processors_per_gpu(nodes: Sequence[Node]) -> int:
    return min(node.cpus // node.gpus for node in nodes if node.gpus)
