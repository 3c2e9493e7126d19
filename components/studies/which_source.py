"""Which encoder suits a task, ranked before fine-tuning by the logarithm of maximum evidence (LogME; You et al. 2021,
by the fixed point of You et al. 2022, algorithm 3) of its hidden states and the labels of a sample of train: language
models, and encoders that were fine-tuned on other tasks (`intermediate_tasks`). The ranking is compared with the
metrics of selection of the run by Spearman's rank correlation.

A linear model y = F w + noise with w ~ N(0, 1/alpha) and noise ~ N(0, 1/beta) has the evidence p(y | F, alpha, beta),
which is maximised over alpha and beta.

Shape suffixes: N rows, D features, C labels, R rank.
"""

import math
from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
import torch
import typer
from numpy.typing import NDArray
from scipy import stats

from components.core.errors import ConfigError
from components.data.scoring import title
from components.data.tasks.data import Split
from components.evaluation.aggregates import format_budget
from components.models.encoder import Encoder
from components.reporting import figures
from components.reporting.figures import Cloud
from components.reporting.findings import Drawing
from components.settings.finetune import FinetuneSettings
from components.settings.systems import System
from components.studies.frame import STAGE_OF, Budget, Measured, Outputs, Row, Sheet, Task
from components.studies.frozen import Labelled, layer_vectors, numbers_of
from components.studies.occurrences import evenly

Floats = NDArray[np.float64]

#: Maximum number of fixed-point iterations, and the relative change of alpha / beta at which they stop.
STEPS, TOLERANCE = 1000, 1e-6
#: Keeps the precisions finite if the features explain nothing or everything.
LEAST = 1e-10


def logme(features_ND: Floats, targets_NC: Floats) -> float:
    """The maximum log evidence in nats per row, mean over the columns of the targets.

    Args:
        features_ND: features of N rows, neither centred nor scaled, as in the paper.
        targets_NC: one column per label, 1 for the rows with this label; or one column of values. Constant columns are
            ignored.
    """
    u_NR, sizes_R, _ = np.linalg.svd(np.asarray(features_ND, dtype=np.float64), full_matrices=False)
    kept = sizes_R > sizes_R[0] * 1e-10
    # The evidence does not depend on the scale of the features, but the bounds of the iteration do.
    squares_R = np.square(sizes_R[kept] / sizes_R[0])
    columns = [column for column in np.asarray(targets_NC, dtype=np.float64).T if np.ptp(column)]
    return float(np.mean([_evidence(u_NR[:, kept], squares_R, column, features_ND.shape[1]) for column in columns]))


def _evidence(u_NR: Floats, squares_R: Floats, targets_N: Floats, features: int) -> float:
    """log p(y | F, alpha, beta) / N at its maximum, from left singular vectors and squared singular values of F."""
    count = len(targets_N)
    along_R = u_NR.T @ targets_N
    # The part of y outside of the column space of F.
    outside = max(0.0, float(targets_N @ targets_N - along_R @ along_R))

    def fit(ratio: float) -> tuple[float, float]:
        """Squares of the weights and of the errors at this alpha / beta."""
        weights = float((squares_R * np.square(along_R / (squares_R + ratio))).sum())
        return weights, float(np.square(ratio * along_R / (squares_R + ratio)).sum()) + outside

    alpha = beta = 1.0
    for _ in range(STEPS):
        ratio = alpha / beta
        gamma = float((squares_R / (squares_R + ratio)).sum())
        weights, error = fit(ratio)
        alpha, beta = max(LEAST, gamma) / max(LEAST, weights), max(LEAST, count - gamma) / max(LEAST, error)
        if abs(alpha / beta - ratio) <= TOLERANCE * ratio:
            break
    weights, error = fit(alpha / beta)
    determinant = float(np.log(alpha + beta * squares_R).sum()) + (features - len(squares_R)) * math.log(alpha)
    total = count * math.log(beta / (2 * math.pi)) + features * math.log(alpha) - beta * error - alpha * weights
    return (total - determinant) / 2 / count


#: Maximum number of vectors for LogME.
VECTORS = 4000


def measure(
    outputs: Outputs,
    *,
    task: Task = "",
    encoders: Annotated[
        str, typer.Option(help="Candidates separated by commas, such as bert-adapted; all by default.")
    ] = "",
    budget: Budget = 0,
) -> Measured:
    """Rank the candidates without fine-tuning."""
    name = outputs.task(task)
    data = Labelled.of(outputs, name)
    labels = data.budget(budget)
    sample = data.sample(labels, seed=data.facts.seeds[0])
    evaluation: dict[str, Any] = outputs.evaluation(name) if outputs.exists("evaluation", name) else {}
    scores = {
        system["system"]: float(cell["training"][f"selection_{evaluation['main']}"])
        for system in evaluation.get("systems", [])
        for cell in system["budgets"]
        if cell["budget"] == labels
    }
    named = dict.fromkeys(outputs.split_name(of.strip()) for of in encoders.split(",") if of.strip())
    chosen = list(named) or candidates(outputs, name)
    if len(chosen) < 2:
        raise ConfigError("--encoders: at least two candidates are needed")
    if len(np.unique(numbers_of(sample))) < 2:
        raise ConfigError(f"{name}: the sample of train has only one label, so LogME is undefined; raise --budget")
    where = "on dev" if data.facts.selection == "dev" else "by cross-validation"
    score = f"fine-tuned: {title(data.scoring.main)} {where}"
    rows = list[Row]()
    for block, start in chosen:
        evidence = measured(outputs.encoder(block, start), data, sample, settings=outputs.finetuning(block))
        rows.append({"encoder": f"{block}-{start}", "LogME": evidence, score: scores.get(f"{block}-{start}")})
    rows.sort(key=lambda row: -row["LogME"])
    best = rows[0]["encoder"]
    lead = [f"{name}: before fine-tuning, {best} is ranked first."]
    groups = list(dict.fromkeys(group for row in rows if (group := System.named(row["encoder"]).group)))
    if len(groups) > 1:
        lead.append(f"{name}: source tasks in the order of their best encoder: {', '.join(groups)}.")
    pairs = [(row["LogME"], row[score]) for row in rows if row[score] is not None]
    drawings = []
    if (rho := rank_correlation(pairs)) is None:
        lead.append(
            f"{name}: the ranking cannot be verified without three fine-tuned candidates with different metrics."
        )
    else:
        winner = max((row for row in rows if row[score] is not None), key=lambda row: row[score])["encoder"]
        lead.append(
            f"{name}: after fine-tuning, {'the same' if winner == best else winner} is best of {len(pairs)} "
            f"candidates (rho {rho:+.2f})."
        )
        clouds = {row["encoder"]: Cloud([row["LogME"]], [row[score]]) for row in rows if row[score] is not None}
        svg = figures.scatter(clouds, x_label="LogME (nats per row)", y_label=score)
        drawings = [Drawing(svg, f"{name}: LogME before and the metric after fine-tuning.")]
    how = format_budget(labels, data.scoring)
    text = f"The ranking uses a labelled sample of train ({how}), and no row of dev or test."
    return Measured([Sheet(rows, name, {"LogME": ".4f"})], lead, [text], drawings)


def candidates(outputs: Outputs, task: str) -> list[tuple[str, str]]:
    """(block, start) of the trained encoders of the run, and of those that were fine-tuned on another task."""
    run, sources = outputs.params.run, [source for source in outputs.params.intermediate_tasks if source != task]
    trained = [start for start in run.starts if STAGE_OF[start] != "scratch"]
    after = [(start, source) for source in sources for start in run.starts]
    return [
        (block, start)
        for block in run.families
        for start in [*trained, *(System(block, start, "after", source).variant for start, source in after)]
    ]


def measured(encoder: Encoder, data: Labelled, sample: Split, *, settings: FinetuneSettings) -> float:
    """LogME on a labelled sample of at least two labels."""
    numbers_M = numbers_of(sample)
    # Evenly spread, because files are often sorted by label.
    used = np.asarray(evenly(range(len(numbers_M)), VECTORS))
    vectors = torch.cat(layer_vectors(encoder, sample, kind=data.facts.kind, settings=settings), dim=1)
    return logme(vectors[torch.from_numpy(used)].double().numpy(), np.eye(len(data.facts.labels))[numbers_M[used]])


def rank_correlation(pairs: Sequence[tuple[float, float]]) -> float | None:
    """Spearman's rho of LogME and the metrics; None with fewer than three pairs or constant values. It has no p value,
    because a run has too few encoders."""
    if len(pairs) < 3 or not np.ptp(np.asarray(pairs), axis=0).all():
        return None
    return float(stats.spearmanr(*np.asarray(pairs).T).statistic)
