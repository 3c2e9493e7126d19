"""Tables of the cells of `benchmarks/few_labels.py`.

With `--record NAME` five files of docs/results are written: NAME (macro F1), NAME-accuracy, NAME-differences,
NAME-seconds and NAME-megabytes. In a row of the scores, all systems have the same draws: those that are measured for
each of `MAIN` that has cells in the row. Another system is shown if it has these draws. So a partial measurement is
balanced.

Intervals are those of `components.data.scoring.intervals`: over draws and test rows, which are independent in these
sets. Differences are paired by draw and by test row. With one draw there is no variance over draws, and no interval is
shown.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.comparison.sets import SETS, Cells
from benchmarks.results import Column, record
from components.data.scoring.intervals import interval, left_out
from components.data.tasks.kinds import scoring_for

CONFIDENCE = 0.95
TITLES = {
    "headstart": "Headstart",
    "headstart-contrastive": "Headstart, contrastive",
    "headstart-frozen": "Headstart, frozen encoder",
    "headstart-own": "Headstart, no imported model",
    "setfit": "SetFit",
    "embeddings": "frozen, C = 1",
    "embeddings-cv": "frozen, C chosen",
    "model2vec": "model2vec",
    "flair": "flair",
    "fastai": "fastai, no pretraining",
    "tfidf": "TF-IDF",
    "tfidf-characters": "TF-IDF, characters",
    "tfidf-balanced": "TF-IDF, balanced",
    "embeddings-balanced": "frozen, balanced",
    "headstart-words": "Headstart, words",
}
#: Minuend and subtrahends of the differences.
COMPARED = (
    ("headstart", "setfit"),
    ("headstart", "embeddings"),
    ("headstart", "tfidf"),
    ("headstart-contrastive", "setfit"),
    ("headstart-contrastive", "embeddings"),
    ("headstart-own", "tfidf"),
    ("headstart-own", "tfidf-characters"),
    ("setfit", "embeddings"),
    ("headstart-words", "tfidf"),
    ("headstart-words", "tfidf-balanced"),
    ("headstart-words", "embeddings"),
    ("headstart-words", "embeddings-balanced"),
)
#: Systems that determine the draws of a row.
MAIN = ("headstart", "headstart-own", "setfit", "embeddings", "tfidf")
SIZES = ("fewest labels", "middle", "most labels")
Floats = NDArray[np.float64]
#: Suffix of the file -> (title, metric).
METRICS = {"": ("Macro F1", "macro_f1"), "-accuracy": ("Accuracy", "accuracy")}
#: (set, budget) -> system -> draw -> cell.
Table = dict[tuple[str, int], dict[str, dict[int, dict[str, Any]]]]


@dataclass(frozen=True)
class Scored:
    """Scores of one system in one row of a table.

    Attributes:
        draws: (S,) one score per draw.
        without: (S, N) without each test row.
    """

    draws: Floats
    without: Floats

    def estimate(self) -> tuple[float, ...]:
        """Mean, or (mean, low, high) if there are several draws."""
        if len(self.draws) < 2:
            return (float(self.draws.mean()),)
        around = interval(self.draws, self.without, np.ones(self.without.shape[1]), confidence=CONFIDENCE)
        return around.mean, around.low, around.high


def table_of(cells: Cells) -> Table:
    result: Table = {}
    for key, cell in cells:
        result.setdefault((key.set, key.budget), {}).setdefault(key.system, {})[key.draw] = cell
    order = {(name, budget): place for name in SETS for place, budget in enumerate(SETS[name].budgets)}
    ranks = list(SETS)
    return dict(sorted(result.items(), key=lambda entry: (ranks.index(entry[0][0]), order.get(entry[0], 9))))


def common_draws(systems: Mapping[str, Mapping[int, Any]]) -> list[int]:
    return sorted(set.intersection(*(set(draws) for draws in systems.values())))


def draws_of_row(row: Mapping[str, Mapping[int, Any]]) -> list[int]:
    return common_draws({system: row[system] for system in MAIN if system in row} or row)


def scored(
    cells: Mapping[int, dict[str, Any]], draws: Sequence[int], test: tuple[Any, list[str]], metric: str
) -> Scored:
    """Scores of one system on the given draws; `test`: labels of the test rows, and names of the classes."""
    truth, names = test
    scoring = scoring_for("classification", names)
    targets = [np.array([label], dtype=np.float64) for label in truth]
    draws_of, without = [], []
    for draw in draws:
        answers = list(np.eye(len(names), dtype=np.float32)[cells[draw]["predicted"]])
        statistics = scoring.statistics([("",)] * len(truth), targets, answers)
        draws_of.append(scoring.scores(statistics.sum(0))[metric])
        without.append(left_out(statistics, None, scoring.scores)[metric])
    return Scored(np.array(draws_of), np.array(without))


def label(name: str, budget: int) -> str:
    return f"{SETS[name].title}, {budget} {'rows' if SETS[name].shares else 'a class'}"


def seconds(cell: Mapping[str, Any], imports: float) -> float:
    """Processor seconds from the start of the process to the predictions of test."""
    return float(cell.get("import_seconds", imports) + cell["learn_seconds"] + cell["predict_seconds"])


def tests_of(work: Path) -> Callable[[str], tuple[Any, list[str]]]:
    """Set -> (labels of its test rows, names of the classes), from what was prepared."""

    def of(name: str) -> tuple[Any, list[str]]:
        content = json.loads((work / "sets" / name / "set.json").read_text(encoding="utf-8"))
        return np.array(content["truth"]), content["names"]

    return of


def summarise(path: Path, name: str | None) -> None:
    """Print the tables, and record them under `name`."""
    table = table_of(Cells(path))
    if not table:
        raise SystemExit(f"{path}: holds no cells; measure some with `few_labels.py run`")
    test = tests_of(path.parent)
    systems = [system for system in TITLES if any(system in row for row in table.values())]
    columns = {system: Column(name=system, title=TITLES[system]) for system in systems}
    draws = {key: draws_of_row(row) for key, row in table.items()}
    drawn = sorted({draw for result in draws.values() for draw in result})
    notes = (
        "Labels a class; the column draws is their number, the same for all systems of a row. Test: at most 2,000 rows "
        "of a set, 1,000 of IMDb and TrueVoice. Other work ran on the machine."
    )
    for suffix, (title, metric) in METRICS.items():
        rows: dict[str, dict[str, Any]] = {}
        for key, row in table.items():
            if draws[key]:
                rows[label(*key)] = {"draws": float(len(draws[key]))} | {
                    system: scored(row[system], draws[key], test(key[0]), metric).estimate()
                    for system in systems
                    if set(draws[key]) <= row.get(system, {}).keys()
                }
        _show(
            name and name + suffix,
            title=f"{title} with few labels, of Headstart and of what users would pick",
            row_title="labels",
            columns={"draws": Column(name="draws", title="draws", format=".0f")} | columns,
            values=rows,
            seeds=drawn,
            notes=notes,
        )
        if not suffix:
            _show(
                name and f"{name}-differences",
                title="Paired differences in macro F1 with few labels",
                row_title="labels",
                columns={
                    f"{each}-{other}": Column(
                        name=f"{each}-{other}", title=f"{TITLES[each]} − {TITLES[other]}", format="+.3f"
                    )
                    for each, other in COMPARED
                },
                values=differences(table, test, metric),
                seeds=drawn,
                notes="Paired by draw and test row, on the draws that both systems have. The means over sets weigh the "
                "sets alike; their intervals have the variances of all sets, taken to be independent. "
                f"{notes.partition('. ')[2]}",
            )
    for what, title, others in (
        (
            "seconds",
            "Processor seconds",
            "of one core, user and system, of the whole process: imports, learning and the prediction of test.",
        ),
        ("megabytes", "Memory in MB", "Peak of the resident set of one process."),
    ):
        _show(
            name and f"{name}-{what}",
            title=f"{title} with few labels",
            row_title="labels",
            columns={system: column.model_copy(update={"format": ",.0f"}) for system, column in columns.items()},
            values=cost_rows(table, what),
            seeds=drawn,
            notes=f"Medians over draws. {others[0].upper()}{others[1:]} Other work ran on the machine.",
        )


def differences(table: Table, test: Callable[[str], tuple[Any, list[str]]], metric: str) -> dict[str, dict[str, Any]]:
    """Rows of the differences: one per set and budget, and the means over sets by place of the budget."""
    rows: dict[str, dict[str, Any]] = {}
    means: dict[str, dict[str, Any]] = {}
    for each, other in COMPARED:
        name = f"{each}-{other}"
        by_size: dict[int, list[tuple[float, ...]]] = {}
        for (chosen, budget), row in table.items():
            if each not in row or other not in row or not (draws := common_draws({each: row[each], other: row[other]})):
                continue
            left, right = (scored(row[system], draws, test(chosen), metric) for system in (each, other))
            difference = Scored(left.draws - right.draws, left.without - right.without).estimate()
            rows.setdefault(label(chosen, budget), {})[name] = difference
            size = SETS[chosen].budgets.index(budget) if budget in SETS[chosen].budgets else 0
            by_size.setdefault(size, []).append(difference)
        for size, sets in by_size.items():
            if len(sets) > 1:
                means.setdefault(f"mean over the sets, {SIZES[size]}", {})[name] = mean_over_sets(sets)
    order = [label(chosen, budget) for chosen, budget in table]
    return {row: rows[row] for row in order if row in rows} | dict(sorted(means.items()))


def mean_over_sets(sets: Sequence[tuple[float, ...]]) -> tuple[float, ...]:
    """The mean of the estimates of sets. Its interval has the variances of all sets, which are taken to be independent
    (Banerjee 1960); the spread of three means over the sets would be an estimate with two degrees of freedom."""
    mean = sum(estimate[0] for estimate in sets) / len(sets)
    if any(len(estimate) < 3 for estimate in sets):
        return (mean,)
    half = math.sqrt(sum((estimate[2] - estimate[0]) ** 2 for estimate in sets)) / len(sets)
    return mean, mean - half, mean + half


def cost_rows(table: Table, what: str) -> dict[str, dict[str, Any]]:
    """Medians over draws of processor `seconds` or `megabytes` of every system."""
    imports: dict[str, float] = {}
    for system in TITLES:
        cells = [cell for row in table.values() for cell in row.get(system, {}).values()]
        imports[system] = median([cell["import_seconds"] for cell in cells if "import_seconds" in cell] or [0.0])

    def of(system: str, cell: Mapping[str, Any]) -> float:
        return seconds(cell, imports[system]) if what == "seconds" else float(cell[what])

    return {
        label(*key): {system: median(of(system, cell) for cell in cells.values()) for system, cells in row.items()}
        for key, row in table.items()
    }


def _show(name: str | None, *, values: dict[str, dict[str, Any]], columns: dict[str, Column], **described: Any) -> None:
    """Print a table and record it; columns and rows without numbers are left out."""
    used = {column for row in values.values() for column in row}
    columns = {key: column for key, column in columns.items() if key in used}
    if not values:
        return
    print(f"\n{described['title']}")
    for row, result in values.items():
        shown = []
        for key, column in columns.items():
            value = result.get(key)
            numbers = value if isinstance(value, tuple) else (value,)
            shown.append(f"{column.title}: {column.show(numbers)}" if value is not None else "")
        print(f"  {row:34} " + "  ".join(text for text in shown if text))
    intervals = any(isinstance(value, tuple) and len(value) == 3 for row in values.values() for value in row.values())
    plain = {
        row: {key: value[0] if isinstance(value, tuple) and len(value) == 1 else value for key, value in result.items()}
        for row, result in values.items()
    }
    record(
        name,
        columns=list(columns.values()),
        values=plain,
        selection="test",
        confidence=CONFIDENCE if intervals else None,
        **described,
    )
