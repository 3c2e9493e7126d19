"""What all studies share: their interface, their options, access to the outputs of a run, intervals and curves."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from components.core.artifacts import MANIFEST, read_json, read_manifest
from components.core.errors import ArtifactError, ConfigError, nearest
from components.data.scoring.intervals import Interval
from components.models import family as family_named
from components.models.encoder import Encoder, load_encoder
from components.reporting import evaluations
from components.reporting.figures import Line
from components.settings.finetune import FinetuneSettings
from components.settings.params import Block, Params
from components.settings.systems import System

#: Options that several studies have.
Task = Annotated[str, typer.Option(help="Task; the first of run.tasks by default.")]
EveryTask = Annotated[str, typer.Option(help="Task; all of run.tasks by default.")]
EncoderName = Annotated[str, typer.Option(help="Encoder, such as bert-adapted; one per family by default.")]
Corpus = Annotated[Literal["domain", "general"], typer.Option(help="Corpus of the sentences.")]
Budget = Annotated[int, typer.Option(help="Labels per class; 0: the largest budget up to 50.", min=0)]
#: Start -> the stage that makes its encoder.
STAGE_OF = {"scratch": "scratch", "vectors": "scratch", "pretrained": "pretrain", "adapted": "adapt"}


@dataclass
class Outputs:
    """The outputs of one run. Methods raise an ArtifactError that names the stage whose output is missing, and a
    ConfigError for unknown names. `read`: path below `out` -> digest, for the outputs that were read."""

    params: Params
    read: dict[str, str] = field(default_factory=dict)

    @property
    def out(self) -> Path:
        """The output folder, `params.run.out`."""
        return Path(self.params.run.out)

    def directory(self, *parts: str, stage: str) -> Path:
        """A complete output directory, which `stage` writes."""
        path = self.out.joinpath(*parts)
        if not (path / MANIFEST).is_file():
            raise ArtifactError(f"{path}: missing; run `headstart stage {stage}` (or `headstart retrain`) first")
        self.read["/".join(parts)] = read_manifest(path).digest
        return path

    def task(self, name: str = "") -> str:
        """A task of the settings; the first of run.tasks if `name` is empty."""
        if name and name not in self.params.data.tasks:
            raise ConfigError(f"--task: unknown task {name!r}{nearest(name, self.params.data.tasks)}")
        return name or self.params.run.tasks[0]

    def evaluations(self, name: str, part: str, *, needs: str) -> dict[str, dict[str, Any]]:
        """Task -> content of evaluation.json, of the named task or of all of run.tasks.

        Raises:
            ArtifactError: a task is not evaluated, or its `part` is empty; `needs` says what that part requires.
        """
        tasks = [self.task(name)] if name else self.params.run.tasks
        content = {task: self.evaluation(task) for task in tasks}
        for task, evaluation in content.items():
            if not evaluation[part]:
                raise ArtifactError(f"{task}: {needs}")
        return content

    def evaluation(self, task: str) -> dict[str, Any]:
        """The content of a task's evaluation.json."""
        path = self.directory("evaluation", task, stage=f"evaluate --item {task}")
        return read_json(path / "evaluation.json", made_by="the stage evaluate")

    def examples(self, task: str) -> Path:
        """The output directory of the stage `examples`: a task's labelled rows."""
        return self.directory("examples", task, stage=f"examples --item {task}")

    def corpus(self, name: str) -> Path:
        """The output directory of the stage `ingest`."""
        return self.directory("corpus", name, stage=f"ingest --item {name}")

    def split_name(self, encoder: str) -> tuple[str, str]:
        """`bert-adapted` or `bert/adapted` -> (`bert`, `adapted`); `bert` -> its adapted or else pretrained encoder;
        `bert-adapted-after-sst2` -> (`bert`, `adapted-after-sst2`), fine-tuned on an intermediate task."""
        before, after, source = encoder.partition("-after-")
        if after and source in self.params.intermediate_tasks:
            block, start = self.split_name(before)
            return block, System(block, start, "after", source).variant
        blocks = [*self.params.pretrain, *self.params.static]
        for start in STAGE_OF:
            for mark in "-/":
                if encoder.endswith(f"{mark}{start}") and encoder.removesuffix(f"{mark}{start}") in blocks:
                    return encoder.removesuffix(f"{mark}{start}"), start
        if encoder not in blocks:
            names = [f"{block}-{start}" for block in blocks for start in STAGE_OF]
            raise ConfigError(f"--encoder: unknown encoder {encoder!r}{nearest(encoder, names)}")
        for start in ("adapted", "pretrained"):
            if (self.out / "encoder" / encoder / start / MANIFEST).is_file():
                return encoder, start
        raise ArtifactError(
            f"{self.out / 'encoder' / encoder}: has no trained encoder; run "
            f"`headstart stage pretrain --item {encoder}` (or `headstart retrain`) first"
        )

    def block(self, name: str) -> Block:
        """The block of an encoder that exists."""
        block = self.params.block(name)
        assert block is not None
        return block

    def encoder(self, name: str, start: str) -> Encoder:
        return load_encoder(self.encoder_directory(name, start))

    def encoder_directory(self, name: str, start: str) -> Path:
        """The directory of the encoder of a block and a start."""
        if (system := System.of(name, start)).way:
            stage = f"intermediate --item {system.group}-{name}-{system.start}"
        else:
            stage = f"{f'static-{start}' if name in self.params.static else STAGE_OF[start]} --item {name}"
        return self.directory("encoder", name, start, stage=stage)

    def finetuning(self, block: str) -> FinetuneSettings:
        if block not in self.params.finetune:
            raise ConfigError(f"finetune.{block}: missing; this study encodes texts as fine-tuning does")
        return self.params.finetune[block]

    def chosen(self, encoder: str = "") -> list[tuple[str, str]]:
        """(block, start) of the named encoder; of one encoder of each of run.families if `encoder` is empty."""
        return [self.split_name(name) for name in ([encoder] if encoder else self.params.run.families)]

    def causal(self, encoder: str = "") -> list[tuple[str, str, Encoder]]:
        """(block, start, encoder) of the forward causal language models among `chosen`; a backward model predicts the
        previous piece.

        Raises:
            ConfigError: there is none.
        """
        loaded = [(block, start, self.encoder(block, start)) for block, start in self.chosen(encoder)]
        models = [
            (block, start, each)
            for block, start, each in loaded
            if family_named(each.family).objective == "causal" and not each.model.backward
        ]
        if not models:
            raise ConfigError(
                f"{encoder or ', '.join(self.params.run.families)}: not a causal language model; this study needs a "
                "causal family, such as ulmfit, gpt or transformer-xl"
            )
        return models


def bounds(interval: Mapping[str, float] | Interval, form: str = ".3f") -> str:
    """`0.512 [0.480, 0.544]`; `0.512` for a single value, which has no interval."""
    values = interval.as_dict() if isinstance(interval, Interval) else interval
    mean, low, high = (format(values[name], form) for name in ("mean", "low", "high"))
    return f"{mean} [{low}, {high}]" if values["low"] < values["high"] else mean


def band(x: list[float], intervals: list[Interval], *, dashed: bool = False) -> Line:
    """A curve of means with their intervals."""
    y, low, high = ([getattr(value, name) for value in intervals] for name in ("mean", "low", "high"))
    return Line(x, y, low, high, dashed=dashed)


def label_curves(evaluation: Mapping[str, Any], systems: Collection[str] | None = None) -> dict[str, Line]:
    """System -> primary metric on test with its interval against labels per class. Frozen systems are omitted."""
    frozen = {
        system["system"] for system in evaluation["systems"] if System.of(system["family"], system["start"]).frozen
    }
    curves = evaluations.label_curves(evaluation)
    return {name: of for name, of in curves.items() if name not in frozen and (systems is None or name in systems)}
