"""Which encoder or source task suits a task best, ranked before fine-tuning by LogME (You et al. 2021): the evidence of
the labels given the hidden states.

Shape suffixes: N rows, F features, R rank, C labels.
"""

import math

import numpy as np

from components.core.artifacts import MANIFEST
from components.core.errors import ConfigError
from components.studies.frame import STAGE_OF, Outputs, Parts, Rows, Sheet
from components.studies.labelled import Labelled
from components.studies.words import Floats, evenly, layer_vectors

#: Maximum number of vectors.
VECTORS = 4000
#: Bounds of the logarithm of alpha / beta, for features whose largest singular value is 1.
BOUNDS = (-30.0, 30.0)


def measure(outputs: Outputs, *, task: str = "", encoders: str = "", budget: int = 0) -> Parts:
    """Which encoder suits a task, ranked before fine-tuning by LogME of its hidden states and the labels of a sample of
    train: language models, and encoders that were fine-tuned on other tasks (`intermediate_tasks`)."""
    data, rows = Labelled.of(outputs, task, budget), Rows()
    name, sample, families = data.facts.task, data.sample(seed=data.facts.seeds[0]), outputs.params.run.families
    made = sorted(path.parts[-3:-1] for path in (outputs.out / "encoder").glob(f"[!.]*/[!.]*/{MANIFEST}"))
    chosen = dict.fromkeys(outputs.split_name(of.strip()) for of in encoders.split(",") if of.strip()) or [
        (block, start)
        for block, start in made
        if block in families and STAGE_OF.get(start) != "scratch" and not start.endswith(f"-after-{name}")
    ]
    if len(chosen) < 2:
        raise ConfigError("--encoders: at least two candidates are needed")
    numbers = np.concatenate(sample.targets).astype(np.int64)
    if len(np.unique(numbers)) < 2:
        raise ConfigError(f"{name}: the sample of train has only one label, so LogME is undefined; raise --budget")
    # Evenly spread, because files are often sorted by label.
    used = evenly(range(len(numbers)), VECTORS)
    targets = np.eye(len(data.facts.labels))[numbers[used]]
    for block, start in chosen:
        settings = outputs.finetuning(block)
        layers = layer_vectors(outputs.encoder(block, start), sample, kind=data.facts.kind, settings=settings)
        rows.append({"encoder": f"{block}-{start}", "LogME": logme(np.hstack(layers)[used], targets)})
    rows.sort(key=lambda row: -row["LogME"])
    yield f"Ranked on {data.amount} of train, and no row of dev or test."
    yield Sheet(rows, name, {"LogME": ".4f"}, "LogME")


def logme(features_NF: Floats, targets_NC: Floats) -> float:
    """The maximum log evidence in nats per row, mean over the columns of the targets (You et al. 2021).

    A linear model y = F w + noise with w ~ N(0, 1/alpha) and noise ~ N(0, 1/beta) has the evidence p(y | F, alpha,
    beta). With r = alpha / beta, U and s of the SVD of F, and the best beta,

        log p / N = -(log(2 pi m) + 1) / 2 - sum log(1 + s^2 / r) / 2N,    m = (|y|^2 - sum s^2 (U y)^2 / (s^2 + r)) / N

    Args:
        features_NF: features of N rows, neither centred nor scaled, as in the paper.
        targets_NC: one column per label, 1 for the rows with this label; or one column of values. Constant columns are
            ignored.
    """
    from scipy.optimize import minimize_scalar  # the import takes half a second

    u_NR, sizes_R, _ = np.linalg.svd(np.asarray(features_NF, dtype=np.float64), full_matrices=False)
    # The evidence does not depend on the scale of the features, but the bounds of r do.
    squares_R, count = np.square(sizes_R / max(sizes_R[0], 1e-300)), len(u_NR)

    def lost(logarithm: float, along_R: Floats, total: float) -> float:
        ratio = math.exp(logarithm)
        mean = max((total - (squares_R / (squares_R + ratio) * along_R).sum()) / count, 1e-12)
        return float(math.log(2 * math.pi * mean) + 1 + np.log1p(squares_R / ratio).sum() / count) / 2

    values = []
    for y_N in (column for column in np.asarray(targets_NC, dtype=np.float64).T if np.ptp(column)):
        given = np.square(u_NR.T @ y_N), y_N @ y_N
        values.append(minimize_scalar(lost, args=given, bounds=BOUNDS, method="bounded", options={"xatol": 1e-6}).fun)
    return -float(np.mean(values))
