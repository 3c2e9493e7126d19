"""What a run left, as the studies read it: every reading is remembered by its digest, every gap names the stage."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from components.artifacts import MANIFEST, Manifest, read_manifest
from components.errors import ArtifactError, ConfigError, nearest
from components.models.encoder import Encoder, load_encoder
from components.settings.finetune import FinetuneSettings
from components.settings.params import Params

STARTS = ("scratch", "pretrained", "adapted")
#: The stage that makes the encoder of a start.
STAGE_OF = {"scratch": "scratch", "pretrained": "pretrain", "adapted": "adapt"}


@dataclass
class Outputs:
    """The outputs of one run, named by its settings.

    Attributes:
        read: path below `out` -> digest of every output that was read so far.
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
            ArtifactError: it is not there yet (names the stage that makes it), or damaged.
        """
        path = self.out.joinpath(*parts)
        if not (path / MANIFEST).is_file():
            raise ArtifactError(f"{path}: not there yet; run `headstart stage {stage}` (or `headstart retrain`) first")
        manifest = read_manifest(path)
        self.read["/".join(parts)] = manifest.digest
        return path

    def manifest(self, *parts: str, stage: str) -> Manifest:
        """The manifest of a complete output directory.

        Raises:
            ArtifactError: as `directory`.
        """
        return read_manifest(self.directory(*parts, stage=stage))

    def task(self, name: str = "") -> str:
        """A task of the settings; the first of run.tasks where none is named.

        Raises:
            ConfigError: there is none of this name.
        """
        if name and name not in self.params.data.tasks:
            raise ConfigError(f"--task: unknown task {name!r}{nearest(name, self.params.data.tasks)}")
        return name or self.params.run.tasks[0]

    def tasks(self, name: str = "") -> list[str]:
        """The task named, or all of run.tasks.

        Raises:
            ConfigError: as `task`.
        """
        return [self.task(name)] if name else list(self.params.run.tasks)

    def evaluation(self, task: str) -> dict[str, Any]:
        """What the stage `evaluate` found of a task.

        Raises:
            ArtifactError: it has not run.
        """
        path = self.directory("evaluation", task, stage=f"evaluate --item {task}")
        found: dict[str, Any] = json.loads((path / "evaluation.json").read_text(encoding="utf-8"))
        return found

    def examples(self, task: str) -> Path:
        """The directory with a task's labelled rows.

        Raises:
            ArtifactError: the stage `examples` has not run.
        """
        return self.directory("examples", task, stage=f"examples --item {task}")

    def split_name(self, encoder: str) -> tuple[str, str]:
        """`bert-adapted` or `bert/adapted` -> (`bert`, `adapted`); a block alone means its best start that exists.

        Raises:
            ConfigError: params.yaml has no such block.
            ArtifactError: the block has no encoder yet.
        """
        blocks = self.params.pretrain
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
            f"{self.out / 'encoder' / encoder}: no trained encoder yet; run "
            f"`headstart stage pretrain --item {encoder}` (or `headstart retrain`) first"
        )

    def encoder(self, name: str, start: str) -> Encoder:
        """The encoder of a block and a start, ready to read texts.

        Raises:
            ArtifactError: the stage that makes it has not run, or it is damaged.
        """
        return load_encoder(self.encoder_directory(name, start))

    def encoder_directory(self, name: str, start: str) -> Path:
        """Where the encoder of a block and a start lies.

        Raises:
            ArtifactError: the stage that makes it has not run.
        """
        return self.directory("encoder", name, start, stage=f"{STAGE_OF[start]} --item {name}")

    def finetuning(self, block: str) -> FinetuneSettings:
        """How labels are learned on top of a block's encoders.

        Raises:
            ConfigError: the settings do not say.
        """
        if block not in self.params.finetune:
            raise ConfigError(f"finetune.{block}: missing; this study reads its texts as fine-tuning would")
        return self.params.finetune[block]

    def chosen(self, encoder: str = "") -> list[tuple[str, str]]:
        """The encoder named, or the best start that exists of each of run.families.

        Raises:
            ConfigError, ArtifactError: as `split_name`.
        """
        return [self.split_name(name) for name in ([encoder] if encoder else self.params.run.families)]
