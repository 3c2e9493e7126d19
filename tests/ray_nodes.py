"""A Ray cluster of nodes on this machine, with processors and GPUs that need not exist."""

import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from components.cluster import ray_cluster, session

#: On a busy machine a node may not start within the 30 seconds that Ray allows.
ATTEMPTS = 3


class Nodes(list[str]):
    """Ids of the nodes of a cluster, to which more can be added."""

    def __init__(self, cluster: Any, nodes: Sequence[Mapping[str, Any]]) -> None:
        super().__init__()
        self.cluster = cluster
        for node in nodes:
            self.add(**node)

    def add(self, **node: Any) -> None:
        self.append(self.cluster.add_node(**node, object_store_memory=session.OBJECT_STORE_BYTES).node_id)


@contextmanager
def connected_nodes(nodes: Sequence[Mapping[str, Any]], *, monkeypatch: pytest.MonkeyPatch) -> Iterator[Nodes]:
    """A block that is connected to a new cluster; its value are the ids of the nodes.

    Args:
        nodes: arguments of `ray.cluster_utils.Cluster.add_node`, such as `num_cpus`. The head of the cluster has no
            processors and is not among them.
        monkeypatch: of the test.
    """
    for name, value in session.RAY_ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    if "RAY_AUTH_MODE" not in os.environ:
        # For the rest of the process: Ray reads the mode once.
        os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=secrets.token_hex(32))
    import ray
    from ray.cluster_utils import Cluster

    for attempt in range(1, ATTEMPTS + 1):
        started = Cluster()
        try:
            started.add_node(num_cpus=0, include_dashboard=False, object_store_memory=session.OBJECT_STORE_BYTES)
            actual = Nodes(started, nodes)
            break
        except Exception:
            started.shutdown()
            if attempt == ATTEMPTS:
                raise
    try:
        ray.init(
            address=started.address,
            runtime_env=ray_cluster._code(local=True),
            logging_level="ERROR",
            log_to_driver=False,
        )
        yield actual
    finally:
        ray.shutdown()
        started.shutdown()
