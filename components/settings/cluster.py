"""`cluster`: where training runs."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

from pydantic import PositiveFloat, model_validator

from components.settings.section import NO_EFFECT, Positive, Section

#: Cache of frozen-encoder features.
FEATURES: Final = ".headstart/features"


class ClusterSettings(Section, json_schema_extra=NO_EFFECT):
    """Where training and the steps over shards run. No key changes a result, so no stage depends on this section."""

    #: `ray` trains in Ray workers; `local` runs the same code in the stage's process.
    launcher: Literal["ray", "local"] = "ray"
    #: Number of training workers; `auto`: one per GPU, or one CPU worker per node with all of its cores.
    workers: Positive | Literal["auto"] = "auto"
    #: Number of GPUs to train on. They are asked of Ray, whose autoscaler may start nodes, and waited for; without them
    #: the run fails. null: those that exist when a stage starts, else processors. The variable HEADSTART_GPUS takes
    #: precedence.
    gpus: Positive | None = None
    #: Maximum number of stages at the same time, in flows of a Prefect server that use a cluster. Choose the number of
    #: trainings of `workers` or `gpus` for which the cluster has room. The variable HEADSTART_STAGES takes precedence.
    stages: Positive = 1
    #: `local`, or the address of a Ray cluster. The variable RAY_ADDRESS takes precedence.
    address: str = "local"
    #: Checkpoints and work folders of stages: a folder or s3://bucket/prefix. The variable HEADSTART_STORAGE takes
    #: precedence.
    storage: str = ".headstart/checkpoints"
    #: Wall-clock seconds between two checkpoints.
    checkpoint_seconds: PositiveFloat = 60

    @model_validator(mode="after")
    def _parts_of_the_cluster(self) -> ClusterSettings:
        if self.stages > 1 and self.workers == "auto" and self.gpus is None:
            raise ValueError("stages: above 1 needs the size of a training; set cluster.workers or cluster.gpus")
        return self

    @property
    def stages_at_once(self) -> int:
        """`stages` if there is a cluster; 1 on this machine."""
        return self.stages if self.launcher == "ray" and self.address != "local" else 1

    @property
    def features(self) -> str:
        """Cache of frozen-encoder features, shared by all label budgets, seeds and heads: beside a local storage."""
        return FEATURES if "://" in self.storage else str(Path(self.storage).with_name(Path(FEATURES).name))
