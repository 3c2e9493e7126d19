"""Record golden values anew: `python -m tests.golden.record [NAME ...]`; without names, all of them.

A file `tests/golden/NAME.json` holds the complete settings of its run, so a later change of a family's test sizes does
not affect it, and the values that the run gave. Record again only after a change that is meant to alter what is
learned, and say so in the commit. No test writes these files.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any, Final

from tests.golden import finetuning, pretraining
from tests.training.helpers import make_inputs

FOLDER: Final = Path(__file__).parent
#: Significant digits of a stored value.
DIGITS: Final = 8


def names() -> list[str]:
    """All runs: of families, of variants of families, and of kinds of task."""
    return pretraining.names() + finetuning.names()


def stored(name: str) -> dict[str, Any]:
    """The settings of a run, under "settings", and its golden values."""
    values: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return values


def run(name: str, settings: dict[str, Any], *, inputs: Path, folder: Path) -> dict[str, list[float]]:
    """The values that a run gives now; `inputs` is what `make_inputs` wrote, `folder` is for temporary files."""
    function = finetuning.fine_tune if name in finetuning.names() else pretraining.pretrain
    return function(settings, inputs=inputs, folder=folder)


def main() -> None:
    """Record the runs named on the command line."""
    parser = argparse.ArgumentParser(description="Record golden values anew.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"all by default: {', '.join(names())}")
    chosen = parser.parse_args().names or names()
    if unknown := sorted(set(chosen) - set(names())):
        parser.error(f"unknown: {', '.join(unknown)}; known: {', '.join(names())}")
    with tempfile.TemporaryDirectory() as temporary:
        inputs = make_inputs(Path(temporary) / "inputs")
        for name in chosen:
            settings = (finetuning if name in finetuning.names() else pretraining).settings_of(name)
            values = run(name, settings, inputs=inputs, folder=Path(temporary) / name)
            rounded = {key: [float(f"{value:.{DIGITS}g}") for value in column] for key, column in values.items()}
            text = json.dumps({"settings": settings, **rounded}, indent=1)
            (FOLDER / f"{name}.json").write_text(text + "\n", encoding="utf-8")
            print(FOLDER / f"{name}.json")


if __name__ == "__main__":
    main()
