"""Results and decisions depend neither on a clock nor on the number of processors: the modules that read one are known,
each with what it does with it."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
#: Packages whose modules compute results. `flows` decides when a stage runs, not what it computes.
PACKAGES = ("components", "headstart")
CLOCKS = {
    "time": {"time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time"}
    | {"process_time_ns", "thread_time", "thread_time_ns"},
    "datetime": {"now", "utcnow", "today"},
    "date": {"today"},
    "os": {"times", "getloadavg"},
    "resource": {"getrusage"},
    "psutil": {"cpu_percent", "cpu_times", "getloadavg"},
    "timeit": {"timeit", "repeat", "default_timer"},
}
CORES = {"cores", "cpu_count", "cpu_quota", "sched_getaffinity", "process_cpu_count", "get_num_threads"}

MEASURED = "durations in records, which nothing reads to compute"
WAITING = "how long something is waited for, or how often it is done"
RECORDED = "the time of an event, for people"
LIMIT = "a limit of time that the user has set"
#: Module -> what it reads a clock for.
CLOCK_READERS = {
    "cli.onboarding.starts": "the expected duration that `init` prints, and a limit of time that the user has set",
    "cluster.ray_cluster": WAITING,
    "cluster.session": WAITING,
    "core.clock": LIMIT,
    "core.digests": "whether a file may still change, so that its digest is not kept",
    "core.measurements": MEASURED,
    "core.progress": "the bar",
    "data.checks.record": RECORDED,
    "labelling.answers": RECORDED,
    "learners.baselines.stage": MEASURED,
    "learners.finetuning.runs": f"{MEASURED}; when a checkpoint is written; {LIMIT}",
    "pages.retrainings": RECORDED,
    "pipeline.lineage.forget": RECORDED,
    "pipeline.monitoring.drift_check": "the window of traffic that is compared",
    "pipeline.monitoring.garbage": "the age of what is deleted",
    "pipeline.telemetry": f"{RECORDED}; {WAITING}",
    "registry.drift.measurements": RECORDED,
    "registry.drift.traffic": f"{RECORDED}; {WAITING}",
    "registry.contest": "`promote.latency_ms` and the mode `latency`, in processor time",
    "registry.explain": "the time that a person asks about",
    "registry.ledger": f"{RECORDED}; whether a writer may have been suspended",
    "registry.tracking.log": WAITING,
    "registry.tracking.registry": RECORDED,
    "serving.app": MEASURED,
    "serving.batching": MEASURED,
    "serving.challenger": f"{MEASURED}; {WAITING}",
    "studies.context": "the speed that this study measures",
    "studies.lectures": MEASURED,
    "training.pretraining.language_model": f"{MEASURED}; when a checkpoint is written; `training.seconds`",
}
PARALLEL = "how many processes or threads work at the same time"
#: Module -> what it reads the number of processors for.
CORE_READERS = {
    "cli.labelling": PARALLEL,
    "cli.onboarding.command": PARALLEL,
    "cli.onboarding.starts": "the expected duration that `init` prints",
    "cli.prediction": PARALLEL,
    "cluster.launcher": PARALLEL,
    "cluster.session": PARALLEL,
    "cluster.shards": PARALLEL,
    "core.digests": PARALLEL,
    "core.processors": "the number itself",
    "core.threads": PARALLEL,
    "builtin_data": PARALLEL,
    "learners.finetuning.fit": f"how many runs follow each other, for {LIMIT}",
    "learners.task_models.predictor": PARALLEL,
    "models.flair": PARALLEL,
    "pipeline.costs": "the machine that a duration belongs to",
    "registry.lineage": RECORDED,
    "serving.server": PARALLEL,
    "model": PARALLEL,
}


def reads(tree: ast.AST) -> Iterator[str]:
    """`clock` for every access to one, `cores` for every call of a function of `CORES`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            owner = node.value.attr if isinstance(node.value, ast.Attribute) else getattr(node.value, "id", "")
            if node.attr in CLOCKS.get(owner, ()):
                yield "clock"
            if node.attr in CORES:
                yield "cores"
        elif isinstance(node, ast.ImportFrom) and {each.name for each in node.names} & CLOCKS.get(
            str(node.module), set()
        ):
            yield "clock"
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in CORES:
            yield "cores"


def readers() -> dict[str, set[str]]:
    """What is read -> modules, without the package."""
    result: dict[str, set[str]] = {"clock": set(), "cores": set()}
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            for what in reads(ast.parse(path.read_text(encoding="utf-8"))):
                result[what].add(".".join(path.relative_to(ROOT / package).with_suffix("").parts))
    return result


def test_every_access_is_recognised():
    code = (
        "import time, os, datetime\nfrom time import monotonic\nfrom datetime import datetime as d\n"
        "time.monotonic(); datetime.datetime.now(); os.getloadavg(); os.cpu_count(); cores(); torch.get_num_threads()\n"
        "self.time.sleep(1); time.strftime('%Y'); now(); clock.time\n"
    )
    assert sorted(reads(ast.parse(code))) == ["clock"] * 4 + ["cores"] * 3


def test_the_modules_that_read_a_clock_are_known():
    """A new one: say in the list above what it does with it. A result or a decision that depends on it is a defect."""
    assert readers()["clock"] == set(CLOCK_READERS)


def test_the_modules_that_read_the_number_of_processors_are_known():
    assert readers()["cores"] == set(CORE_READERS)
