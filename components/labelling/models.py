"""What is known about texts before they are labelled: features, and probabilities of labels.

The champion is used if there is one that has all labels of the data. Otherwise a logistic regression on features
that no label has formed: the output of an encoder of the run, or latent semantic and word vectors of the texts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from components.core.artifacts import is_complete
from components.core.errors import HeadstartError
from components.data.tasks.data import Fields
from components.settings.params import Params

#: Number of features of the champion that are kept; more are projected at random, which keeps distances
#: (Johnson and Lindenstrauss 1984).
WIDTH: Final = 384
#: Inverse strength of the penalty of the regression on features with norm 1.
STRENGTH: Final = 10.0
#: Name of features without an encoder.
WORDS: Final = "words"
Floats = NDArray[np.float32]
Given = NDArray[np.float64]
#: Labelled texts of a label below which there is no model.
COLD: Final = 1


@dataclass(frozen=True)
class Beliefs:
    """What is known about N texts.

    Attributes:
        probabilities: (N, C); None: there is no model.
        labelled: (L, D) features of the labelled texts; None: they were not computed.
    """

    features: Floats
    probabilities: Floats | None
    labels: list[str]
    source: str
    labelled: Floats | None = None


def beliefs_about(
    params: Params, task: str, texts: list[Fields], labelled: list[Fields], given: Given, *, labels: list[str]
) -> Beliefs:
    """What is known about texts: by the champion if it knows all labels, else by a regression on the labelled texts,
    where they suffice: there are texts with and without some label, and `COLD` a label."""
    source = params.data.tasks[task]
    champion = champion_of(params, task)
    # A champion of other code does not show its features.
    if champion is not None and {*labels} <= {*champion.labels} and hasattr(champion, "answer_measured"):
        answers, _, features = champion.answer_measured(texts, projection)
        return Beliefs(_unit(features), np.stack(answers), list(champion.labels), "champion")
    features, name = frozen(params, [*texts, *labelled], kind=source.kind, labels=labels)
    candidates, learned = features[: len(texts)], features[len(texts) :]
    differ = len(labels) > 1 and (given.sum(0) > 0).sum() > (not source.several)
    if not differ or len(labelled) < COLD * len(labels):
        return Beliefs(candidates, None, labels, name, learned)
    head = fitted(learned, given, exclusive=not source.several)
    return Beliefs(candidates, head.answers(candidates), labels, f"regression on {name}", learned)


def champion_of(params: Params, task: str) -> Any | None:
    """The champion of a task; None if there is none, or if it cannot be loaded."""
    from components.registry.champion import load_champion

    try:
        return load_champion(params.registry, task)
    except HeadstartError:
        return None


def projection(features: int) -> Floats:
    """(F, S) random numbers with variance 1 / F; the identity for few features."""
    if features <= WIDTH:
        return np.eye(features, dtype=np.float32)
    rng = np.random.default_rng(0)
    return (rng.standard_normal((features, WIDTH)) / np.sqrt(features)).astype(np.float32)


def word_features(texts: Sequence[Fields], *, labels: int) -> Floats:
    """(N, D) with norm 1, of latent semantic and word vectors; two texts of a row also give difference and product."""
    from components.learners.words.latent import LatentFeatures, dimensions_of

    distinct = sorted({text for fields in texts for text in fields})
    latent = LatentFeatures.fit(distinct, dimensions=dimensions_of(labels))
    vectors = [np.concatenate(latent.parts(part), axis=1) for part in zip(*texts, strict=True)]
    if len(vectors) == 2:
        first, second = vectors
        vectors += [np.abs(first - second), first * second]
    return _unit(np.concatenate(vectors, axis=1))


def fitted(features: Floats, given: Given, *, exclusive: bool, strength: float = STRENGTH) -> Any:
    """A logistic regression on (L, D) features of the labelled texts
    (`components.learners.words.linear.LinearModel`). `given`: (L, C) of 0 and 1."""
    from components.learners.words.linear import fit_labels, spanned

    return fit_labels(spanned(features), given, c=strength, exclusive=exclusive)


def frozen(params: Params, texts: Sequence[Fields], *, kind: str, labels: Sequence[str]) -> tuple[Floats, str]:
    """(N, D) features that no label has formed, with norm 1, and their source in words: of the encoder of the run that
    knows most (adapted before pretrained, in the order of run.families), otherwise of the words."""
    from components.learners.task_models.classifier import TextClassifier
    from components.learners.task_models.kinds import find_task
    from components.learners.task_models.model import TaskModel
    from components.models.encoder import load_encoder

    for start, family in product(("adapted", "pretrained"), params.run.families):
        directory = Path(params.run.out) / "encoder" / family / start
        if family in params.finetune and is_complete(directory, kind="encoder"):
            encoder, task, settings = load_encoder(directory), find_task(kind), params.finetune[family]
            model = TaskModel(encoder.model, task=task, settings=settings, labels=list(labels) or ["a", "b"]).eval()
            classifier = TextClassifier(model, encoder.tokenizer)
            return _unit(classifier.answer_measured(texts, projection)[2]), f"{family}-{start}"
    return word_features(texts, labels=len(labels)), WORDS


def _unit(features: NDArray[np.floating[Any]]) -> Floats:
    norms = np.linalg.norm(features, axis=1, keepdims=True)
    return np.asarray(features / np.where(norms > 0, norms, 1), dtype=np.float32)
