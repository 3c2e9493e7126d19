"""References: other libraries, each in an environment of its own.

`HEADSTART_PEERS` is the folder of the environments that `python benchmarks/few_labels.py environments FOLDER` creates.
Without it, or without an environment, the tests of that library are skipped.
"""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

REFERENCES = Path(__file__).parent / "references"
#: (library, what is asked for with its arguments) -> arrays by name.
Reference = Callable[..., dict[str, np.ndarray]]


@pytest.fixture
def reference(tmp_path: Path) -> Reference:
    """Call a function of references/LIBRARY_reference.py in the environment of the library."""

    def ask(library: str, function: str, **arguments: Any) -> dict[str, np.ndarray]:
        folder = os.environ.get("HEADSTART_PEERS")
        python = Path(folder or "", library, "bin", "python")
        if folder is None or not python.is_file():
            pytest.skip(
                f"{library} is not installed: python benchmarks/few_labels.py environments FOLDER, then set "
                "HEADSTART_PEERS=FOLDER"
            )
        output = tmp_path / f"{library}-{function}.npz"
        request = json.dumps({"function": function, "output": str(output), "arguments": arguments})
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        # The library's own files (flair writes a folder below the home directory) belong to the test.
        environment |= {"HOME": str(tmp_path), "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            [python, REFERENCES / f"{library}_reference.py", request], env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        with np.load(output) as file:
            return dict(file)

    return ask
