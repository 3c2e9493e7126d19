"""Words models as directories, for the registry and for prediction, without pickle.

config.json         task kind; `form: words`, by which readers tell it from a model with an encoder
labels.json         names of the labels, by index
words.json          form of the features, and the terms of each vectorizer in the order of their columns
words.safetensors   document frequencies as idf, and the weights of the linear model, in float64
manifest.json       digests of all files (components.core.artifacts)

The average of several models holds them as its members (components.data.tasks.members).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from components.core.artifacts import json_of, read_manifest
from components.core.errors import ArtifactError
from components.data.tasks.data import Answer, Fields, mean_answers
from components.data.tasks.members import KIND, members_of, save_members
from components.learners.words.features import RowFeatures, read_features, write_features
from components.learners.words.linear import LinearFunction, LinearModel, load_linear

FORM: Final = "words"
#: Maximum number of rows of a batch.
ROWS: Final = 4096


@dataclass(frozen=True)
class WordsModel:
    """Word features and the linear model on them."""

    features: RowFeatures
    linear: LinearModel | LinearFunction

    def answers(self, rows: Sequence[Fields]) -> list[Answer]:
        """Probabilities (C,) of each row's labels, or [value]."""
        return list(self.linear.answers(self.features.matrix(rows))) if rows else []

    def tempered(self, temperature: float) -> WordsModel:
        """The model of labels with its logits divided by a temperature."""
        assert isinstance(self.linear, LinearModel)
        return replace(self, linear=self.linear.tempered(temperature))

    def balanced(self, counts: NDArray[Any]) -> WordsModel:
        """The model of exclusive labels as if all (C,) numbers of training rows were equal."""
        assert isinstance(self.linear, LinearModel)
        return replace(self, linear=self.linear.balanced(counts))

    def write(self, directory: Path) -> None:
        write_features(directory, self.features, **self.linear.dump())

    @classmethod
    def read(cls, directory: Path, *, labels: int) -> WordsModel:
        """Read what `write` has written. Raises ArtifactError: files are missing, damaged or do not fit."""
        try:
            features, arrays = read_features(directory)
            return cls(features, load_linear(arrays, features=features.width, labels=labels))
        except Exception as error:  # safetensors and scikit-learn raise errors of several classes
            raise ArtifactError(
                f"{directory}: not a words model of this version ({error}); run its stage again"
            ) from error


@dataclass(frozen=True)
class WordsClassifier:
    """A trained words model as it is served (`components.learners.prediction.Classifier`); the answers of several are
    averaged. `quick`: a batch of few short texts takes less than a millisecond."""

    kind: str
    labels: Sequence[str]
    models: Sequence[WordsModel]
    quick: ClassVar[bool] = True

    def answer(self, rows: Sequence[Fields], batch_size: int = ROWS) -> list[Answer]:
        """The answers to N rows. The answer to a row does not depend on the other rows."""
        result: list[Answer] = []
        for start in range(0, len(rows), batch_size):
            part = rows[start : start + batch_size]
            result += mean_answers([model.answers(part) for model in self.models])
        return result

    def answer_measured(
        self, rows: Sequence[Fields], projection: Callable[[int], NDArray[np.float32]]
    ) -> tuple[list[Answer], NDArray[np.int64], NDArray[np.float32]]:
        """N answers, and what `components.registry.drift` measures on the first model: (N, 2) words and unknown words,
        and (N, S) projections of the features, scaled by sqrt(F) from TF-IDF's norm 1 to variance 1."""
        first = self.models[0]
        counts = np.asarray([first.features.words(row) for row in rows], dtype=np.int64).reshape(-1, 2)
        features = first.features.matrix(rows)
        sketches = features @ projection(features.shape[1]) * np.sqrt(features.shape[1])
        others = [model.answers(rows) for model in self.models[1:]]
        answers = mean_answers([list(first.linear.answers(features)), *others])
        return answers, counts, np.asarray(sketches, dtype=np.float32)


def save_words(
    directory: Path,
    *,
    models: Sequence[WordsModel],
    kind: str,
    labels: Sequence[str],
    facts: dict[str, Any],
    beside: Callable[[Path], None] = lambda folder: None,
) -> None:
    """Write words models, of which several are averaged, as a directory, which may be part of another draft. `facts`:
    of the manifest; `beside`: as of `save_members`."""

    def write(model: WordsModel, path: Path) -> None:
        config = {"form": FORM, "kind": kind}
        (path / "config.json").write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")
        (path / "labels.json").write_text(json.dumps(list(labels), ensure_ascii=False, indent=1) + "\n")
        model.write(path)

    save_members(directory, [partial(write, model) for model in models], facts=facts, beside=beside)


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
        raise ArtifactError(
            f"{directory}: not a words model of this version ({error}); run the stage baseline again"
        ) from error
    return WordsClassifier(kind, labels, [WordsModel.read(member, labels=len(labels)) for member in members])


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
