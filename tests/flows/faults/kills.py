"""Faults that kill processes of a run, and damage what a killed run has left; each function returns what it saw."""

import resource
import signal
import time
from collections import Counter
from contextlib import suppress
from random import Random

import psutil

from components.core.liveness import is_alive
from flows.processes import descendants, having
from tests.flows.faults.project import LANGUAGE_MODELS, Project, Running, Session, expect

#: What identifies a process of a run by its command line, the first that applies.
ROLES = (
    ("Ray worker", ("TrainingWorker", "RayTrainWorker")),
    ("Ray", ("ray::", "default_worker.py", "gcs_server", "raylet", "/ray/", "ray_")),
    ("flow", ("components.cli retrain",)),
    ("command", ("headstart stage", "components.cli check")),
    ("pool", ("multiprocessing",)),
    ("dvc", ("-m dvc",)),
)
WARM = "multiprocessing.forkserver"
#: Number of attempts of a run after the last kill: retries of a stage are used up by kills, so a run may end.
ATTEMPTS = 4
#: Largest file in bytes that a stage may write while its disk is full.
LARGEST_FILE = 4096


def role(process: psutil.Process) -> str:
    """What a process of a run is: flow, dvc, stage, Ray worker ...; empty if it has ended."""
    try:
        command = " ".join(process.cmdline())
        if WARM in command:
            # The server, and its processes.
            above = sum(WARM in " ".join(parent.cmdline()) for parent in process.parents())
            return ("server", "stage")[min(above, 1)]
    except psutil.Error:
        return ""
    return next((name for name, parts in ROLES if any(part in command for part in parts)), "other")


def find(run: Running, name: str) -> list[psutil.Process]:
    """The live processes of a run with this role; at least one."""
    processes = [process for process in descendants(run.pid) if is_alive(process) and role(process) == name]
    expect(processes, f"no {name} was found")
    return processes


def kill(process: psutil.Process) -> None:
    """SIGKILL, and wait until the process has ended. It is not reaped: that is left to its parent."""
    with suppress(psutil.Error):
        process.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 10
    while is_alive(process) and time.monotonic() < deadline:
        time.sleep(0.01)


def _kill_in_training(session: Session, name: str, victim: str, *, launcher: str) -> tuple[Running, str]:
    """Kill the processes with a role after a random checkpoint of pretraining, and let the run go on."""
    project, chance = session.project(name, launcher=launcher, state="before"), session.chance(name)
    run = project.retrain()
    step = project.until_checkpoints(run, chance.randint(2, 4))
    time.sleep(chance.uniform(0, 0.2))
    for process in find(run, victim):
        kill(process)
    project.pretrain(run)
    return run, f"killed after the checkpoint of step {step}; the run went on; {session.compare_pretrained(project)}"


def kill_worker(session: Session) -> str:
    """Kill the Ray worker of pretraining between two of its checkpoints."""
    run, seen = _kill_in_training(session, "kill-worker", "Ray worker", launcher="ray")
    expect("\nerror: " not in run.output, "the stage ended with its worker")
    return seen


def kill_stage(session: Session) -> str:
    """Kill the process of a stage, at a random time of the training of language models."""
    run, seen = _kill_in_training(session, "kill-stage", "stage", launcher="local")
    expect("ended by signal 9" in run.output, "the run did not notice the end of the stage")
    return seen


def kill_flow(session: Session) -> str:
    """Kill the flow at a random time of the whole run, then run again."""
    session.outputs  # noqa: B018 -- measures the seconds of an undisturbed run
    project = session.project("kill-flow", state="before")
    moment = session.chance("kill-flow").uniform(0.1, 0.9) * session.seconds
    run = project.retrain()
    with suppress(AssertionError):
        run.ended(limit_s=moment)
    at = _at(run.output)
    kill(psutil.Process(run.pid))
    run.ended()
    project.retrain().ended(0)
    return f"killed after {moment:.0f} s in {at}, the next run went on; {session.compare(project)}"


def truncate_checkpoint(session: Session) -> str:
    """Kill the stage between two checkpoints, cut the newest one in half, and run again."""
    project = session.project("checkpoint-truncated", state="before")
    run = project.retrain()
    project.until_checkpoints(run)
    kill(psutil.Process(run.pid))
    run.ended()
    for process in having("PYTHONPATH", str(project.root)):
        kill(process)
    newest = max((project.root / ".headstart/checkpoints").glob(f"{LANGUAGE_MODELS}/step-*/state.safetensors"))
    size = newest.stat().st_size
    with newest.open("r+b") as file:
        file.truncate(size // 2)
    project.pretrain()
    step = int(newest.parent.name.removeprefix("step-"))
    same = session.compare_pretrained(project)
    return f"checkpoint of step {step} cut from {size:,} to {size // 2:,} bytes, an older one was used; {same}"


def disk_full(session: Session) -> str:
    """The disk is full during pretraining; then there is space again. The size of the files that the stage may write is
    limited (RLIMIT_FSIZE): writing fails in the same places as on a full disk, with another error number."""
    project = session.project("disk-full", state="before")
    run = project.retrain()
    step = project.until_checkpoints(run)
    for process in find(run, "stage"):
        process.rlimit(resource.RLIMIT_FSIZE, (LARGEST_FILE, process.rlimit(resource.RLIMIT_FSIZE)[1]))
    run.ended(2)
    expect("space" in run.last, f"the message does not mention the space: {run.last}")
    kept = max(project.stored_steps(), default=0)
    expect(kept >= step, f"the checkpoint of step {step} was lost")
    project.pretrain()  # the limit has ended with the processes of the stage
    same = session.compare_pretrained(project)
    return f"exit code 2 with the reason, checkpoint of step {kept} kept; with space: {same}"


def _at(output: str) -> str:
    sources = [line.partition(" | ")[0] for line in output.splitlines() if " | " in line]
    return f"the stage {sources[-1]}" if sources else "its start"


def random_kills(session: Session) -> str:
    """Kill random processes of runs, in one new project after the other, until the number of kills is reached; the
    outputs of each project are compared."""
    chance, roles = session.chance("random-kills"), Counter[str]()
    runs, projects, same = 0, 0, ""
    while roles.total() < session.count:
        projects += 1
        project = session.project(f"random-kills-{projects}", launcher="ray", state="new")
        runs += _killed_until_complete(session, project, chance, roles)
        same = session.compare(project)
        session.say(f"  project {projects}: {same}")
    met = ", ".join(f"{number} {name}" for name, number in roles.most_common())
    return f"{roles.total()} kills ({met}) in {runs} runs of {projects} projects; {same}"


def _killed_until_complete(session: Session, project: Project, chance: Random, roles: Counter[str]) -> int:
    """Kill random processes of a run's tree, starting the run again when it has ended, until it is complete or the
    number of kills is reached. Returns the number of runs. Pauses grow while no stage is completed."""
    stages, done = _stages_done(session.undisturbed), _stages_done(project)
    pause, runs = session.seconds / stages, 0
    run: Running | None = None
    while roles.total() < session.count:
        if run is None or run.process.poll() is not None:
            if run is not None and run.process.returncode == 0:
                return runs
            run, runs = project.retrain(), runs + 1
        deadline = time.monotonic() + chance.uniform(0, pause)
        while time.monotonic() < deadline and run.process.poll() is None:
            time.sleep(0.02)
        victims = [process for process in descendants(run.pid) if is_alive(process)]
        if run.process.poll() is not None or not victims:
            continue
        victim = chance.choice(victims)
        if what := role(victim):
            kill(victim)
            roles[what] += 1
            now = _stages_done(project)
            pause, done = pause * (1.3 if now == done else 0.8), now
            session.say(f"  kill {roles.total()}: {what} in {_at(run.output)}, {done} of {stages} stages done")
    if run is not None:
        run.ended()
    for attempt in range(1, ATTEMPTS + 1):
        runs += 1
        if project.retrain().ended(0 if attempt == ATTEMPTS else None).process.returncode == 0:
            break
    return runs


def _stages_done(project: Project) -> int:
    lock = project.root / "dvc.lock"
    lines = lock.read_text(encoding="utf-8").splitlines() if lock.is_file() else []
    return sum(line.startswith("  ") and not line.startswith("   ") and line.endswith(":") for line in lines)
