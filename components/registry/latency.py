"""Latency of a registered classifier: measured once per artifact and machine, stored with the version.

A measurement is not repeated, so a challenger cannot be measured until it passes the limit.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from components.core.processors import cores, processor_name
from components.data.tasks.data import Fields
from components.learners.prediction import Classifier, predict_rows
from components.registry.drift.measurements import spaced
from components.registry.promotion import Latency
from components.registry.tracking import Registry, Version

TAG = "latency"
#: Number of rows whose latency is measured, after WARM_UP rows that are not counted.
LATENCY_ROWS = 100
WARM_UP = 5
#: Passes over these rows. The variation between passes is the error of a comparison.
ROUNDS = 5
#: Measurements (one per machine) that a tag holds.
MOST_CONDITIONS = 10


def latency_of(registry: Registry, version: Version, classifier: Classifier, rows: Sequence[Fields]) -> Latency | None:
    """The latency of a version under the present conditions; measured and stored if it is not known.

    Returns:
        None without rows.
    """
    chosen = [rows[index] for index in spaced(len(rows), LATENCY_ROWS)]
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


def measure_latency(classifier: Classifier, rows: Sequence[Fields], *, conditions: str = "") -> Latency:
    """Latency of single rows, in `ROUNDS` passes over all of them.

    The time of a row is the smaller of its wall time and its processor time, so other programs do not count. The median
    is taken in the fastest pass.
    """
    for row in rows[:WARM_UP]:
        predict_rows(classifier, [row], batch_size=1)
    seconds = np.zeros((ROUNDS, len(rows)))
    for turn in range(ROUNDS):
        for index, row in enumerate(rows):
            started, used = time.perf_counter(), time.process_time()
            predict_rows(classifier, [row], batch_size=1)
            seconds[turn, index] = min(time.perf_counter() - started, time.process_time() - used)
    milliseconds = 1000 * seconds
    rounds = tuple(round(float(value), 4) for value in np.median(milliseconds, axis=1))
    return Latency(min(rounds), round(float(np.percentile(milliseconds, 99)), 4), rounds, conditions)
