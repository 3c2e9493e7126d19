"""Drills that kill processes of a run, and damage what a killed run has left."""

from __future__ import annotations

import math
import random
import signal
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field

import psutil

from flows.drills.base import Session, expect
from flows.drills.project import LANGUAGE_MODELS, DrillError, Project, Running
from flows.processes import descendants, is_alive

#: What identifies a process of a run by its command line, the first that applies.
ROLES = (
    ("Ray worker", ("RayTrainWorker",)),
    ("Ray", ("ray::", "default_worker.py", "gcs_server", "raylet", "/ray/", "ray_")),
    ("plan", ("flows.plan",)),
    ("flow", ("flows.retrain",)),
    ("stage", ("headstart stage", "components.cli check")),
    ("pool", ("multiprocessing",)),
    ("dvc", ("-m dvc",)),
)
#: Number of attempts of a run after the last kill: retries of a stage are used up by kills, so a run may end.
ATTEMPTS = 4


def role(process: psutil.Process) -> str:
    """What a process of a run is: flow, dvc, stage, Ray worker ...; empty if it has ended."""
    try:
        command = " ".join(process.cmdline())
    except psutil.Error:
        return ""
    return next((name for name, parts in ROLES if any(part in command for part in parts)), "other")


def find(run: Running, name: str) -> list[psutil.Process]:
    """The live processes of a run with this role."""
    return [process for process in descendants(run.pid) if is_alive(process) and role(process) == name]


def kill(process: psutil.Process) -> None:
    """SIGKILL, and wait until the process has ended. It is not reaped: that is left to its parent."""
    with suppress(psutil.Error):
        process.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 10
    while is_alive(process) and time.monotonic() < deadline:
        time.sleep(0.01)


def kill_worker(session: Session) -> str:
    """Kill the Ray worker of pretraining between two of its checkpoints."""
    project = session.project("kill-worker", launcher="ray")
    run = project.retrain()
    step = _train_until(run, project, session.chance("kill-worker"))
    workers = find(run, "Ray worker")
    expect(workers, "no Ray worker was found")
    for worker in workers:
        kill(worker)
    project.pretrain(run)
    expect("error: " not in run.output, "the stage ended with its worker")
    return f"killed after the checkpoint of step {step}; the stage went on; {session.compare_pretrained(project)}"


def kill_stage(session: Session) -> str:
    """Kill the process of a stage, at a random time of the training of language models."""
    project = session.project("kill-stage")
    run = project.retrain()
    step = _train_until(run, project, session.chance("kill-stage"))
    stages = find(run, "stage")
    expect(stages, "no stage was found")
    for stage in stages:
        kill(stage)
    project.pretrain(run)
    expect("ended by signal 9" in run.output, "the run did not notice the end of the stage")
    return (
        f"killed after the checkpoint of step {step}; the run repeated the stage; {session.compare_pretrained(project)}"
    )


def kill_flow(session: Session) -> str:
    """Kill the flow at a random time of the whole run, then run again."""
    project = session.project("kill-flow")
    session.digests  # noqa: B018 -- measures the seconds of an undisturbed run
    moment = session.chance("kill-flow").uniform(0.1, 0.9) * session.seconds
    run = project.retrain()
    with suppress(DrillError):
        run.ended(limit_s=moment)
    at = _at(run.output)
    kill(psutil.Process(run.pid))
    run.ended()
    project.finish()
    return f"killed after {moment:.0f} s in {at}, the next run went on; {session.compare(project)}"


def truncate_checkpoint(session: Session) -> str:
    """Kill the stage between two checkpoints, cut the newest one in half, and run again."""
    project = session.project("checkpoint-truncated")
    run = project.retrain()
    run.wait_for(lambda: len(project.stored_steps()) >= 2, what="two checkpoints are stored")
    kill(psutil.Process(run.pid))
    run.ended()
    for process in project.processes():
        kill(process)
    newest = max((project.root / ".headstart/checkpoints").glob(f"{LANGUAGE_MODELS}/step-*/state.safetensors"))
    size = newest.stat().st_size
    with newest.open("r+b") as file:
        file.truncate(size // 2)
    project.pretrain()
    step = int(newest.parent.name.removeprefix("step-"))
    same = session.compare_pretrained(project)
    return f"checkpoint of step {step} cut from {size:,} to {size // 2:,} bytes, an older one was used; {same}"


def _train_until(run: Running, project: Project, chance: random.Random) -> int:
    """Wait until a random number of checkpoints of pretraining is stored; the newest step."""
    wanted = chance.randint(2, 4)
    seen: set[int] = set()

    def stored() -> bool:
        seen.update(project.stored_steps())
        return len(seen) >= wanted

    run.wait_for(stored, what=f"{wanted} checkpoints are stored")
    time.sleep(chance.uniform(0, 0.2))
    return max(seen)


def _at(output: str) -> str:
    """The stage that a run's output mentions last."""
    sources = [line.partition(" | ")[0] for line in output.splitlines() if " | " in line]
    return f"the stage {sources[-1]}" if sources else "its start"


# --- many kills --------------------------------------------------------------------------------------------------


@dataclass
class Pace:
    """Waits before the kills, in seconds, which adapt to the speed of the machine.

    Kills come in bursts, in which the run hardly gets beyond its start. Between two bursts the run has a random time,
    long enough for a stage, so a kill may hit any moment of any stage. The share of the kills follows that of
    the stages that are done: the kills are distributed over the whole run, and the run ends.

    Attributes:
        calm: longest wait between two bursts.
        burst: longest wait in a burst; the logarithm of these waits is uniform.
        shortest: shortest wait.
    """

    calm: float = 30.0
    burst: float = 8.0
    shortest: float = 0.1

    def wait(self, chance: random.Random, *, killed: float, done: float) -> float:
        """The seconds before the next kill.

        Args:
            chance: the random numbers.
            killed: fraction of the kills.
            done: fraction of the stages.
        """
        if killed > done:
            return chance.uniform(0, self.calm)
        return math.exp(chance.uniform(math.log(self.shortest), math.log(self.burst)))

    def adapt(self, *, stages: int) -> None:
        """Wait longer if no stage was completed in a calm, and less if several were."""
        self.calm *= 1.3 if stages == 0 else 0.8 if stages > 1 else 1.0


@dataclass
class Tally:
    """What the kills met.

    Attributes:
        roles: kills by role of the process.
        runs: number of starts of `headstart retrain`.
    """

    roles: Counter[str] = field(default_factory=Counter)
    runs: int = 0

    @property
    def kills(self) -> int:
        """Number of kills."""
        return self.roles.total()


def random_kills(session: Session) -> str:
    """Kill random processes of a run's tree at random times, starting the run again when it has ended, until the number
    of kills is reached; then let it finish."""
    session.registered  # noqa: B018 -- the undisturbed run takes place before
    project, chance = session.project("random-kills", launcher="ray", state="new"), session.chance("random-kills")
    stages = _stages_done(session.undisturbed)
    before = _stages_done(project)
    tally, pace, done = Tally(), Pace(), before
    began = time.monotonic()
    run: Running | None = None
    while tally.kills < session.count:
        if run is None or run.process.poll() is not None:
            expect(run is None or run.process.returncode != 0, f"the run was complete after {tally.kills} kills")
            run = project.retrain()
            tally.runs += 1
        killed, share = tally.kills / session.count, (done - before) / max(1, stages - before)
        if done >= stages - 1:
            # The last stage ends the run, so it has no calm before the last kill.
            share = 1.0
        deadline = time.monotonic() + pace.wait(chance, killed=killed, done=share)
        while time.monotonic() < deadline and run.process.poll() is None:
            time.sleep(0.02)
        victims = [process for process in descendants(run.pid) if is_alive(process)]
        if run.process.poll() is not None or not victims:
            continue
        victim = chance.choice(victims)
        if what := role(victim):
            kill(victim)
            tally.roles[what] += 1
            now = _stages_done(project)
            if killed > share:
                pace.adapt(stages=now - done)
            done = now
            elapsed = f"{time.monotonic() - began:6.0f} s"
            where = f"{_at(run.output)}, {done} of {stages} stages done"
            session.say(f"  {elapsed}  kill {tally.kills}: {what} in {where}, calms up to {pace.calm:.0f} s")
    if run is not None:
        run.ended()
    for attempt in range(ATTEMPTS):
        tally.runs += 1
        last = project.retrain().ended()
        if last.code == 0:
            break
        expect(attempt + 1 < ATTEMPTS, f"the last run ended with exit code {last.code}: {last.last}")
    met = ", ".join(f"{number} {name}" for name, number in tally.roles.most_common())
    return f"{tally.kills} kills ({met}) in {tally.runs} runs; {session.compare(project)}"


def _stages_done(project: Project) -> int:
    """Number of stages that DVC has recorded."""
    lock = project.root / "dvc.lock"
    lines = lock.read_text(encoding="utf-8").splitlines() if lock.is_file() else []
    return sum(line.startswith("  ") and not line.startswith("   ") and line.endswith(":") for line in lines)
