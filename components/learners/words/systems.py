"""Words models that are fitted with every candidate of their penalty, on TF-IDF features."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np

from components.data.tasks.data import Fields
from components.learners.base import Candidate, Learner, Rows
from components.learners.words import UNSPACED, transductive
from components.learners.words.classifier import WordsModel
from components.learners.words.features import RowFeatures, WordFeatures, fit_text
from components.learners.words.fits import Regressions, fit_exclusive, fit_independent, fit_margin, fit_ridge
from components.learners.words.linear import LinearFunction, LinearModel
from components.learners.words.text import Analyzer, Counted, Tfidf
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

#: Training rows -> features of words, and their matrix.
Reading = Callable[[Rows], tuple[RowFeatures, Any]]


def words(
    training: Rows, *, ngrams: tuple[int, int], characters: tuple[int, int] | None = None
) -> tuple[WordFeatures, Any]:
    """N-grams of words, and of characters; the vocabulary comes from the training rows."""
    count = partial(_counted, training, training.run.labelled.fields)
    return fit_text(training.labelled.fields, ngrams=ngrams, characters=characters, count=count)


def _counted(
    training: Rows, rows: Sequence[Fields], analyzer: Analyzer = "word", ngrams: tuple[int, int] = (1, 1)
) -> Counted:
    """The counts of all texts of rows that the folds share."""
    texts = (text for parts in rows for text in parts)
    return training.once((id(rows), analyzer, ngrams), lambda: Counted(texts, analyzer, ngrams))


def cosine(training: Rows) -> tuple[WordFeatures, Any]:
    features = WordFeatures("cosine", (counted(training),))
    return features, features.matrix(training.labelled.fields)


def both(training: Rows) -> tuple[WordFeatures, Any]:
    """The vectors u and v of both texts, |u - v|, u v and their cosine; the vocabulary comes from the training rows."""
    texts = [text for parts in training.labelled.fields for text in parts]
    features = WordFeatures("pair", (_counted(training, training.run.labelled.fields).fit(texts)[0],))
    return features, features.matrix(training.labelled.fields)


def counted(training: Rows) -> Tfidf:
    """Document frequencies need no labels: they come from the whole train split, whatever the label budget is."""
    texts = [text for parts in training.texts for text in parts]
    return _counted(training, training.run.texts).fit(texts)[0]


def linear(
    training: Rows,
    *,
    read: Reading,
    fit: Callable[..., LinearModel] = fit_exclusive,
    grid: Sequence[float] = C_GRID,
) -> list[Candidate]:
    """A linear model of labels on some features, fitted, when needed, for each inverse strength of the penalty."""
    features, x = read(training)
    targets: Any = training.labelled.targets if fit is fit_independent else training.labelled.labels
    rows = x if fit is fit_margin else Regressions(x)
    details = {} if features.form == "cosine" else {"vocabulary": features.vocabulary}

    def model(c: float) -> WordsModel:
        return WordsModel(features, fit(rows, targets, len(training.labels), c=c))

    return [Candidate(partial(model, c), {"c": c, **details}) for c in grid]


def either(system: Learner) -> Learner:
    """The candidates of a system of exclusive labels, before them the same as if all labels were equally frequent
    (`LinearModel.balanced`). With few rows in natural proportions the plain ones answer the most frequent label, and
    no difference between candidates is larger than a standard error. Nothing is added where all labels have the same
    number of rows, or where accuracy counts."""

    def candidates(training: Rows) -> list[Candidate]:
        plain, given = list(system(training)), np.bincount(training.run.labelled.labels)
        if training.scoring.main == "accuracy" or np.ptp(given[given > 0]) == 0:
            return plain
        counts = np.bincount(training.labelled.labels, minlength=len(training.labels))

        def model(of: Candidate) -> WordsModel:
            assert isinstance(of.model, WordsModel)
            return of.model.balanced(counts)

        balanced = [Candidate(partial(model, each), {**each.details, "balanced": True}) for each in plain]
        return balanced + [replace(each, details={**each.details, "balanced": False}) for each in plain]

    return candidates


def line(training: Rows) -> list[Candidate]:
    """Least-squares regression of a number on the cosine of both texts."""
    features, x = cosine(training)
    y = np.asarray([target[0] for target in training.labelled.targets])
    # If all cosines are equal, the slope is undefined.
    slope, offset = np.polyfit(x[:, 0], y, 1) if np.ptp(x) > 0 else (0.0, y.mean())
    model = WordsModel(features, LinearFunction(np.asarray([[slope]]), np.asarray([offset])))
    return [Candidate.of(model, {"slope": float(slope), "offset": float(offset)})]


def ridge(training: Rows, *, read: Reading) -> list[Candidate]:
    """Ridge regression of a number on some features, without and with a scaled slope."""
    features, x = read(training)
    targets = training.labelled.targets

    def model(penalty: float, scaled: bool) -> WordsModel:
        return WordsModel(features, fit_ridge(x, targets, penalty=penalty, scaled=scaled))

    # Candidates are identified by their number, and the rows without a fold may be few enough where all are not.
    return [
        Candidate(
            partial(model, penalty, scaled), {"penalty": penalty, "scaled": scaled, "vocabulary": features.vocabulary}
        )
        for scaled in ((False,) if len(targets) > MOST_SCALED else (False, True))
        for penalty in PENALTIES
    ]


_SINGLE, _PAIRS = partial(words, ngrams=(1, 1)), partial(words, ngrams=(1, 2))
_BOTH = partial(words, ngrams=(1, 2), characters=(2, 4))
#: Kind of task -> its words models by name, in the order in which they are tried.
SYSTEMS: Final[Mapping[str, dict[str, Learner]]] = {
    "classification": {
        # The first of similar scores is chosen. With few labels scores are similar, and this one was better on most
        # data sets.
        "tfidf-words-characters": either(partial(linear, read=_BOTH)),
        MARGIN: either(partial(linear, read=_BOTH, fit=fit_margin, grid=MARGINS)),
        "tfidf-words": either(partial(linear, read=_SINGLE)),
        "tfidf-words-pairs": either(partial(linear, read=_PAIRS)),
        LATENT: either(transductive.exclusive),
    },
    "multilabel": {
        "tfidf-words": partial(linear, read=_SINGLE, fit=fit_independent),
        "tfidf-words-pairs": partial(linear, read=_PAIRS, fit=fit_independent),
        LATENT: transductive.independent,
    },
    "pair": {"tfidf-cosine": either(partial(linear, read=cosine)), "tfidf-both": either(partial(linear, read=both))},
    "regression": {
        "ridge-words-characters": partial(ridge, read=_BOTH),
        "ridge-words": partial(ridge, read=_SINGLE),
        "ridge-words-pairs": partial(ridge, read=_PAIRS),
    },
    "similarity": {"tfidf-cosine": line},
}
#: Slower systems, used in languages without spaces between words and with `baselines: all`.
SLOWER: Final = (MARGIN, "ridge-words-characters")


def used(systems: Mapping[str, Learner], *, language: str, which: str) -> dict[str, Learner]:
    """The systems that are used.

    Args:
        language: `data.tasks.<name>.language`.
        which: `data.tasks.<name>.baselines`, `auto` or `all`.
    """
    every = which == "all" or language in UNSPACED
    return {name: system for name, system in systems.items() if every or name not in SLOWER}


def probable_systems(kind: str, *, language: str, which: str) -> dict[str, Learner]:
    """Name -> words model with calibrated probabilities; empty for kinds without one."""
    systems = {} if has(kind, "score") else SYSTEMS.get(kind, {})
    return {name: each for name, each in used(systems, language=language, which=which).items() if name != MARGIN}


def suited(systems: Mapping[str, Learner], rows: Rows) -> dict[str, Learner]:
    """The systems for a run. `LATENT` is left out where most texts have labels: there it is slow and not better."""
    unlabelled = len(rows.free) > len(rows.of_seed)
    return {name: system for name, system in systems.items() if name != LATENT or unlabelled}
