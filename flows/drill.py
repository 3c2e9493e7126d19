"""Cause faults in a temporary project: `headstart drill [NAME]`. The user's data and servers are not used."""

import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from components.cli.common import print_table
from components.core.errors import ConfigError, HeadstartError, nearest
from components.reporting.results import RESULTS, Column, Row, measured, read_result, write_result
from flows.command import main
from flows.drills import kills, services
from flows.drills.project import CHECKOUT, Session, environment


@dataclass(frozen=True)
class Drill:
    """A fault and what has to follow: `run` causes the fault and returns what was seen in words, or raises DrillError
    if it is not what is expected."""

    name: str
    broken: str
    expected: str
    run: Callable[[Session], str]


@dataclass(frozen=True)
class Outcome:
    """How a drill ended: `seen` in words, or the reason of the failure."""

    drill: Drill
    passed: bool
    seen: str
    seconds: float


DRILLS = tuple(
    Drill(*entry)
    for entry in (
        ("kill-worker", "SIGKILL of the Ray worker in training", "the run goes on, same bits", kills.kill_worker),
        ("kill-stage", "SIGKILL of a stage in training", "the run repeats it, same bits", kills.kill_stage),
        ("kill-flow", "SIGKILL of the flow, any time", "the next run goes on, same bits", kills.kill_flow),
        ("checkpoint-truncated", "the newest checkpoint cut in half", "an older one is used, same bits",
         kills.truncate_checkpoint),
        ("mlflow-away", "no MLflow for seconds", "register is retried, the run ends well", services.mlflow_away),
        ("mlflow-gone", "no MLflow at all", "exit code 75, nothing lost", services.mlflow_gone),
        ("s3-credentials", "S3 credentials expire in training", "a message, exit code 2, same bits with good ones",
         services.s3_credentials),
        ("disk-full", "no space in training", "a message, exit code 2, same bits with space", kills.disk_full),
        ("alias-moved", "alias moved by hand", "it stays, and the ledger records it", services.alias_moved),
        ("two-retrainings", "two retrainings at once", "one waits, same bits", services.two_at_once),
        ("ledger-torn", "SIGKILL in a change of the champion", "the next decision completes it", services.ledger_torn),
        ("ray-head", "SIGKILL of the Ray cluster's head", "the run goes on with the new head, same bits",
         services.ray_head),
        ("random-kills", "SIGKILL of random processes at random times", "nothing lost, same bits as undisturbed",
         kills.random_kills),
    )
)  # fmt: skip


def run(names: Sequence[str], *, session: Session) -> list[Outcome]:
    """Run drills one after the other; a failed one does not end the others.

    Raises:
        ConfigError: unknown name.
    """
    drills = {drill.name: drill for drill in DRILLS}
    for name in names:
        if name not in drills:
            raise ConfigError(f"unknown drill {name!r}{nearest(name, drills)}")
    outcomes = []
    for name in names or drills:
        drill = drills[name]
        session.say(f"{name}: {drill.broken}; expected: {drill.expected}")
        began = time.monotonic()
        try:
            passed, seen = True, drill.run(session)
        except HeadstartError as error:
            passed, seen = False, str(error)
        outcomes.append(Outcome(drill, passed, seen, time.monotonic() - began))
        session.say(f"  {'passed' if passed else 'FAILED'} in {outcomes[-1].seconds:.0f} s: {seen}")
    return outcomes


def record(outcomes: Sequence[Outcome], name: str, *, command: str) -> Path:
    """Write the outcomes to docs/results/NAME.json of this checkout. The rows of other drills are kept."""
    path = CHECKOUT / RESULTS / f"{name}.json"
    rows = {row.name.partition(":")[0]: row for row in read_result(path).values} if path.is_file() else {}
    for outcome in outcomes:
        drill = outcome.drill
        rows[drill.name] = Row(
            name=f"{drill.name}: {drill.broken}. Expected: {drill.expected}. Seen: {outcome.seen}",
            estimates={"passed": [float(outcome.passed)], "seconds": [round(outcome.seconds, 1)]},
        )
    columns = [
        Column(name="passed", title="passed", format=".0f"),
        Column(name="seconds", title="time", format=".0f", unit=" s"),
    ]
    result = measured(
        name,
        title="Drills",
        command=command,
        row_title="drill",
        columns=columns,
        values=[rows[drill.name] for drill in DRILLS if drill.name in rows],
        notes="1: passed, 0: failed. Times on a machine with other work.",
    )
    return write_result(result, CHECKOUT)


def command(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Drills; all by default.")] = None,
    *,
    listing: Annotated[bool, typer.Option("--list", help="List the drills and run none.")] = False,
    seed: Annotated[int, typer.Option(help="Of the random times of the faults.")] = 0,
    count: Annotated[int, typer.Option(help="Number of kills of random-kills.", min=1)] = 10,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the folder of the projects and their logs.")] = False,
    to: Annotated[str, typer.Option("--record", help="Write the table to docs/results/NAME.json.")] = "",
) -> None:
    """Cause faults in a temporary project, and report what follows."""
    if listing:
        rows = [(drill.name, drill.broken, drill.expected) for drill in DRILLS]
        print_table(("drill", "what is broken", "what is expected"), rows, width=160)
        return
    folder = Path(tempfile.mkdtemp(prefix="headstart-drill-"))
    try:
        with environment(folder) as variables:
            session = Session(folder, variables, seed=seed, count=count, say=lambda line: print(line, flush=True))
            outcomes = run(names or [], session=session)
    finally:
        if keep:
            print(f"kept: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    cells = [
        (each.name, each.broken, each.expected, of.seen, "pass" if of.passed else "FAIL", f"{of.seconds:.0f}")
        for of in outcomes
        for each in [of.drill]
    ]
    print_table(("drill", "broken", "expected", "seen", "", "seconds"), cells, width=160)
    if to:
        arguments = " ".join(["headstart drill", *(names or [])])
        print(record(outcomes, to, command=arguments + (f" --count {count}" if count != 10 else "")))
    if not all(outcome.passed for outcome in outcomes):
        raise typer.Exit(1)


if __name__ == "__main__":
    main(command)
