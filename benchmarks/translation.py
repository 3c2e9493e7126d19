"""BLEU of the translation networks of experiments/cove, CoVe's LSTMs and the Transformer, on held-out pairs.

    python benchmarks/translation.py FOLDER [--tokens 800000] [--seeds 3] [--record NAME]

The built-in pairs must exist (`headstart data`). Corpus, tokenizer and models have the settings of the experiment,
except for the budget: `--tokens` source pieces. FOLDER keeps what is computed; a repeated call continues there.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Final

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.results import Column, add_record_option, record
from components.core.artifacts import MANIFEST
from components.pipeline.jobs import PARALLEL
from components.pipeline.stages import STAGES
from components.settings.cluster import ClusterSettings
from components.settings.loading import load_params

PARAMS: Final = Path(__file__).parents[1] / "experiments" / "cove" / "params.yaml"
NETWORKS: Final = {"cove": "LSTMs (cove)", "transformer": "Transformer (transformer)"}
#: Stages of the pairs and of the text that selects the vocabulary; all of the item `general`.
INPUTS: Final = (
    ("ingest", "general"),
    *((stage, f"general-{PARALLEL}") for stage in ("ingest", "tokenizer", "tokenize")),
)
COLUMNS: Final = (
    Column(name="bleu", title="BLEU", format=".1f"),
    Column(name="lowest", title="lowest seed", format=".1f"),
    Column(name="highest", title="highest seed", format=".1f"),
    Column(name="perplexity", title="perplexity per piece", format=".2f"),
    Column(name="parameters", title="parameters", format=",.0f"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tokens", type=int, default=800_000)
    parser.add_argument("--seeds", type=int, default=3)
    add_record_option(parser)
    options = parser.parse_args()
    settings = load_params(PARAMS)
    params = settings.model_copy(update={"run": settings.run.model_copy(update={"out": str(options.folder)})})
    for name, item in INPUTS:
        arguments = STAGES[name].items(params)[item]
        if not (Path(arguments["output"]) / MANIFEST).is_file():
            STAGES[name].run(arguments)
    cluster = ClusterSettings(launcher="local", storage=str(options.folder / "checkpoints"))
    values: dict[str, dict[str, float]] = {}
    for family, title in NETWORKS.items():
        arguments = STAGES["pretrain"].items(params)[family]
        training = arguments["training"].model_copy(update={"tokens": options.tokens})
        rows = []
        for seed in range(options.seeds):
            output = options.folder / f"{family}-{options.tokens}-{seed}"
            if not (output / MANIFEST).is_file():
                further = {"output": output, "seed": seed, "training": training, "cluster": cluster}
                STAGES["pretrain"].run({**arguments, **further})
            rows.append(json.loads((output / "metrics.json").read_text()))
            print(title, seed, {key: rows[-1][key] for key in ("bleu", "perplexity", "loss", "seconds")}, flush=True)
        scores = [row["bleu"] for row in rows]
        values[title] = {"lowest": min(scores), "highest": max(scores)} | {
            name: float(np.mean([row[name] for row in rows])) for name in ("bleu", "perplexity", "parameters")
        }
    pairs = json.loads((options.folder / "tokens" / "general-parallel" / "metrics.json").read_text())
    record(
        options.record,
        title=f"Greedy translations of {pairs['heldout']['documents']} held-out pairs, after {options.tokens:,} pieces "
        f"of the sources of {pairs['train']['documents']:,} other pairs",
        row_title="network",
        columns=list(COLUMNS),
        values=values,
        seeds=list(range(options.seeds)),
        selection="dev",
    )


if __name__ == "__main__":
    main()
