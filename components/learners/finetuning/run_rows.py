"""The rows of one task in a run, as its encoder and its head read them."""

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, reduce

import numpy as np

from components.data.tasks.data import Fields, Target
from components.data.tasks.examples import read_facts, read_split
from components.data.unlabelled_texts import read_unlabelled
from components.learners.finetuning import frozen
from components.learners.finetuning.features import FeatureTable, extract, read_by_head
from components.learners.finetuning.frozen import LABELS, NAMES
from components.learners.finetuning.probe import MOST_ROWS, HeadRows
from components.learners.finetuning.soft_labels import soft_labels_of
from components.learners.finetuning.specs import RunSpec, all_training_rows, encode, rows_of
from components.learners.task_models.base import Encoded
from components.learners.task_models.model import TaskModel
from components.learners.ways.base import TrainingRows
from components.tokenization import Tokenizer
from components.training.rng import counter_rng


class RunRows:
    def __init__(self, spec: RunSpec, model: TaskModel, tokenizer: Tokenizer) -> None:
        self.spec, self._model, self._tokenizer = spec, model, tokenizer
        whole, self._facts = read_split(spec.examples, "train"), read_facts(spec.examples)
        #: Indices of the rows in the train split.
        self.indices = indices = rows_of(spec, whole)
        if indices.held is not None:
            dev = whole.take(indices.held)
        else:
            dev = read_split(spec.examples, "dev") if spec.chosen is None else whole.take([])
        #: Name -> rows; `train` holds those that the run learns from, `dev` those that it is scored on.
        self.splits = {"train": whole.take(indices.learned), "dev": dev, "test": read_split(spec.examples, "test")}
        self._encodings: dict[str, list[Encoded]] = {}

    def __len__(self) -> int:
        return len(self.indices.learned)

    def encoded(self, split: str) -> list[Encoded]:
        """A split as piece ids; not computed where only a head is trained."""
        if split not in self._encodings:
            named = frozen.fields_of(self.spec, split) if split in (LABELS, NAMES) else self.splits[split].fields
            self._encodings[split] = self._encode(named)
        return self._encodings[split]

    def head_inputs(self, split: str) -> FeatureTable:
        """The inputs of the head for a split's rows, by the encoder as it was before training."""
        return read_by_head(self._model, self.features(split))

    def current_inputs(self, split: str) -> FeatureTable:
        """The inputs of the head for a split's rows, by the encoder as it is."""
        return read_by_head(self._model, extract(self._model, self.encoded(split), precision=self.spec.precision))

    def features(self, split: str) -> FeatureTable:
        """The features of a split's rows by the encoder before training."""
        rows = {"train": self.indices.learned, "dev": self.indices.held}.get(split)
        if rows is None:
            return frozen.features(self.spec, split)
        numbers = all_training_rows(self.spec, read_split(self.spec.examples, "train"), self._facts)
        return frozen.features(self.spec, "train").take(np.searchsorted(numbers, rows))

    def of_head(
        self, inputs: Callable[[str], FeatureTable], *, names: Iterable[bool | None]
    ) -> dict[bool | None, HeadRows]:
        """The rows on which the head is trained alone, a sample of more than `MOST_ROWS`, with or without the names of
        the labels; `inputs`: split -> inputs of the head."""
        rows = np.arange(len(self))
        if len(rows) > MOST_ROWS:
            rows = np.sort(counter_rng(self.spec.seed, "head alone").permutation(rows)[:MOST_ROWS])
        table, targets = inputs("train").take(rows), [self.splits["train"].targets[row] for row in rows]
        return {
            named: HeadRows(table.joined(inputs(NAMES)), targets + self._label_targets)
            if named
            else HeadRows(table, targets)
            for named in names
        }

    def of_training(self, *, names: bool) -> TrainingRows:
        """The rows that the run learns from, with or without the names of the labels."""
        splits = ["train", NAMES] if names else ["train"]
        texts, taught = self._taught
        return TrainingRows(
            self._model,
            self.spec.seed,
            [*self.splits["train"].targets, *(self._label_targets if names else ())],
            encoded=lambda: [row for split in splits for row in self.encoded(split)],
            features=lambda: reduce(FeatureTable.joined, map(self.features, splits)),
            taught=taught,
            taught_encoded=lambda: self._encode(texts),
        )

    @property
    def _label_targets(self) -> list[Target]:
        return [np.asarray([label], dtype=np.float64) for label in range(len(self._facts.labels))]

    @cached_property
    def _taught(self) -> tuple[list[Fields], list[Target]]:
        if self.spec.distillation is None:
            return [], []
        texts = read_unlabelled(self.spec.distillation.texts)
        rows, answers = soft_labels_of(self.spec, self.splits["dev"], self.indices.left_out)
        return [texts[row] for row in rows], answers

    def _encode(self, rows: Sequence[Fields]) -> list[Encoded]:
        return encode(self.spec, self._model, self._tokenizer, rows)
