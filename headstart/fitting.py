"""Training from Python: the stages of the pipeline as functions, in a working folder.

The systems are the same as in a run of the pipeline: words models and, with a start, a head on the frozen encoder and
the encoder's ways to learn (`method: auto`). All are compared by cross-validation within the labels, whose folds keep
copies and groups together. The first system is kept that is not worse than the best one by more than one standard
error: the fine-tuned encoder, then words models and the frozen encoder, the simplest first. The score of the report
comes from predictions by systems that were chosen without the row's fold.
"""

import contextlib
import io
import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from components.core.artifacts import MANIFEST, json_of, read_manifest
from components.core.clock import OutOfTimeError, clock, end_of, seconds_left, until
from components.core.errors import extras
from components.core.outputs import claim_folder
from components.data.ingestion.unlabelled import write_texts
from components.data.scoring.base import Vectors
from components.data.tasks.data import Fields, spaced
from components.data.tasks.examples import ExamplesJob, examples, read_facts, read_split, run_folds
from components.data.tasks.kinds import scoring_for
from components.data.tasks.reading.records import class_name
from components.data.tasks.results import OUT_OF_FOLD, RunKey, best_score, read_answers
from components.interchange.starts.registry import advice, folder_of
from components.learners.baselines.stage import BaselineJob, baseline
from components.learners.select import choose
from components.registry.explain import CLASSIFIER, FROZEN_CLASSIFIER
from components.settings.cluster import ClusterSettings
from components.settings.finetune import FinetuneSettings
from components.settings.minutes import FIRST_MINUTES
from components.settings.recipes import IMPORTED, IMPORTED_TRAINING, TRAINED, TRAINED_TRAINING
from components.settings.systems import System
from components.settings.tasks import LABELLED, OF_ONE_TEXT, has
from headstart.model import Model
from headstart.report import ANSWERED, Report, Tried, bounds_of, contradicted, dependent, inseparable, tried_of
from headstart.tables import Data, InputError, path_of
from headstart.tasks import Kind, TaskRows, read_task, read_unlabelled

#: Names of the task and of the start in progress lines and results.
TASK: Final = "task"
START: Final = "pretrained"
#: Folder of the chosen model in the working folder.
CHOSEN: Final = "chosen"
#: Texts without labels that words models are fitted on.
FOR_WORDS = 25_000
#: Kinds whose encoder learns from the texts of labels (`components.learners.finetuning.fit.names_of`).
READS_LABELS: Final = OF_ONE_TEXT.intersection(LABELLED)
#: Seconds below which a limit of time leaves out the start: importing what trains it takes some.
LEAST_SECONDS = 15


@extras()
def fit(
    data: Data,
    *,
    text: str | Sequence[str] | None = None,
    label: Any = None,
    kind: Kind | None = None,
    group: Any = None,
    labels: Mapping[Any, str | Sequence[str]] | None = None,
    start: str | Path | None = None,
    unlabelled: Data = None,
    minutes: float | None = None,
    folds: int = 5,
    language: str | None = None,
    seed: int = 0,
    folder: str | Path | None = None,
    verbose: bool = True,
) -> Model:
    """Train a model, with a `report` of what was tried.

    Args:
        data: a DataFrame, a list of dicts, the path of a csv, tsv, jsonl or parquet file; or the inputs alone: a list
            of texts, of pairs of texts, or of lists of words. Rows without a label are used as unlabelled text.
        text: column of the text, or two columns for pairs of texts; None: found by name or length.
        label: column of the label, or one label per row; None: found by name. The labels determine the kind of task.
            A list per row: multi-label. One tag per word: tagging. Numbers that are not whole, or more than 20 whole
            ones with gaps: regression. Others: classification.
        kind: of the task, if it is not the one that the labels suggest.
        group: column of the group (customer, author, thread), or one group per row (None: independent). Its rows are in
            one fold. Default: a column with such a name, many values and several rows for each, as in `headstart init`.
        labels: what labels mean: label -> a text, or several (terms, a template), whose vectors are averaged; others
            are their own text. They need a start, and the kind classification or multilabel.
        start: encoder to start from: a folder, a model of the hub, or the name of an installed start (`headstart
            starts`). None: words models only, which take seconds.
        unlabelled: texts without labels, in the same forms as `data`, or a list of paths (.txt: one text a line).
        minutes: limit of the whole call by the clock. What does not end in time is left out, and the report names it.
            One words model (tagging: the frozen encoder) is always trained. In any case a way to learn that takes more
            than 5 minutes, or than a larger limit, at a nominal speed is shortened or left out.
        folds: of the cross-validation by which everything is chosen; no further labels are needed.
        language: code, such as `th`; None: guessed from the texts.
        seed: of training and of the folds.
        folder: keeps intermediate results, with which a repeated call continues: new, empty or of an earlier fit.
        verbose: whether progress is shown.

    Raises:
        InputError: the data or an argument are wrong; it is a HeadstartError and a ValueError.
        ArtifactError: the start cannot be imported, or `folder` contains files of others.
    """
    _check(folds=folds, seed=seed, minutes=minutes, language=language, start=start)
    if folder is not None:
        claim_folder(path_of("folder", folder))
    with contextlib.ExitStack() as stack:
        stack.enter_context(until(end_of(minutes)))
        task = read_task(data, text=text, label=label, kind=kind, language=language, group=group)
        without_labels = [*task.unlabelled, *(read_unlabelled(unlabelled, task) if unlabelled is not None else ())]
        if folder is None:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="headstart-fit-"))
        stack.enter_context(_quiet(verbose=verbose))
        texts = _label_texts(labels, task, start)
        work = _Work(Path(folder).absolute(), task, without_labels, texts=texts, folds=folds, seed=seed)
        return work.fit(start, minutes=minutes, notes=_notes(task, start))


def _check(*, folds: int, seed: int, minutes: Any, language: Any, start: Any) -> None:
    """Check arguments of `fit`.

    Raises:
        InputError: one has another type, or is too small.
        ArtifactError: there is no such start.
    """
    for name, value, least in (("folds", folds, 2), ("seed", seed, 0)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or not least <= value < 2**32:
            raise InputError(f"{name}: {value!r}; give a whole number from {least}, below 2**32")
    if minutes is not None and not (isinstance(minutes, int | float | np.number) and minutes > 0):
        raise InputError(f"minutes: {minutes!r}; give a number above 0, or None")
    if not isinstance(language, str | None):
        raise InputError(f"language: {language!r}; give a code, such as 'th', or None")
    if start is not None:
        folder_of(str(path_of("start", start)))


def _label_texts(labels: Any, task: TaskRows, start: str | Path | None) -> dict[str, list[str]]:
    """Check the argument of `fit`. Raises InputError: it is no mapping, one is not a label, or has no text; or nothing
    would read them."""
    if labels is None:
        return {}
    if not isinstance(labels, Mapping):
        raise InputError(f"labels: {type(labels).__name__}; give a mapping: label -> a text, or a list of texts")
    lists: dict[str, list[str]] = {}
    for value, texts in labels.items():
        label = class_name(value)
        texts = [texts] if isinstance(texts, str) else texts
        if label not in task.classes:
            raise InputError(f"labels: {label!r} is not a label; the labels are {', '.join(task.classes) or 'none'}")
        if not (
            isinstance(texts, Sequence) and texts and all(isinstance(text, str) and text.strip() for text in texts)
        ):
            raise InputError(f"labels: {label!r}: give a text, or a list of texts that are not empty")
        lists[label] = list(texts)
    if lists and task.kind not in READS_LABELS:
        raise InputError(f"labels: no model of kind {task.kind} reads what labels mean; leave them out")
    if lists and start is None:
        raise InputError("labels: only an encoder reads what labels mean; name one with start, or leave them out")
    return lists


def _notes(task: TaskRows, start: str | Path | None) -> list[str]:
    """What the report says about the use of the data."""
    count = len(task.unlabelled)
    notes = [*task.notes, *[f"{count} rows have no label; their texts are used without one."] * bool(count)]
    if start is None:
        text = advice(task.language, use="start='{}'")
        notes.append(f"{text[0].upper()}{text[1:]}.")
    return notes


def _left_out(minutes: float | None) -> list[str]:
    """What the report says about the limit of time."""
    names = [name.removeprefix(f"finetune {TASK} ") for name in clock().left_out]
    return [f"{minutes:g} minutes were not enough for everything; not tried: {', '.join(names)}."] if names else []


@contextlib.contextmanager
def _quiet(*, verbose: bool) -> Iterator[None]:
    """A block without the messages of the stages, which name keys of params.yaml; progress is shown if `verbose`."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
        if not verbose:
            stack.enter_context(contextlib.redirect_stderr(io.StringIO()))
        yield


#: `_Candidate.cost` of a fine-tuned model.
FINE_TUNED = 2


@dataclass(frozen=True)
class _Candidate:
    """A model that can be kept, and the systems of which it is the chosen one."""

    score: float
    run: RunKey
    way: str
    directory: Path
    systems: Sequence[str]

    @property
    def cost(self) -> int:
        """Rank by the cost of prediction: words, frozen, fine-tuned."""
        frozen = self.directory.name == "classifier-frozen"
        return 0 if self.directory.parent.name == "baselines" else 1 if frozen else FINE_TUNED


class _Work:
    """The working folder of a fit."""

    def __init__(
        self,
        folder: Path,
        task: TaskRows,
        unlabelled: Sequence[Fields],
        *,
        texts: dict[str, list[str]],
        folds: int,
        seed: int,
    ) -> None:
        self.folder, self.task = folder, task
        given = {
            "seeds": [seed],
            "folds": min(folds, len(task.fields)),
            "language": task.language,
            "label_texts": texts,
        }
        job = ExamplesJob(task=TASK, source=task.source.model_copy(update=given), output=folder / "examples")
        self.examples = examples(job, task.examples)
        self.free = (
            write_texts(folder / "unlabelled", unlabelled, examples=self.examples, most=FOR_WORDS)
            if unlabelled
            else None
        )

    def fit(self, start: str | Path | None, *, minutes: float | None, notes: list[str]) -> Model:
        """Train all systems, and return the chosen one."""
        facts, train = read_facts(self.examples), read_split(self.examples, "train")
        scoring = scoring_for(facts.kind, facts.labels)
        folds = run_folds(facts, train, np.arange(len(train)), seed=facts.seeds[0])
        count = int(folds.max()) + 1
        collected: list[tuple[_Candidate, Vectors]] = []
        tried: list[Tried] = []
        output = self.folder / "finetuned" / TASK / "baselines"
        stages = [baseline(BaselineJob(examples=self.examples, output=output, unlabelled=self.free))]
        if start is not None:
            try:
                if seconds_left() < LEAST_SECONDS:
                    raise OutOfTimeError
                stages.append(self._finetune(start, minutes=minutes))
                notes = [*notes, *self._warnings(start)]
            except OutOfTimeError:
                clock().left_out.append(f"the start {Path(start).name}")
        for output in stages:
            records = json_of(output / "runs.json")
            tried += tried_of(output, records, train=train, kind=facts.kind, labels=facts.labels, folds=count)
            predicted = read_answers(output, OUT_OF_FOLD)
            for candidate in candidates_of(output, records):
                several = [predicted[(name, *candidate.run[1:])] for name in candidate.systems]
                collected.append((candidate, choose(scoring, train, dict(enumerate(several)), folds=folds)[1]))
        collected.sort(key=lambda entry: entry[0].cost != FINE_TUNED)
        answers = dict(enumerate(answers for _, answers in collected))
        chosen, selected = choose(scoring, train, answers, folds=folds)
        best, _ = collected[chosen[None]]
        report = Report(
            kind=facts.kind,
            metric=str(records[0]["score"]),
            labels=len(train),
            folds=count,
            chosen=best.run[0],
            way=best.way,
            tried=tried,
            notes=[*notes, *dependent(train), *_left_out(minutes)],
            selected=bounds_of(scoring, train, selected, folds=count),
            cut=max(read_manifest(output).facts.get("cut", 0.0) for output in stages),
        )
        model = Model(best.directory, columns=self.task.columns, classes=self.task.classes, report=report)
        if scoring.shares == "exclusive" and seconds_left() > 0:
            names, places = facts.labels, self.task.places
            rows = spaced(len(train), ANSWERED)
            texts = [parts if len(parts) > 1 else parts[0] for parts in (train.fields[row] for row in rows)]
            contrary = contradicted(names, train.take(rows), model.answers(texts), [places[row] for row in rows])
            report.notes.extend([*inseparable(names, train, selected, places), *contrary])
        model.save(self.folder / CHOSEN, overwrite=True)
        return model

    def _encoder(self, start: str | Path) -> tuple[str, Path]:
        from headstart.starts import encoder_of  # imports torch

        return encoder_of(start, folder=self.folder / "encoder")

    def _finetune(self, start: str | Path, *, minutes: float | None) -> Path:
        from components.learners.finetuning.stage import FinetuneJob, finetune  # imports torch

        name, encoder = self._encoder(start)
        task = self.task
        nominal = None if minutes == math.inf else max(minutes or 0.0, FIRST_MINUTES)
        settings = finetuning_of(encoder, task.fields, kind=task.kind, minutes=nominal)
        return finetune(
            FinetuneJob(
                task=TASK,
                family=name,
                start=START,
                examples=self.examples,
                encoder=encoder,
                baselines=self.folder / "finetuned" / TASK / "baselines",
                output=self.folder / "finetuned" / TASK / f"{name}-{START}",
                settings=settings,
                cluster=ClusterSettings(launcher="local", storage=str(self.folder / "checkpoints")),
            )
        )

    def _warnings(self, start: str | Path) -> list[str]:
        from components.interchange.starts.language import other_language
        from components.models.encoder import TOKENIZER  # imports torch
        from components.tokenization import load_tokenizer

        _, encoder = self._encoder(start)
        texts = (text for fields in self.task.fields for text in fields)
        warning = other_language(
            Path(start).name, load_tokenizer(encoder / TOKENIZER), texts, language=self.task.language
        )
        return [f"{warning}."] if warning else []


def candidates_of(output: Path, records: Sequence[dict[str, Any]]) -> list[_Candidate]:
    """The models that a stage has written, the cheapest first, with their scores of selection."""
    collected = []
    for part in (FROZEN_CLASSIFIER, CLASSIFIER):
        directory = output / part
        if not (directory / MANIFEST).is_file():
            continue
        facts = read_manifest(directory, kind="classifier").facts
        if "system" in facts:
            names = [facts["system"]]
        else:
            frozen = part == FROZEN_CLASSIFIER
            names = [record["system"] for record in records if System.named(record["system"]).frozen == frozen]
        of_seeds = [
            record
            for record in records
            if record["system"] in names and record["budget"] == facts["budget"] and record["seed"] in facts["seeds"]
        ]
        first = of_seeds[0]
        run = (first["system"], first["budget"], first["seed"])
        score = sum(map(best_score, of_seeds)) / len(of_seeds)
        systems = facts.get("systems", [first["system"]])
        collected.append(_Candidate(score, run, first.get("way", ""), directory, systems))
    return collected


def finetuning_of(encoder: Path, rows: Sequence[Fields], *, kind: str, minutes: float | None) -> FinetuneSettings:
    """The settings for an encoder directory: those that a block of params.yaml has by default, with all ways to learn.

    Args:
        encoder: encoder directory.
        rows: inputs of the task.
        kind: of the task.
        minutes: limit of `method: auto`; None: none.
    """
    from components.models.encoder import architecture_of, has_large_table  # imports torch

    facts = read_manifest(encoder, kind="encoder").facts
    is_imported, tags = "source" in facts, has(kind, "words")
    training: dict[str, Any] = dict(IMPORTED_TRAINING if is_imported else TRAINED_TRAINING)
    settings: dict[str, Any] = dict(IMPORTED if is_imported else TRAINED) | {
        "method": "auto",
        "auto": {"minutes": minutes, **({"ways": ["features"]} if has_large_table(architecture_of(encoder)) else {})},
        "training": training,
    }
    if tags:
        # With few steps, slots are learned only at a higher rate.
        settings |= {"epochs": 12, "training": {**training, "rate": 4 * training["rate"]}, "words": "none"}
    chosen = FinetuneSettings.model_validate(settings)
    return chosen.model_copy(update=_reading(encoder, rows, chosen, kind=kind))


def _reading(encoder: Path, rows: Sequence[Fields], settings: FinetuneSettings, *, kind: str) -> dict[str, int | None]:
    from components.learners.task_models.extent import reading_of
    from components.learners.task_models.inputs import sizes_of
    from components.learners.task_models.kinds import find_task
    from components.models.encoder import TOKENIZER, architecture_of  # imports torch
    from components.tokenization import load_tokenizer

    model, task = architecture_of(encoder), find_task(kind)
    sizes = sizes_of(rows, load_tokenizer(encoder / TOKENIZER), model, settings, task=task)
    collected = reading_of(sizes, single=task.single, most=model.max_tokens)
    return {"max_length": collected.max_length, "chunk": collected.chunk}
