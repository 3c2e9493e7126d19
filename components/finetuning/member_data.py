"""The rows of one task in a fine-tuning run, in the forms that training and evaluation read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from components.finetuning import frozen
from components.finetuning.features import FeatureTable, extract, read_by_head
from components.finetuning.probe import MOST_ROWS, FeatureSampler, HeadRows
from components.finetuning.soft_labels import soft_labels_of
from components.finetuning.specs import Rows, RunSpec, all_training_rows, encode
from components.task_models.base import Encoded
from components.task_models.distillation import TAUGHT_ROWS, DistillationSampler, DistilledModel
from components.task_models.model import TaskModel
from components.task_models.sampler import ContrastiveSampler, ExampleSampler
from components.tasks.data import Fields, Split, Target
from components.tasks.examples import TaskFacts, read_split
from components.tokenization import Tokenizer
from components.training.rng import counter_rng, counter_seed
from components.training.windows import Sampler
from components.unlabelled.texts import read_unlabelled


@dataclass(eq=False)
class MemberData:
    """Rows as piece ids, as features and as training batches.

    Attributes:
        spec: of the member.
        model: encoder and head; features by the current encoder are those of this model.
        tokenizer: the encoder's.
        facts: of the task.
        splits: name -> rows; `train` holds the rows that the run learns from, `dev` those that it is scored on.
        rows: indices of the rows in the whole train split.
    """

    spec: RunSpec
    model: TaskModel
    tokenizer: Tokenizer
    facts: TaskFacts
    splits: dict[str, Split]
    rows: Rows
    _encodings: dict[str, list[Encoded]] = field(default_factory=dict, init=False)

    def encoded(self, split: str) -> list[Encoded]:
        """A split as piece ids; not computed where only a head is trained."""
        if split not in self._encodings:
            self._encodings[split] = encode(self.spec, self.model, self.tokenizer, self._fields(split))
        return self._encodings[split]

    def _fields(self, split: str) -> list[Fields]:
        texts = frozen.texts_of(self.spec, split)
        return self.splits[split].fields if texts is None else texts

    def head_rows(self, names: bool | None, inputs: Callable[[str], FeatureTable]) -> HeadRows:
        """The rows on which the head is trained alone: a sample, if there are more than `MOST_ROWS`.

        Args:
            names: whether the names of the labels follow.
            inputs: split -> inputs of the head.
        """
        rows = np.arange(len(self.splits["train"]))
        if len(rows) > MOST_ROWS:
            rows = np.sort(counter_rng(self.spec.seed, "head alone").permutation(rows)[:MOST_ROWS])
        table, targets = inputs("train").take(rows), [self.splits["train"].targets[row] for row in rows]
        if names:
            table, targets = table.joined(inputs(frozen.NAMES)), targets + self._label_targets
        return HeadRows(table, targets)

    @property
    def _label_targets(self) -> list[Target]:
        """The target of each label's name: the label."""
        return [np.asarray([label], dtype=np.float64) for label in range(len(self.facts.labels))]

    def head_inputs(self, split: str) -> FeatureTable:
        """The inputs of the head for a split's rows."""
        return read_by_head(self.model, self.features(split))

    def current_features(self, split: str) -> FeatureTable:
        """Features of a split's rows by the current encoder."""
        return extract(self.model, self.encoded(split), precision=self.spec.precision)

    def features(self, split: str) -> FeatureTable:
        """Features of a split's rows by the encoder as it was before training."""
        rows = self.rows.learned if split == "train" else self.rows.held if split == "dev" else None
        if rows is None:
            return frozen.features(self.spec, split)
        known = all_training_rows(self.spec, read_split(self.spec.examples, "train"), self.facts)
        return frozen.features(self.spec, "train").take(np.searchsorted(known, rows))

    @cached_property
    def is_distilled(self) -> bool:
        """Whether the model also learns from teachers; there may be no text that they label."""
        return self.taught_rows > 0

    @property
    def taught_rows(self) -> int:
        """Number of texts whose labels by teachers are learned."""
        return len(self._soft_labels[0]) if self.spec.distillation is not None else 0

    @cached_property
    def _soft_labels(self) -> tuple[NDArray[np.int64], list[Target]]:
        return soft_labels_of(self.spec, self.splits["dev"], self.rows.left_out)

    def distilled_model(self) -> DistilledModel:
        """The model that learns from teachers."""
        assert self.spec.distillation is not None
        return DistilledModel(self.model)

    def sampler(self, *, names: bool) -> Sampler:
        """The training batches; `names`: of the rows and the names of the labels."""
        settings, seed = self.spec.settings, counter_seed(self.spec.seed, "batches")
        batch_size = settings.training.batch_size
        targets = [*self.splits["train"].targets, *(self._label_targets if names else ())]
        if settings.method == "features":
            table = self.features("train")
            table = table.joined(self.features(frozen.NAMES)) if names else table
            return FeatureSampler(table, targets, batch_size=batch_size, seed=seed)
        encoded = self.encoded("train") + (self.encoded(frozen.NAMES) if names else [])
        if settings.method == "contrastive":
            return ContrastiveSampler(encoded, targets, rows=settings.contrastive.rows, seed=seed)
        windows = self.model.windows_learned
        labelled = ExampleSampler(encoded, targets, batch_size=batch_size, seed=seed, windows=windows)
        return self._distillation_sampler(labelled) if self.is_distilled else labelled

    def _distillation_sampler(self, labelled: ExampleSampler) -> DistillationSampler:
        spec, distillation = self.spec, self.spec.distillation
        assert distillation is not None
        rows, targets = self._soft_labels
        found = read_unlabelled(distillation.texts)
        taught = ExampleSampler(
            encode(spec, self.model, self.tokenizer, [found[row] for row in rows]),
            targets,
            batch_size=min(len(rows), TAUGHT_ROWS),
            seed=counter_seed(spec.seed, "taught"),
        )
        return DistillationSampler(labelled, taught)
