"""What all studies share: access to the outputs of a run, and tables and figures from rows of values."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from components.core.artifacts import MANIFEST, read_json, read_manifest
from components.core.errors import ArtifactError, ConfigError, nearest
from components.data.scoring.intervals import Interval
from components.models import family as family_named
from components.models.encoder import Encoder, load_encoder
from components.reporting import figures
from components.reporting.figures import Line
from components.reporting.findings import Chapter, Drawing, Findings, Table
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
#: Column -> value of one row: a text, a number, an interval, or None for an empty cell.
Row = dict[str, Any]


@dataclass
class Sheet:
    """A table of values. `forms`: column -> format of its numbers, other than three digits."""

    rows: Sequence[Row]
    title: str = ""
    forms: Mapping[str, str] = field(default_factory=dict)

    def table(self) -> Table:
        """The table as text; the columns are those of the first row."""
        columns = list(self.rows[0]) if self.rows else []
        cells = [[cell(row[name], self.forms.get(name, ".3f")) for name in columns] for row in self.rows]
        return Table(columns, cells, self.title)


@dataclass
class Measured:
    """What a study measures: tables, sentences that answer its question, explanations and figures."""

    sheets: list[Sheet]
    lead: list[str] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    figures: list[Drawing] = field(default_factory=list)

    def findings(self, name: str, title: str) -> Findings:
        """The chapter with this title, and the values of the tables by their titles."""
        chapter = Chapter(title, self.lead, self.text, [sheet.table() for sheet in self.sheets], self.figures)
        rows = {sheet.title or name: [dict(row) for row in sheet.rows] for sheet in self.sheets}
        plain = {of: [{key: _plain(value) for key, value in row.items()} for row in part] for of, part in rows.items()}
        return Findings(chapter, plain)


def cell(value: Any, form: str = ".3f") -> str:
    """`0.512 [0.480, 0.544]`; `0.512` for a number and for an interval without width; an empty text for None."""
    if isinstance(value, Interval):
        return bounds(value, form)
    if isinstance(value, bool) or value is None:
        return "yes" if value else ""
    return f"{value:,}" if isinstance(value, int) else format(value, form) if isinstance(value, float) else str(value)


def bounds(value: Interval, form: str = ".3f") -> str:
    mean, low, high = (format(of, form) for of in (value.mean, value.low, value.high))
    return f"{mean} [{low}, {high}]" if value.low < value.high else mean


def _plain(value: Any) -> Any:
    """A value of JSON, which has no infinity."""
    if isinstance(value, Interval):
        return {key: _plain(of) for key, of in asdict(value).items()}
    return None if isinstance(value, float) and math.isinf(value) else value


def interval_of(entry: Mapping[str, Any]) -> Interval:
    """An interval of evaluation.json."""
    return Interval(*(entry[key] for key in ("mean", "low", "high")))


def curves(
    rows: Iterable[Row], caption: str, *, x: str, y: str, by: str, dashed: Sequence[str] = (), **options: Any
) -> Drawing:
    """Lines of the column `y` against `x`, one for each value of `by`, with the bands of intervals."""
    points: dict[str, list[tuple[float, Any]]] = {}
    for row in rows:
        if row[y] is not None:
            points.setdefault(row[by], []).append((row[x], row[y]))
    lines = {}
    for name, of in points.items():
        values = [value if isinstance(value, Interval) else Interval(value, value, value) for _, value in of]
        mean, low, high = ([getattr(value, key) for value in values] for key in ("mean", "low", "high"))
        band: tuple[Any, Any] = (low, high) if low != high else (None, None)
        lines[name] = Line([float(at) for at, _ in of], mean, band[0], band[1], dashed=name in dashed)
    shown: dict[str, Any] = {"x_label": x, "y_label": y, "ticks": True} | options
    return Drawing(figures.lines(lines, **shown), caption)


def spread(
    rows: Sequence[Row], caption: str, *, by: str, value: str, reference: float | None = None, **options: Any
) -> Drawing:
    """Intervals of the column `value` side by side; a bound of infinity is an arrow."""
    most = max((of.mean for row in rows if (of := row[value]) and of.mean < math.inf), default=0.0)
    entries = {
        row[by]: (min(of.mean, max(most, of.low)), of.low, of.high if of.high < math.inf else None)
        for row in rows
        if (of := row[value]) is not None and of.low < math.inf
    }
    return Drawing(figures.ranges(entries, x_label=value, reference=reference, **options), caption)


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

    def exists(self, *parts: str) -> bool:
        return (self.out.joinpath(*parts) / MANIFEST).is_file()

    def directory(self, *parts: str, stage: str) -> Path:
        """A complete output directory, which `stage` writes."""
        path = self.out.joinpath(*parts)
        if not self.exists(*parts):
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

    def tokens(self, name: str) -> Path:
        """The output directory of the stage `tokenize`."""
        return self.directory("tokens", name, stage=f"tokenize --item {name}")

    def split_name(self, encoder: str) -> tuple[str, str]:
        """`bert-adapted` or `bert/adapted` -> (`bert`, `adapted`); `bert` -> its adapted or else pretrained encoder;
        `bert-adapted-after-sst2` -> (`bert`, `adapted-after-sst2`), fine-tuned on an intermediate task."""
        before, after, source = encoder.partition("-after-")
        if after and source in self.params.intermediate_tasks:
            block, start = self.split_name(before)
            return block, System(block, start, "after", source).variant
        blocks = [*self.params.pretrain, *self.params.static]
        names = {f"{block}-{start}": (block, start) for block in blocks for start in STAGE_OF}
        if (name := encoder.replace("/", "-")) in names:
            return names[name]
        if encoder not in blocks:
            raise ConfigError(f"--encoder: unknown encoder {encoder!r}{nearest(encoder, names)}")
        for start in ("adapted", "pretrained"):
            if self.exists("encoder", encoder, start):
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

    def encoders(self, encoder: str = "") -> dict[str, Encoder]:
        """Name -> encoder of each of `chosen`."""
        return {f"{block}-{start}": self.encoder(block, start) for block, start in self.chosen(encoder)}

    def causal(self, encoder: str = "") -> dict[tuple[str, str], Encoder]:
        """(block, start) -> encoder of the forward causal language models among `chosen`; a backward model predicts
        the previous piece.

        Raises:
            ConfigError: there is none.
        """
        loaded = {pair: self.encoder(*pair) for pair in self.chosen(encoder)}
        models = {
            pair: each
            for pair, each in loaded.items()
            if family_named(each.family).objective == "causal" and not each.model.backward
        }
        if not models:
            raise ConfigError(
                f"{encoder or ', '.join(self.params.run.families)}: not a causal language model; this study needs a "
                "causal family, such as ulmfit, gpt or transformer-xl"
            )
        return models
