"""Access to the outputs of a run for the studies; records the digests of the outputs that are read."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from components.artifacts import MANIFEST, Manifest, read_json, read_manifest
from components.errors import ArtifactError, ConfigError, nearest
from components.models.encoder import Encoder, load_encoder
from components.settings.finetune import FinetuneSettings
from components.settings.params import Block, Params

STARTS = ("scratch", "vectors", "pretrained", "adapted")
#: The stage that makes the encoder of a start.
STAGE_OF = {"scratch": "scratch", "vectors": "scratch", "pretrained": "pretrain", "adapted": "adapt"}


@dataclass
class Outputs:
    """The outputs of one run.

    Attributes:
        params: settings of the run.
        read: path below `out` -> digest, for the outputs that were read.
    """

    params: Params
    read: dict[str, str] = field(default_factory=dict)

    @property
    def out(self) -> Path:
        """`params.run.out`."""
        return Path(self.params.run.out)

    def directory(self, *parts: str, stage: str) -> Path:
        """A complete output directory.

        Raises:
            ArtifactError: the output is missing (the message names the stage that writes it) or damaged.
        """
        path = self.out.joinpath(*parts)
        if not (path / MANIFEST).is_file():
            raise ArtifactError(f"{path}: missing; run `headstart stage {stage}` (or `headstart retrain`) first")
        manifest = read_manifest(path)
        self.read["/".join(parts)] = manifest.digest
        return path

    def manifest(self, *parts: str, stage: str) -> Manifest:
        """The manifest of a complete output directory.

        Raises:
            ArtifactError: see `directory`.
        """
        return read_manifest(self.directory(*parts, stage=stage))

    def task(self, name: str = "") -> str:
        """A task of the settings; the first of run.tasks if `name` is empty.

        Raises:
            ConfigError: unknown task.
        """
        if name and name not in self.params.data.tasks:
            raise ConfigError(f"--task: unknown task {name!r}{nearest(name, self.params.data.tasks)}")
        return name or self.params.run.tasks[0]

    def tasks(self, name: str = "") -> list[str]:
        """The named task; all of run.tasks if `name` is empty.

        Raises:
            ConfigError: see `task`.
        """
        return [self.task(name)] if name else list(self.params.run.tasks)

    def evaluation(self, task: str) -> dict[str, Any]:
        """The content of a task's evaluation.json.

        Raises:
            ArtifactError: the stage `evaluate` has not run.
        """
        path = self.directory("evaluation", task, stage=f"evaluate --item {task}")
        return read_json(path / "evaluation.json", made_by="the stage evaluate")

    def examples(self, task: str) -> Path:
        """The output directory of the stage `examples`: a task's labelled rows.

        Raises:
            ArtifactError: the stage `examples` has not run.
        """
        return self.directory("examples", task, stage=f"examples --item {task}")

    def split_name(self, encoder: str) -> tuple[str, str]:
        """`bert-adapted` or `bert/adapted` -> (`bert`, `adapted`); `bert` -> its adapted or else pretrained encoder.

        Raises:
            ConfigError: params.yaml has no such block.
            ArtifactError: the block has no encoder.
        """
        blocks = [*self.params.pretrain, *self.params.static]
        for start in STARTS:
            for mark in "-/":
                if encoder.endswith(f"{mark}{start}") and encoder.removesuffix(f"{mark}{start}") in blocks:
                    return encoder.removesuffix(f"{mark}{start}"), start
        if encoder not in blocks:
            known = [f"{block}-{start}" for block in blocks for start in STARTS]
            raise ConfigError(f"--encoder: unknown encoder {encoder!r}{nearest(encoder, known)}")
        for start in ("adapted", "pretrained"):
            if (self.out / "encoder" / encoder / start / MANIFEST).is_file():
                return encoder, start
        raise ArtifactError(
            f"{self.out / 'encoder' / encoder}: has no trained encoder; run "
            f"`headstart stage pretrain --item {encoder}` (or `headstart retrain`) first"
        )

    def block(self, name: str) -> Block:
        """The block of that name, which exists."""
        found = self.params.block(name)
        assert found is not None
        return found

    def encoder(self, name: str, start: str) -> Encoder:
        """The encoder of a block and a start.

        Raises:
            ArtifactError: the stage that writes it has not run, or it is damaged.
        """
        return load_encoder(self.encoder_directory(name, start))

    def encoder_directory(self, name: str, start: str) -> Path:
        """The directory of the encoder of a block and a start.

        Raises:
            ArtifactError: the stage that writes it has not run.
        """
        stage = f"static-{start}" if name in self.params.static else STAGE_OF[start]
        return self.directory("encoder", name, start, stage=f"{stage} --item {name}")

    def finetuning(self, block: str) -> FinetuneSettings:
        """The fine-tuning settings of a block.

        Raises:
            ConfigError: there are none.
        """
        if block not in self.params.finetune:
            raise ConfigError(f"finetune.{block}: missing; this study encodes texts as fine-tuning does")
        return self.params.finetune[block]

    def chosen(self, encoder: str = "") -> list[tuple[str, str]]:
        """The named encoder; one encoder of each of run.families if `encoder` is empty.

        Raises:
            ConfigError, ArtifactError: see `split_name`.
        """
        return [self.split_name(name) for name in ([encoder] if encoder else self.params.run.families)]
