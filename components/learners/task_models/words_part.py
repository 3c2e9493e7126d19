"""A words model beside an encoder (`finetune.<name>.words`): two ways to combine their probabilities.

    mean    p = (1 - w) p_encoder + w p_words
    joint   p proportional to p_encoder exp(z), z the logits of the words; only in models of earlier versions

Shapes: N rows, C labels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax

from components.core.errors import ArtifactError
from components.data.tasks.data import Answer, Fields
from components.learners.words.classifier import WordsModel, read_model, write_model
from components.learners.words.linear import LinearModel

#: Folder of the words model in the folder of a classifier.
FOLDER = "words"
#: Smallest probability whose logarithm is taken.
TINY = 1e-30


@dataclass(frozen=True)
class WordsPart:
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
