"""Latency of a registered classifier: measured once per artifact and machine, stored with the version.

A measurement is not repeated, so a challenger cannot be measured until it passes the limit.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from components.core import threads
from components.core.processors import cores, processor_name
from components.data.tasks.data import Fields
from components.learners.prediction import Classifier, predict_rows
from components.registry.promotion import Latency
from components.registry.tracking import Registry, Version

TAG = "latency"
#: Number of rows whose latency is measured, after WARM_UP rows that are not counted.
LATENCY_ROWS = 100
WARM_UP = 5
#: Passes over these rows, each with all threads and with one. Their variation is the error of a comparison.
ROUNDS = 5
#: Measurements (one per machine) that a tag holds.
MOST_CONDITIONS = 10


def latency_of(registry: Registry, version: Version, classifier: Classifier, rows: Sequence[Fields]) -> Latency | None:
    """The latency of a version under the present conditions; measured and stored if it is not known.

    Returns:
        None without rows.
    """
    chosen = spaced(rows, LATENCY_ROWS)
    conditions = (
        f"{len(chosen)} rows, {cores()} threads, {processor_name(Path('/proc/cpuinfo')) or 'unknown processor'}"
    )
    try:
        stored = dict(json.loads(version.tags.get(TAG, "{}")))
        if (values := stored.get(conditions)) is not None:
            return Latency(values["p50"], values["p99"], tuple(values["rounds"]), conditions)
    except (ValueError, KeyError, TypeError):
        stored = {}
    if not chosen:
        return None
    measured = measure_latency(classifier, chosen, conditions=conditions)
    stored[conditions] = {key: value for key, value in asdict(measured).items() if key != "conditions"}
    registry.set_tag(version, TAG, json.dumps(dict(list(stored.items())[-MOST_CONDITIONS:])))
    return measured


def spaced(rows: Sequence[Fields], most: int) -> list[Fields]:
    """At most `most` rows, evenly spaced."""
    return [rows[int(index)] for index in np.linspace(0, len(rows) - 1, min(most, len(rows)))] if rows else []


def measure_latency(classifier: Classifier, rows: Sequence[Fields], *, conditions: str = "") -> Latency:
    """Latency of single rows, in `ROUNDS` passes over all of them.

    The time of a row is the smaller of its wall time with all threads and its processor time with one thread: neither
    the time of other programs counts, nor threads that wait for each other beside them. The median is taken in the
    fastest pass.
    """

    def seconds(clock: Callable[[], float]) -> NDArray[np.float64]:
        marks = [clock()]
        for row in rows:
            predict_rows(classifier, [row], batch_size=1)
            marks.append(clock())
        return np.diff(marks)

    for row in rows[:WARM_UP]:
        predict_rows(classifier, [row], batch_size=1)
    passes = []
    for _ in range(ROUNDS):
        whole = seconds(time.perf_counter)
        with threads.limited(1):
            passes.append(np.minimum(whole, seconds(time.process_time)))
    milliseconds = 1000 * np.stack(passes)
    rounds = tuple(round(float(value), 4) for value in np.median(milliseconds, axis=1))
    return Latency(min(rounds), round(float(np.percentile(milliseconds, 99)), 4), rounds, conditions)
