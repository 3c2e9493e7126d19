"""The process of the simulation: `python process.py GUARD GROUP OUTPUT [CASE ...]`, or `python process.py GUARD pytest
ARGUMENT ...`, which runs tests on the simulated card.

Writes a JSON object: name of a case -> `error` (None or a traceback), `losses`, `steps` (the events of each training
step), `operators` (name -> number of calls), `types` and `answers` on the CPU and on the device.
"""

import ctypes
import sys
from pathlib import Path


def main() -> None:
    guard, group, output, *chosen = sys.argv[1:]
    sys.path.insert(0, str(Path(__file__).parents[2]))
    # Before torch: it looks for hooks and guards once.
    library = ctypes.CDLL(guard, mode=ctypes.RTLD_GLOBAL)
    from tests.gpu_simulation import execution

    library.register_guard()

    if group == "pytest":
        sys.exit(execution.run_tests([output, *chosen]))
    execution.write_results(group, chosen, Path(output))


if __name__ == "__main__":
    main()
