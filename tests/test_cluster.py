"""Launchers (this process, child processes, Ray), and recovery after processes are killed."""

import json
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import torch

from components.cluster import launcher as cluster
from components.cluster import ray_cluster, session, work
from components.cluster.distributed import Worker
from components.core import threads
from components.core.clock import OutOfTimeError, until
from components.core.errors import ClusterUnavailableError, ConfigError, DataError, TrainingError
from components.core.processors import cores
from components.settings.cluster import ClusterSettings
from components.training.checkpoint import CheckpointStore
from components.training.pretraining.language_model import LanguageModelRun
from components.training.pretraining.pretrain import PretrainJob, pretrain
from tests.conftest import python
from tests.conftest import until as wait_until
from tests.training.helpers import (
    lm_settings,
    make_inputs,
    noting_work,
    pretrain_job,
    same_bits,
    weights,
)

LOCAL = ClusterSettings(launcher="local")
#: A run that is long enough to be killed before it ends.
STEPS = 60
LONG = lm_settings(tokens=4 * 8 * STEPS)


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


# --- in this process and in others -------------------------------------------------------------------------------


def tell(folder: Path, worker: Worker) -> None:
    worker.publish({"tokens": 3.0})
    (folder / str(worker.world.rank)).write_text(f"{worker.world.size} {worker.world.device}")


def test_the_local_launcher_runs_here(tmp_path):
    said: list[object] = []
    cluster.launch(tell, tmp_path, settings=LOCAL, progress=said.append)
    assert (tmp_path / "0").read_text() == "1 cpu"
    assert said == [{"tokens": 3.0}]


def square(number: int) -> tuple[int, int, int]:
    return number * number, torch.get_num_threads(), os.getpid()


def test_map_parallel_gives_every_result_with_its_index():
    results = dict(cluster.map_parallel(square, range(5), settings=LOCAL))
    assert {index: value for index, (value, _, _) in results.items()} == {0: 0, 1: 1, 2: 4, 3: 9, 4: 16}
    assert {count for _, count, _ in results.values()} == {1}
    assert os.getpid() not in {process for _, _, process in results.values()}
    assert list(cluster.map_parallel(square, [], settings=LOCAL)) == []


def test_kept_processes_serve_several_calls_and_end_with_the_block():
    with cluster.kept_processes():
        first = {process for _, (_, _, process) in cluster.map_parallel(square, [1], settings=LOCAL)}
        second = {process for _, (_, _, process) in cluster.map_parallel(square, [2], settings=LOCAL)}
        assert first == second
        with pytest.raises(DataError, match=r"no threes"):
            list(cluster.map_parallel(refuse_three, [3], settings=LOCAL))
        # After an error nothing of the failed call goes on.
        third = {process for _, (_, _, process) in cluster.map_parallel(square, [4], settings=LOCAL)}
        assert first.isdisjoint(third)
    assert not any(map(lives, first | third))


@pytest.mark.parametrize("kept", [False, True])
def test_a_limit_of_time_ends_what_still_runs(kept):
    began = time.monotonic()
    with until(began + 3), cluster.kept_processes() if kept else nullcontext():
        with pytest.raises(OutOfTimeError):
            list(cluster.map_parallel(time.sleep, [600, 600], settings=LOCAL))
        with pytest.raises(OutOfTimeError):
            next(cluster.map_parallel(square, [1], settings=LOCAL))
    assert time.monotonic() - began < 60


def test_map_parallel_repeats_the_item_of_a_killed_process(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    with cluster.kept_processes():
        list(cluster.map_parallel(square, [1], settings=LOCAL))
        results = dict(cluster.map_parallel(die_once, [tmp_path / "a", tmp_path / "b"], settings=LOCAL))
    assert results == {0: "a", 1: "b"}


@pytest.mark.parametrize("error", [BrokenProcessPool, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_processes_end_with_another_that_dies_and_at_an_interruption(error):
    with pytest.raises(error), cluster._pool(1, slots=(), kept=None, imported="time") as pool:
        pool.submit(time.sleep, 600)
        late = multiprocessing.get_context("forkserver").Process(target=time.sleep, args=(600,))
        late.start()
        raise error
    late.join(60)
    assert late.exitcode == -signal.SIGKILL


def refuse_three(number: int) -> int:
    if number == 3:
        raise DataError("three.txt: line 3: no threes")
    return number


def die_once(folder: Path) -> str:
    """Kills the first process that runs this function."""
    try:
        (folder / "died").touch(exist_ok=False)
    except FileExistsError:
        return folder.name
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


def die(_: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_map_parallel_fails_after_too_many_deaths(monkeypatch):
    monkeypatch.setattr(cluster, "RETRIES", 0)
    with pytest.raises(
        TrainingError, match=r"failed after 0 restarts: a process was killed; if memory is exhausted, lower"
    ):
        list(cluster.map_parallel(die, [1], settings=LOCAL))


def stay(folder: Path) -> None:
    (folder / str(os.getpid())).touch()
    time.sleep(600)


def test_processes_end_with_their_parent(tmp_path):
    driver = (
        "from pathlib import Path; from components.cluster import launcher as cluster; "
        "from components.settings.cluster import ClusterSettings; "
        "from tests.test_cluster import stay; import sys; "
        "list(cluster.map_parallel(stay, [Path(sys.argv[1])], settings=ClusterSettings(launcher='local')))"
    )
    with subprocess.Popen([sys.executable, "-c", driver, str(tmp_path)]) as process:
        wait_until(lambda: list(tmp_path.iterdir()) or process.poll() is not None)
        process.kill()
    pid = int(next(tmp_path.iterdir()).name)
    try:
        wait_until(lambda: not lives(pid), limit_s=30)
    except AssertionError:
        os.kill(pid, signal.SIGKILL)
        raise


def test_a_script_needs_no_main_guard(tmp_path):
    """Its processes do not execute it again."""
    script = tmp_path / "script.py"
    script.write_text(
        "from components.cluster import launcher as cluster; from components.settings.cluster import ClusterSettings\n"
        "print(list(cluster.map_parallel(abs, [-2], settings=ClusterSettings(launcher='local'))))\n"
    )
    assert python(script) == "[(0, 2)]\n"


def lives(pid: int) -> bool:
    """Whether the process exists and is not a zombie."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_threads(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
    assert threads.environment(2)["OMP_NUM_THREADS"] == "2"
    # The user's limit.
    assert threads.environment(8)["OMP_NUM_THREADS"] == "3"
    assert threads.environment(2)["OMP_WAIT_POLICY"] == "ACTIVE"
    assert "GOMP_SPINCOUNT" not in threads.environment(2)
    threads.use(8)
    assert torch.get_num_threads() == 3
    threads.use(1)
    assert torch.get_num_threads() == 1
    monkeypatch.delenv("OMP_WAIT_POLICY")
    threads.prepare()
    assert os.environ["OMP_WAIT_POLICY"] == "PASSIVE"
    assert threads.environment(2)["GOMP_SPINCOUNT"] == os.environ["GOMP_SPINCOUNT"] == threads.QUIET["GOMP_SPINCOUNT"]


def test_a_node_that_does_not_share_the_folder_of_checkpoints(tmp_path, monkeypatch):
    monkeypatch.setitem(
        sys.modules, "ray", SimpleNamespace(util=SimpleNamespace(get_node_ip_address=lambda: "10.0.0.7"))
    )
    driver = tmp_path / "checkpoints"
    mark = work.mark_folder(driver)
    assert work.mark_folder(driver) == mark
    supply = ray_cluster._Exchange("hub", (), str(driver), mark)
    assert supply.on_this_node("a job") == "a job"
    # On another node the same path is absent, or another folder.
    message = r"cluster.storage .*checkpoints: node 10.0.0.7 does not share this folder; set cluster.storage or"
    driver.rename(tmp_path / "elsewhere")
    for _ in range(2):
        with pytest.raises(ConfigError, match=message):
            supply.on_this_node("a job")
        work.mark_folder(driver)


def test_the_loss_of_a_cluster_is_a_transient_error(monkeypatch):
    class RayError(Exception):
        pass

    class RayTaskError(RayError):
        pass

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    errors = SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError)
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(exceptions=errors))
    settings = ClusterSettings(address="head:6379")
    message = r"^cluster.address head:6379: the Ray cluster was lost \(WrongClusterID\); run the stage again when it"
    with pytest.raises(ClusterUnavailableError, match=message) as caught, ray_cluster._translated(settings):
        raise RayError("RPC error\nWrongClusterID")
    assert caught.value.exit_code == 75
    with pytest.raises(RayTaskError), ray_cluster._translated(settings):
        raise RayTaskError("a defect of the task")


# --- on Ray ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def one_cluster() -> Iterator[None]:
    """One cluster for all tests below; `connected` uses it."""
    with ray_cluster.connected(ClusterSettings()):
        yield


def test_no_session_starts_that_nobody_needs(monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.delenv(session.SESSION, raising=False)
    monkeypatch.setattr(session.subprocess, "Popen", lambda *_, **__: pytest.fail("a session starts"))
    with session.session(ClusterSettings(), needed=False), session.session(LOCAL):
        assert session.SESSION not in os.environ
    with session.session(ClusterSettings(address="head:6379")):
        pass
    monkeypatch.setenv(session.SESSION, "of an outer block")
    with session.session(ClusterSettings()):
        assert os.environ[session.SESSION] == "of an outer block"


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("import time; time.sleep(600)", "within 1 seconds"),
        ('open(FILE, \'w\').write(\'{"address": "", "error": "no room"}\')', "(no room)"),
    ],
)
def test_a_training_goes_on_here_if_ray_does_not_start(command, reason, tmp_path, monkeypatch, capfd):
    """With one sentence, and without a traceback; several workers cannot."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.delenv(session.SESSION, raising=False)
    monkeypatch.setattr(session, "START_S", 1.0)
    monkeypatch.setattr(session, "END_S", 0.1)
    popen, started = subprocess.Popen, []

    def start(arguments, **options):
        code = command.replace("FILE", repr(arguments[-1]))
        started.append(popen([sys.executable, "-c", code], **options))
        return started[-1]

    monkeypatch.setattr(session.subprocess, "Popen", start)
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(is_initialized=lambda: False, init=None))
    settings = ClusterSettings(storage=str(tmp_path / "checkpoints"))
    cluster.launch(tell, tmp_path, settings=settings)
    assert (tmp_path / "0").read_text() == "1 cpu"
    output = capfd.readouterr()
    assert output.err == ""
    assert output.out == (
        f"Ray has not started {reason}; the training runs in the process of the stage, with the same result\n"
    )
    assert started[0].poll() is not None
    with pytest.raises(TrainingError, match="Ray has not started"):
        cluster.launch(tell, tmp_path, settings=settings.model_copy(update={"workers": 2}))


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_inputs(tmp_path_factory.mktemp("inputs"))


def on_ray(folder: Path, workers: int) -> ClusterSettings:
    folder.mkdir(exist_ok=True)
    return ClusterSettings(
        checkpoint_seconds=1e-9, launcher="ray", workers=workers, storage=str(folder / "checkpoints")
    )


class Killer(threading.Thread):
    """Kills a worker once a number of steps is stored; workers write their ids to `folder` (noting_work).

    Attributes:
        at: the newest stored step by then, 0 before.
    """

    def __init__(self, folder: Path, *, rank: int, after: int) -> None:
        super().__init__(daemon=True)
        self.folder, self.rank, self.after = folder, rank, after
        self.at = 0

    def run(self) -> None:
        noted = self.folder / f"worker-{self.rank}"
        # An empty file: the id is being written.
        while not (noted.exists() and noted.read_text()):
            time.sleep(0.05)
        while not self.at:
            step = max(
                (int(path.parent.name[5:]) for path in self.folder.glob("checkpoints/*/step-*/state.json")), default=0
            )
            if step >= self.after:
                os.kill(int(noted.read_text()), signal.SIGKILL)
                self.at = step
            time.sleep(0.002)


def work_in_turn(runs: Sequence[LanguageModelRun], worker: Worker) -> None:
    for run in runs:
        # Later runs ignore this worker.
        if CheckpointStore(run.storage, key=run.key).steps()[-1:] != [STEPS]:
            noting_work(run, worker)


def runs_of(jobs: Sequence[PretrainJob], monkeypatch: pytest.MonkeyPatch) -> list[LanguageModelRun]:
    """The calls of the launcher by the stages."""
    runs: list[LanguageModelRun] = []

    def collect(function: object, run: LanguageModelRun, **_: object) -> None:
        runs.append(run)
        raise TrainingError("collected")

    with monkeypatch.context() as patched:
        patched.setattr(cluster, "launch", collect)
        for job in jobs:
            with pytest.raises(TrainingError, match="collected"):
                pretrain(job)
    return runs


def finish(jobs: Sequence[PretrainJob], monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest of the stages: each takes the last checkpoint and fails if it is not of the last step."""
    with monkeypatch.context() as patched:
        patched.setattr(cluster, "launch", lambda function, run, **_: None)
        for job in jobs:
            pretrain(job)


#: Recurrent, with attention, and static; every family is killed without Ray in tests/pretraining.
ON_RAY = ("ulmfit", "bert", "word2vec")


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("one_cluster")
def test_a_worker_killed_in_each_run_changes_nothing(inputs, tmp_path, monkeypatch):
    """The stages' runs, one after the other on one worker, which is killed once in each: the start of Ray's processes
    takes longer than all the rest."""
    monkeypatch.setattr(cluster, "RETRIES", len(ON_RAY))
    jobs = [
        pretrain_job(inputs, family, tmp_path / family, training=LONG, cluster=on_ray(tmp_path / family, 1))
        for family in ON_RAY
    ]
    runs = runs_of(jobs, monkeypatch)
    killers = [Killer(tmp_path / family, rank=0, after=7) for family in ON_RAY]
    for killer in killers:
        killer.start()
    cluster.launch(work_in_turn, runs, settings=jobs[0].cluster, rows=LONG.batch_size)
    assert all(7 <= killer.at < STEPS for killer in killers)
    finish(jobs, monkeypatch)
    for family, job in zip(ON_RAY, jobs, strict=True):
        unbroken = pretrain(pretrain_job(inputs, family, tmp_path / "local" / family, training=LONG))
        # On Ray as in this process, and interrupted as uninterrupted.
        assert same_bits(weights(unbroken), weights(job.output)), family


@pytest.mark.slow
@pytest.mark.usefixtures("one_cluster")
def test_two_workers_and_either_killed(inputs, tmp_path, monkeypatch):
    if cores() < 2:
        pytest.skip("needs two processors")
    unbroken, broken = jobs = [
        pretrain_job(inputs, "ulmfit", tmp_path / name, training=LONG, cluster=on_ray(tmp_path / name, 2))
        for name in ("unbroken", "broken")
    ]
    runs = runs_of(jobs, monkeypatch)
    killer = Killer(tmp_path / "broken", rank=1, after=5)
    killer.start()
    cluster.launch(work_in_turn, runs, settings=broken.cluster, rows=LONG.batch_size)
    assert 5 <= killer.at < STEPS
    finish(jobs, monkeypatch)
    assert same_bits(weights(unbroken.output), weights(broken.output))


def fail_on_the_last(message: str, worker: Worker) -> None:
    if worker.world.rank == worker.world.size - 1:
        raise DataError(message)
    # The other workers wait for this one, as in a training step.
    worker.world.broadcast("never")


@pytest.mark.slow
@pytest.mark.usefixtures("one_cluster")
def test_an_error_of_one_worker_ends_all(tmp_path):
    with pytest.raises(DataError, match=r"^tokens: damaged; run the stage again$"):
        workers = min(2, cores())
        cluster.launch(fail_on_the_last, "tokens: damaged; run the stage again", settings=on_ray(tmp_path, workers))


CONNECTED = """
import sys
from pathlib import Path
from components.cluster import launcher as cluster, ray_cluster
from components.settings.cluster import ClusterSettings
from tests.test_cluster import tell
for name in sys.argv[1:]:
    Path(name).mkdir()
    cluster.launch(tell, Path(name), settings=ClusterSettings())
with ray_cluster.connected(ClusterSettings()):
    import ray
    print(ray.get_runtime_context().gcs_address)
"""


@pytest.mark.slow
def test_the_processes_of_a_run_share_a_session_that_ends_with_it(tmp_path, monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.delenv(session.SESSION, raising=False)
    monkeypatch.chdir(tmp_path)
    addresses = []
    with session.session(ClusterSettings()):
        with session.session(ClusterSettings()):
            for name in ("first", "second"):
                command = [sys.executable, "-c", CONNECTED, name]
                environment = os.environ | {"PYTHONPATH": session.python_path()}
                done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=240)
                assert (done.returncode, done.stderr) == (0, "")
                assert (tmp_path / name / "0").read_text() == "1 cpu"
                addresses.append(done.stdout)
        head = json.loads(Path(os.environ[session.SESSION]).read_text())["address"]
    assert addresses == [f"{head}\n"] * 2
    host, _, port = head.partition(":")
    with pytest.raises(OSError), socket.create_connection((host, int(port)), timeout=5):
        pass


def trip(_: str, worker: Worker) -> None:
    raise KeyError("a defect")


@pytest.mark.slow
@pytest.mark.usefixtures("one_cluster")
def test_a_defect_is_shown_and_not_retried(tmp_path):
    with pytest.raises(RuntimeError, match=r"(?s)Traceback.*in trip.*KeyError: 'a defect'"):
        cluster.launch(trip, "", settings=on_ray(tmp_path, 1))


def begin(item: tuple[Path, int]) -> None:
    folder, number = item
    (folder / str(number)).touch()
    refuse_three(number)


@pytest.mark.slow
@pytest.mark.usefixtures("one_cluster")
def test_an_error_on_ray_cancels_pending_items(tmp_path):
    away = ClusterSettings(launcher="ray", address="auto")
    with pytest.raises(DataError, match="no threes"):
        list(cluster.map_parallel(begin, [(tmp_path, number) for number in range(1000)], settings=away))
    assert (tmp_path / "3").exists()
    # Running tasks continue.
    before = 0
    while (begun := len(list(tmp_path.iterdir()))) > before:
        before = begun
        time.sleep(1)
    assert not (tmp_path / "999").exists()


#: A driver whose session ends before it.
ORPHAN = """
import os, sys, time
while os.getppid() == int(sys.argv[1]):
    time.sleep(0.01)
from components.cluster import ray_cluster, session
from components.settings.cluster import ClusterSettings
with ray_cluster.connected(ClusterSettings()):
    pass
print("ended")
"""


@pytest.mark.slow
def test_a_driver_without_a_parent_ends_normally():
    # The process that starts the driver ends immediately, so that the driver's parent is process 1.
    starter = "import os, subprocess, sys; subprocess.Popen([*sys.argv[1:], str(os.getpid())])"
    command = [sys.executable, "-c", starter, sys.executable, "-c", ORPHAN]
    # `run` returns only when the driver, too, has closed the pipe.
    result = subprocess.run(command, check=True, timeout=120, stdout=subprocess.PIPE, text=True)
    assert result.stdout.endswith("ended\n")
