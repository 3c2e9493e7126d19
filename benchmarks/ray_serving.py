"""A champion behind Ray Serve, to be measured by `benchmarks/serving.py --beside ray` (`pip install ray[serve]`).

The deployment batches as Headstart's server does. It has none of its checks of rows, token, hosts, following of the
alias, log for drift and metrics of rows.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import ray
from ray import serve
from starlette.requests import Request

from components.core.processors import cores
from components.learners.prediction import predict_rows
from components.registry.champion import find_champion, load_version
from components.registry.tracking import connect
from components.settings.loading import load_params
from components.settings.registry import RegistrySettings


@serve.deployment(max_ongoing_requests=256)
class Model:
    """Answers POST /invocations with the champion of a task."""

    def __init__(self, settings: RegistrySettings, task: str) -> None:
        registry = connect(settings)
        self._classifier = load_version(registry, find_champion(registry, task))

    @serve.batch(max_batch_size=64, batch_wait_timeout_s=0.0)
    async def predict(self, texts: list[str]) -> list[dict[str, Any] | None]:
        """The answers to N texts."""
        return predict_rows(self._classifier, [(text,) for text in texts])

    async def __call__(self, request: Request) -> dict[str, Any]:
        content = await request.json()
        (text,) = content["inputs"]["text"]
        return {"predictions": [await self.predict(text)]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--replicas", type=int, default=1)
    arguments = parser.parse_args()
    ray.init(address="local", include_dashboard=False, num_cpus=arguments.replicas + 1)
    serve.start(http_options={"host": "127.0.0.1", "port": arguments.port})
    threads = max(1, cores() // arguments.replicas)
    options = {"num_cpus": 1, "runtime_env": {"env_vars": {"OMP_NUM_THREADS": str(threads)}}}
    deployment = Model.options(num_replicas=arguments.replicas, ray_actor_options=options)
    serve.run(deployment.bind(load_params().registry, arguments.task), route_prefix="/")
    while True:
        time.sleep(60)


if __name__ == "__main__":
    main()
