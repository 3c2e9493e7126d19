"""Words models that are fitted with every candidate of their penalty: logistic regression, a linear support vector
machine or ridge regression on TF-IDF features."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from sklearn.feature_extraction.text import TfidfVectorizer

from components.tasks.selection import Candidate, System, Training
from components.words import transductive
from components.words.classifier import WordsModel
from components.words.features import WordFeatures, character_vectorizers, fit_text, word_vectorizers
from components.words.linear import (
    LinearModel,
    fit_exclusive,
    fit_independent,
    fit_margin,
    fit_ridge,
)
from components.words.text import tfidf

#: Candidates for the inverse strength of the L2 penalty, the strongest penalty first.
C_GRID: Final = (1.0, 10.0, 100.0, 1000.0)
#: The same for a support vector machine.
MARGINS: Final = (0.01, 0.1, 1.0, 10.0)
#: Candidates for the L2 penalty of ridge regression, the strongest first.
PENALTIES: Final = (10.0, 3.0, 1.0, 0.3, 0.1, 0.03)
#: Maximum number of rows with which ridge regression is also scaled, which takes their (N, N) matrix.
MOST_SCALED: Final = 1000
#: Languages that are written without spaces between words.
UNSPACED: Final = frozenset(("th", "zh", "ja", "lo", "km", "my"))


def words(training: Training, *, ngrams: tuple[int, int]) -> list[Candidate]:
    """Logistic regression on word n-grams; the vocabulary is that of the training rows."""
    return _exclusive(training, word_vectorizers(ngrams), fit_exclusive, C_GRID)


def words_and_characters(training: Training) -> list[Candidate]:
    """Logistic regression on words, word pairs and character n-grams."""
    return _exclusive(training, character_vectorizers(), fit_exclusive, C_GRID)


def margin(training: Training) -> list[Candidate]:
    """A linear support vector machine on the same features."""
    return _exclusive(training, character_vectorizers(), fit_margin, MARGINS)


def one_against_rest(training: Training, *, ngrams: tuple[int, int]) -> list[Candidate]:
    """One logistic regression per label, with the same strength of the penalty."""
    features, x = fit_text(word_vectorizers(ngrams), training.rows.fields)
    fit = partial(fit_independent, x, training.rows.targets, len(training.labels))
    return _candidates(features, fit, C_GRID, {"vocabulary": features.vocabulary})


def ridge(training: Training, *, ngrams: tuple[int, int]) -> list[Candidate]:
    """Ridge regression of a number on word n-grams; the vocabulary is that of the training rows."""
    return _ridge(training, word_vectorizers(ngrams))


def ridge_and_characters(training: Training) -> list[Candidate]:
    """Ridge regression of a number on words, word pairs and character n-grams."""
    return _ridge(training, character_vectorizers())


def _ridge(training: Training, vectorizers: Sequence[TfidfVectorizer]) -> list[Candidate]:
    features, x = fit_text(vectorizers, training.rows.fields)
    targets = training.rows.targets

    def model(penalty: float, scaled: bool) -> WordsModel:
        return WordsModel(features, fit_ridge(x, targets, penalty=penalty, scaled=scaled))

    # Candidates are known by their number, and the rows without a fold may be few enough where all are not.
    ways = (False,) if len(targets) > MOST_SCALED else (False, True)
    return [
        Candidate(
            partial(model, penalty, scaled), {"penalty": penalty, "scaled": scaled, "vocabulary": features.vocabulary}
        )
        for scaled in ways
        for penalty in PENALTIES
    ]


def _exclusive(
    training: Training, vectorizers: Sequence[TfidfVectorizer], fit: Callable[..., LinearModel], grid: Sequence[float]
) -> list[Candidate]:
    features, x = fit_text(vectorizers, training.rows.fields)
    fitted = partial(fit, x, training.rows.labels, len(training.labels))
    return _candidates(features, fitted, grid, {"vocabulary": features.vocabulary})


def _candidates(
    features: WordFeatures, fit: Callable[..., LinearModel], grid: Sequence[float], details: Mapping[str, int]
) -> list[Candidate]:
    """One candidate per inverse strength of the penalty, which are fitted when they are needed."""

    def model(c: float) -> WordsModel:
        return WordsModel(features, fit(c=c))

    return [Candidate(partial(model, c), {"c": c, **details}) for c in grid]


def cosine(training: Training) -> list[Candidate]:
    """Logistic regression on the cosine of both texts."""
    return _regressions(training, WordFeatures("cosine", (counted(training),)), {})


def both(training: Training) -> list[Candidate]:
    """Logistic regression on the vectors u and v of both texts, |u - v|, u v and their cosine; the vocabulary is that
    of the training rows."""
    vectorizer = tfidf().fit([text for parts in training.rows.fields for text in parts])
    features = WordFeatures("pair", (vectorizer,))
    return _regressions(training, features, {"vocabulary": features.vocabulary})


def _regressions(training: Training, features: WordFeatures, details: Mapping[str, int]) -> list[Candidate]:
    x = features.matrix(training.rows.fields)
    fit = partial(fit_exclusive, x, training.rows.labels, len(training.labels))
    return _candidates(features, fit, C_GRID, details)


def counted(training: Training) -> TfidfVectorizer:
    """Document frequencies need no labels; they are those of the whole train split, independent of the label budget."""
    return tfidf().fit([text for parts in training.inputs for text in parts])


@dataclass(frozen=True)
class WordsSystems:
    """The words models of one kind of task.

    Attributes:
        usual: name -> system, with probabilities.
        characters: further ones, slower, for languages without spaces between words and for `baselines: all`.
        margins: further ones whose probabilities are not calibrated, likewise.
    """

    usual: Mapping[str, System]
    characters: Mapping[str, System] = field(default_factory=dict)
    margins: Mapping[str, System] = field(default_factory=dict)


#: Kind of task -> its words models with probabilities of labels.
SYSTEMS: Final = {
    "classification": WordsSystems(
        {
            "tfidf-words": partial(words, ngrams=(1, 1)),
            "tfidf-words-pairs": partial(words, ngrams=(1, 2)),
            "latent-words": transductive.exclusive,
        },
        characters={"tfidf-words-characters": words_and_characters},
        margins={"svm-words-characters": margin},
    ),
    "multilabel": WordsSystems(
        {
            "tfidf-words": partial(one_against_rest, ngrams=(1, 1)),
            "tfidf-words-pairs": partial(one_against_rest, ngrams=(1, 2)),
            "latent-words": transductive.independent,
        }
    ),
    "pair": WordsSystems({"tfidf-cosine": cosine, "tfidf-both": both}),
}


def with_characters(*, language: str, which: str) -> bool:
    """Whether the systems on characters are used too.

    Args:
        language: `data.tasks.<name>.language`.
        which: `data.tasks.<name>.baselines`, `auto` or `all`.
    """
    return which == "all" or language in UNSPACED


def probable_systems(kind: str, *, language: str, which: str) -> dict[str, System]:
    """Name -> words model with calibrated probabilities; empty for kinds without one."""
    found = SYSTEMS.get(kind, WordsSystems({}))
    return {**found.usual, **(found.characters if with_characters(language=language, which=which) else {})}
