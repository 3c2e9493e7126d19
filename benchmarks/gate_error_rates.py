"""Error rates of the promotion rule by simulation: false promotions, power, slice vetoes, in 1 to 365 nights.

    python benchmarks/gate_error_rates.py [--years 300] [--examples artifacts/examples/aws-type] [--record NAME]

Every night, a recipe that is no better than the champion's is trained with three seeds and compared with the champion
on the same test rows. A row is predicted correctly if

    difficulty of the row + of its cluster + error of the model on the cluster + on the row + level of the model > 0,

all of them normal. Difficulties are shared by all models; the errors and levels of two models of one recipe are
independent with equal distributions, so neither is better in expectation. The parameters are those of the built-in task
aws-type: accuracy 0.63, a std of 0.0176 between seeds, two models that differ on 19% of the rows, and a standard
error of their difference that is 1.5 times as large between services as between rows. Clusters have the sizes of the
test services if `--examples` exists, otherwise 88 exponential quantiles with a mean of 30 rows.

The old rule is the one-sided 95% bound of a bootstrap over rows, every night anew, in its normal limit. The new rule is
the one of `components.registry.promotion`, computed by the same functions for all nights at once.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import sparse, stats

from components.registry.comparison import Variance, gains_of, half_width, jackknife, quantile
from components.reporting.recording import add_record_option, record
from components.reporting.results import Column
from components.scoring import Scoring
from components.scoring.base import Floats, Inputs, Vectors
from components.settings.promote import PromotionRule
from components.tasks.examples import read_split

NIGHTS = (1, 7, 30, 90, 180, 365)
SEEDS = 3
#: Standard deviations: difficulty of clusters, error on a row, error on a cluster.
CLUSTER, ROW_ERROR, CLUSTER_ERROR = 0.3, 0.5, 0.15
ACCURACY = 0.63
#: Std of the accuracy between seeds.
NOISE = 0.0176
GAINS = (0.03, 0.05, 0.08)
MARGIN = 0.02
#: Slices of the world in which vetoes are counted, and the gain on every one of them.
SLICES, SLICE_ROWS, SLICE_GAIN = 16, 100, 0.03
#: Numbers of clusters and one-sided errors at which the intervals are compared, and samples of the bootstrap.
GROUPS, ERRORS, RESAMPLES = (5, 10, 20, 88), (0.05, 0.025, 0.005), 2000
RULE = PromotionRule()
NO_NOISE = PromotionRule(training_noise=False)
NON_INFERIORITY = PromotionRule(mode="non_inferiority", margin=MARGIN)
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]


class Accuracy(Scoring):
    """Accuracy with K = 2 columns: rows and correct ones. The metrics of the package compute much more."""

    names = ("accuracy",)
    constant_name = "constant"

    @property
    def width(self) -> int:
        """K."""
        return 2

    def statistics(self, fields: Inputs, targets: Vectors, answers: Vectors) -> sparse.csr_array:
        """N rows -> (N, K); an answer is whether the row is correct."""
        correct = np.asarray(answers, dtype=np.float64).reshape(-1)
        return sparse.csr_array(np.stack([np.ones(len(correct)), correct], axis=1))

    def scores(self, sums: Floats) -> dict[str, Floats]:
        """Correct rows / rows."""
        return {"accuracy": sums[..., 1] / sums[..., 0]}

    def constant(self, targets: Vectors) -> list[NDArray[np.float32]]:
        """No row is correct."""
        return [np.zeros(1, dtype=np.float32)] * len(targets)


SCORING = Accuracy()


@dataclass(frozen=True)
class World:
    """What is simulated.

    Attributes:
        name: in words.
        sizes: (G,) rows of each cluster.
        clustered: whether clusters have difficulties and errors of their own. Otherwise rows are independent, and the
            rule does not know of clusters.
        noise: std of the accuracy between seeds.
        seeds: runs of a recipe per night.
    """

    name: str
    sizes: Ints
    clustered: bool = True
    noise: float = NOISE
    seeds: int = SEEDS

    @property
    def std(self) -> float:
        """Std of the latent value of a row without the level of the model."""
        clusters = CLUSTER**2 + CLUSTER_ERROR**2 if self.clustered else 0.0
        return float(np.sqrt(1 + ROW_ERROR**2 + clusters))

    def level(self, gain: float = 0.0) -> float:
        """Level of a model whose expected accuracy is `ACCURACY` + gain."""
        return self.std * float(stats.norm.ppf(ACCURACY + gain))


@dataclass(frozen=True)
class Year:
    """Predictions of one test set by the champion and by every night's challenger.

    Attributes:
        champion: (N,) whether the champion predicts a row correctly.
        latent: (T, N) latent values of the challengers; a prediction is correct if the value is positive.
        scores: (T + 1, S) accuracy of all seeds; the champion's come first.
    """

    champion: Bools
    latent: NDArray[np.float32]
    scores: Floats


def simulate(world: World, nights: int, generator: np.random.Generator) -> Year:
    """One test set, one champion and `nights` challengers of equal recipes."""
    rows, groups = int(world.sizes.sum()), len(world.sizes)
    cluster = np.repeat(np.arange(groups), world.sizes)
    difficulty = generator.standard_normal(rows)
    if world.clustered:
        difficulty += CLUSTER * generator.standard_normal(groups)[cluster]
    # d accuracy / d level at the mean level
    slope = float(stats.norm.pdf(stats.norm.ppf(ACCURACY))) / world.std

    def models(count: int) -> NDArray[np.float32]:
        values = ROW_ERROR * generator.standard_normal((count, rows), dtype=np.float32)
        values += difficulty.astype(np.float32)
        if world.clustered:
            errors = CLUSTER_ERROR * generator.standard_normal((count, groups), dtype=np.float32)
            values += np.repeat(errors, world.sizes, axis=1)
        levels = world.level() + world.noise / slope * generator.standard_normal(count)
        return values + levels[:, None].astype(np.float32)

    first = models(nights + 1)
    others = [(models(nights + 1) > 0).mean(1) for _ in range(world.seeds - 1)]
    return Year(first[0] > 0, first[1:], np.stack([(first > 0).mean(1), *others], axis=1))


def comparisons(champion: Bools, challengers: Bools, sizes: Ints, *, clustered: bool) -> tuple[Floats, Floats, Floats]:
    """(T,) gains, variances between clusters (rows, if not clustered) and degrees of freedom, as those of `compare`."""
    units = sizes if clustered else np.ones(len(champion), dtype=np.int64)
    starts = np.concatenate([[0], np.cumsum(units)[:-1]])

    def sums(right: Bools) -> Floats:
        correct = right.astype(np.float64)
        if clustered:
            correct = np.add.reduceat(correct, starts, axis=-1)
        return np.stack([np.broadcast_to(units.astype(np.float64), correct.shape), correct], axis=-1)

    before, after = sums(champion), sums(challengers)
    totals = before.sum(-2, keepdims=True), after.sum(-2, keepdims=True)
    gains = gains_of(*totals, scoring=SCORING, metric="accuracy")[..., 0]
    left_out = gains_of(totals[0] - before, totals[1] - after, scoring=SCORING, metric="accuracy")
    variances, freedoms = jackknife(left_out, units.astype(np.float64))
    return gains, variances, freedoms


def row_variances(champion: Bools, challengers: Bools) -> Floats:
    """(T,) variances of the gains if rows were independent: those of the mean of the differences (-1, 0 or 1)."""
    rows = len(champion)
    gains = challengers.mean(1) - champion.mean()
    return np.asarray(((challengers != champion).mean(1) - gains**2) / (rows - 1))


def pooled_noise(scores: Floats) -> tuple[Floats, Floats]:
    """(T,) variances between runs of one recipe and their degrees of freedom, known on each night, as `noise_of`
    computes them. With one seed per night, the variance is that between nights."""
    nights, seeds = scores.shape
    counts = np.arange(1, nights + 1)
    if seeds > 1:
        squares, freedom = np.cumsum(scores.var(1, ddof=1) * (seeds - 1)), counts * (seeds - 1.0)
    else:
        values = scores[:, 0]
        squares, freedom = np.cumsum(values**2) - np.cumsum(values) ** 2 / counts, counts - 1.0
    return squares[1:] / freedom[1:], freedom[1:]


def new_rule(
    gains: Floats, variances: Floats, freedoms: Floats, scores: Floats, *, rule: PromotionRule, uses: Sequence[int]
) -> Bools:
    """(T,) whether the lower bound exceeds the threshold."""
    noise, known = pooled_noise(scores)
    verdicts = np.zeros(len(gains), dtype=bool)
    for night in np.flatnonzero(gains > rule.threshold):
        use = uses[night]
        parts = [Variance(float(variances[night]), float(freedoms[night]))]
        if rule.training_noise:
            parts.append(Variance(2 * float(noise[use - 1]), float(known[use - 1])))
        verdicts[night] = gains[night] - half_width(parts, rule.error_of(use)) > rule.threshold
    return verdicts


def old_rule(gains: Floats, variances: Floats) -> Bools:
    """(T,) whether the 95% bound of the bootstrap over rows is positive, in its normal limit."""
    return gains > float(stats.norm.ppf(0.95)) * np.sqrt(variances)


def vetoes(champion: Bools, challengers: Bools, slices: Ints) -> Bools:
    """(T,) whether a slice rejects the challenger: a loss of more than `largest_slice_loss`, beyond chance."""
    ends = np.cumsum(slices)
    found = np.zeros(len(challengers), dtype=bool)
    for start, end in zip(ends - slices, ends, strict=True):
        inside = champion[start:end], challengers[:, start:end]
        gains, variances, freedoms = comparisons(*inside, np.ones(1, dtype=np.int64), clustered=False)
        half = quantile((1 - RULE.confidence) / len(slices), freedoms) * np.sqrt(variances)
        found |= (gains + half < 0) & (-gains > RULE.largest_slice_loss)
    return found


def within(verdicts: Bools, nights: Sequence[int]) -> Floats:
    """Whether there is a promotion within each number of nights."""
    return np.array([float(verdicts[:count].any()) for count in nights])


def one_year(world: World, nights: Sequence[int], generator: np.random.Generator) -> dict[str, Floats]:
    """Measurement -> value at each of `nights`, of one simulated year.

    False promotions are counted within n nights. Power is that of a better challenger on night n, after n - 1 equal
    ones.
    """
    year = simulate(world, max(nights), generator)
    every, chosen = range(1, max(nights) + 1), np.array(nights) - 1

    def compared(gain: float, on: slice | Ints) -> tuple[Floats, Floats, Floats, Floats]:
        right = year.latent[on] + np.float32(world.level(gain) - world.level()) > 0
        return *comparisons(year.champion, right, world.sizes, clustered=world.clustered), row_variances(
            year.champion, right
        )

    def promoted(parts: Sequence[Floats], rule: PromotionRule, uses: Sequence[int] = every) -> Bools:
        return new_rule(*parts[:3], year.scores, rule=rule, uses=uses)

    equal, worse = compared(0.0, slice(None)), compared(-MARGIN, slice(None))
    found = {
        "old": within(old_rule(equal[0], equal[3]), nights),
        "new": within(promoted(equal, RULE), nights),
        "new without noise": within(promoted(equal, NO_NOISE), nights),
        "non-inferiority": within(promoted(worse, NON_INFERIORITY), nights),
    }
    for gain in GAINS:
        better = compared(gain, chosen)
        found[f"old +{gain}"] = old_rule(better[0], better[3]).astype(float)
        found[f"new +{gain}"] = promoted(better, RULE, nights).astype(float)
    return found


def slice_vetoes(years: int, nights: Sequence[int], generator: np.random.Generator) -> dict[str, Floats]:
    """Share of challengers vetoed on night n that are equal on every slice, or better by `SLICE_GAIN` on every one."""
    slices = np.full(SLICES, SLICE_ROWS)
    world = World("slices", slices, clustered=False, noise=0.0)
    shift = np.float32(world.level(SLICE_GAIN) - world.level())
    found = {name: np.zeros(len(nights)) for name in ("equal", "better", "better, any loss")}
    for _ in range(years):
        year = simulate(world, len(nights), generator)
        found["equal"] += vetoes(year.champion, year.latent > 0, slices)
        found["better"] += vetoes(year.champion, year.latent + shift > 0, slices)
        lost = [
            year.champion[start : start + SLICE_ROWS].mean()
            - (year.latent[:, start : start + SLICE_ROWS] + shift > 0).mean(1)
            for start in range(0, SLICES * SLICE_ROWS, SLICE_ROWS)
        ]
        found["better, any loss"] += np.max(lost, axis=0) > RULE.largest_slice_loss
    return {name: total / years for name, total in found.items()}


def intervals(sizes: Ints, count: int, repetitions: int, generator: np.random.Generator) -> dict[str, Floats]:
    """Share of equal models that an interval calls better, relative to each of `ERRORS`, on `count` clusters."""
    found = {name: np.zeros(len(ERRORS)) for name in ("rows", "bootstrap", "jackknife, G - 1", "jackknife")}
    errors = np.array(ERRORS)
    for _ in range(repetitions):
        world = World("intervals", generator.choice(sizes, count), noise=0.0, seeds=1)
        year = simulate(world, 1, generator)
        right = year.latent > 0
        gains, variances, freedoms = comparisons(year.champion, right, world.sizes, clustered=True)
        starts = np.concatenate([[0], np.cumsum(world.sizes)[:-1]])
        differences = np.add.reduceat(right[0].astype(float) - year.champion, starts)
        weights = generator.multinomial(count, np.full(count, 1 / count), size=RESAMPLES)
        samples = (weights @ differences) / (weights @ world.sizes)
        found["rows"] += gains > stats.norm.isf(errors) * np.sqrt(row_variances(year.champion, right))
        found["bootstrap"] += np.quantile(samples, errors) > 0
        found["jackknife, G - 1"] += gains > quantile(errors, count - 1.0) * np.sqrt(variances)
        found["jackknife"] += gains > quantile(errors, float(freedoms[0])) * np.sqrt(variances)
    return {name: total / repetitions / errors for name, total in found.items()}


def cluster_sizes(examples: Path) -> tuple[Ints, str]:
    """Rows of each cluster of the test split in an output directory of `examples`, or the documented distribution."""
    if (examples / "test.parquet").is_file():
        split = read_split(examples, "test")
        names = [name for name in split.groups or split.slices if name is not None]
        return np.array(sorted(Counter(names).values(), reverse=True)), f"{len(set(names))} clusters of {examples}"
    return exponential_sizes(88), "88 clusters, exponential sizes with a mean of 30 rows"


def exponential_sizes(count: int) -> Ints:
    """Quantiles of an exponential distribution with a mean of 30, rounded up."""
    return np.ceil(-30 * np.log((np.arange(count) + 0.5) / count)).astype(np.int64)


def main() -> None:
    """Simulate, print the shares, record them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--years", type=int, default=300, help="simulated years of each world")
    parser.add_argument("--examples", type=Path, default=Path("artifacts/examples/aws-type"))
    parser.add_argument("--seed", type=int, default=0)
    add_record_option(parser)
    arguments = parser.parse_args()
    began = time.perf_counter()
    sizes, source = cluster_sizes(arguments.examples)
    few = sizes[np.linspace(0, len(sizes) - 1, min(10, len(sizes))).astype(int)]
    worlds = {
        "independent rows": World("independent rows", sizes, clustered=False, noise=0.0),
        "clusters": World("clusters", sizes, noise=0.0),
        "clusters, noise": World("clusters, noise", sizes),
        "clusters, noise, one seed": World("clusters, noise, one seed", sizes, seeds=1),
        "10 clusters": World("10 clusters", few, noise=0.0),
        "10 clusters, noise": World("10 clusters, noise", few),
    }
    found: dict[str, dict[str, Floats]] = {}
    for number, (name, world) in enumerate(worlds.items()):
        generator = np.random.default_rng([arguments.seed, number])
        years = [one_year(world, NIGHTS, generator) for _ in range(arguments.years)]
        found[name] = {key: np.mean([year[key] for year in years], axis=0) for key in years[0]}
        print(f"{name}: {time.perf_counter() - began:.0f} s", flush=True)
    generator = np.random.default_rng([arguments.seed, len(worlds)])
    vetoed = slice_vetoes(arguments.years, NIGHTS, generator)
    noisy = found["clusters, noise"]
    rows: dict[str, Floats] = {}
    for name in worlds:
        for rule in ("old", "new"):
            rows[f"{rule} rule, {name}: within n nights"] = found[name][rule]
    for name, world in worlds.items():
        if world.noise == 0:
            rows[f"new rule, {name}, training_noise false: within n nights"] = found[name]["new without noise"]
    rows[f"new rule, clusters, noise, true loss = margin of {MARGIN}: within n nights"] = noisy["non-inferiority"]
    for rule in ("old", "new"):
        for gain in GAINS:
            rows[f"{rule} rule, power at +{gain}, on night n"] = noisy[f"{rule} +{gain}"]
    for gain in GAINS:
        rows[f"new rule, power at +{gain}, clusters without noise, on night n"] = found["clusters"][f"new +{gain}"]
    rows["slice veto, equal on every slice, on night n"] = vetoed["equal"]
    rows[f"slice veto, +{SLICE_GAIN} on every slice, on night n"] = vetoed["better"]
    rows[f"any slice falls by {RULE.largest_slice_loss}, +{SLICE_GAIN} on every slice, on night n"] = vetoed[
        "better, any loss"
    ]
    for name, values in rows.items():
        print(f"{name:75s}", *(f"{value:7.1%}" for value in values))
    deviation = 100 * float(np.sqrt(0.05 * 0.95 / arguments.years))
    record(
        arguments.record,
        title="Shares of simulated years with a false promotion, and of promoted and vetoed challengers",
        row_title="rule and world",
        columns=[Column(name=str(night), title=f"n = {night}", format=".1%") for night in NIGHTS],
        values={name: dict(zip(map(str, NIGHTS), map(float, values), strict=True)) for name, values in rows.items()},
        seeds=[arguments.seed],
        notes=f"{arguments.years} years per world, so the standard error of a share of 5% is {deviation:.1f} points; "
        f"{source}; nominal: 5% within any number of nights.",
    )
    table = {}
    for count in GROUPS:
        generator = np.random.default_rng([arguments.seed, 100 + count])
        for name, values in intervals(sizes, count, 10 * arguments.years, generator).items():
            table[f"{name}, {count} clusters"] = dict(zip(map(str, ERRORS), map(float, values), strict=True))
            print(f"{name}, {count} clusters", np.round(values, 2))
    record(
        None if arguments.record is None else f"{arguments.record}-intervals",
        title="False promotions relative to the nominal error, one comparison of two equal models",
        row_title="interval",
        columns=[Column(name=str(error), title=f"one-sided error {error}", format=".2f") for error in ERRORS],
        values=table,
        seeds=[arguments.seed],
        notes=f"{10 * arguments.years} comparisons each; cluster sizes sampled from {source}; no training noise. "
        "`jackknife` is the one in use, with degrees of freedom from the effective number of clusters.",
    )
    print(f"{time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
