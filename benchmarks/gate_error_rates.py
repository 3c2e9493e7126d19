"""Error rates of the promotion rule by simulation: false promotions and power in 1 to 365 nights.

    python benchmarks/gate_error_rates.py [--years 150] [--record NAME]

Every night a challenger is compared with the champion on the same test rows: 88 clusters of exponential sizes with a
mean of 30 rows, nine classes of unequal frequency, macro F1 of 0.6. A row is predicted correctly if

    difficulty of the row + of its cluster + error of the model on the cluster + on the row + level of the class > 0,

all of them normal, and as one other class of the row otherwise. Difficulties are shared by all models; errors are
independent, so that two models differ on a fifth of the rows, and the variance of their difference is twice as large
between clusters as between rows. Levels are those of the artifact. In the worlds without noise all artifacts have the
same levels, and no challenger is better than the champion. In the worlds with noise every artifact has its own levels
and with them its own true macro F1, with the standard deviation of the seeds of aws-type. A promotion is false if the
true macro F1 of the challenger does not exceed the one of the champion that it replaces.

Power is the probability that on night n, after n - 1 such nights, a challenger is promoted whose true macro F1 exceeds
the champion's by `GAIN`.

Verdicts are those of `components.registry.decide.decide`, computed for all nights at once. Rules:

gate                 the rule in use
training noise       the rule until 2026-11: the variance between three seeds a night is part of the interval
slower spending      error shares proportional to 1 / ((k + 1) log^2 (k + 1)) instead of 1 / (k (k + 1))
count per champion   k begins at 1 for every new champion

The test rows also grow, by 1, 10 or 100 independent rows a night from `FEWEST` or `USUAL` rows on: `gate` counts with
`components.registry.decide`, `count per version` begins anew with every version of the rows, the rule until 2026-11.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from itertools import islice
from pathlib import Path

import numpy as np
from scipy import special
from scipy.optimize import brentq

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.results import Column, add_record_option, record
from components.data.scoring.base import Floats, f1, macro
from components.data.scoring.intervals import Ints, Variance, half_width, jackknife, sampling_variance
from components.registry.decide import SKETCH, sketch_of, use_of
from components.settings.registry import PromotionRule

NIGHTS = (1, 7, 30, 90, 365)
GAIN = 0.05
#: Shares of the classes, and levels at which the macro F1 is 0.6.
SHARES = np.array([0.26, 0.2, 0.15, 0.11, 0.09, 0.07, 0.05, 0.04, 0.03])
LEVELS = np.array([0.6, 0.4, 0.35, 0.25, 0.3, 0.15, 0.2, 0.15, 0.1])
#: Standard deviations: difficulty of clusters, level of an artifact and of a class.
CLUSTER, LEVEL_NOISE, CLASS_NOISE = 0.3, 0.048, 0.06
#: Standard deviations of the errors on a row and on a cluster: of models of one kind, which differ on 19% of the rows;
#: and of different kinds, such as words and a language model, which differ on 30%.
ALIKE, UNLIKE = (0.5, 0.15), (0.9, 0.27)
#: Std of macro F1 between seeds of aws-type.
SEED_STD = 0.0176
#: Concentration of the classes of a cluster around `SHARES`.
MIXTURE = 12.0
#: One-sided error and numbers of clusters at which intervals are compared, and samples of the bootstrap.
ERROR, GROUPS, RESAMPLES = 0.025, (10, 20, 88), 400
#: Worlds in which other rules are shown.
SHOWN = ("clusters, noise", "clusters, models of different kinds")
RULE = PromotionRule()
MARGIN = 0.02
NON_INFERIORITY = PromotionRule(mode="non_inferiority", margin=MARGIN)
#: Rows of growing tests at the beginning, and rows that are added every night.
FEWEST, USUAL = 300, 2600
GROWTH = (1, 10, 100)
GROWING_NIGHTS = tuple(night for night in NIGHTS if night <= 90)
SLOW_TOTAL = 2.1097  # sum of 1 / (n log^2 n) from n = 2


@dataclass(frozen=True)
class World:
    """What is simulated.

    Attributes:
        sizes: (G,) rows of each cluster.
        clustered: whether clusters have difficulties and errors of their own. Otherwise rows are independent, and the
            rule does not know of clusters.
        noise: whether artifacts have levels of their own.
        loss: true loss of every challenger.
        errors: standard deviations of a model's errors on a row and on a cluster.
    """

    sizes: Ints
    clustered: bool = True
    noise: bool = False
    loss: float = 0.0
    errors: tuple[float, float] = ALIKE

    @property
    def std(self) -> float:
        """Std of the latent value of a row without the level."""
        clusters = CLUSTER**2 + self.errors[1] ** 2 if self.clustered else 0.0
        return float(np.sqrt(1 + self.errors[0] ** 2 + clusters))

    def truth(self, levels: Floats) -> Floats:
        """Macro F1 on infinitely many clusters, of levels (..., C)."""
        right = special.ndtr(levels / self.std)
        confused = SHARES / (1 - SHARES)[:, None] * (1 - np.eye(len(SHARES)))
        hits = SHARES * right
        guesses = hits + (SHARES * (1 - right)) @ confused
        return np.asarray((2 * hits / (SHARES + guesses)).mean(-1))

    def shifted(self, levels: Floats, truth: float) -> Floats:
        """Levels (C,), shifted so that the true macro F1 is `truth`."""
        return np.asarray(levels + brentq(lambda shift: float(self.truth(levels + shift) - truth), -2, 2, xtol=1e-4))

    def artifacts(self, count: int, generator: np.random.Generator) -> Floats:
        """Levels (T, C)."""
        if not self.noise:
            return np.tile(LEVELS, (count, 1))
        common = LEVEL_NOISE * generator.standard_normal((count, 1))
        return np.asarray(LEVELS + common + CLASS_NOISE * generator.standard_normal((count, len(LEVELS))))


class TestSet:
    """One sample of test rows.

    Attributes:
        labels: (N,) true classes.
        clusters: (N,) numbers of the clusters; of the rows, if they are independent.
        sizes: (G,) rows of each cluster.
    """

    __test__ = False  # pytest would collect it because of its name

    def __init__(self, world: World, generator: np.random.Generator) -> None:
        self.world, self.generator = world, generator
        rows, groups, classes = int(world.sizes.sum()), len(world.sizes), len(SHARES)
        self._of = np.repeat(np.arange(groups), world.sizes)
        self.clusters = self._of if world.clustered else np.arange(rows)
        self.sizes = np.bincount(self.clusters).astype(np.float64)
        mixtures = generator.dirichlet(MIXTURE * SHARES, groups) if world.clustered else np.tile(SHARES, (groups, 1))
        self.labels = (generator.random((rows, 1)) > mixtures.cumsum(1)[self._of, :-1]).sum(1)
        others = np.tile(SHARES, (rows, 1))
        others[np.arange(rows), self.labels] = 0
        cumulated = others.cumsum(1) / others.sum(1, keepdims=True)
        self._wrong = np.minimum((generator.random((rows, 1)) > cumulated).sum(1), classes - 1)
        self._difficulty = generator.standard_normal(rows)
        if world.clustered:
            self._difficulty += CLUSTER * generator.standard_normal(groups)[self._of]

    def predict(self, levels: Floats) -> Ints:
        """Predicted classes (T, N) of artifacts with levels (T, C)."""
        count, rows = len(levels), len(self.labels)
        values = self.world.errors[0] * self.generator.standard_normal((count, rows), dtype=np.float32)
        values += self._difficulty.astype(np.float32) + levels.astype(np.float32)[:, self.labels]
        if self.world.clustered:
            errors = self.generator.standard_normal((count, len(self.world.sizes)), dtype=np.float32)
            values += (self.world.errors[1] * errors)[:, self._of]
        return np.where(values > 0, self.labels, self._wrong)

    def scores(self, predicted: Ints) -> tuple[Floats, Floats]:
        """Macro F1 (T,) of predictions (T, N), and (T, G) without each cluster."""
        if not self.world.clustered:
            return self.scores_by_row(predicted)
        sums = [self.sums(row) for row in predicted]
        totals = np.stack([part.sum(0) for part in sums])
        return macro_f1(totals), np.stack([macro_f1(part.sum(0) - part) for part in sums])

    def scores_by_row(self, predicted: Ints) -> tuple[Floats, Floats]:
        """Macro F1 (T,) of predictions (T, N) of the first N rows, and (T, N) without each row."""
        labels = self.labels[: predicted.shape[1]]
        unit = np.eye(len(SHARES))
        # (C, C, 3, C): hits, guesses and truths of a row of the class c with the prediction d
        parts = np.stack(np.broadcast_arrays(unit[:, None] * unit, unit[None], unit[:, None]), axis=2)
        confused = [np.bincount(labels * len(SHARES) + row, minlength=len(SHARES) ** 2) for row in predicted]
        totals = np.tensordot(np.reshape(confused, (-1, len(SHARES), len(SHARES))), parts, axes=2)
        return macro_f1(totals), np.stack(
            [macro_f1(total - parts)[labels, row] for total, row in zip(totals, predicted, strict=True)]
        )

    def sums(self, predicted: Ints) -> Floats:
        """(G, 3, C): hits, guesses and truths of each cluster."""
        groups, classes = len(self.sizes), len(SHARES)
        cells = self.clusters * classes
        right = predicted == self.labels
        counted = (cells + self.labels)[right], cells + predicted, cells + self.labels
        counts = [np.bincount(numbers, minlength=groups * classes).reshape(groups, classes) for numbers in counted]
        return np.stack(counts, axis=1).astype(np.float64)


def macro_f1(sums: Floats) -> Floats:
    """(..., 3, C) -> (...)."""
    hits, guesses, truths = np.moveaxis(sums, -2, 0)
    return macro(f1(hits, guesses, truths), truths)


@dataclass(frozen=True)
class Gate:
    """A rule of promotion.

    Attributes:
        error_of: one-sided error of the k-th comparison.
        per_champion: whether k begins at 1 for every champion.
        training: whether the variance between seeds is part of the interval.
    """

    error_of: Callable[[int], float] = RULE.error_of
    per_champion: bool = False
    training: bool = False

    def promotes(
        self, gain: float, sampling: Variance, *, use: int, threshold: float = 0.0, seeds: float = 0.0
    ) -> bool:
        """Whether the lower bound of a gain exceeds the threshold.

        Args:
            gain: observed.
            sampling: variance of the gain between samples of clusters.
            use: k.
            threshold: of the rule.
            seeds: estimated variance between three seeds of each of `use` + 1 nights.
        """
        if gain <= threshold:
            return False
        training = [Variance(2 * seeds, 2 * (use + 1))] if self.training else []
        return gain - half_width([sampling, *training], self.error_of(use)) > threshold


GATES = {
    "gate": Gate(),
    "training noise": Gate(training=True),
    "slower spending": Gate(lambda use: 0.05 / ((use + 1) * np.log(use + 1) ** 2) / SLOW_TOTAL),
    "count per champion": Gate(per_champion=True),
}


def one_year(world: World, generator: np.random.Generator, *, nights: tuple[int, ...] = NIGHTS) -> dict[str, Floats]:
    """(rule, false | power) -> (len(nights),): whether a false promotion has happened by night n; whether a challenger
    that is better by `GAIN` is promoted on night n."""
    test, last = TestSet(world, generator), max(nights)
    levels = world.artifacts(last + 1, generator)
    if world.loss:
        levels[1:] = world.shifted(LEVELS, float(world.truth(LEVELS)) - world.loss)
    truths = world.truth(levels)
    scores, without = test.scores(test.predict(levels))
    squares = generator.chisquare(2, last + 1).cumsum() * SEED_STD**2 / (2 * np.arange(1, last + 2))
    threshold = NON_INFERIORITY.threshold if world.loss else 0.0
    of_night = {night: place for place, night in enumerate(nights) if not world.loss}

    @cache
    def against(champion: int) -> tuple[Floats, list[Variance]]:
        parts = jackknife(without - without[champion], test.sizes)
        return scores - scores[champion], [Variance(*pair) for pair in zip(*map(np.ndarray.tolist, parts), strict=True)]

    result = {}
    for name, gate in GATES.items():
        champion, use, false = 0, 0, last + 1
        power = np.zeros(len(nights))
        for night in range(1, last + 1):
            use += 1
            promotes = partial(gate.promotes, use=use, threshold=threshold, seeds=float(squares[night]))
            if night in of_night:
                better = world.shifted(world.artifacts(1, generator)[0], float(truths[champion]) + GAIN)
                score, left = test.scores(test.predict(better[None]))
                sampling = sampling_variance(left[0] - without[champion], test.sizes)
                power[of_night[night]] = promotes(float(score[0] - scores[champion]), sampling)
            gains, variances = against(champion)
            if promotes(float(gains[night]), variances[night]):
                if truths[night] <= truths[champion] + threshold + 1e-12:
                    false = min(false, night)
                champion, use = night, 0 if gate.per_champion else use
        result[f"{name}: false"] = (false <= np.array(nights)).astype(np.float64)
        result[f"{name}: power"] = power
    return result


def simulate(number: int, world: World, *, years: int, seed: int) -> dict[str, Floats]:
    generator = np.random.default_rng([seed, number])
    results = [one_year(world, generator) for _ in range(years)]
    return {key: np.mean([year[key] for year in results], axis=0) for key in results[0]}


def growing_year(rows: int, growth: int, generator: np.random.Generator) -> dict[str, Floats]:
    """Rule -> (len(GROWING_NIGHTS),): whether one of equal models was promoted by night n, on rows that grow."""
    last = max(GROWING_NIGHTS)
    test = TestSet(World(np.ones(rows + last * growth, dtype=np.int64), clustered=False), generator)
    predicted = test.predict(np.tile(LEVELS, (last + 1, 1)))
    digests = sorted((sketch_of([(str(generator.random()),)]), row) for row in range(len(test.labels)))
    false, champions = dict.fromkeys(GROWING, last + 1), dict.fromkeys(GROWING, 0)
    earlier: list[dict[str, object]] = []
    for night in range(1, last + 1):
        size = rows + night * growth
        sketch = "".join(islice((digest for digest, row in digests if row < size), SKETCH))
        names = str(night), str(champions["gate"]), RULE.mode
        use = use_of(earlier, digest=str(size), sketch=sketch, comparison=(names[0], names[1], "macro_f1", names[2]))
        for rule, error in (("gate", RULE.error_of(use.number, use.budget)), ("count per version", RULE.error_of(1))):
            pair = predicted[[champions[rule], night], :size]
            (before, after), without = test.scores_by_row(pair)
            sampling = sampling_variance(without[1] - without[0], np.ones(size))
            if after - before - half_width([sampling], error) > 0:
                false[rule], champions[rule] = min(false[rule], night), night
        made = {"candidate": {"digest": names[0]}, "champion": {"digest": names[1]}, "metric": "macro_f1", "gain": 0.0}
        earlier.append(made | {"mode": names[2], "test": {"digest": str(size), "sketch": sketch}})
    return {rule: (night <= np.array(GROWING_NIGHTS)).astype(np.float64) for rule, night in false.items()}


GROWING = ("gate", "count per version")


def simulate_growing(number: int, world: tuple[int, int], *, years: int, seed: int) -> dict[str, Floats]:
    generator = np.random.default_rng([seed, 1000 + number])
    results = [growing_year(*world, generator) for _ in range(years)]
    return {rule: np.mean([year[rule] for year in results], axis=0) for rule in GROWING}


def record_growing(arguments: argparse.Namespace) -> None:
    """Measure, print and record false promotions on test rows that grow."""
    worlds = [(rows, growth) for rows in (FEWEST, USUAL) for growth in GROWTH]
    simulated = partial(simulate_growing, years=arguments.years, seed=arguments.seed)
    table: dict[str, dict[str, float]] = {}
    with ProcessPoolExecutor() as pool:
        for (rows, growth), shares in zip(worlds, pool.map(simulated, range(len(worlds)), worlds), strict=True):
            for rule, values in shares.items():
                named = f"{rule}, {rows:,} rows and {growth} more a night"
                table[named] = dict(zip(map(str, GROWING_NIGHTS), map(float, values), strict=True))
                print(f"false: {named}: ", *(f"{value:7.1%}" for value in values), flush=True)
    record(
        None if arguments.record is None else f"{arguments.record}-growing",
        title="False promotions of models that are equal to the champion, on test rows that grow every night",
        row_title="rule and test rows",
        columns=[Column(name=str(night), title=f"by night {night}", format=".1%") for night in GROWING_NIGHTS],
        values=dict(sorted(table.items())),
        seeds=[arguments.seed],
        notes=f"{arguments.years} years each, independent rows.",
    )


def interval_errors(world: World, generator: np.random.Generator) -> dict[str, bool]:
    """Interval -> whether it calls one of two equal artifacts better, at the one-sided error `ERROR`."""
    test = TestSet(world, generator)
    predicted = test.predict(np.tile(LEVELS, (2, 1)))
    scores, without = test.scores(predicted)
    gain, clustered = float(scores[1] - scores[0]), sampling_variance(without[1] - without[0], test.sizes)
    sums = np.stack([test.sums(row) for row in predicted])
    shares = np.full(len(test.sizes), 1 / len(test.sizes))
    weights = generator.multinomial(len(shares), shares, size=RESAMPLES).astype(np.float64)
    sampled = macro_f1(np.einsum("rg,mgkc->mrkc", weights, sums))
    by_row = test.scores_by_row(predicted)[1]
    rows = sampling_variance(by_row[1] - by_row[0], np.ones(len(test.labels)))
    gate = Gate(lambda use: ERROR)
    return {
        "jackknife over rows": gate.promotes(gain, rows, use=1),
        "bootstrap over clusters": bool(np.quantile(sampled[1] - sampled[0], ERROR) > 0),
        "jackknife over clusters": gate.promotes(gain, clustered, use=1),
    }


def exponential_sizes(count: int) -> Ints:
    """Quantiles of an exponential distribution with a mean of 30, rounded up."""
    return np.ceil(-30 * np.log((np.arange(count) + 0.5) / count)).astype(np.int64)


def record_intervals(sizes: Ints, arguments: argparse.Namespace) -> None:
    """Measure, print and record the errors of intervals."""
    table: dict[str, dict[str, float]] = {}
    for count in GROUPS:
        generator = np.random.default_rng([arguments.seed, 100 + count])
        worlds_of = (World(generator.choice(sizes, count)) for _ in range(5 * arguments.years))
        errors = [interval_errors(world, generator) for world in worlds_of]
        for name in errors[0]:
            table.setdefault(name, {})[str(count)] = float(np.mean([outcome[name] for outcome in errors]))
    print(table)
    record(
        None if arguments.record is None else f"{arguments.record}-intervals",
        title=f"False promotions in one comparison of two equal models at the one-sided error {ERROR}",
        row_title="interval",
        columns=[Column(name=str(count), title=f"{count} clusters", format=".1%") for count in GROUPS],
        values=table,
        seeds=[arguments.seed],
        notes=f"{5 * arguments.years} comparisons each; cluster sizes sampled from the 88 ones.",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--years", type=int, default=150, help="simulated years of each world")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--growing", action="store_true", help="only the test rows that grow")
    add_record_option(parser)
    arguments = parser.parse_args()
    began = time.perf_counter()
    if arguments.growing:
        record_growing(arguments)
        return
    sizes = exponential_sizes(88)
    few = sizes[np.linspace(0, 87, 10).astype(int)]
    worlds = {
        "independent rows": World(sizes, clustered=False),
        "clusters": World(sizes),
        "clusters, models of different kinds": World(sizes, errors=UNLIKE),
        "10 clusters": World(few),
        "clusters, noise": World(sizes, noise=True),
        "10 clusters, noise": World(few, noise=True),
        f"clusters, true loss = margin of {MARGIN}": World(sizes, loss=MARGIN),
    }
    simulated = partial(simulate, years=arguments.years, seed=arguments.seed)
    false: dict[str, Floats] = {}
    power: dict[str, Floats] = {}
    with ProcessPoolExecutor() as pool:
        for name, shares in zip(worlds, pool.map(simulated, range(len(worlds)), worlds.values()), strict=True):
            for gate in GATES:
                for kind, rows in (("false", false), ("power", power)):
                    rows[f"{gate}, {name}"] = values = shares[f"{gate}: {kind}"]
                    print(f"{kind}: {gate}, {name}: ", *(f"{value:7.1%}" for value in values), flush=True)
            print(f"{time.perf_counter() - began:.0f} s", flush=True)
    shown = {f"false by night n: gate, {name}": false[f"gate, {name}"] for name in worlds}
    others = [gate for gate in GATES if gate != "gate"]
    shown |= {f"false by night n: {gate}, {name}": false[f"{gate}, {name}"] for gate in others for name in SHOWN}
    shown |= {f"power on night n: {gate}, {name}": power[f"{gate}, {name}"] for name in SHOWN for gate in GATES}
    few_shown = "10 clusters, noise"
    shown[f"power on night n: gate, {few_shown}"] = power[f"gate, {few_shown}"]
    deviation = 100 * float(np.sqrt(0.05 * 0.95 / arguments.years))
    record(
        arguments.record,
        title=f"False promotions, and power at a true gain of {GAIN} macro F1, in nights of retraining",
        row_title="rule and world",
        columns=[Column(name=str(night), title=f"n = {night}", format=".1%") for night in NIGHTS],
        values={name: dict(zip(map(str, NIGHTS), map(float, values), strict=True)) for name, values in shown.items()},
        seeds=[arguments.seed],
        notes=f"{arguments.years} years per world, so the standard error of a share of 5% is {deviation:.1f} points; "
        f"nine classes, {int(sizes.sum()):,} test rows in 88 clusters; nominal: 5% within any number of nights.",
    )
    record_intervals(sizes, arguments)
    record_growing(arguments)
    print(f"{time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
