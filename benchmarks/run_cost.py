"""What a command costs: processor seconds of all its processes, killed and forgotten ones included, and of its stages.

    python benchmarks/run_cost.py --record run-cost --variant after make run
    python benchmarks/run_cost.py headstart fit tickets.csv

`time` does not see processes that nobody waits for, such as Ray's workers. The command runs in a control group of its
own (cpuacct of version 1, or version 2); where none can be made, the processes that inherit a variable of the
environment are read from /proc. The stages are those of `.headstart/durations.jsonl` in the project; stages that run at
the same time share what is spent. Other work on the machine lengthens the wall time, and processor seconds by up to
a half: the load before the start is recorded. `--variant` names the column: the columns of other variants in the file
of `--record` are kept.
"""

from __future__ import annotations

import argparse
import os
import secrets
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.results import RESULTS, Column, add_record_option, commit_of, read_result, record
from components.core.processors import processor_name
from components.pipeline.costs import History

#: Seconds between two samples of a control group, and of /proc.
SAMPLE_S = 0.25
MARK = "HEADSTART_COST"
TICKS = os.sysconf("SC_CLK_TCK")
BEFORE, BESIDE, TOTAL = "before the first stage", "between and after the stages", "total"

#: Moments (seconds since the epoch) and processor seconds until then.
Samples = Sequence[tuple[float, float]]
#: Stage -> its start and end, in seconds since the epoch.
Intervals = Mapping[str, tuple[float, float]]


class Group:
    """A control group: `enter` moves the calling process into it.

    Raises:
        OSError: none can be made.
    """

    def __init__(self) -> None:
        errors = []
        for parent, self._file, self._unit in _parents():
            self.folder = parent / f"run-cost-{os.getpid()}"
            try:
                self.folder.mkdir()
                self.seconds()
                return
            except (OSError, ValueError) as error:
                errors.append(str(error))
        raise OSError(f"no control group: {'; '.join(errors) or 'none is mounted'}")

    def enter(self) -> None:
        (self.folder / "cgroup.procs").write_text("0")

    def seconds(self) -> float:
        """Processor seconds of all processes that the group has held."""
        words = (self.folder / self._file).read_text().split()
        return int(words[-1] if len(words) == 1 else words[words.index("usage_usec") + 1]) * self._unit

    def close(self) -> list[int]:
        """The processes that have not ended. The group is removed if there are none."""
        left = [int(pid) for pid in (self.folder / "cgroup.procs").read_text().split()]
        if not left:
            self.folder.rmdir()
        return left


def _parents() -> list[tuple[Path, str, float]]:
    """Folders in which a group may be made, the file of its usage, and the unit of that in seconds."""
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    here = {parts[1]: parts[2] for parts in (line.split(":", 2) for line in _lines("/proc/self/cgroup"))}
    result = []
    for _, folder, kind, options, *_ in sorted(mounts, key=lambda mount: mount[2]):
        named = next((names for names in here if "cpuacct" in names.split(",")), None)
        if kind == "cgroup" and "cpuacct" in options.split(",") and named is not None:
            paths, file, unit = here[named], "cpuacct.usage", 1e-9
        elif kind == "cgroup2":
            paths, file, unit = here.get("", "/"), "cpu.stat", 1e-6
        else:
            continue
        # In a container the path may be that of another namespace.
        result += [(parent, file, unit) for parent in dict.fromkeys((Path(folder + paths), Path(folder)))]
    return result


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []


@dataclass
class Marked:
    """The processes that inherit a mark, read from /proc. What a process has spent since its last sample is lost; one
    that no sample has seen is counted by the parent that waits for it."""

    mark: str = field(default_factory=lambda: secrets.token_hex(8))
    #: pid and start -> parent, own processor seconds, and those of the children that it has waited for.
    _seen: dict[tuple[int, int], tuple[int, float, float]] = field(default_factory=dict)
    _living: set[tuple[int, int]] = field(default_factory=set)

    def seconds(self) -> float:
        """Processor seconds until now."""
        self._living = set()
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                self._sample(int(entry.name))
        unseen = {pid: children for (pid, _), (_, _, children) in self._seen.items()}
        for key, (parent, used, children) in self._seen.items():
            if key not in self._living and parent in unseen:
                unseen[parent] -= used + children
        return sum(used for _, used, _ in self._seen.values()) + sum(max(0.0, rest) for rest in unseen.values())

    def _sample(self, pid: int) -> None:
        try:
            text = Path(f"/proc/{pid}/stat").read_text()
            values = text[text.rindex(")") + 2 :].split()
            key = pid, int(values[19])
            if (
                key not in self._seen
                and f"{MARK}={self.mark}".encode() not in Path(f"/proc/{pid}/environ").read_bytes()
            ):
                return
        except (OSError, ValueError):
            return
        used, children = (sum(int(value) for value in values[n : n + 2]) / TICKS for n in (11, 13))
        parent = self._seen[key][0] if key in self._seen else int(values[1])
        self._seen[key] = parent, used, children
        if values[0] != "Z":
            self._living.add(key)

    def close(self) -> list[int]:
        """The processes that have not ended."""
        self.seconds()
        return [pid for pid, _ in self._living]


@dataclass(frozen=True)
class Cost:
    """What a command has cost: wall time in seconds, samples of processor seconds, load (mean number of waiting
    processes in the last minute) before the start, exit code, and processes that have not ended."""

    wall: float
    samples: Samples
    load: float
    code: int
    left: Sequence[int]

    @property
    def processor(self) -> float:
        """Processor seconds of all processes."""
        return self.samples[-1][1]


def measure(command: Sequence[str], *, sampled: bool = False) -> Cost:
    """Run a command and count the processor seconds of all its processes.

    Args:
        sampled: read /proc although a control group can be made.
    """
    group: Group | Marked
    enter: Callable[[], None] | None = None
    try:
        if sampled:
            raise OSError
        group = Group()
        enter = group.enter
    except OSError as error:
        group = Marked()
        if not sampled:
            print(f"run_cost: {error}; processes are sampled", file=sys.stderr)
    environment = os.environ | ({MARK: group.mark} if isinstance(group, Marked) else {})
    load, began = os.getloadavg()[0], time.time()
    samples = [(began, 0.0)]
    process = subprocess.Popen(command, env=environment, preexec_fn=enter)
    ended = None
    while ended is None:
        time.sleep(SAMPLE_S)
        # Not waited for yet: /proc still says what the process has spent.
        ended = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        samples.append((time.time(), group.seconds()))
    return Cost(time.time() - began, samples, load, process.wait(), group.close())


def intervals(project: Path, *, since: float) -> dict[str, tuple[float, float]]:
    """The stages that a project has completed since a time, in the order of their starts."""
    result = {}
    for each in History(project).read():
        end = datetime.fromisoformat(each.time).timestamp() if each.time else 0.0
        if end >= since:
            result[each.stage] = max(since, end - each.seconds), end
    return dict(sorted(result.items(), key=lambda item: item[1]))


def by_stage(samples: Samples, stages: Intervals) -> dict[str, float]:
    """Processor seconds of each stage, and of what ran without one. Those between two samples belong to the stages that
    ran at their middle, in equal parts."""
    spent = {BEFORE: 0.0, **dict.fromkeys(stages, 0.0), BESIDE: 0.0}
    first = min((start for start, _ in stages.values()), default=float("inf"))
    for (before, used), (moment, now) in zip(samples, samples[1:], strict=False):
        middle = (before + moment) / 2
        names = [name for name, (start, end) in stages.items() if start <= middle < end]
        for name in names or [BEFORE if middle < first else BESIDE]:
            spent[name] += (now - used) / max(1, len(names))
    return spent


def write(name: str | None, variant: str, cost: Cost, stages: Intervals, *, command: Sequence[str], note: str) -> None:
    """Print the table, and record it with the columns of other variants that the file has."""
    spent = by_stage(cost.samples, stages) | {TOTAL: cost.processor}
    walls = {stage: end - start for stage, (start, end) in stages.items()} | {TOTAL: cost.wall}
    for row, seconds in spent.items():
        print(f"{row:<45} {seconds:9.1f} s of the processor  {walls.get(row, float('nan')):9.1f} s")
    if name is None:
        return
    values = {
        row: {f"{variant}-processor": seconds, **({f"{variant}-wall": walls[row]} if row in walls else {})}
        for row, seconds in spent.items()
    }
    columns, notes = _columns(variant), []
    path = Path() / RESULTS / f"{name}.json"
    if path.is_file():
        earlier = read_result(path)
        kept = [column for column in earlier.columns if not column.name.startswith(f"{variant}-")]
        columns = [*kept, *columns]
        for each in earlier.values:
            cells = {column.name: each.estimates[column.name] for column in kept if column.name in each.estimates}
            if cells:
                values[each.name] = {key: cell[0] for key, cell in cells.items()} | values.get(each.name, {})
        values[TOTAL] = values.pop(TOTAL)
        notes = [part for part in earlier.notes.split("; ") if part and not part.startswith(f"{variant}: ")]
    about = f"commit {(commit_of(Path(__file__).parent) or 'unknown')[:8]}, load {cost.load:.1f} before the start"
    described = f"{processor_name(Path('/proc/cpuinfo')) or 'unknown processor'}, {about}"
    notes.append(f"{variant}: {described}{f', {note}' if note else ''}")
    title = f"Processor seconds of all processes and wall time in seconds, by stage; `{shlex.join(command)}`"
    record(name, title=title, row_title="stage", columns=columns, values=values, notes="; ".join(notes))


def _columns(variant: str) -> list[Column]:
    return [
        Column(name=f"{variant}-processor", title=f"{variant}: processor", format=".1f"),
        Column(name=f"{variant}-wall", title=f"{variant}: wall", format=".1f"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--project", type=Path, default=Path(), help="folder whose stages run")
    parser.add_argument("--variant", default="now", help="name of the column")
    parser.add_argument("--note", default="", help="about the machine, for the record")
    parser.add_argument("--sampled", action="store_true", help="read /proc instead of a control group")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="and its arguments, last")
    add_record_option(parser)
    arguments = parser.parse_args()
    cost = measure(arguments.command, sampled=arguments.sampled)
    stages = intervals(arguments.project, since=cost.samples[0][0])
    write(arguments.record, arguments.variant, cost, stages, command=arguments.command, note=arguments.note)
    if cost.left:
        print(f"run_cost: still running, and not counted any more: {cost.left}", file=sys.stderr)
    sys.exit(cost.code)


if __name__ == "__main__":
    main()
