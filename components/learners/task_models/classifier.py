"""Task models as directories: the output of fine-tuning, for the registry and for prediction.

config.json         task kind, settings, precision of training and evaluation
labels.json         names of the labels, by index
head.safetensors    weights above the encoder
encoder/            an encoder directory: config.json, model.safetensors, tokenizer/
words/              with `finetune.<name>.words`: words.json, words.safetensors (components.learners.words.classifier)
manifest.json       digests of all files (components.core.artifacts)

The average of several models holds them as its members (components.data.tasks.members). Probabilities and numbers are
averaged. Answers that are decoded (tag sequences, spans) cannot be: the outputs of the heads are averaged, and decoded
by a head whose transitions are averaged as well, with a threshold that is fitted on the average.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from components.core.artifacts import json_of, read_manifest, write_json
from components.core.errors import ArtifactError, ConfigError
from components.data.tasks.calibration import tempered
from components.data.tasks.data import Answer, Fields, mean_answers
from components.data.tasks.members import ENCODER, KIND, encoder_of, members_of
from components.learners.task_models.base import Encoded
from components.learners.task_models.features import read_by_head
from components.learners.task_models.heads import FixedNorm, Head
from components.learners.task_models.inference_weights import why_not_quantised
from components.learners.task_models.kinds import find_task
from components.learners.task_models.model import TaskModel
from components.learners.task_models.predictor import Predictor, decided, portions
from components.learners.task_models.sampler import matrix
from components.learners.words.classifier import WordsPart
from components.models.base import LanguageModel
from components.models.encoder import Encoder, load_encoder, load_weights, save_encoder, save_weights
from components.settings.finetune import KEYS_OF_WAYS, FinetuneSettings
from components.settings.tasks import has
from components.tokenization import Tokenizer
from components.tokenization.special import UNK
from components.training.precision import Precision

#: Settings of training only, which are not read with a stored model.
LEARNED_WITH = (*KEYS_OF_WAYS, "scratch", "unlabelled", "words")
#: Settings of earlier versions that a model of this version cannot have, and their values without effect.
REMOVED = {
    "reader": "none", "answering": "linear", "context": 0, "longest_answer": 160, "stride": None, "tagger_hidden": 256,
    "task_tokens": "auto",
}  # fmt: skip
#: Number of rows that are tokenized, sorted by length and answered together.
ROWS = 4096

#: Number of features F -> (F, S) random numbers.
Projection = Callable[[int], NDArray[np.float32]]
#: Answers, and pieces and features as the first member reads them.
Part = tuple[list[Answer], list[Encoded], list[Encoded]]


class TaskClassifier:
    """A trained task model of any kind, or the average of several.

    Attributes:
        members: the models; of a single one itself.
        threshold: of a head that is calibrated; None: the mean of the members' thresholds.
    """

    members: Sequence[TextClassifier]
    threshold: float | None = None

    @property
    def kind(self) -> str:
        return self.members[0].model.task.kind

    @property
    def labels(self) -> Sequence[str]:
        return self.members[0].model.labels

    @property
    def encoder(self) -> LanguageModel:
        return self.members[0].model.encoder

    def on(self, device: torch.device) -> Self:
        """This classifier after its model has been moved to a device. To be called before the first answer."""
        for member in self.members:
            member.model.to(device)
        return self

    def answer(self, rows: Sequence[Fields], batch_size: int = ROWS) -> list[Answer]:
        """The answers to N rows; `batch_size` rows are tokenized and sorted by length together. An answer depends
        neither on the other rows nor on the number of threads, except for less than 1e-6 (contract 17)."""
        return [answer for answers, _, _ in self._parts(rows, batch_size) for answer in answers]

    def answer_measured(
        self, rows: Sequence[Fields], projection: Projection
    ) -> tuple[list[Answer], NDArray[np.int64], NDArray[np.float32]]:
        """The answers of `answer`, and the measurements of `components.registry.drift` for the first member.

        Returns:
            N answers; (N, 2) pieces and unknown pieces; (N, S) projections of the features that the head reads.
        """
        answers, counts, measured = list[Answer](), list[tuple[int, int]](), list[NDArray[np.float32]]()
        for part, encoded, table in self._parts(rows, ROWS):
            answers += part
            counts += map(_counts, encoded)
            measured += sketches(self.members[0].model, table, projection)
        none = np.zeros((0, 1), dtype=np.float32)
        return answers, np.asarray(counts, dtype=np.int64).reshape(-1, 2), np.stack(measured) if measured else none

    def _parts(self, rows: Sequence[Fields], size: int) -> Iterator[Part]:
        for start in range(0, len(rows), size):
            part, encodings = rows[start : start + size], list[list[Encoded]]()
            for member in self.members:
                shared = bool(encodings) and member.reads_as(self.members[0])
                encodings.append(encodings[0] if shared else member.encode(part))
            for cut in portions(encodings[0]):
                tables = list[list[Encoded]]()
                for member, encoded in zip(self.members, encodings, strict=True):
                    shared = bool(tables) and encoded is encodings[0]
                    tables.append(tables[0] if shared else member.predictor.read(encoded[cut]))
                yield self._decided(part[cut], tables), encodings[0][cut], tables[0]

    def _decided(self, rows: Sequence[Fields], tables: Sequence[list[Encoded]]) -> list[Answer]:
        pairs = list(zip(self.members, tables, strict=True))
        if self.members[0].model.of_units:
            return decided([(member.predictor, table) for member, table in pairs], self.decoder.answers)
        return self.combined([member.with_words(rows, member.predictor.decide(table)) for member, table in pairs])

    def combined(self, answers: Sequence[list[Answer]]) -> list[Answer]:
        """The answers to N rows from those of the members."""
        return answers[0]

    @cached_property
    def decoder(self) -> Head:
        """The head that decodes the mean outputs of heads that read units."""
        heads = [member.predictor.head for member in self.members]
        decoder, states = copy.deepcopy(heads[0]), [head.state_dict() for head in heads]
        # The numbers of batches of a batch normalization are integers.
        means = {
            name: torch.stack([state[name] for state in states]).mean(0) if value.is_floating_point() else value
            for name, value in states[0].items()
        }
        decoder.load_state_dict(means)
        if self.threshold is not None:
            decoder.calibration = self.threshold
        return decoder


def _counts(row: Encoded) -> tuple[int, int]:
    """Number of pieces and of unknown pieces."""
    pieces = np.concatenate(row.pieces)
    return len(pieces), int((pieces == UNK).sum())


def sketches(model: TaskModel, rows: list[Encoded], projection: Projection) -> list[NDArray[np.float32]]:
    """(S,) projections of the inputs of the head for each of N rows: of the mean over a row's sequences and units."""
    if model.of_units:
        rows = [Encoded.of_vectors(each.sum(0) / max(1, len(each)) for each in row.vectors) for row in rows]
    rows, norm = read_by_head(model, rows), model.head.norm
    with torch.inference_mode():
        vectors = matrix(rows).to(model.device)
        vectors = norm(vectors) if isinstance(norm, FixedNorm) else vectors
        values = vectors.float().cpu() @ torch.from_numpy(projection(vectors.shape[-1]))
    return [part.mean(0).numpy() for part in values.split([len(row.vectors) for row in rows])]


@dataclass(frozen=True)
class TextClassifier(TaskClassifier):
    """A single model.

    Attributes:
        precision: of the encoder in prediction; float32 if the processor has no instructions for bfloat16.
        temperature: by which the logits of the encoder's probabilities are divided.
        words: a words model that is combined with the encoder; None: there is none.
        int8: whether the encoder's matrices are quantised for prediction.
    """

    model: TaskModel
    tokenizer: Tokenizer
    precision: Precision = "float32"
    temperature: float = 1.0
    words: WordsPart | None = None
    int8: bool = False

    @property
    def members(self) -> Sequence[TextClassifier]:  # type: ignore[override]
        return [self]

    @property
    def settings(self) -> FinetuneSettings:
        return self.model.settings

    @cached_property
    def predictor(self) -> Predictor:
        return Predictor(self.model, precision=self.precision, int8=self.int8)

    def reads_as(self, other: TextClassifier) -> bool:
        """Whether the features of the same rows are equal: the heads are on one encoder."""
        return (self.encoder is other.encoder) and (self.settings, self.precision) == (other.settings, other.precision)

    def quantised(self) -> TextClassifier:
        """This classifier with the encoder's matrices in 8-bit integers; it predicts on a processor.

        Raises:
            ConfigError: the encoder is not a Transformer, or torch has no oneDNN.
        """
        if reason := why_not_quantised(self.encoder):
            raise ConfigError(f"the model {reason}")
        return replace(self, int8=True)

    def with_words(self, rows: Sequence[Fields], answers: list[Answer]) -> list[Answer]:
        """The answers to N rows from the answers of the encoder and its head."""
        answers = tempered(answers, self.temperature, exclusive=not has(self.kind, "labels"))
        return answers if self.words is None else self.words.combined(rows, answers)

    def sharpened(self) -> TextClassifier:
        """This classifier with its temperature in the weights of its head, for exports."""
        if self.temperature == 1:
            return self
        model = copy.deepcopy(self.model)
        with torch.no_grad():
            model.head.output.weight.div_(self.temperature)
            model.head.output.bias.div_(self.temperature)
        return replace(self, model=model, temperature=1.0)

    def encode(self, rows: Sequence[Fields]) -> list[Encoded]:
        """The piece ids of N rows, as the encoder reads them."""
        return self.model.encode(rows, self.tokenizer)

    def write(self, directory: Path, *, family: str, tokenizer: Path) -> None:
        """Write the files of a classifier. `family`: of the encoder; `tokenizer`: folder of its tokenizer."""
        config: dict[str, Any] = {
            "kind": self.kind,
            "settings": self.settings.model_dump(mode="json"),
            "precision": self.precision,
        }
        if self.temperature != 1:
            config["temperature"] = self.temperature
        if self.words is not None:
            config["words"] = self.words.write(directory)
        write_json(directory / "config.json", config)
        write_json(directory / "labels.json", self.labels, ensure_ascii=False)
        save_weights(directory / "head.safetensors", _above_encoder(self.model))
        save_encoder(directory / ENCODER, family=family, model=self.encoder, tokenizer=tokenizer)


@dataclass(frozen=True)
class AveragedClassifier(TaskClassifier):
    """The average of several task models.

    Attributes:
        temperature: by which the logits of the mean probabilities are divided.
        threshold: of a head that is calibrated; None: the mean of the members' thresholds.
    """

    members: Sequence[TextClassifier]
    temperature: float = 1.0
    threshold: float | None = None

    def quantised(self) -> AveragedClassifier:
        return replace(self, members=[member.quantised() for member in self.members])

    def combined(self, answers: Sequence[list[Answer]]) -> list[Answer]:
        return tempered(mean_answers(answers), self.temperature, exclusive=not has(self.kind, "labels"))


def _above_encoder(model: TaskModel) -> nn.Module:
    """The modules of a task model except the encoder, with the names of the stored weights."""
    return nn.ModuleDict({"features": model.features, "head": model.head})


def load_classifier(directory: Path) -> TextClassifier | AveragedClassifier:
    """Load the task model of a directory, or the average of its members; see `load_members`."""
    members = load_members(directory)
    if len(members) == 1:
        return members[0]
    config = json_of(Path(directory) / "config.json")
    return AveragedClassifier(members, float(config.get("temperature", 1.0)), config.get("threshold"))


def load_members(directory: Path) -> list[TextClassifier]:
    """Load the task models of a directory; every file is compared with its digest. An encoder that all have is loaded
    once.

    Raises:
        ArtifactError: the directory is incomplete or altered, the tokenizer is not the one of training, or the weights
            do not fit the config.
    """
    directory = Path(directory)
    read_manifest(directory, kind=KIND, verify=True)
    try:
        folders = members_of(directory)
    except (OSError, ValueError) as error:
        raise ArtifactError(f"{directory}: not a classifier of this version ({error}); fine-tune again") from error
    encoders: dict[Path, Encoder] = {}
    result = []
    for folder in folders:
        path = encoder_of(folder)
        encoders[path] = encoders.get(path) or load_encoder(path, part=True)
        result.append(_read(folder, encoders[path]))
    return result


def _read(directory: Path, encoder: Encoder) -> TextClassifier:
    try:
        config = json_of(directory / "config.json")
        labels = json_of(directory / "labels.json")
        # How the model has learned does not change a prediction; earlier versions had other keys and values.
        read = {name: value for name, value in config["settings"].items() if name not in LEARNED_WITH}
        read["method"] = "finetune" if read["method"] == "consistency" else read["method"]
        if gone := [name for name, value in REMOVED.items() if read.get(name, value) != value]:
            raise ConfigError(f"finetune.<name>.{gone[0]} is {read[gone[0]]!r}, which was removed")
        settings = FinetuneSettings.model_validate(read, extra="ignore")
        task = find_task(config["kind"])
        precision: Precision = "bf16" if config["precision"] == "bf16" else "float32"
        temperature = float(config.get("temperature", 1.0))
        words = WordsPart.read(directory, config["words"], labels=labels) if "words" in config else None
    except (OSError, ValueError, KeyError, ConfigError) as error:
        raise ArtifactError(f"{directory}: not a classifier of this version ({error}); fine-tune again") from error
    classifier = TaskModel(encoder.model, task=task, settings=settings, labels=labels)
    load_weights(directory / "head.safetensors", _above_encoder(classifier))
    return TextClassifier(classifier.eval(), encoder.tokenizer, precision, temperature, words)
