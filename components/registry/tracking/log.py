"""A log in the tracking database: the parameters of one run of MLflow.

MLflow writes a parameter once and refuses another value. Of several simultaneous writers of a position exactly one
succeeds, on SQLite, Postgres and MySQL and through MLflow's server alike. A tag of the run marks an entry later.
"""

from __future__ import annotations

import random
import re
import time
from typing import Any

from mlflow.entities import Param, ViewType
from mlflow.exceptions import MlflowException

from components.core.errors import RegistryError
from components.registry.tracking.connection import translated

#: Maximum characters of a parameter; longer entries have several.
LENGTH = 5000
#: Messages of MLflow's errors about simultaneous writers, after which a request is repeated.
BUSY = re.compile(r"Giving up after|database is locked|deadlock|could not serialize", re.IGNORECASE)
ATTEMPTS = 12
#: Seconds that a process waits for the run of the log, which the creator of its experiment creates.
CREATION_S = 5.0


class Log:
    """Entries with consecutive positions from 1; `registry`: the one that has the log."""

    def __init__(self, registry: Any, name: str) -> None:
        self._registry, self._client, self._name = registry, registry.client, name
        self._run = ""

    def read(self) -> tuple[dict[int, str], dict[str, str]]:
        """Position -> text, in order; and the marks."""
        with translated(self._name):
            if not self._find(create=False):
                return {}, {}
            run = self._client.get_run(self._run)
        if run.info.lifecycle_stage != "active":
            raise RegistryError(
                f"{self._name}: its run was deleted in MLflow; restore it: `mlflow runs restore --run-id {self._run}`"
            )
        data, entries = run.data, {}
        for key in sorted(key for key in data.params if key.isdigit()):
            text = data.params[key]
            if text.startswith("@"):  # the keys of its parts
                text = "".join(data.params[part] for part in text[1:].split())
            entries[int(key)] = text
        return entries, dict(data.tags)

    def append(self, position: int, text: str, *, identifier: str) -> bool:
        """Write an entry; False if the position has another one."""
        parts = [text[start : start + LENGTH] for start in range(0, len(text), LENGTH)]
        with translated(self._name):
            self._find(create=True)
            if len(parts) > 1:
                named = {f"{identifier}.{number:03d}": part for number, part in enumerate(parts)}
                self._client.log_batch(self._run, params=[Param(key, part) for key, part in named.items()])
                text = "@" + " ".join(named)
            for attempt in range(ATTEMPTS):
                try:
                    self._client.log_param(self._run, f"{position:06d}", text)
                    return True
                except MlflowException as error:
                    if "Changing param values is not allowed" in str(error.message):
                        return False
                    if attempt + 1 == ATTEMPTS or not BUSY.search(str(error.message)):
                        raise
                    time.sleep(random.uniform(0, min(1.0, 0.02 * 2**attempt)))
        raise AssertionError  # the last attempt has returned or raised

    def mark(self, key: str, value: str) -> None:
        with translated(self._name):
            self._find(create=True)
            self._client.set_tag(self._run, key, value)

    def _find(self, *, create: bool) -> bool:
        if self._run:
            return True
        experiment, created = self._registry.experiment(self._name, create=create)
        deadline = time.monotonic() + (0 if created else CREATION_S)
        while experiment:
            runs = self._client.search_runs(
                [experiment], run_view_type=ViewType.ALL, max_results=1, order_by=["attributes.start_time ASC"]
            )
            if runs:
                self._run = runs[0].info.run_id
                return True
            if not create:
                return False
            if time.monotonic() >= deadline:
                self._client.create_run(experiment, run_name=self._name)
            else:
                time.sleep(0.1)
        return False
