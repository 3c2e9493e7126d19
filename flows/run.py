"""A run of the pipeline: its lock, what precedes its stages, which stages it has, and its end."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from components.cli.onboarding.repository import commit_project, make_project
from components.core.artifacts import digest_text, write_atomic
from components.core.data_version import dvc_config
from components.pipeline.identity import STAGE as IDENTITY
from components.pipeline.monitoring import disk
from components.pipeline.running import request
from components.pipeline.stages import STAGES
from components.registry.reading import state_of
from components.reporting.findings import FOLDER
from components.settings.imports import Import, localised
from components.settings.loading import read_file
from components.settings.registry import SQLITE, database_of
from flows import summary
from flows.execution import DVC, run_command, run_headstart
from flows.flow_run import show_table, show_text
from flows.plan import Plan, Stage, read_plan
from flows.repository import STATE, Project, pipeline_of, recorded_outputs
from flows.telemetry import Monitor
from flows.terminal import StageError, terminal

#: Target stages of a run, which includes all of their dependencies.
GOALS = ("evaluate", "leakage")
#: Stages whose outputs no score depends on: one that runs before training, on the inputs of the run.
BEFORE = ("checks",)
#: Stages that run last, on the outputs that exist then.
AFTERWARDS = ("register", "promote", "report")
#: Time limits in seconds of a transfer from an address, and of a check of drift.
IMPORT_S, DRIFT_S = 6 * 3600.0, 1800.0
#: MLflow's stores of a local database.
STORES = "components.registry.tracking.local_stores"
#: Modules of the commands of every run.
COMMANDS = ("dvc.repo", "components.cli.main", "components.pipeline.identity")
#: Free space that must remain beside the estimate of a run's outputs.
SPARE_BYTES = 10**9


@contextmanager
def begin(project: Project, *, rebuild: bool = False, goals: Sequence[str] = ()) -> Iterator[Plan]:
    """Work in a project's repository, and hold its lock, within the block; returns the plan.

    Raises:
        ConfigError: the settings file or dvc.yaml is wrong.
    """
    root = project.root
    for made in make_project(root):
        terminal.say(f"made {made} for the versions of data and models", source="init", stays=True)
    with project.locked("retrain"):
        bring(project)
        check_drift(project)
        if rebuild:
            request(project.settings, "headstart retrain --rebuild")
        pipeline = pipeline_of(project)
        commit_project(root)
        yield replace(read_plan(pipeline, root=root), goals=tuple(goals))


def bring(project: Project) -> list[Path]:
    """Import what the settings name by its address, or the newer version of it; returns the .dvc files. If an address
    cannot be reached, an existing copy is used with a warning. Raises StageError: there is none."""
    return [*map(_brought, localised(read_file(project.file))[1])]


def _brought(named: Import) -> Path:
    path = Path(named.path)
    record = path.with_name(f"{path.name}.dvc")
    if not record.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        terminal.say(f"{named.url}: dvc import-url", source="data")
        command = (*DVC, "import-url", named.url, named.path)
        run_command(command, source="data", limit_s=IMPORT_S)
        return record
    before = record.read_bytes()
    try:
        run_command((*DVC, "update", f"{named.path}.dvc"), source="data", limit_s=IMPORT_S)
    except StageError:
        # DVC removes the copy before it fetches the new one.
        if not path.exists():
            run_command((*DVC, "checkout", f"{named.path}.dvc"), source="data", limit_s=IMPORT_S)
        terminal.say(f"warning: {named.url} cannot be reached; the copy of an earlier run is used", source="data")
    if record.read_bytes() != before:
        terminal.say(f"{named.url}: a new version", source="data", stays=True)
    return record


def check_drift(project: Project) -> None:
    """Compare the served traffic of each task with training, if any was logged since the last check. An error of the
    check, such as a registry that does not answer, is printed and does not stop the run."""
    from components.registry.drift.traffic import segments, traffic_folder  # imports pyarrow

    for task in project.settings.run.tasks:
        logged = segments(traffic_folder() / task)
        checked = project.out / FOLDER / f"drift-{task}" / "manifest.json"
        newest = max((path.stat().st_mtime for path in logged), default=0.0)
        if newest > (checked.stat().st_mtime if checked.is_file() else 0.0):
            try:
                arguments = ("drift", "--task", task, "--params", project.name)
                run_headstart(*arguments, source="drift", limit_s=DRIFT_S)
            except StageError:
                terminal.say("the check failed; the run goes on", source="drift", stays=True)


def check_space(ahead: Mapping[Stage, str], project: Project) -> None:
    """Refuse a run of the stages ahead that would fill a disk.

    Raises:
        DiskSpaceError: there is too little space for the outputs, the DVC cache, checkpoints or temporary files.
    """
    if not any(stage.reasons for stage in ahead):
        return
    settings = project.settings
    storage = settings.cluster.storage
    kinds = dvc_config().get("cache", {}).get("type", "reflink,copy")
    recorded = recorded_outputs(project.file.with_name("dvc.lock"))
    estimate = disk.needs(
        [stage.name for stage in ahead],
        {name: sum(int(each.get("size", 0)) for each in outs) for name, outs in recorded.items()},
        data=sum(disk.size_of(path) for path in {Path(source.path) for source in settings.data.sources.values()}),
        out=project.out,
        # Linked outputs take no further space. Few file systems have reflinks; DVC then takes the next kind.
        cache=None if {"hardlink", "symlink"} & {*kinds.replace(" ", "").split(",")} else Path(".dvc/cache"),
        checkpoints=None if "://" in storage else Path(storage),
    )
    disk.check_space(estimate, spare=SPARE_BYTES)


def conclude(done: dict[str, list[str]], monitor: Monitor, project: Project, *, brief: bool) -> None:
    """Record the end of a run and print its summary."""
    decided = "promote" not in done["Skipped"]
    decisions = summary.decisions(project, decided=decided)
    # Before the state of the registry is recorded, which the monitor changes.
    monitor.finish("FINISHED", summary=decisions, files=[*map(str, summary.reports(project))])
    record_registry(project)
    for task in project.settings.run.tasks:
        if rows := summary.score_rows(summary.evaluated(project.out, task)):
            show_table(f"scores-{task}", rows)
    if decisions:
        show_text("decision", "\n".join(f"- {line}" for line in decisions))
    for line in summary.lines(project, decided=decided, brief=brief):
        terminal.say(line, important=line in decisions)


def registry_is_unchanged(project: Project) -> bool:
    """Whether the registry is in the state in which the last run of this settings file left it; False if it is not a
    local database."""
    state, record = _registry_state(project), _record(project)
    return bool(state) and record.is_file() and record.read_text("utf-8") == state


def record_registry(project: Project) -> None:
    """Record the state of the registry at the end of a run."""
    if state := _registry_state(project):
        write_atomic(_record(project), state)


def _record(project: Project) -> Path:
    return project.root / STATE / f"registry-{digest_text(str(project.file))[:12]}"


def _registry_state(project: Project) -> str:
    """A string that differs after every change of a local database; empty without one."""
    database = database_of(project.settings.registry)
    return f"{database} {state}" if database and (state := state_of(database)) else ""


def upcoming(plan: Plan, *, settled: bool = False) -> dict[Stage, str]:
    """The stages that would run, with the reason; those that read the output of such a stage are included, although
    DVC skips them if it does not change."""
    ahead: dict[Stage, str] = {}
    names: dict[str, str] = {}
    for stage in wanted(plan):
        above = next((name for name in stage.needs if name in names and name != IDENTITY), None)
        if stage.reasons:
            why = stage.reasons[0]
        elif stage.always and not settled:
            why = "runs every time"
        elif above:
            why = f"reads the output of {above}"
        else:
            continue
        ahead[stage] = names[stage.name] = why
    return ahead


def modules_of(ahead: Mapping[Stage, str], project: Project) -> list[str]:
    """The modules of the commands and of the stages ahead, and MLflow's for a local database."""
    modules = dict.fromkeys(STAGES[stage.group].module for stage in ahead if stage.group in STAGES)
    local = modules and project.settings.registry.address.startswith(SQLITE)
    return [*COMMANDS, *modules, *([STORES] if local else [])]


def wanted(plan: Plan) -> list[Stage]:
    """The stages of a run: `GOALS` and their dependencies, `BEFORE` and `AFTERWARDS`. A family that `run.families` does
    not name is not trained. Stages that only read raw data are included: `dvc pull` fails for a stage that has never
    run. The stages of a part of a run: its goals and their dependencies."""
    goals = {*(plan.goals or GOALS)}
    needed = plan.ancestors({stage.name for stage in plan.stages if {stage.name, stage.group} & goals})
    if plan.goals:
        return [stage for stage in plan.stages if stage.name in needed]
    return [
        stage
        for stage in plan.stages
        if stage.name in needed
        or stage.group in (*BEFORE, *AFTERWARDS)
        or (not {*stage.needs} - {IDENTITY} and stage.present)
    ]
