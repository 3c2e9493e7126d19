"""The budget of a run, and the durations of its stages."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from components.pipeline import costs
from components.pipeline.costs import Duration, Estimate, History, Remaining, Total, gpus, machine, work_of
from components.settings.params import Params
from flows.plan import Stage
from flows.terminal import BudgetError, terminal


class Spending:
    """What a run has cost so far. `seconds`: in which stages ran; those in which several ran count once."""

    def __init__(self, params: Params, *, root: Path) -> None:
        self.params, self.root = params, root
        self.history = History(root)
        self.machine, self.gpus = machine(params.cluster), gpus()
        self.seconds = 0.0
        self._fresh: dict[str, bool] = {}
        self._since = 0.0
        self.remaining = Remaining({})

    def expect(self, stages: Mapping[Stage, str]) -> None:
        """Note the stages of the run, whose remaining time is then known as far as earlier runs say."""
        self.remaining = Remaining({each.stage: each.seconds for each in self.estimates(stages)})

    def estimates(self, stages: Mapping[Stage, str]) -> list[Estimate]:
        """The cost of stages, from the history of this machine."""
        history = self.history.read()
        return [
            costs.estimate(
                stage.name,
                work_of(stage.name, self.params, root=self.root),
                history,
                machine=self.machine,
                gpus=self.gpus,
                why=why,
            )
            for stage, why in stages.items()
        ]

    def excess(self, total: Total) -> str:
        """By how much the expected cost exceeds the budget, in words; empty if it does not."""
        limit = self.params.budget.hours
        over = limit is not None and total.seconds > 3600 * limit
        return f"{total.seconds / 3600:.2f} hours, and budget.hours is {limit:g}" if over else ""

    def refuse(self, stages: Mapping[Stage, str]) -> None:
        """Check that the stages are not expected to exceed the budget. Raises BudgetError: they are; nothing has
        run."""
        if self.params.budget.hours is None or not stages:
            return
        total = costs.total(self.estimates(stages))
        if more := self.excess(total):
            error = BudgetError(
                f"the run is expected to take {more}; nothing has run. Raise the budget, or shorten the run "
                "(`headstart plan` lists its stages)"
            )
            terminal.error(str(error))
            raise error
        if total.unknown:
            terminal.say(
                f"budget: no history of {', '.join(total.unknown)}; the run is stopped if it exceeds the budget"
            )

    def begin(self, stage: Stage) -> Stage:
        """Note that a stage begins; returns the stage with the time at which the budget is used up. Raises BudgetError:
        it is used up already."""
        limit = self.params.budget.hours
        self._count()
        left = math.inf if limit is None else 3600 * limit - self.seconds
        if left <= 0:
            error = BudgetError(
                f"{stage.name}: not started, because the run has used up its budget (params.yaml: budget); "
                "the outputs so far are kept, and the next run resumes here"
            )
            terminal.error(str(error))
            raise error
        self._fresh[stage.name] = self.history.begin(stage.name)
        return replace(stage, budget_until=None if math.isinf(left) else time.monotonic() + left)

    def end(self, stage: Stage, seconds: float, *, completed: bool) -> None:
        """Note that a stage has ended without an error."""
        self.remaining = self.remaining.without(stage.name)
        self._count()
        duration = None
        if self._fresh.pop(stage.name) and completed:
            work, now = work_of(stage.name, self.params, root=self.root), datetime.now(UTC)
            ended = now.isoformat(timespec="seconds")
            duration = Duration(stage.name, self.machine, work.unit, work.amount, seconds, ended)
        self.history.end(stage.name, duration)

    def _count(self) -> None:
        """Count the seconds since the last call, if a stage has been running since."""
        now = time.monotonic()
        self.seconds += now - self._since if self._fresh else 0.0
        self._since = now
