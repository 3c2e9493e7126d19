"""`precision: auto` is a function of the device's instructions and the model's size; time has no influence."""

import time

import pytest
import torch

from components.models import FAMILIES, family
from components.models.encoder import build_model
from components.training.precision import BF16_SIZE, choose, has_bf16, product_size

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
LARGE, SMALL = BF16_SIZE, BF16_SIZE - 1


@pytest.fixture(autouse=True)
def _no_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A decision that reads a clock depends on the load of the machine."""

    def read(*_: object) -> float:
        raise AssertionError("a clock is read")

    for name in ("time", "perf_counter", "process_time", "thread_time", "monotonic"):
        monkeypatch.setattr(time, name, read)
        monkeypatch.setattr(time, f"{name}_ns", read)


def capabilities(
    monkeypatch: pytest.MonkeyPatch, *, amx: bool = False, avx512: bool = False, gpu: bool = False
) -> None:
    monkeypatch.setattr("torch.cpu._is_amx_tile_supported", lambda: amx)
    monkeypatch.setattr("torch.cpu._is_avx512_bf16_supported", lambda: avx512)

    def supported(including_emulation: bool = True) -> bool:
        return gpu or including_emulation

    monkeypatch.setattr("torch.cuda.is_bf16_supported", supported)


@pytest.mark.parametrize(
    ("device", "capability", "size", "expected"),
    [
        (CPU, {}, LARGE, "float32"),
        (CPU, {"gpu": True}, LARGE, "float32"),
        (CPU, {"amx": True}, LARGE, "bf16"),
        (CPU, {"avx512": True}, LARGE, "bf16"),
        (CPU, {"amx": True, "avx512": True}, SMALL, "float32"),
        (CPU, {"avx512": True}, 0, "float32"),
        (CUDA, {"gpu": True}, LARGE, "bf16"),
        (CUDA, {"gpu": True}, 0, "bf16"),
        # Cards older than compute capability 8.0 emulate bf16, slowly.
        (CUDA, {"amx": True, "avx512": True}, LARGE, "float32"),
    ],
)
def test_auto_is_decided_by_capability_and_size(device, capability, size, expected, monkeypatch):
    capabilities(monkeypatch, **capability)
    assert choose("auto", device=device, size=size) == expected


@pytest.mark.parametrize("bf16", [True, False])
def test_a_named_precision_is_used_on_every_machine(bf16, monkeypatch):
    capabilities(monkeypatch, avx512=bf16, gpu=bf16)
    for device in (CPU, CUDA):
        assert has_bf16(device) == bf16
        for size in (0, LARGE):
            assert choose("float32", device=device, size=size) == "float32"
            assert choose("bf16", device=device, size=size) == "bf16"


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_the_size_of_the_vocabulary_does_not_decide(name):
    with torch.device("meta"):
        few, many = (product_size(build_model(name, vocabulary=size)) for size in (1000, 30_000))
    assert few == many
    assert (few == 0) == (family(name).objective == "static")


def test_the_size_counts_the_matrices_above_the_embeddings():
    model = build_model("ulmfit", vocabulary=100, settings={"embedding": 3, "hidden": 5, "layers": 2})
    # Input and recurrent matrices of four gates: 3 -> 5 -> 3.
    assert product_size(model) == 4 * 5 * (3 + 5) + 4 * 3 * (5 + 3)
