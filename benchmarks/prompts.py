"""An encoder with its prompt and without: the cells of two runs of `few_labels.py` on the same rows of train.

    python benchmarks/few_labels.py run DATA WITHOUT --judged dev --encoder ENCODER ...
    python benchmarks/few_labels.py run DATA WITH --judged dev --encoder THE_SAME_WITH_A_PROMPT ...
    python benchmarks/prompts.py WITHOUT WITH [--record NAME]

The prompt of a folder is the default prompt of its config_sentence_transformers.json.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.comparison.sets import SETS, Cells
from benchmarks.results import Column, add_record_option, record


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("without", type=Path)
    parser.add_argument("with_prompt", type=Path)
    add_record_option(parser)
    arguments = parser.parse_args()
    without, with_prompt = (
        {key: cell["macro_f1"] for key, cell in Cells(folder / "cells.jsonl")}
        for folder in (arguments.without, arguments.with_prompt)
    )
    pairs: dict[tuple[str, int, str], list[tuple[float, float]]] = {}
    for key in sorted(without.keys() & with_prompt.keys()):
        pairs.setdefault((key.set, key.budget, key.system), []).append((without[key], with_prompt[key]))
    values = {}
    for (name, budget, system), scores in pairs.items():
        first, second = np.mean(scores, 0).tolist()
        values[f"{SETS[name].title}, {budget} labels a class, {system}"] = {
            "without": first,
            "with": second,
            "gain": second - first,
        }
    for row, each in values.items():
        print(row, {kind: round(value, 3) for kind, value in each.items()})
    record(
        arguments.record,
        title="Macro F1 on 500 rows of train",
        row_title="data set",
        columns=[
            Column(name="without", title="without a prompt", format=".3f"),
            Column(name="with", title="with it", format=".3f"),
            Column(name="gain", title="gain", format="+.3f"),
        ],
        values=values,
        seeds=sorted({key.draw for key in without.keys() & with_prompt.keys()}),
        selection="dev",
    )


if __name__ == "__main__":
    main()
