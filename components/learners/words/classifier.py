"""Words models as directories, for the registry and for prediction, without pickle.

config.json         task kind; `form: words`, by which readers tell it from a model with an encoder
labels.json         names of the labels, by index
words.json          form of the features, and what the model has as text: of a linear model the terms of each
                    vectorizer in the order of their columns
words.safetensors   its numbers: of a linear model the document frequencies as idf, and the weights, in float64
manifest.json       digests of all files (components.core.artifacts)

The average of several models holds them as its members (components.data.tasks.members).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file
from scipy.special import expit, softmax

from components.core.artifacts import json_of, read_manifest, write_json
from components.core.errors import ArtifactError
from components.core.tables import LazyTable
from components.data.tasks.data import Answer, Fields, mean_answers
from components.data.tasks.members import KIND, members_of
from components.learners.words.features import DESCRIPTION, WEIGHTS, WordFeatures
from components.learners.words.latent import LatentFeatures
from components.learners.words.linear import LinearModel

FORM: Final = "words"
#: Maximum number of rows of a batch.
ROWS: Final = 4096


@runtime_checkable
class Stored(Protocol):
    """A fitted model that can be stored as JSON and arrays."""

    def answers(self, rows: Sequence[Fields]) -> list[Answer]:
        """The answers to N inputs; the answer to a row does not depend on the others."""

    def dump(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """What `load` reads: JSON, and arrays by name."""

    @classmethod
    def load(cls, described: dict[str, Any], arrays: dict[str, NDArray[Any]], labels: Sequence[str]) -> Self:
        """The model that `dump` has described. Raises ValueError, KeyError, TypeError: the parts do not fit."""


@dataclass(frozen=True)
class WordsModel:
    """Word features and the linear model on them."""

    features: WordFeatures | LatentFeatures
    linear: LinearModel

    def answers(self, rows: Sequence[Fields]) -> list[Answer]:
        """Probabilities (C,) of each row's labels, or [value]."""
        return list(self.linear.answers(self.features.matrix(rows))) if rows else []

    def tempered(self, temperature: float) -> WordsModel:
        """The model of labels with its logits divided by a temperature."""
        return replace(self, linear=self.linear.tempered(temperature))

    def dump(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        described, arrays = self.features.dump()
        return described, {**arrays, **self.linear.dump()}

    @classmethod
    def load(cls, described: dict[str, Any], arrays: dict[str, NDArray[Any]], labels: Sequence[str]) -> Self:
        form = LatentFeatures if described["form"] == LatentFeatures.form else WordFeatures
        features = form.load(described, arrays)
        return cls(features, LinearModel.load(arrays, features=features.width, labels=len(labels)))


#: Kind of task -> its words model; a linear model for all others.
MODELS: LazyTable[type[Stored]] = LazyTable(
    {
        "choice": "components.learners.baselines.choice:ChoiceOverlap",
        "tagging": "components.learners.baselines.tagging:FeatureTagger",
        "questions": "components.learners.baselines.questions:SlidingWindow",
    }
)


def write_model(model: Stored, directory: Path) -> None:
    described, arrays = model.dump()
    # ASCII, because a term may contain half of a surrogate pair, which UTF-8 cannot express.
    write_json(directory / DESCRIPTION, described, sort_keys=False)
    save_file(arrays, directory / WEIGHTS)


def read_model(directory: Path, *, kind: str, labels: Sequence[str]) -> Stored:
    """Read what `write_model` has written. Raises ArtifactError: files are missing, damaged or do not fit."""
    try:
        described, arrays = json_of(directory / DESCRIPTION), load_file(directory / WEIGHTS)
        return MODELS.get(kind, WordsModel).load(described, arrays, labels)
    except Exception as error:  # safetensors and scikit-learn raise errors of several classes
        raise ArtifactError(f"{directory}: not a words model of this version ({error}); run its stage again") from error


#: Folder of the words model in the folder of a classifier with an encoder.
FOLDER: Final = "words"
#: Smallest probability whose logarithm is taken.
TINY: Final = 1e-30


@dataclass(frozen=True)
class WordsPart:
    """A words model beside an encoder (`finetune.<name>.words`): two ways to combine their probabilities.

    mean    p = (1 - w) p_encoder + w p_words
    joint   p proportional to p_encoder exp(z), z the logits of the words; only in models of earlier versions
    """

    how: Literal["mean", "joint"]
    model: WordsModel
    weight: float = 0.0

    def combined(self, rows: Sequence[Fields], answers: Sequence[Answer]) -> list[Answer]:
        """The answers to N rows from the encoder's answers. A row does not depend on the others."""
        if not rows:
            return []
        of_encoder = np.stack(list(answers))
        if self.how == "mean":
            return list(mean(of_encoder, np.stack(self.model.answers(rows)), self.weight))
        linear = self.model.linear
        assert isinstance(linear, LinearModel)
        logits = linear.logits(self.model.features.matrix(rows))
        return list(joint(of_encoder, logits, exclusive=linear.exclusive))

    def write(self, directory: Path) -> dict[str, Any]:
        """Write the words model below the folder of a classifier; returns the entry of its config.json."""
        (directory / FOLDER).mkdir()
        write_model(self.model, directory / FOLDER)
        return {"how": self.how, "weight": self.weight}

    @classmethod
    def read(cls, directory: Path, config: Mapping[str, Any], *, labels: Sequence[str]) -> WordsPart:
        """Read what `write` has written.

        Raises:
            ArtifactError: a file is missing or damaged.
        """
        if config.get("how") not in ("mean", "joint"):
            raise ArtifactError(f"{directory}: words: unknown combination {config.get('how')!r}; fine-tune again")
        model = read_model(directory / FOLDER, kind="", labels=labels)
        assert isinstance(model, WordsModel)
        return cls(config["how"], model, float(config["weight"]))


def mean(of_encoder: NDArray[np.float32], of_words: NDArray[np.float32], weight: float) -> NDArray[np.float32]:
    """(N, C) weighted means of probabilities."""
    return np.float32(1 - weight) * of_encoder + np.float32(weight) * of_words


def joint(of_encoder: NDArray[np.float32], logits: NDArray[np.float64], *, exclusive: bool) -> NDArray[np.float32]:
    """(N, C) probabilities from the encoder's probabilities and the logits of the words."""
    shares = of_encoder.astype(np.float64)
    ours, other = (np.log(np.clip(each, TINY, None)) for each in (shares, 1 - shares))
    both = ours + logits
    return (softmax(both, axis=1) if exclusive else expit(both - other)).astype(np.float32)


@dataclass(frozen=True)
class WordsClassifier:
    """A trained words model as it is served (`components.learners.prediction.Classifier`); the answers of several are
    averaged."""

    kind: str
    labels: Sequence[str]
    models: Sequence[Stored]

    def answer(self, rows: Sequence[Fields], batch_size: int = ROWS) -> list[Answer]:
        """The answers to N rows. The answer to a row does not depend on the other rows."""
        result: list[Answer] = []
        for start in range(0, len(rows), batch_size):
            part = rows[start : start + batch_size]
            several = [model.answers(part) for model in self.models]
            result += mean_answers(several) if len(several) > 1 else several[0]
        return result


@dataclass(frozen=True)
class LinearClassifier(WordsClassifier):
    """Linear words models. `quick`: a batch of few short texts takes less than a millisecond."""

    models: Sequence[WordsModel]
    quick: ClassVar[bool] = True

    def answer_measured(
        self, rows: Sequence[Fields], projection: Callable[[int], NDArray[np.float32]]
    ) -> tuple[list[Answer], NDArray[np.int64], NDArray[np.float32]]:
        """N answers, and what `components.registry.drift` measures on the first model: (N, 2) words and unknown words,
        and (N, S) projections of the features, scaled by sqrt(F) from TF-IDF's norm 1 to variance 1."""
        first = self.models[0]
        counts = np.asarray([first.features.coverage(row) for row in rows], dtype=np.int64).reshape(-1, 2)
        features = first.features.matrix(rows)
        sketches = features @ projection(features.shape[1]) * np.sqrt(features.shape[1])
        others = [model.answers(rows) for model in self.models[1:]]
        answers = mean_answers([list(first.linear.answers(features)), *others])
        return answers, counts, np.asarray(sketches, dtype=np.float32)


def write_words(model: Stored, path: Path, *, kind: str, labels: Sequence[str]) -> None:
    """Write the files of a classifier."""
    write_json(path / "config.json", {"form": FORM, "kind": kind})
    write_json(path / "labels.json", list(labels), ensure_ascii=False)
    write_model(model, path)


def load_words(directory: Path) -> WordsClassifier:
    """Load words models; every file is compared with its digest.

    Raises:
        ArtifactError: the directory is incomplete, altered, or not a words model.
    """
    directory = Path(directory)
    read_manifest(directory, kind=KIND, verify=True)
    if form_of(directory) != FORM:
        raise ArtifactError(f"{directory}: not a words model; it has an encoder")
    try:
        kind = str(json_of(directory / "config.json")["kind"])
        labels = [str(name) for name in json_of(directory / "labels.json")]
        members = members_of(directory)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ArtifactError(f"{directory}: not a words model of this version ({error}); run its stage again") from error
    models = [read_model(member, kind=kind, labels=labels) for member in members]
    linear = [model for model in models if isinstance(model, WordsModel)]
    return LinearClassifier(kind, labels, linear) if linear else WordsClassifier(kind, labels, models)


def form_of(directory: Path) -> str:
    """The form of a classifier's directory: `words`, or `encoder`.

    Raises:
        ArtifactError: config.json is missing or damaged.
    """
    path = Path(directory) / "config.json"
    try:
        return str(json_of(path).get("form", "encoder"))
    except (OSError, ValueError, AttributeError) as error:
        raise ArtifactError(f"{path}: not the config of a classifier ({error}); run its stage again") from error
