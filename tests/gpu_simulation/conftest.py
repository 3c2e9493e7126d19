"""The simulated GPU: the guard is compiled once, and each group of cases runs once, in a process of its own."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

FOLDER = Path(__file__).parent
#: Seconds after which a process of the simulation is ended. Alone on a core it takes half a minute.
LIMIT = 800

Outcomes = dict[str, dict[str, Any]]


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that parallel test processes share."""
    ours = tmp_path_factory.getbasetemp()
    shared = (ours.parent if "PYTEST_XDIST_WORKER" in os.environ else ours) / "gpu-simulation"
    shared.mkdir(exist_ok=True)
    return shared


@pytest.fixture(scope="session")
def guard(folder: Path) -> Path:
    """The compiled guard.cpp."""
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed; the simulated GPU needs it (Debian: package g++)")
    library = folder / "guard.so"
    with FileLock(folder / "guard.lock"):
        if not library.exists():
            spec = find_spec("torch")
            torch = Path(spec.submodule_search_locations[0])
            include, lib = torch / "include", torch / "lib"
            command = ["g++", "-shared", "-fPIC", "-O0", "-std=c++20", f"-I{include}"]
            command += [f"-I{include / 'torch/csrc/api/include'}", str(FOLDER / "guard.cpp"), "-o", str(library)]
            command += [f"-L{lib}", "-lc10", "-ltorch_cpu", f"-Wl,-rpath,{lib}"]
            built = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
            assert built.returncode == 0, built.stderr
    return library


@pytest.fixture(scope="session")
def outcomes(guard: Path, folder: Path) -> Callable[[str], Outcomes]:
    """`outcomes("pretraining")`: name of a case -> what it did (see `process`)."""

    def of_group(group: str) -> Outcomes:
        output, failure = folder / f"{group}.json", folder / f"{group}.error"
        with FileLock(folder / f"{group}.lock"):
            if not output.exists() and not failure.exists():
                partial = output.with_suffix(f".{time.time_ns()}")
                command = [sys.executable, str(FOLDER / "process.py"), str(guard), group, str(partial)]
                ran = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
                if ran.returncode == 0:
                    partial.rename(output)
                else:
                    failure.write_text(ran.stderr[-4000:], encoding="utf-8")
            # Of all tests of the group; the process runs once.
            assert output.exists(), failure.read_text(encoding="utf-8")
        actual: Outcomes = json.loads(output.read_text(encoding="utf-8"))
        return actual

    return of_group
