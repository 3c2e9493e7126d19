"""Words models that are fitted with every candidate of their penalty, on TF-IDF features."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np

from components.data.tasks.data import one_hot
from components.learners.base import Candidate, Learner, Rows
from components.learners.words import UNSPACED
from components.learners.words.classifier import WordsModel
from components.learners.words.features import WORDS, Analyzer, Counted, Form, Terms, WordFeatures
from components.learners.words.linear import LinearModel, fit_labels, fit_ridge, spanned
from components.learners.words.self_training import latent
from components.settings.tasks import has

#: Candidates for the inverse strength of the L2 penalty, the strongest penalty first.
C_GRID: Final = (1.0, 10.0, 100.0, 1000.0)
#: The same for a support vector machine.
MARGINS: Final = (0.01, 0.1, 1.0, 10.0)
#: Candidates for the L2 penalty of ridge regression, the strongest first.
PENALTIES: Final = (10.0, 3.0, 1.0, 0.3, 0.1, 0.03)
#: Maximum number of rows with which ridge regression is also scaled, which takes their (N, N) matrix.
MOST_SCALED: Final = 1000
#: The system whose probabilities are not calibrated.
MARGIN: Final = "svm-words-characters"
#: The system that learns from texts without labels.
LATENT: Final = "latent-words"
#: Folder in the output of the stage `baseline`: BUDGET.SEED is the words model that is combined with an encoder.
BESIDE: Final = "beside"
PAIRS: Final[Sequence[Terms]] = (("word", (1, 2)),)
CHARACTERS: Final[Sequence[Terms]] = (*PAIRS, ("char_wb", (2, 4)))


def features_of(
    training: Rows, form: Form = "text", terms: Sequence[Terms] = WORDS, *, labelled: bool = True
) -> WordFeatures:
    """The features of the labelled rows, or of all inputs: document frequencies need no labels. The terms are counted
    once for all folds."""
    rows, every = (each.labelled.fields if labelled else each.texts for each in (training, training.run))
    texts = [text for parts in every for text in parts]

    def count(analyzer: Analyzer, ngrams: tuple[int, int]) -> Counted:
        counted: Counted = training.once((labelled, analyzer, ngrams), lambda: Counted(texts, analyzer, ngrams))
        return counted

    return WordFeatures.fit(rows, form=form, terms=terms, count=count)


def linear(
    training: Rows,
    *,
    form: Form = "text",
    terms: Sequence[Terms] = WORDS,
    exclusive: bool = True,
    margin: bool = False,
) -> list[Candidate]:
    """A linear model of labels on some features, fitted, when needed, for each inverse strength of the penalty."""
    features = features_of(training, form, terms, labelled=form != "cosine")
    matrix = features.matrix(training.labelled.fields)
    given = one_hot(training.labelled.targets, labels=len(training.labels))
    rows = (matrix, lambda weights: weights) if margin else spanned(matrix)
    details = {} if form == "cosine" else {"vocabulary": features.vocabulary}

    def model(c: float) -> WordsModel:
        return WordsModel(features, fit_labels(rows, given, c=c, exclusive=exclusive, margin=margin))

    candidates = [Candidate(partial(model, c), {"c": c, **details}) for c in (MARGINS if margin else C_GRID)]
    return with_balanced(training, candidates) if exclusive else candidates


def with_balanced(training: Rows, plain: Sequence[Candidate]) -> list[Candidate]:
    """Candidates of exclusive labels, before them the same as if all labels were equally frequent
    (`LinearModel.balanced`). With few rows in natural proportions the plain ones answer the most frequent label, and
    no difference between candidates is larger than a standard error. Nothing is added where all labels have the same
    number of rows, or where accuracy counts."""
    given = np.bincount(training.run.labelled.labels)
    if training.scoring.main == "accuracy" or np.ptp(given[given > 0]) == 0:
        return list(plain)
    counts = np.bincount(training.labelled.labels, minlength=len(training.labels))

    def model(of: Candidate) -> WordsModel:
        assert isinstance(of.model, WordsModel)
        return replace(of.model, linear=of.model.linear.balanced(counts))

    balanced = [Candidate(partial(model, each), {**each.details, "balanced": True}) for each in plain]
    return balanced + [replace(each, details={**each.details, "balanced": False}) for each in plain]


def line(training: Rows) -> list[Candidate]:
    """Least-squares regression of a number on the cosine of both texts."""
    features = features_of(training, "cosine", labelled=False)
    x = features.matrix(training.labelled.fields)
    y = np.asarray([target[0] for target in training.labelled.targets])
    # If all cosines are equal, the slope is undefined.
    slope, offset = np.polyfit(x[:, 0], y, 1) if np.ptp(x) > 0 else (0.0, y.mean())
    model = WordsModel(features, LinearModel(np.asarray([[slope]]), np.asarray([offset])))
    return [Candidate.of(model, {"slope": float(slope), "offset": float(offset)})]


def ridge(training: Rows, *, terms: Sequence[Terms]) -> list[Candidate]:
    """Ridge regression of a number on some features, without and with a scaled slope."""
    features, rows = features_of(training, terms=terms), training.labelled
    x = features.matrix(rows.fields)

    def model(penalty: float, scaled: bool) -> WordsModel:
        return WordsModel(features, fit_ridge(x, rows.targets, penalty=penalty, scaled=scaled))

    # Candidates are identified by their number, and the rows without a fold may be few enough where all are not.
    return [
        Candidate(
            partial(model, penalty, scaled), {"penalty": penalty, "scaled": scaled, "vocabulary": features.vocabulary}
        )
        for scaled in ((False,) if len(rows) > MOST_SCALED else (False, True))
        for penalty in PENALTIES
    ]


#: Kind of task -> its words models by name, in the order in which they are tried.
SYSTEMS: Final[Mapping[str, dict[str, Learner]]] = {
    "classification": {
        # The first of similar scores is chosen. With few labels scores are similar, and this one was better on most
        # data sets.
        "tfidf-words-characters": partial(linear, terms=CHARACTERS),
        MARGIN: partial(linear, terms=CHARACTERS, margin=True),
        "tfidf-words": linear,
        "tfidf-words-pairs": partial(linear, terms=PAIRS),
        LATENT: lambda training: with_balanced(training, latent(training, exclusive=True)),
    },
    "multilabel": {
        "tfidf-words": partial(linear, exclusive=False),
        "tfidf-words-pairs": partial(linear, terms=PAIRS, exclusive=False),
        LATENT: partial(latent, exclusive=False),
    },
    "pair": {"tfidf-cosine": partial(linear, form="cosine"), "tfidf-both": partial(linear, form="pair")},
    "regression": {
        "ridge-words-characters": partial(ridge, terms=CHARACTERS),
        "ridge-words": partial(ridge, terms=WORDS),
        "ridge-words-pairs": partial(ridge, terms=PAIRS),
    },
    "similarity": {"tfidf-cosine": line},
}
#: Slower systems, used in languages without spaces between words and with `baselines: all`.
SLOWER: Final = (MARGIN, "ridge-words-characters")


def used(systems: Mapping[str, Learner], *, language: str, which: str) -> dict[str, Learner]:
    """The systems that are used; `language` and `which` (`auto` or `all`): of `data.tasks.<name>`."""
    every = which == "all" or language in UNSPACED
    return {name: system for name, system in systems.items() if every or name not in SLOWER}


def probable(kind: str) -> list[str]:
    """The words models with calibrated probabilities; none of kinds without them."""
    return [] if has(kind, "score") else [name for name in SYSTEMS.get(kind, {}) if name != MARGIN]


def suited(systems: Mapping[str, Learner], rows: Rows) -> dict[str, Learner]:
    """The systems for a run. `LATENT` is left out where most texts have labels: there it is slow and not better."""
    unlabelled = len(rows.free) > len(rows.of_seed)
    return {name: system for name, system in systems.items() if name != LATENT or unlabelled}
