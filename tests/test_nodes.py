"""Training on nodes without a disk in common with the driver: code, inputs and results are exchanged by Ray and S3
only, and a node that is lost is replaced by another one."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from infra.stack import nodes
from tests.training.helpers import make_inputs

ROOT = Path(__file__).parents[1]
STEPS = 150
#: Trains on the cluster and in its own process; says where the workers found code and inputs.
DRIVER = """
import json, sys
from pathlib import Path
from components.cluster import launcher as cluster, ray_cluster
from components.training.pretraining.pretrain import pretrain
from components.settings.cluster import ClusterSettings
from infra.stack import nodes
from tests.training.helpers import lm_settings, pretrain_job, same_bits, weights
inputs, folder, storage, steps = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
away = ClusterSettings(launcher="ray", workers=1, address="auto", storage=storage)
if storage.startswith("s3://"):
    from components.cluster.storage import ensure_bucket
    ensure_bucket("nodes")
with ray_cluster.connected(away):
    questions = ["__import__('components').__file__", f"__import__('os').listdir({str(inputs)!r})"]
    answers = dict(cluster.map_parallel(eval, questions, settings=away))
    print(json.dumps([answers[0], answers[1]]), flush=True)
    training = lm_settings(tokens=4 * 8 * steps)
    job = pretrain_job(inputs, "ulmfit", folder / "away", training=training, cluster=away)
    there = pretrain(job)
here = pretrain(pretrain_job(inputs, "ulmfit", folder / "here", training=training))
print(json.dumps(same_bits(weights(here), weights(there))))
"""


def trains(node: subprocess.Popen[bytes]) -> bool:
    """Whether a training worker runs on a node."""
    for process in psutil.Process(node.pid).children(recursive=True):
        try:
            if any(word in part for part in process.cmdline() for word in ("TrainingWorker", "RayTrainWorker")):
                return True
        except psutil.NoSuchProcess:
            continue
    return False


@pytest.fixture
def cluster(tmp_path: Path, s3_server: str) -> Iterator[nodes.Cluster]:
    if nodes.namespace() is None:
        pytest.skip("needs the right to mount a file system in a namespace")
    inputs = tmp_path / "inputs"
    inputs.mkdir()
    make_inputs(inputs)
    variables = {
        "AWS_ENDPOINT_URL": s3_server,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    started = nodes.Cluster(tmp_path, (ROOT / "components", inputs), variables)
    yield started
    started.close()


def drive(cluster: nodes.Cluster, storage: str, *, steps: int = STEPS) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(cluster.hidden[1]), str(cluster.folder), storage, str(steps)],
        cwd=ROOT,
        env=cluster.variables | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_nodes_need_no_common_disk_and_a_lost_one_is_replaced(cluster):
    first = cluster.node("first")
    driver = drive(cluster, "s3://nodes/checkpoints")
    deadline = time.monotonic() + 300
    while not trains(first):
        assert driver.poll() is None and time.monotonic() < deadline, driver.communicate()
        time.sleep(0.05)
    # Another node, and the end of the first one in the middle of the training.
    cluster.node("second")
    nodes.kill_tree(first.pid)
    output, errors = driver.communicate(timeout=400)
    assert driver.returncode == 0, output + errors
    # Progress lines are printed, too.
    answers, same = (json.loads(line) for line in output.splitlines() if line.startswith(("[", "true", "false")))
    assert answers[0].startswith(str(cluster.ray_folder)) and answers[1] == []
    assert same
    # The node that was killed may have a partial copy.
    copied = {
        path.name for name in ("first", "second") for path in (cluster.folder / name).glob("headstart-*/inputs/[!.]*")
    }
    assert len(copied) == 2  # token shards and tokenizer
