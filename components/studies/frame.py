"""What all studies share: access to the outputs of a run, and the tables, figures and sentences of rows of values."""

import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from components.core.artifacts import MANIFEST, read_json, read_manifest
from components.core.errors import ArtifactError, ConfigError, nearest
from components.data.scoring.intervals import CONFIDENCE, Interval, interval
from components.data.tasks.examples import read_facts, read_split
from components.models import family as family_named
from components.models.encoder import Encoder, load_encoder
from components.reporting import figures
from components.reporting.figures import Line
from components.reporting.findings import Chapter, Drawing, Findings, Table, cell, interval_of
from components.settings.finetune import FinetuneSettings
from components.settings.params import Params

#: Corpus of a run.
Corpus = Literal["domain", "general"]
#: Start -> the stage that makes its encoder; folder of the outputs -> the stage that writes it.
STAGE_OF = {"scratch": "scratch", "vectors": "scratch", "pretrained": "pretrain", "adapted": "adapt"}
WRITES = {"examples": "examples", "corpus": "ingest", "tokens": "tokenize", "tokenizer": "tokenizer"}
WRITES |= {"evaluation": "evaluate"}
#: What studies of causal language models need.
CAUSAL = "not a causal language model; this study needs a causal family, such as ulmfit, gpt or transformer-xl"
#: Maximum number of rows of a figure without an axis; the table contains all.
PLOTTED = 24
#: Column -> value of one row: a text, a number, an interval, or None for an empty cell.
Row = dict[str, Any]
Rows = list[Row]


@dataclass
class Sheet:
    """A table of values, its figure, and the sentence that answers the question of the study.

    Attributes:
        forms: column -> format of its numbers, other than three digits.
        value: column of numbers or intervals that is drawn and answers the question; empty: none.
        x: column of the horizontal axis, with one curve for each value of the first column; empty: intervals side by
            side.
        by: columns that name a row; by default those in words, and `x`.
        reference: value that a difference is compared with.
        headline: a further sentence that answers it.
    """

    rows: Sequence[Row]
    title: str = ""
    forms: Mapping[str, str] = field(default_factory=dict)
    value: str = ""
    x: str = ""
    by: Sequence[str] = ()
    reference: float | None = None
    logarithmic: bool = False
    headline: str = ""

    def __post_init__(self) -> None:
        # Intervals as in evaluation.json.
        self.rows = [
            {key: interval_of(of) if isinstance(of, Mapping) else of for key, of in row.items()} for row in self.rows
        ]

    def named(self) -> Iterator[tuple[Row, str, Interval]]:
        """Each row with a value, its name and the value."""
        for row in self.rows if self.value else ():
            if (value := row[self.value]) is not None:
                names = [cell(row[key], self.forms.get(key, ".3g")) for key in self.by]
                names = names or [each for each in row.values() if isinstance(each, str)]
                names += [f"{self.x} {row[self.x]}"] if self.x else []
                yield row, ", ".join(names), value if isinstance(value, Interval) else Interval(value, value, value)

    @property
    def about(self) -> str:
        """The title and the column of the value."""
        return f"{self.title}: {self.value}" if self.title else self.value

    def lead(self) -> list[str]:
        """The highest value, or those that are clearly not the reference."""
        values, zero = {name: of for _, name, of in self.named()}, self.reference
        said = [self.headline] if self.headline else []
        if not values:
            return said
        shown = {name: cell(of, self.forms.get(self.value, ".3f")) for name, of in values.items()}
        if zero is None:
            best = max(values, key=lambda name: values[name].mean)
            return [*said, f"{self.about} is highest for {best}: {shown[best]}."]
        clear = (name for name, of in values.items() if not of.low <= zero <= of.high and of.low < of.high)
        listed = "; ".join(f"{name} {shown[name]}" for name in clear) or f"none of {len(values)}"
        return [*said, f"{self.about} is clearly not {zero:g} for {listed}."]

    def drawing(self) -> list[Drawing]:
        if self.value and self.x:
            points = defaultdict[str, Rows](list)
            for row, _, of in self.named():
                points[next(iter(row.values()))].append({self.x: float(row[self.x])} | asdict(of))
            lines = {name: Line.of(of, self.x) for name, of in points.items()}
            svg = figures.lines(lines, x_label=self.x, y_label=self.value, ticks=True)
            return [Drawing(svg, f"{self.about}, by {self.x}.")]
        least = sorted(self.named(), key=lambda of: of[2].mean)[:PLOTTED]
        if not (drawn := {name: of for _, name, of in least if of.low < math.inf}):
            return []
        options = {"reference": self.reference, "logarithmic": self.logarithmic}
        return [Drawing(figures.ranges(drawn, x_label=self.value, **options), f"{self.about}.")]  # type: ignore[arg-type]


#: What a study measures: tables, further figures, and explanations.
Part = Sheet | Drawing | str
Parts = Iterator[Part]


def over(values: ArrayLike, **bounds: Any) -> Interval:
    """The mean of independent values, with its interval."""
    return interval(np.asarray(values, dtype=np.float64), confidence=CONFIDENCE, **bounds)


def rate(above_P: NDArray[Any], below_P: NDArray[Any], **bounds: Any) -> Interval:
    """The ratio of two sums over P parts of a text, with the interval by leaving out each part."""
    above, below = (of.sum() - np.append(0, of) for of in (above_P, below_P))
    ratios = above / np.maximum(below, 1)
    return interval(ratios[:1], ratios[None, 1:], below_P, confidence=CONFIDENCE, **bounds)


def mean_of(
    values_N: NDArray[Any], clusters: NDArray[Any] | None = None, *, within: tuple[float, float] = (0.0, 1.0)
) -> Interval:
    """The mean of N values, with its interval over items (`clusters`: of them). `within`: least and largest value."""
    groups = np.arange(len(values_N)) if clusters is None else clusters
    return rate(np.bincount(groups, values_N), np.bincount(groups), within=within)


def is_causal(encoder: Encoder) -> bool:
    """Whether it is a forward causal language model; a backward model predicts the previous piece."""
    return family_named(encoder.family).objective == "causal" and not encoder.model.backward


@dataclass
class Outputs:
    """The outputs of one run. Methods raise an ArtifactError that names the stage whose output is missing, and a
    ConfigError for unknown names. `read`: path below `out` -> digest, for the outputs that were read; `notes`: encoders
    that a study cannot measure."""

    params: Params
    read: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

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

    def of(self, folder: str, name: str) -> Path:
        """An output directory of a task, a corpus or a vocabulary: `folder` is a key of WRITES."""
        return self.directory(folder, name, stage=f"{WRITES[folder]} --item {name}")

    def task(self, name: str = "") -> str:
        """A task of the settings; the first of run.tasks if `name` is empty."""
        if name and name not in self.params.data.tasks:
            raise ConfigError(f"--task: unknown task {name!r}{nearest(name, self.params.data.tasks)}")
        return name or self.params.run.tasks[0]

    def examples(self, task: str, *splits: str) -> tuple[Any, ...]:
        """The facts and the splits of a task; the first of run.tasks if `task` is empty."""
        directory = self.of("examples", self.task(task))
        return read_facts(directory), *(read_split(directory, split) for split in splits)

    def evaluations(self, name: str, part: str, *, needs: str) -> dict[str, dict[str, Any]]:
        """Task -> content of evaluation.json, of the named task or of all of run.tasks.

        Raises:
            ArtifactError: a task is not evaluated, or its `part` is empty; `needs` says what that part requires.
        """
        content = {}
        for task in [self.task(name)] if name else self.params.run.tasks:
            content[task] = read_json(self.of("evaluation", task) / "evaluation.json", made_by="the stage evaluate")
            if not content[task][part]:
                raise ArtifactError(f"{task}: {needs}")
        return content

    def split_name(self, encoder: str) -> tuple[str, str]:
        """`bert-adapted` or `bert/adapted` -> (`bert`, `adapted`); `bert` -> its adapted or else pretrained encoder."""
        blocks = [*self.params.pretrain, *self.params.static]
        names = {f"{block}-{start}": (block, start) for block in blocks for start in STAGE_OF}
        if (name := encoder.replace("/", "-")) in names:
            return names[name]
        if encoder not in blocks:
            raise ConfigError(f"--encoder: unknown encoder {encoder!r}{nearest(encoder, names)}")
        return encoder, "adapted" if self.exists("encoder", encoder, "adapted") else "pretrained"

    def encoder(self, name: str, start: str) -> Encoder:
        return load_encoder(self.encoder_directory(name, start))

    def encoder_directory(self, name: str, start: str) -> Path:
        """The directory of the encoder of a block and a start."""
        stage = f"{STAGE_OF[start]} --item {name}" if name in self.params.pretrain else f"static --item {name}-{start}"
        return self.directory("encoder", name, start, stage=stage)

    def finetuning(self, block: str) -> FinetuneSettings:
        if block not in self.params.finetune:
            raise ConfigError(f"finetune.{block}: missing; this study encodes texts as fine-tuning does")
        return self.params.finetune[block]

    def chosen(self, encoder: str = "") -> list[tuple[str, str]]:
        """(block, start) of the named encoder; of one encoder of each of run.families if `encoder` is empty."""
        return [self.split_name(name) for name in ([encoder] if encoder else self.params.run.families)]

    def encoders(
        self, encoder: str = "", suits: Callable[[Encoder], bool] = lambda each: True, needs: str = ""
    ) -> dict[str, Encoder]:
        """Name -> encoder of each of `chosen` that suits a study. Raises a ConfigError with `needs` if none does."""
        loaded = {f"{block}-{start}": self.encoder(block, start) for block, start in self.chosen(encoder)}
        suitable = {name: each for name, each in loaded.items() if suits(each)}
        if not suitable:
            raise ConfigError(f"{encoder or ', '.join(self.params.run.families)}: {needs}")
        self.notes = [f"{name} is left out: {needs}." for name in loaded if name not in suitable]
        return suitable


def find(study: Any, outputs: Outputs, **options: Any) -> Findings:
    """What a study (`components.studies.command.Study`, which imports this module) finds in the outputs of a run: its
    chapter, and the values of its tables by their titles; empty ones are left out."""
    outputs.notes = []
    parts = list(study.measure(outputs, **options))
    sheets = [part for part in parts if isinstance(part, Sheet) and part.rows]
    drawings = [part for part in parts if isinstance(part, Drawing)]
    chapter = Chapter(
        study.question,
        [*chain(*(sheet.lead() for sheet in sheets))],
        [*(part for part in parts if isinstance(part, str)), *study.text, *outputs.notes],
        [Table.of(sheet.rows, sheet.title, sheet.forms) for sheet in sheets],
        [*drawings, *chain(*(sheet.drawing() for sheet in sheets))],
    )
    numbers = json.dumps({sheet.title or study.name: list(sheet.rows) for sheet in sheets}, default=asdict)
    # JSON has no infinity; NaN is refused when it is written.
    return Findings(chapter, json.loads(numbers, parse_constant=lambda name: math.nan if name == "NaN" else None))
