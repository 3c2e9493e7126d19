"""Steps that measure: throughput beside transformers, a profile, attention kernels, LSTM kernels."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.profiler import ProfilerActivity
from torch.profiler import profile as profiler

from benchmarks import training
from components.models.layers.lstm import LSTM
from components.training.loop import refuse_tf32

#: Workloads that are compiled, as long trainings are.
COMPILED = ("bert", "gpt")
#: Turns of each side, and steps per turn.
TURNS, STEPS = 3, 4
#: Operators in the profile.
TOP = 15


def throughput(workload: str, size: str, device: torch.device) -> dict[str, Any]:
    """Tokens per second, model FLOPs utilisation and ratio to transformers; on the CPU of a small model in float32."""
    if device.type == "cpu":
        size = "small"
    torch.manual_seed(0)
    pair = training.PAIRS[workload][0](size, device)
    compiled = device.type == "cuda" and workload in COMPILED
    seconds = {}
    for name, step in training.steps_of(pair, device, compiled=compiled).items():
        # With deterministic algorithms as in training, which the peer does not use.
        torch.use_deterministic_algorithms(name == "headstart", warn_only=device.type == "cpu")
        seconds[name] = _timed(step, device)
    torch.use_deterministic_algorithms(False)
    # Without a card only the step itself is tried; many processors compute bf16 slowly.
    peak = training.peak(device, torch.float32 if device.type == "cpu" else torch.bfloat16)
    result = {
        "ok": True,
        "compiled": compiled,
        "peak_tflops": round(peak / 1e12, 1),
        "headstart": pair.tokens / seconds["headstart"],
        "utilisation": 3 * pair.flops / seconds["headstart"] / peak,
    }
    if "peer" in seconds:
        result |= {"peer": pair.tokens / seconds["peer"], "ratio": seconds["peer"] / seconds["headstart"]}
    return result


def _timed(step: Callable[[], object], device: torch.device) -> float:
    """Median seconds of a step over some turns, after a warm-up."""
    turns, steps = (1, 1) if device.type == "cpu" else (TURNS, STEPS)
    times = []
    for turn in range(turns + 1):
        training.synchronise(device)
        began = time.perf_counter()
        for _ in range(steps):
            step()
        training.synchronise(device)
        if turn:
            times.append((time.perf_counter() - began) / steps)
    return statistics.median(times)


def profile(device: torch.device) -> dict[str, Any]:
    """The operators of a BERT-base step, 32 x 512, that take most of the device's time: milliseconds and share."""
    pair = training.bert("small" if device.type == "cpu" else "32x512", device)
    optimizer = torch.optim.AdamW(pair.own.train().parameters(), lr=1e-4, fused=True)

    def step() -> None:
        training.step(pair.own_loss, pair.own, optimizer, torch.autocast(device.type, torch.bfloat16))

    step()
    rows = _profiled(step, device)
    total = sum(milliseconds for _, milliseconds in rows)
    top = [{"name": name, "ms": round(ms, 3), "share": round(ms / total, 4)} for name, ms in rows[:TOP]]
    return {"ok": bool(top), "total_ms": round(total, 2), "operators": top}


def _profiled(step: Callable[[], object], device: torch.device) -> list[tuple[str, float]]:
    """Name and milliseconds of the kernels of a step, on the CPU of its operators; the longest first."""
    activity = ProfilerActivity.CUDA if device.type == "cuda" else ProfilerActivity.CPU
    with profiler(activities=[activity]) as recorded:
        step()
        training.synchronise(device)
    kind = "self_device_time_total" if device.type == "cuda" else "self_cpu_time_total"
    result = [(entry.key, getattr(entry, kind) / 1000) for entry in recorded.key_averages()]
    return sorted(((name, ms) for name, ms in result if ms > 0), key=lambda entry: -entry[1])


def attention(device: torch.device) -> dict[str, Any]:
    """For each kind of mask: the kernel with the largest share, milliseconds of both passes, and whether outputs and
    gradients are finite. Rows with all keys masked have given NaN in some versions (pytorch#196678)."""
    rows, heads, length, width = (2, 2, 16, 8) if device.type == "cpu" else (32, 12, 512, 64)
    lengths = torch.linspace(length // 4, length, rows).long()
    inside = (torch.arange(length) < lengths[:, None]).to(device)
    padding = inside[:, None, None, :]
    bias = torch.zeros(rows, heads, length, length, device=device, dtype=torch.bfloat16)
    ways: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
        "none": F.scaled_dot_product_attention,
        "causal": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        "padding": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=padding),
        "all keys masked": lambda q, k, v: F.scaled_dot_product_attention(
            q, k, v, attn_mask=padding & inside[:, None, :, None]
        ),
        "scores": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=bias.masked_fill(~padding, -1e30)),
    }
    shape = dict.fromkeys(ways, (rows, heads, length, width))
    torch.use_deterministic_algorithms(True, warn_only=device.type == "cpu")
    masks = {name: _attention(way, shape[name], device) for name, way in ways.items()}
    return {"ok": all(each["finite"] for name, each in masks.items() if name != "all keys masked"), "masks": masks}


def _attention(
    way: Callable[[Tensor, Tensor, Tensor], Tensor], shape: tuple[int, ...], device: torch.device
) -> dict[str, Any]:
    torch.manual_seed(0)
    q, k, v = (torch.randn(shape, device=device, dtype=torch.bfloat16, requires_grad=True) for _ in range(3))

    def step() -> list[Tensor]:
        out = way(q, k, v)
        return [out, *torch.autograd.grad(out.float().square().sum(), (q, k, v))]

    finite = all(bool(part.isfinite().all()) for part in step())
    kernels = _profiled(step, device)
    return {"kernel": kernels[0][0][:80], "ms": round(1000 * _timed(step, device), 3), "finite": finite}


def lstm(device: torch.device) -> dict[str, Any]:
    """An AWD-LSTM layer, 128 x 70 x 1152: kernels, milliseconds of both passes, and in bf16 the largest difference to
    float32."""
    refuse_tf32(device)
    steps, rows, width = (5, 2, 8) if device.type == "cpu" else (70, 128, 1152)
    torch.manual_seed(0)
    layer = LSTM(width, width).to(device)
    x_TBI = torch.randn(steps, rows, width, device=device, requires_grad=True)
    result: dict[str, Any] = {}
    outputs = {}
    for name, enabled in (("float32", False), ("bf16", True)):

        def step(enabled: bool = enabled) -> Tensor:
            with torch.autocast(device.type, torch.bfloat16, enabled=enabled):
                out, _ = layer(x_TBI)
            torch.autograd.grad(out.float().square().sum(), [x_TBI, *layer.parameters()])
            return out

        outputs[name] = step()
        kernels = [kernel[:80] for kernel, _ in _profiled(step, device)[:3]]
        result[name] = {
            "ms": round(1000 * _timed(step, device), 3),
            "kernels": kernels,
            "dtype": str(outputs[name].dtype),
        }
    result["difference"] = float((outputs["bf16"].float() - outputs["float32"]).detach().abs().max())
    return {"ok": result["difference"] < 0.05 and "bfloat16" in result["bf16"]["dtype"], **result}
