"""One training as a value, and what follows from it: its rows, model, pieces, and features of the frozen encoder."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from components.core.artifacts import read_manifest
from components.core.processors import cores
from components.data.tasks.budgets import budget_name, sample_rows
from components.data.tasks.data import Answer, Fields, Target
from components.data.tasks.examples import TaskFacts, read_facts, read_split, strata_of
from components.data.tasks.reading.labels import are_words, text_of
from components.data.unlabelled_texts import KIND as UNLABELLED
from components.data.unlabelled_texts import read_unlabelled
from components.learners.base import Rows
from components.learners.task_models.base import Encoded, Task
from components.learners.task_models.features import cached
from components.learners.task_models.heads import ClassWeight, Head
from components.learners.task_models.kinds import find_task
from components.learners.task_models.model import TaskModel
from components.learners.task_models.predictor import Predictor
from components.learners.task_models.probe import HeadCandidate
from components.learners.ways import way_of
from components.learners.ways.base import Way
from components.models import family as family_named
from components.models.base import LanguageModel
from components.models.encoder import KIND as ENCODER
from components.models.encoder import Encoder, architecture_of, build_model, count_parameters, family_of, load_encoder
from components.settings.cluster import ClusterSettings
from components.settings.finetune import FinetuneSettings, ReadingSettings
from components.settings.section import Section
from components.tokenization import Tokenizer
from components.training.checkpoint import CheckpointStore, fingerprint
from components.training.precision import Precision, first_device, product_size
from components.training.rng import counter_seed

#: Bytes that every process occupies on a GPU: the CUDA context, and workspaces of cuBLAS and cuDNN.
PROCESS: Final = 10**9
#: Tensors of float32 per parameter: weights, gradient, two moments of AdamW, best weights so far.
COPIES: Final = 5
#: Assumed dimension of an attention head.
HEAD: Final = 64
#: The texts that a training labels, and the names of the labels, as splits.
LABELS, NAMES = "labels", "names"


class EncoderJob(Section):
    """Inputs of a stage that trains an encoder on tasks.

    Attributes:
        family: block of `pretrain` that the encoder comes from.
        start: initialisation of the encoder, and how it was continued.
        settings: `finetune.<family>`.
        code: digest of the code and libraries that the stage can reach; part of the keys of checkpoints and features.
    """

    family: str
    start: str
    encoder: Path
    output: Path
    settings: FinetuneSettings
    code: str = ""
    cluster: ClusterSettings = ClusterSettings()


class FinetuneJob(EncoderJob):
    """Inputs of the stage.

    Attributes:
        examples: output directory of the stage `examples`.
        baselines: output of the stage `baseline`, whose words models are combined with the encoder; None: none are.
        labelled: block of `distil` of which it is a teacher -> its texts without labels, which the trainings predict.
        group: block of `distil` of a student.
        texts: its texts without labels.
        teachers: system -> its output of the stage `finetune`, whose predictions for the texts the student learns.
    """

    task: str
    examples: Path
    baselines: Path | None = None
    labelled: dict[str, Path] = Field(default={})
    group: str = ""
    texts: Path | None = None
    teachers: dict[str, Path] = Field(default={})

    @property
    def system(self) -> str:
        return f"{self.family}-{self.start}"


@dataclass(frozen=True)
class Fit:
    """All inputs of the training of one task; plain values, to be sent to another process.

    Attributes:
        job: of the stage; its settings are those of the training.
        budget: rows per stratum; -1 for all.
        key: of the checkpoints, those of all folds.
        share: of the steps that are trained, to which `auto.minutes` has limited it.
        temperature: of the sampling of tasks that are trained together.
        fold: of a cross-validation with `folds` folds, whose rows are not read, and are predicted; None: the training
            reads all rows of the budget.
        left_out: digests of inputs that are not read, because another task of the run is scored on them.
        head: choice of a head that is solved on frozen features; None: the head is not solved.
        stop: evaluation after which the training ends; 0: before it, with the head on the frozen encoder. None: it is
            scored at every evaluation.
        calibration: of the head (`Head.calibration`); None: the head has none, or fits it on dev.
        number: of the task among those that are trained together.
    """

    job: FinetuneJob
    budget: int
    seed: int
    precision: Precision
    key: str
    share: float = 1.0
    temperature: float = 1.0
    fold: int | None = None
    folds: int = 0
    left_out: frozenset[bytes] = frozenset()
    head: HeadCandidate | None = None
    stop: int | None = None
    calibration: float | None = None
    number: int = 0

    @property
    def settings(self) -> FinetuneSettings:
        return self.job.settings

    @property
    def way(self) -> Way:
        return way_of(self.settings)

    @property
    def facts(self) -> TaskFacts:
        return read_facts(self.job.examples)

    @property
    def task(self) -> Task:
        return find_task(self.facts.kind)

    @property
    def taught(self) -> Path | None:
        """The texts with teachers' predictions that the training learns."""
        return self.job.texts if self.way.has_teachers else None

    @property
    def name(self) -> str:
        """Budget, seed and fold, by which a teacher's predictions are stored."""
        return f"{self.budget}.{self.seed}.{'all' if self.fold is None else self.fold}"

    @property
    def store(self) -> CheckpointStore:
        return CheckpointStore(self.job.cluster.storage, key=f"{self.key}/{self.name.rpartition('.')[2]}")

    @property
    def rounds(self) -> int:
        """Number of trainings of the same length, one after another and this one included, for which a limit of time
        has to suffice (`components.core.clock`)."""
        return 1 if self.fold is None else 1 + math.ceil((self.folds - self.fold) / min(self.folds, cores()))

    def rows(self) -> Rows:
        """All rows of the label budget, or those outside of the fold.

        Raises:
            ConfigError: the rows are too few for a cross-validation.
        """
        rows = Rows.of(self.job.examples, self.budget, self.seed, most=self.folds or None)
        return rows if self.fold is None else rows.without(self.fold, further=self.left_out)

    def schedule(self, *, epoch: int) -> tuple[int, dict[int, list[int]]]:
        """Number of steps; and step -> numbers of the evaluations after it, from 1, which are evenly spaced over all
        steps. `epoch`: steps per epoch, over all tasks."""
        texts = 0
        if self.taught is not None:
            texts = int(read_manifest(self.taught, kind=UNLABELLED).facts["rows"])
        whole, count = self.way.schedule(self.settings, epoch=epoch, taught=texts)
        steps, evaluations = max(1, round(self.share * whole)), dict[int, list[int]]()
        for number in range(1, count + 1):
            evaluations.setdefault(max(1, round(steps * number / count)), []).append(number)
        return steps, evaluations

    def features(self, split: str, rows: NDArray[np.int64] | None = None) -> list[Encoded]:
        """The features of a split by the encoder before training, computed once for all trainings with the same encoder
        weights and the same reading of rows; `rows`: of some rows of train.

        Raises:
            ArtifactError: encoder or examples are incomplete, or the features cannot be written.
        """
        job, settings, fields = self.job, self.settings, self.fields(split)

        def extracted() -> Iterator[list[Encoded]]:
            model, tokenizer = build(self)
            return Predictor(model, precision=self.precision).tables(model.encode(fields, tokenizer))

        key = fingerprint(
            encoder=read_manifest(job.encoder, kind=ENCODER).digest,
            # Random encoders differ from seed to seed, and so do their features.
            weights=None if is_trained(job.encoder) else self.seed,
            kind=self.facts.kind,
            reading=settings.model_dump(mode="json", include=set(ReadingSettings.model_fields)),
            task_tokens=settings.own_task_tokens and family_named(family_of(job.encoder)).task_tokens,
            precision=self.precision,
            code=job.code,
            fields=fields,
            # Raised when the layout of a stored table changes, so that older ones are not read.
            version=3,
        )
        every = cached(Path(job.cluster.features), key, extracted)
        return every if rows is None else [every[row] for row in np.searchsorted(self._training_rows, rows)]

    def fields(self, split: str) -> list[Fields]:
        """The inputs of a split that trainings read: of train the rows of all budgets; one for each text of the labels
        of `names`."""
        if split == NAMES:
            return [fields for texts in label_fields(self.facts) for fields in texts]
        if split == LABELS:
            return [fields for texts in self.job.labelled.values() for fields in read_unlabelled(texts)]
        whole = read_split(self.job.examples, split)
        return (whole.take(self._training_rows) if split == "train" else whole).fields

    @property
    def _training_rows(self) -> NDArray[np.int64]:
        """Indices, ascending, of the training rows of all budgets, and of all seeds with the same encoder weights. A
        study may use a budget or a seed that is not in the settings of the task."""
        facts = self.facts
        strata = strata_of(read_split(self.job.examples, "train"), facts.kind)
        seeds = {*facts.seeds, self.seed} if is_trained(self.job.encoder) else {self.seed}
        budgets = {*facts.budgets, self.budget}
        drawn = [sample_rows(strata, budget, seed=seed)[0] for budget in budgets for seed in seeds]
        return np.unique(np.concatenate(drawn))


#: The tasks that are trained around one encoder: one, but for the stage `together`; of the same settings, seed,
#: precision and key.
Fits = tuple[Fit, ...]


def epoch_of(fits: Fits) -> int:
    """Steps per epoch of a training, over all tasks."""
    return sum(-(-len(fit.rows().labelled) // fit.settings.step_rows) for fit in fits)


def is_trained(encoder: Path) -> bool:
    """Whether the weights of an encoder directory are trained, not random."""
    return bool(read_manifest(encoder, kind=ENCODER).facts.get("trained", True))


def title_of(fits: Fits) -> str:
    """Name in monitoring, such as `20 labels seed 1` or `20 labels seed 1 fold 0`."""
    budgets = " and ".join(dict.fromkeys(budget_name(fit.budget) for fit in fits))
    return f"{budgets} labels seed {fits[0].seed}" + ("" if fits[0].fold is None else f" fold {fits[0].fold}")


def build(fit: Fit) -> tuple[TaskModel, Tokenizer]:
    encoder, tokenizer = load_initial_encoder(fit)
    return with_head(fit, encoder), tokenizer


def load_initial_encoder(fit: Fit) -> tuple[LanguageModel, Tokenizer]:
    """The stored encoder, or, if it is untrained, a fresh one; and its tokenizer."""
    loaded = load_encoder(fit.job.encoder)
    encoder = loaded.model if loaded.trained else fresh_encoder(loaded, seed=fit.seed)
    encoder.set_dropout(fit.settings.dropout)
    return encoder, loaded.tokenizer


def fresh_encoder(loaded: Encoder, *, seed: int) -> LanguageModel:
    """A model of the same architecture with random weights from the seed, and the same static channel."""
    given = loaded.model
    torch.manual_seed(counter_seed(seed, "encoder"))
    sizes = given.config.model_dump(mode="json", exclude={"vocabulary"})
    encoder = build_model(loaded.family, vocabulary=given.config.vocabulary, settings=sizes)
    channels = ((given.static_vectors(), encoder.static_vectors()), (given.static_words(), encoder.static_words()))
    for stored, table in channels:
        if stored is not None and table is not None:
            table.copy_(stored)
    encoder.bind(loaded.tokenizer)
    return encoder


def with_head(fit: Fit, encoder: LanguageModel) -> TaskModel:
    """The encoder with the task's head, initialised with the seed."""
    torch.manual_seed(counter_seed(fit.seed, "head"))
    model = TaskModel(encoder, task=fit.task, settings=fit.settings, labels=fit.facts.labels)
    # The training loop checks the mode of the top module only, so all modules start in the same mode.
    return model.to(first_device()).eval()


def label_fields(facts: TaskFacts) -> list[list[Fields]]:
    """The texts of each label, as inputs of the model."""
    return [[(text,) for text in facts.label_texts.get(label) or [text_of(label)]] for label in facts.labels]


def names_of(fit: Fit) -> Sequence[bool | None]:
    """Whether a training learns from the names of the labels (`label_names`): [True], or [True, False] if both are
    compared, or [None] if the settings ask for no names or it cannot use them: a name such as `HUM` says little."""
    asked, task = fit.settings.label_names, fit.task
    if asked == "none" or not (task.single and task.labels_rows):
        return [None]
    if asked == "always":
        return [True]
    return [True, False] if are_words(text for texts in label_fields(fit.facts) for (text,) in texts) else [None]


def weights_of(asked: str, head: Head, targets: Sequence[Target], *, main: str) -> Sequence[ClassWeight | None]:
    """Candidates of `class_weight`, the preferred first; [None] if there is no choice: another kind of head, `accuracy`
    as the primary metric `main`, or labels that are equally frequent.

    Macro averages count all classes alike, as `balanced` does; one standard error would keep what is first.
    """
    prior = head.log_prior(targets)
    if asked == "none" or main == "accuracy" or prior is None or not prior.any():
        return [None]
    if asked == "balanced":
        return ["balanced"]
    return ["balanced", "none"] if main.startswith("macro") else ["none", "balanced"]


def gpu_bytes(fits: Iterable[Fit]) -> int:
    """Estimated bytes that the largest of these trainings needs on a GPU, for its placement only; 0 without any.

    A layer of width h stores h (34 + 5 a T / h) bytes per position for the backward pass, with activations of 16 bits,
    T positions and a attention heads (Korthikanti et al. 2022, equation 1). A Transformer layer has 12 h^2 parameters.
    """
    most = 0
    for fit in {(fit.job.encoder, fit.settings.step_rows): fit for fit in fits}.values():
        model, rows, length = architecture_of(fit.job.encoder), fit.settings.step_rows, fit.settings.max_length
        layers = max(1, len(model.layer_groups()) - 1)
        width = (product_size(model) / (12 * layers)) ** 0.5
        position = width * (34 + 5 * length / HEAD) * (1 if fit.precision == "bf16" else 2)
        most = max(most, int(PROCESS + 4 * COPIES * count_parameters(model) + rows * length * layers * position))
    return most


def pack(name: str, answers: Sequence[Answer]) -> dict[str, Tensor]:
    """Answers of different lengths as two tensors of a checkpoint: the values, and the lengths."""
    flat = np.concatenate([*answers, np.zeros(0, dtype=np.float32)])
    lengths = np.asarray([len(answer) for answer in answers], dtype=np.int64)
    return {name: torch.from_numpy(flat), f"{name}.lengths": torch.from_numpy(lengths)}


def unpack(name: str, tensors: Mapping[str, Tensor]) -> list[Answer]:
    ends = np.cumsum(tensors[f"{name}.lengths"].numpy())
    return np.split(tensors[name].numpy(), ends[:-1])


def labels_file(group: str) -> str:
    """File of a teacher's predictions for the texts of a group of `distil` (`runs.read_soft_labels`)."""
    return f"labels-{group}.safetensors"
