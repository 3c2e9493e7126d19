"""Classification: one label per text, or per pair of texts (paraphrase, entailment).

Targets are [index of the label], answers (C,) probabilities.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from components.core.errors import DataError
from components.data.scoring.base import (
    NO_LABEL,
    Fields,
    Floats,
    Inputs,
    Labelled,
    Scoring,
    Vector,
    Vectors,
    frequencies,
    matrix_of,
    numbers,
    ratio,
)
from components.data.tasks.data import Answer, Examples
from components.data.tasks.kinds import Kind
from components.data.tasks.reading.records import label_of, merged_spellings
from components.data.tasks.reading.splits import Rows
from components.data.tasks.task_io import PAIR_EXAMPLES, TEXT_EXAMPLES, probabilities, texts_io
from components.settings.tasks import TaskSource

#: Targets of rows of test of no class, and with a label that train lacks: every answer to them is wrong.
NO_CLASS, UNSEEN = -1, -2
#: H, levels of the logit of a confidence between -8 and 24.
LEVELS = 640


#: Rows from which classes that occur once are no classes.
FEW = 20


def labelled(name: str, source: TaskSource) -> Examples:
    """Rows of one or more texts with one label; a target is the index of the label in the sorted labels, -1 for no
    class, or `UNSEEN`.

    Rows with the label `outside` belong to no class: they are kept in test only, and in no slice.

    Raises:
        DataError: a file is missing or damaged, a text or label is empty (file and line), there is only one class, half
            of dev or test has labels that train lacks (file and line), test has no row with the label `outside`, or
            as `Rows.examples`.
    """
    rows = Rows(name, source)
    for split, fields, label, origin in rows.labelled(source.label):
        target = label_of(label, source.label, origin)
        if target == source.outside:
            rows.counts["outside_rows" if split == "test" else f"{split}_rows_outside"] += 1
            if split != "test":
                continue
            origin = replace(origin, slice=None)
        rows.add(split, fields, target, origin)
    same = merged_spellings(row.target for each in rows.values() for row in each)
    for split, each in rows.items() if same else ():
        rows[split] = [replace(row, target=same.get(row.target, row.target)) for row in each]
    names = sorted({row.target for row in rows.get("train", [])})
    if len(names) < 2:
        only = f"only one class ({names[0]!r})" if names else "no class"
        raise rows.unusable("label", f"holds {only}; a classifier needs two or more")
    if len(names) == len(rows["train"]) > FEW:
        raise rows.unusable("label", f"each of the {len(names)} rows has a class of its own")
    number = {label: index for index, label in enumerate(names)}
    if source.outside is not None:
        if "outside_rows" not in rows.counts:
            raise DataError(
                f"{source.path}: no row of test has the label {source.outside!r}; check data.tasks.{name}.outside"
            )
        number[source.outside] = NO_CLASS
    number |= dict.fromkeys(rows.unseen(set(number), lambda row: (row.target,)), UNSEEN)
    return rows.examples(labels=names, target=lambda row: (number[row.target],), every_label=True)


@dataclass(frozen=True)
class Classification(Labelled):
    """One of C labels per row.

    K = 3 C + 3 B sums: true positives, predictions and targets of each class; rows, confidence and correct rows of each
    calibration bin. The confidence is the probability of the predicted class.

    Rows with the target `NO_CLASS` do not enter these sums. With `outside`, 2 H sums follow: the rows inside and
    outside of the classes by level of confidence. `outside_auroc` is the share of pairs of an inside and an outside
    row in which the inside row has the higher confidence (Hendrycks and Gimpel 2017); ties count one half.
    """

    labels: Sequence[str]
    bins: int = 15
    outside: bool = False

    constant_name, shares = "most frequent class", "exclusive"

    @property
    def names(self) -> tuple[str, ...]:  # type: ignore[override]
        """The primary metric is macro F1."""
        return ("macro_f1", "accuracy", "micro_f1", "mcc", "ece", *(["outside_auroc"] if self.outside else []))

    def fitting(self, targets: Vectors) -> Scoring:
        return replace(self, outside=bool((numbers(targets) == NO_CLASS).any()))

    @property
    def strata(self) -> int:  # type: ignore[override]
        """A label budget is a number of rows per class."""
        return len(self.labels)

    @property
    def width(self) -> int:
        return 3 * (len(self.labels) + self.bins) + 2 * LEVELS * self.outside

    def in_words(self, fields: Fields, target: Vector) -> str:
        return self.labels[int(target[0])] if target[0] >= 0 else NO_LABEL

    def statistics(self, fields: Inputs, targets: Vectors, answers: Vectors) -> sparse.csr_array:
        labels, c = numbers(targets), len(self.labels)
        probabilities = np.asarray(answers).reshape(len(labels), c)
        guesses, confidence = probabilities.argmax(1), probabilities.max(1).astype(np.float64)
        correct, ones = (guesses == labels).astype(np.float64), np.ones(len(labels))
        columns, of_bins = self.binned(confidence, correct)
        inside = labels != NO_CLASS
        # A row with a label that train lacks is a wrong guess of its class.
        indices = [np.where(inside, np.maximum(each, 0), 0) for each in (labels, c + guesses, 2 * c + labels, *columns)]
        values = [value * inside for value in (correct, ones, ones * (labels >= 0), *of_bins)]
        if self.outside:
            indices.append(3 * (c + self.bins) + np.where(inside, 0, LEVELS) + level(confidence))
            values.append(ones)
        return matrix_of(indices, values, self.width)

    def scores(self, sums: Floats) -> dict[str, Floats]:
        """MCC is Gorodkin's R_K (2004) for C classes."""
        hits, guesses, truths = self.counts(sums)
        n, right = guesses.sum(-1), hits.sum(-1)
        unseen = n - truths.sum(-1)
        covariance = right * n - (guesses * truths).sum(-1)
        spread = np.sqrt((n**2 - (guesses**2).sum(-1)) * (n**2 - (truths**2).sum(-1) - unseen**2))
        metrics = {
            "macro_f1": self.pooled(sums)["macro_f1"],
            # With one label per row, micro-averaged precision, recall and F1 are all the accuracy.
            **dict.fromkeys(("accuracy", "micro_f1"), ratio(right, n)),
            "mcc": ratio(covariance, spread),
            "ece": self.calibration_error(sums),
        }
        if self.outside:
            within, without = np.split(sums[..., -2 * LEVELS :], 2, axis=-1)
            below = without.cumsum(-1) - without / 2
            metrics["outside_auroc"] = ratio((within * below).sum(-1), within.sum(-1) * without.sum(-1))
        return metrics

    def constant(self, targets: Vectors) -> list[NDArray[np.float32]]:
        return frequencies(targets, len(self.labels))

    def confusion(self, targets: Vectors, answers: Vectors) -> NDArray[np.int64]:
        labels, classes = numbers(targets), len(self.labels)
        guesses = np.asarray(answers).reshape(len(labels), classes).argmax(1)
        return np.bincount((labels * classes + guesses)[labels >= 0], minlength=classes**2).reshape(classes, classes)


def level(confidence: Floats) -> NDArray[np.int64]:
    """(N,) confidences -> (N,) levels, equidistant in the logit, because most confidences are close to 1."""
    inside = np.clip(confidence, 1e-12, 1 - 1e-12)
    return np.clip((np.log(inside / (1 - inside)) + 8) / 32 * LEVELS, 0, LEVELS - 1).astype(np.int64)


def format_label(fields: Fields, answer: Answer, labels: Sequence[str]) -> dict[str, Any]:
    """The most probable label."""
    best = int(answer.argmax())
    result = {"confidence": float(answer[best]), "probabilities": probabilities(answer, labels)}
    return {"prediction": labels[best], "label": labels[best], **result}


KIND, PAIR = (
    Kind(
        read=labelled,
        io=texts_io(
            examples,
            {"prediction": "text", "confidence": "number"},
            {"label": "text", "confidence": "number", "probabilities": "shares"},
            format_label,
        ),
        scoring=Classification,
        by_class=True,
    )
    for examples in (TEXT_EXAMPLES, PAIR_EXAMPLES)
)
