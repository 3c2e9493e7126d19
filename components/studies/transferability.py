"""How transferable are the features of each layer? (Yosinski, Clune, Bengio and Lipson 2014, figure 2)

Base networks are trained on the labels of two tasks, A and B, from random weights. Then the first n layer groups of a
network are copied from a base network, those above are random, and the network is trained on task B:

    BnB, BnB+    copied from base B; frozen, or trained (+)
    AnB, AnB+    copied from base A; frozen, or trained (+)

n = 0 is base B itself. A decrease of BnB is due to co-adapted layers that were separated: the layers above do not find
again what they had learned together with those below. A further decrease of AnB is due to layers that are specific to
task A. If AnB+ is above base B, transfer helps even after fine-tuning.
"""

import numpy as np

from components.cluster.launcher import map_parallel
from components.core.errors import ConfigError
from components.core.progress import Progress
from components.data.tasks.budgets import ALL
from components.studies.frame import Measured, Outputs, Sheet, over
from components.studies.labelled import Labelled
from components.studies.networks import SERIES, fits_of, of_seed


def measure(
    outputs: Outputs,
    *,
    task: str = "",
    other: str = "",
    encoder: str = "",
    budget: int = 100,
    epochs: float = 10.0,
    seeds: int = 3,
) -> Measured:
    """Dev metric of BnB, BnB+, AnB and AnB+ for every n. The seeds are trained in parallel."""
    name, (block, start) = outputs.task(task), outputs.split_name(encoder or outputs.params.run.families[0])
    others = [outputs.task(other)] if other else [*outputs.params.run.tasks, *outputs.params.data.tasks]
    if (second := next((each for each in others if each != name), None)) is None:
        raise ConfigError(f"--other: needs a task of data.tasks other than {name}")
    data = {base: Labelled.of(outputs, of, budget or ALL) for base, of in (("A", second), ("B", name))}
    fits, results = fits_of(outputs, data, block, start, epochs)[:seeds], dict[int, list[list[float]]]()
    with Progress("study transferability", total=len(fits), unit="seed") as bar:
        for index, result in map_parallel(of_seed, fits, settings=outputs.params.cluster):
            results[index] = result
            bar.advance(1)
    # Series -> (n, seed)
    values = np.moveaxis(np.asarray([results[index] for index in range(len(fits))]), 0, -1)
    scores = dict(zip(SERIES, values, strict=True))
    rows = [{"n": n} | {series: over(of[n]) for series, of in scores.items()} for n in range(values.shape[1])]
    changes = [
        {"series": series, "n": n, "minus B": over(of[n] - of[0])}
        for series, of in scores.items()
        for n in range(1, len(of))
    ]
    sheets = [
        Sheet(rows, f"A {second}, B {name}, {block}"),
        Sheet(changes, "Change against base B, paired by seed", {"minus B": "+.3f"}, "minus B", "n", reference=0.0),
    ]
    return Measured(sheets, [f"{data['B'].described}, mean over {len(fits)} seeds, with its interval."])
