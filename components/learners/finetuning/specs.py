"""Inputs of a fine-tuning run, and the objects derived from them: model, training rows, encoded rows."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from components.data.tasks.budgets import sample_rows
from components.data.tasks.data import Fields, Split
from components.data.tasks.examples import TaskFacts, read_facts, strata_of
from components.data.tasks.reading.labels import are_words, text_of
from components.learners.base import Rows
from components.learners.task_models.base import Encoded
from components.learners.task_models.heads import ClassWeight, Head, LabelHead
from components.learners.task_models.kinds import find_task
from components.learners.task_models.model import TaskModel
from components.learners.task_models.probe import HeadCandidate
from components.models.base import LanguageModel
from components.models.encoder import architecture_of, build_model, count_parameters, family_of, load_encoder
from components.settings.finetune import DistilSettings, FinetuneSettings
from components.tokenization import Tokenizer
from components.training.precision import Precision, first_device, product_size
from components.training.rng import counter_seed

#: Bytes that every process occupies on a GPU: the CUDA context, and workspaces of cuBLAS and cuDNN.
PROCESS: Final = 10**9
#: Tensors of float32 per parameter: weights, gradient, two moments of AdamW, best weights so far.
COPIES: Final = 5
#: Assumed dimension of an attention head.
HEAD: Final = 64


@dataclass(frozen=True)
class Chosen:
    """Choices of a cross-validation within the rows of a label budget.

    Attributes:
        head: of those that are solved on frozen features; None: the head is not solved.
        stop: evaluation after which the run ends; 0: before training, with the head on the frozen encoder.
        calibration: of the head (`CalibratedHead.calibration`); None: the head has none.
    """

    head: HeadCandidate | None = None
    stop: int = 0
    calibration: float | None = None


@dataclass(frozen=True)
class Distillation:
    """What a student learns from: texts without labels, and the teachers' files (`soft_labels`)."""

    settings: DistilSettings
    texts: Path
    teachers: tuple[Path, ...]


@dataclass(frozen=True)
class RunSpec:
    """All inputs of one task in a run; plain values, to be sent to another process.

    Attributes:
        examples: output directory of the stage `examples`.
        budget: rows per stratum; -1 for all.
        trained: whether the encoder's weights are read from its directory; else they are initialised with the seed.
        storage, checkpoint_seconds: of `cluster`.
        key: of the checkpoints.
        tables: `cluster.features`.
        features: key of the frozen-encoder features; equal for runs with the same encoder weights.
        fold: of a cross-validation with this number of folds: the run learns from the budget's rows outside the fold,
        and
            predicts those inside. None: the run learns from all rows.
        chosen: what cross-validation has chosen; None in a run that chooses on dev.
        labels: texts that the finished run labels for students, in place of dev and test.
        left_out: digests of inputs that the run does not read, because another task of the run is scored on them.
        words: output of the stage `unlabelled`, whose texts words models read beside the train split.
        baselines: output of the stage `baseline`, whose words models are combined with the encoder; None: none are.
        rounds: number of runs of the same length, one after another and this one included, for which a limit of time
            has to suffice (`components.core.clock`).
    """

    examples: Path
    encoder: Path
    settings: FinetuneSettings
    budget: int
    seed: int
    precision: Precision
    trained: bool
    storage: str
    checkpoint_seconds: float
    key: str
    tables: Path
    features: str
    fold: int | None = None
    folds: int = 0
    chosen: Chosen | None = None
    distillation: Distillation | None = None
    labels: Path | None = None
    left_out: frozenset[bytes] = frozenset()
    words: Path | None = None
    baselines: Path | None = None
    rounds: int = 1


def build(spec: RunSpec) -> tuple[TaskModel, Tokenizer]:
    encoder, tokenizer = load_initial_encoder(spec)
    return with_head(spec, encoder), tokenizer


def load_initial_encoder(spec: RunSpec) -> tuple[LanguageModel, Tokenizer]:
    """The stored encoder, or a randomly initialised one if it is untrained; and its tokenizer."""
    loaded = load_encoder(spec.encoder)
    encoder = loaded.model
    if not loaded.trained:
        encoder = fresh_encoder(spec, encoder, purpose="encoder")
        encoder.bind(loaded.tokenizer)
    encoder.set_dropout(spec.settings.dropout)
    return encoder, loaded.tokenizer


def fresh_encoder(spec: RunSpec, encoder: LanguageModel, *, purpose: str) -> LanguageModel:
    """A model of the same architecture with random weights from the run's seed, and the same static channel."""
    torch.manual_seed(counter_seed(spec.seed, purpose))
    sizes = encoder.config.model_dump(mode="json", exclude={"vocabulary"})
    fresh = build_model(family_of(spec.encoder), vocabulary=encoder.config.vocabulary, settings=sizes)
    channels = ((encoder.static_vectors(), fresh.static_vectors()), (encoder.static_words(), fresh.static_words()))
    for given, table in channels:
        if given is not None and table is not None:
            table.copy_(given)
    return fresh


def with_head(spec: RunSpec, encoder: LanguageModel) -> TaskModel:
    """The encoder with the task's head, initialised with the run's seed."""
    facts = read_facts(spec.examples)
    torch.manual_seed(counter_seed(spec.seed, "head"))
    model = TaskModel(encoder, task=find_task(facts.kind), settings=spec.settings, labels=facts.labels)
    # The training loop checks the mode of the top module only, so all modules start in the same mode.
    return model.to(first_device()).eval()


def encode(spec: RunSpec, model: TaskModel, tokenizer: Tokenizer, rows: Sequence[Fields]) -> list[Encoded]:
    return find_task(read_facts(spec.examples).kind).encode(rows, tokenizer, model.encoder, spec.settings)


def label_fields(facts: TaskFacts) -> list[list[Fields]]:
    """The texts of each label, as inputs of the model."""
    return [[(text,) for text in facts.label_texts.get(label) or [text_of(label)]] for label in facts.labels]


def names_of(spec: RunSpec) -> Sequence[bool | None]:
    """Whether a run learns from the names of the labels (`label_names`): [True], or [True, False] if both are compared,
    or [None] if the settings ask for no names or the run cannot use them: a name such as `HUM` says little."""
    facts, asked = read_facts(spec.examples), spec.settings.label_names
    task = find_task(facts.kind)
    if asked == "none" or not (task.single and task.labels_rows):
        return [None]
    if asked == "always":
        return [True]
    return [True, False] if are_words(text for texts in label_fields(facts) for (text,) in texts) else [None]


def weights_of(spec: RunSpec, head: Head, main: str) -> Sequence[ClassWeight | None]:
    """Candidates of `class_weight`, the preferred first; [None] if there is no choice: another kind of head, `accuracy`
    as the primary metric `main`, or labels that are equally frequent.

    Macro averages count all classes alike, as `balanced` does; one standard error would keep what is first.
    """
    asked = spec.settings.class_weight
    if not isinstance(head, LabelHead) or asked == "none" or main == "accuracy":
        return [None]
    if not head.log_prior(rows_of(spec).run.labelled.targets).any():
        return [None]
    if asked == "balanced":
        return ["balanced"]
    return ["balanced", "none"] if main.startswith("macro") else ["none", "balanced"]


def gpu_bytes(specs: Iterable[RunSpec]) -> int:
    """Estimated bytes that the largest of these runs needs on a GPU, for its placement only; 0 without runs.

    A layer of width h stores h (34 + 5 a T / h) bytes per position for the backward pass, with activations of 16 bits,
    T positions and a attention heads (Korthikanti et al. 2022, equation 1). A Transformer layer has 12 h^2 parameters.
    """
    distinct = {
        (spec.encoder, spec.precision, spec.settings.step_rows, spec.settings.max_length): spec for spec in specs
    }
    return max(map(_run_bytes, distinct.values()), default=0)


def _run_bytes(spec: RunSpec) -> int:
    model = architecture_of(spec.encoder)
    layers = max(1, len(model.layer_groups()) - 1)
    width = (product_size(model) / (12 * layers)) ** 0.5
    length = spec.settings.max_length
    position = width * (34 + 5 * length / HEAD) * (1 if spec.precision == "bf16" else 2)
    activations = spec.settings.step_rows * length * layers * position
    return int(PROCESS + 4 * COPIES * count_parameters(model) + activations)


def rows_of(spec: RunSpec) -> Rows:
    """The rows of a run: all rows of its label budget, or those outside of its fold."""
    rows = Rows.of(spec.examples, spec.budget, spec.seed, most=spec.folds or None)
    return rows if spec.fold is None else rows.without(spec.fold, further=spec.left_out)


def number_of_folds(spec: RunSpec) -> int:
    """Number of folds of the cross-validation within the run's label budget; 0 if it chooses on dev.

    Raises:
        ConfigError: the budget has too few rows.
    """
    return len(Rows.of(spec.examples, spec.budget, spec.seed).fold_numbers)


def all_training_rows(spec: RunSpec, train: Split, facts: TaskFacts) -> NDArray[np.int64]:
    """Indices, ascending, of the training rows of all budgets, and of all seeds with the same encoder weights."""
    strata = strata_of(train, facts.kind)
    seeds = facts.seeds if spec.trained else [spec.seed]
    return np.unique(
        np.concatenate([sample_rows(strata, budget, seed=seed)[0] for budget in facts.budgets for seed in seeds])
    )
