"""Durations of the stages that have run on this machine (`.headstart/durations.jsonl`), and estimates from them: the
amount of work of a stage times the time per unit of work."""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from components.core.artifacts import read_json, write_atomic
from components.core.masking import masked
from components.core.processors import cores, processor_name
from components.core.progress import duration
from components.pipeline.jobs import checked
from components.pipeline.monitoring.disk import size_of
from components.pipeline.stages import STAGES, TRAINING
from components.settings.cluster import ClusterSettings
from components.settings.data import CorpusSource, ParallelSource
from components.settings.params import Params
from components.settings.tasks import TaskSource
from components.settings.training import LanguageModelTraining

FILE = Path(".headstart/durations.jsonl")
#: Folder with an empty file for each stage that is running; a killed run leaves it behind.
RUNNING = "running"
#: Maximum number of durations of a stage on a machine; older ones are dropped.
KEPT_PER_STAGE = 20
GPUS = Path("/proc/driver/nvidia/gpus")


@dataclass(frozen=True)
class Duration:
    """A completed stage (as in dvc.yaml, `pretrain@ulmfit`): machine, amount of work and its unit, seconds from the
    start of DVC to its end, and time of the end (ISO 8601, UTC)."""

    stage: str
    machine: str
    unit: str
    amount: float
    seconds: float
    time: str = ""

    @property
    def group(self) -> str:
        """The stage without its item."""
        return self.stage.partition("@")[0]

    @property
    def rate(self) -> float:
        """Seconds per unit of work."""
        return self.seconds / max(self.amount, 1e-9)


class History:
    """The durations in a repository. A damaged file counts as empty, because estimates are not worth an error."""

    def __init__(self, root: Path, file: str | Path = FILE) -> None:
        self.path = root / file
        self.running = self.path.with_name(RUNNING)

    def read(self) -> list[Duration]:
        """All durations, the oldest first."""
        durations = []
        with suppress(OSError):
            for line in self.path.read_text(encoding="utf-8").splitlines():
                with suppress(ValueError, TypeError):
                    durations.append(Duration(**json.loads(line)))
        return durations

    def begin(self, stage: str) -> bool:
        """Note that a stage begins; returns False if its last attempt has not ended, so that it resumes and its
        duration says nothing."""
        resumes = (self.running / stage).exists()
        self.running.mkdir(parents=True, exist_ok=True)
        (self.running / stage).touch()
        return not resumes

    def end(self, stage: str, ended: Duration | None = None) -> None:
        """Note that a stage has ended, with its duration if it is to be recorded."""
        (self.running / stage).unlink(missing_ok=True)
        if ended is None:
            return
        durations = [*self.read(), ended]
        same = [of for of in durations if (of.stage, of.machine) == (ended.stage, ended.machine)]
        kept = [of for of in durations if of not in same[:-KEPT_PER_STAGE]]
        write_atomic(self.path, "".join(json.dumps(asdict(of)) + "\n" for of in kept))


def gpus() -> int:
    """Number of NVIDIA GPUs that this process may use, without torch."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return len([name for name in visible.split(",") if name.strip() and name.strip() != "-1"])
    return len(list(GPUS.iterdir())) if GPUS.is_dir() else 0


def machine(cluster: ClusterSettings) -> str:
    """The machine on which stages run, as durations are comparable on the same one only."""
    address = os.environ.get("RAY_ADDRESS") or cluster.address
    parts = [processor_name() or "unknown processor", f"{cores()} cores"]
    parts += [f"{gpus()} GPUs"] if gpus() else []
    parts += [f"cluster {masked(address)}"] if cluster.launcher == "ray" and address != "local" else []
    parts += [f"{cluster.workers} workers"] if cluster.workers != "auto" else []
    return ", ".join(parts)


#: Stages whose work grows with the number of label budgets and seeds.
OF_TASKS = TRAINING | {"baseline", "evaluate"}


@dataclass(frozen=True)
class Work:
    """An amount of work: `tokens` of training, `bytes` of raw data, `runs` of a task, `seconds`, or one `run`."""

    amount: float
    unit: str


def work_of(stage: str, params: Params) -> Work:
    """The work of a stage, such as `pretrain@ulmfit`, in the repository that is the working directory."""
    group, _, item = stage.partition("@")
    arguments: Mapping[str, Any] = STAGES[group].items(params).get(item, {}) if group in STAGES else {}
    if not arguments:
        return Work(1, "run")
    training = arguments.get("training")
    if training is not None and not arguments.get("source") and "epochs" not in arguments:
        if training.tokens is not None:
            return Work(_tokens(training, arguments["tokens"]), "tokens")
        return Work(training.seconds, "seconds")
    if paths := _raw(group, arguments, params):
        return Work(sum(size_of(Path(path)) for path in paths), "bytes")
    if group in OF_TASKS and (tasks := _tasks(arguments)):
        sources = [params.data.tasks[task] for task in tasks if task in params.data.tasks]
        return Work(sum(len(source.budgets) * len(source.seeds) for source in sources) or 1, "runs")
    return Work(1, "run")


def _tokens(training: LanguageModelTraining, text: Path | None) -> float:
    """Tokens of a training: its budget, at most the tokens of `training.passes` if the text is tokenized already."""
    assert training.tokens is not None
    if training.passes is None or text is None:
        return training.tokens
    counts = read_json(text / "metrics.json", made_by="the stage tokenize", missing_ok=True).get("train")
    return training.tokens if counts is None else min(training.tokens, training.passes * counts["tokens"])


def _raw(group: str, arguments: Mapping[str, Any], params: Params) -> list[str]:
    """Paths of the raw data that a stage reads, directly or as a corpus."""
    source = arguments.get("source") or arguments.get("unlabelled")
    if isinstance(source, CorpusSource | ParallelSource | TaskSource):
        return [source.path]
    if group == "checks":
        return [source.path for sources in (arguments["corpora"], arguments["tasks"]) for source in sources.values()]
    corpora = params.corpora | checked(params, {})
    return [corpora[name].path for name in [Path(str(arguments.get("corpus", ""))).name] if name in corpora]


def _tasks(arguments: Mapping[str, Any]) -> list[str]:
    examples = arguments.get("examples")
    if isinstance(examples, Mapping):
        return list(examples)
    return [Path(examples).name] if isinstance(examples, Path) else []


#: Durations that are used, at most: the last ones.
USED = 10
NO_HISTORY = "no history"


@dataclass(frozen=True)
class Estimate:
    """The cost of a stage: expected seconds with bounds (None: unknown), what they are based on, GPUs, and tokens of
    training."""

    stage: str
    why: str
    work: Work
    basis: str = NO_HISTORY
    seconds: float | None = None
    low: float | None = None
    high: float | None = None
    gpus: int = 0
    tokens: float = 0


@dataclass(frozen=True)
class Total:
    """The cost of a run: expected seconds with bounds (sums over the stages, because a busy machine slows all of
    them), tokens of training, GPU hours, and the stages without an estimate."""

    seconds: float
    low: float
    high: float
    tokens: float
    gpu_hours: float
    unknown: list[str]


def estimate(
    stage: str, work: Work, history: Sequence[Duration], *, machine: str, gpus: int = 0, why: str = ""
) -> Estimate:
    """The duration of a stage: work times the geometric mean of seconds per unit of work on this machine, between the
    fastest and the slowest run of the same stage, else of another item, else of any stage that trains a language
    model."""
    group = stage.partition("@")[0]
    blank = Estimate(
        stage, why, work, gpus=gpus if group in TRAINING else 0, tokens=work.amount if work.unit == "tokens" else 0
    )
    if work.unit == "seconds":
        # Start and end of the workers take longer than the budget, never less.
        high = 1.3 * work.amount + 30
        return replace(blank, basis="training.seconds", seconds=work.amount, low=work.amount, high=high)
    here = [of for of in history if of.machine == machine and of.unit == work.unit]
    for basis, chosen in (
        ("", [of for of in here if of.stage == stage]),
        (f"other {group}, ", [of for of in here if of.group == group]),
        ("other training, ", here if work.unit == "tokens" else []),
    ):
        if rates := [work.amount * max(of.rate, 1e-12) for of in chosen[-USED:]]:
            basis += f"{len(rates)} run{'s' * (len(rates) > 1)}"
            seconds = statistics.geometric_mean(rates) if work.amount else 0.0
            return replace(blank, basis=basis, seconds=seconds, low=min(rates), high=max(rates))
    return blank


def total(estimates: Sequence[Estimate]) -> Total:
    """The sum of the stages."""
    timed = [of for of in estimates if of.seconds is not None]
    seconds, low, high = (sum(getattr(of, bound) for of in timed) for bound in ("seconds", "low", "high"))
    tokens, gpu_hours = sum(of.tokens for of in estimates), sum((of.seconds or 0) * of.gpus for of in timed) / 3600
    return Total(seconds, low, high, tokens, gpu_hours, [of.stage for of in estimates if of.seconds is None])


def left_of(stages: Mapping[str, float | None]) -> str:
    """How long stages take, in words; empty without any. `stages`: name -> expected seconds; None: unknown."""
    if not stages:
        return ""
    timed = [seconds for seconds in stages.values() if seconds is not None]
    left = f"{len(stages)} stage{'s' * (len(stages) > 1)} left"
    if not timed:
        return f"{left}, time unknown"
    unknown = len(stages) - len(timed)
    return f"{left}, about {duration(sum(timed))}" + (f" and {unknown} of unknown time" if unknown else "")
