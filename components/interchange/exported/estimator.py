"""The exported text model in this folder as a scikit-learn estimator: no pickle, and no code but this file.

    from estimator import load
    model = load("FOLDER")            # the folder of this file
    model.predict(["a text"])         # labels; numbers for regression; (N, C) of 0 and 1 for several labels per text
    model.predict_proba(["a text"])   # (N, C), in the order of model.classes_

A text is a string, or a pair of strings for models that read two. Needs numpy, scikit-learn and regex; for models of
words safetensors, for language models onnxruntime and tokenizers, for Thai pythainlp.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import regex
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, TransformerMixin
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.utils.extmath import safe_sparse_dot, softmax

HERE = Path(__file__).parent
#: Probability from which one of several labels is predicted.
THRESHOLD = 0.5
#: Rows that a language model computes at once.
BATCH = 32
_UNSPACED = r"[[\p{Han}\p{Hiragana}\p{lb=SA}]--\p{Thai}]"
_LETTERS = rf"[[\p{{L}}\p{{M}}\p{{N}}_]--{_UNSPACED}]++"
WORD = regex.compile(rf"(?={_UNSPACED})\X\p{{M}}*+|{_LETTERS}(?:[\u200c\u200d]++{_LETTERS})*+", regex.VERSION1)
_THAI = re.compile("[\u0e01-\u0e5b]+")
_TINY = 1e-30


def load(folder: str | Path = HERE, *, int8: bool = False) -> Any:
    """The model of a folder: a Pipeline for a model of words, a TextModel for a language model.

    Args:
        folder: with config.json.
        int8: whether the quantised graph is used.
    """
    folder = Path(folder)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if config["form"] == "words":
        features, linear = _words(folder / "words")
        classes = config["labels"]
        last: Any = LinearRegressor(linear) if config["kind"] == "regression" else LinearClassifier(linear, classes)
        return Pipeline([("features", features), ("linear", last)])
    return TextModel(str(folder), int8=int8)


# -- words ------------------------------------------------------------------------------------------------


def segmented(text: str, separator: str = " ", *, always: bool = False) -> str:
    """A text with a separator between the words of Thai, if a tenth of its characters are Thai."""
    if text.isascii():
        return text
    runs = [match.span() for match in _THAI.finditer(text)]
    own = sum(end - start for start, end in runs)
    if not runs or (not always and own / max(1, sum(map(len, text.split()))) < 0.1):
        return text
    from pythainlp.tokenize.newmm import segment

    cuts: list[int] = []
    for begin, end in runs:
        for start in range(begin, end, 2000):
            position = start
            for word in segment(text[start : min(start + 2000, end)]):
                cuts.append(position)
                position += len(word)
        cuts.append(end)
    parts, before = [], 0
    for cut in sorted({cut for cut in cuts if 0 < cut < len(text)}):
        if not (text[cut - 1].isspace() or text[cut].isspace()):
            parts.append(text[before:cut])
            before = cut
    return separator.join([*parts, text[before:]])


def spaced(text: str) -> str:
    """Lower-case text in NFC with spaces between words of Thai; a text without words becomes one word per character."""
    found = segmented(unicodedata.normalize("NFC", text)).lower()
    if WORD.search(found):
        return found
    return " ".join(f"u{ord(character):x}" for character in found if not character.isspace())


def _tfidf(terms: Sequence[str], idf: np.ndarray, **settings: Any) -> TfidfVectorizer:
    vocabulary = {term: number for number, term in enumerate(terms)}
    of_words = {} if settings.get("analyzer") == "char_wb" else {"tokenizer": WORD.findall}
    found = TfidfVectorizer(
        preprocessor=spaced, token_pattern=None, sublinear_tf=True, vocabulary=vocabulary, **of_words, **settings
    )
    found.idf_ = idf
    return found


def _words(folder: Path) -> tuple[FeatureUnion, dict[str, np.ndarray]]:
    from safetensors.numpy import load_file

    described = json.loads((folder / "words.json").read_text(encoding="utf-8"))
    arrays = load_file(folder / "words.safetensors")
    if described["form"] == "latent":
        vectorizer = _tfidf(described["semantics"]["terms"], arrays["idf"], ngram_range=(1, 2), dtype=np.float32)
        parts = [
            ("semantics", Projection(vectorizer, arrays["components"])),
            ("means", WordMeans(described["means"]["words"], arrays["table"], arrays["centre"])),
        ]
        return FeatureUnion(parts), arrays
    if described["form"] != "text":
        raise ValueError(f"features of the form {described['form']!r} read pairs of texts and are not exported")
    vectorizers = []
    for number, stored in enumerate(described["vectorizers"]):
        settings = {"analyzer": stored["analyzer"], "ngram_range": tuple(stored["ngram_range"])}
        vectorizers.append((f"tfidf-{number}", _tfidf(stored["terms"], arrays[f"idf.{number}"], **settings)))
    return FeatureUnion(vectorizers), arrays


def _unit(vectors: np.ndarray) -> np.ndarray:
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.where(norms > 0, norms, 1), dtype=np.float32)


class Projection(TransformerMixin, BaseEstimator):
    """TF-IDF vectors projected on singular vectors."""

    def __init__(self, vectorizer: TfidfVectorizer, components: np.ndarray) -> None:
        self.vectorizer, self.components = vectorizer, components

    def fit(self, texts: Sequence[str], y: Any = None) -> Projection:
        """Nothing: the projection is fitted."""
        return self

    def transform(self, texts: Sequence[str]) -> np.ndarray:
        """(N, D)."""
        return _unit(np.asarray(self.vectorizer.transform(texts) @ self.components.T, dtype=np.float32)).astype(float)


class WordMeans(TransformerMixin, BaseEstimator):
    """Weighted means of word vectors."""

    def __init__(self, words: Sequence[str], table: np.ndarray, centre: np.ndarray) -> None:
        self.words, self.table, self.centre = words, table, centre

    def fit(self, texts: Sequence[str], y: Any = None) -> WordMeans:
        """Nothing: the vectors are fitted."""
        return self

    def transform(self, texts: Sequence[str]) -> np.ndarray:
        """(N, D)."""
        known = {word: number for number, word in enumerate(self.words)}
        means = np.zeros((len(texts), self.table.shape[1]), dtype=np.float32)
        for row, text in enumerate(texts):
            ids = np.unique([known[word] for word in WORD.findall(spaced(text)) if word in known]).astype(int)
            if len(ids):
                means[row] = self.table[ids].mean(axis=0)
        used = np.abs(means).sum(axis=1, keepdims=True) > 0
        return _unit(np.where(used, means - self.centre, 0).astype(np.float32)).astype(float)


def _expit(values: np.ndarray) -> np.ndarray:
    from scipy.special import expit

    return np.asarray(expit(values))


class LinearClassifier(ClassifierMixin, BaseEstimator):
    """Probabilities of labels from a linear function of each: a softmax, or a sigmoid for several labels per text."""

    def __init__(self, arrays: Mapping[str, np.ndarray], classes: Sequence[str]) -> None:
        self.arrays, self.classes = arrays, classes
        self.classes_ = np.asarray(classes)
        self.exclusive = bool(arrays["exclusive"][0])

    def fit(self, features: Any, y: Any = None) -> LinearClassifier:
        """Nothing: the weights are fitted."""
        return self

    def decision_function(self, features: Any) -> np.ndarray:
        """(N, K) values of the linear functions."""
        return np.asarray(
            safe_sparse_dot(features, self.arrays["weights"].T, dense_output=True) + self.arrays["intercepts"]
        )

    def logits(self, features: Any) -> np.ndarray:
        """(N, C) logits; 0 for labels without a function."""
        found = np.zeros((features.shape[0], len(self.classes_)))
        if len(known := self.arrays["classes"]):
            values = self.decision_function(features)
            found[:, known[-values.shape[1] :]] = values
        return found

    def predict_proba(self, features: Any) -> np.ndarray:
        """(N, C) float32."""
        found = np.tile(self.arrays["usual"], (features.shape[0], 1))
        known = self.arrays["classes"]
        if not len(known):
            return found
        values = self.decision_function(features)
        if self.exclusive and len(known) > 2:
            found[:, known] = softmax(values, copy=False)
        elif self.exclusive:
            right = _expit(values[:, 0])
            found[:, known] = np.stack([1 - right, right], axis=1)
        else:
            found[:, known] = _expit(values)
        return found

    def predict(self, features: Any) -> np.ndarray:
        """(N,) labels, or (N, C) of 0 and 1."""
        return _decided(self.predict_proba(features), self.classes_, exclusive=self.exclusive)


class LinearRegressor(RegressorMixin, BaseEstimator):
    """A number from a linear function."""

    def __init__(self, arrays: Mapping[str, np.ndarray]) -> None:
        self.arrays = arrays

    def fit(self, features: Any, y: Any = None) -> LinearRegressor:
        """Nothing: the weights are fitted."""
        return self

    def predict(self, features: Any) -> np.ndarray:
        """(N,) float32."""
        values = safe_sparse_dot(features, self.arrays["weights"].T, dense_output=True) + self.arrays["intercepts"]
        return np.asarray(values, dtype=np.float32)[:, 0]


def _decided(probabilities: np.ndarray, classes: np.ndarray, *, exclusive: bool) -> np.ndarray:
    if exclusive:
        return np.asarray(classes[probabilities.argmax(1)])
    return (probabilities >= THRESHOLD).astype(int)


# -- language models --------------------------------------------------------------------------------------


class TextModel(ClassifierMixin, BaseEstimator):
    """A language model with its head as an ONNX graph, perhaps combined with a model of words.

    Args:
        folder: with config.json, model.onnx and tokenizer.json.
        int8: whether model.int8.onnx is used.
    """

    def __init__(self, folder: str = str(HERE), int8: bool = False) -> None:
        import onnxruntime
        from tokenizers import Tokenizer

        self.folder, self.int8 = folder, int8
        path = Path(folder)
        self.config_ = json.loads((path / "config.json").read_text(encoding="utf-8"))
        self.classes_ = np.asarray(self.config_["labels"])
        self._tokenizer = Tokenizer.from_file(str(path / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(
            str(path / ("model.int8.onnx" if int8 else "model.onnx")), options, providers=["CPUExecutionProvider"]
        )
        self._words = _words(path / "words") if self.config_.get("words") else None

    def fit(self, texts: Any, y: Any = None) -> TextModel:
        """Nothing: the model is trained."""
        return self

    def outputs(self, texts: Sequence[Any]) -> np.ndarray:
        """(N, C) probabilities, or (N, 1) numbers, of the language model alone."""
        rows = [self._encoded((text,) if isinstance(text, str) else tuple(text)) for text in texts]
        order = sorted(range(len(rows)), key=lambda row: len(rows[row][0]))
        found: list[np.ndarray] = [np.zeros(0)] * len(rows)
        for start in range(0, len(rows), BATCH):
            part = order[start : start + BATCH]
            longest = max(len(rows[row][0]) for row in part)
            tokens, segments = np.zeros((2, len(part), longest), dtype=np.int64)
            for index, row in enumerate(part):
                tokens[index, : len(rows[row][0])], segments[index, : len(rows[row][1])] = rows[row]
            lengths = np.asarray([len(rows[row][0]) for row in part], dtype=np.int64)
            given = {"tokens": tokens, "lengths": lengths, "segments": segments}
            wanted = {one.name: given[one.name] for one in self._session.get_inputs()}
            (values,) = self._session.run(None, wanted)
            for row, value in zip(part, values, strict=True):
                found[row] = value
        return np.stack(found) if found else np.zeros((0, max(1, len(self.classes_))), dtype=np.float32)

    def predict_proba(self, texts: Sequence[Any]) -> np.ndarray:
        """(N, C) float32."""
        own = self.outputs(texts)
        if self._words is None or not len(own):
            return own
        features, arrays = self._words
        classifier = LinearClassifier(arrays, self.config_["labels"])
        matrix = features.transform(list(texts))
        if self.config_["words"]["how"] == "mean":
            weight = self.config_["words"]["weight"]
            return np.float32(1 - weight) * own + np.float32(weight) * classifier.predict_proba(matrix)
        logits, exact = classifier.logits(matrix), own.astype(np.float64)
        if not classifier.exclusive:
            odds = np.log(np.clip(exact, _TINY, None)) - np.log(np.clip(1 - exact, _TINY, None))
            return _expit(odds + logits).astype(np.float32)
        values = np.log(np.clip(exact, _TINY, None)) + logits
        values = np.exp(values - values.max(1, keepdims=True))
        return (values / values.sum(1, keepdims=True)).astype(np.float32)

    def predict(self, texts: Sequence[Any]) -> np.ndarray:
        """(N,) labels; (N, C) of 0 and 1 for several labels per text; (N,) numbers."""
        kind = self.config_["kind"]
        if kind in ("regression", "similarity"):
            return self.outputs(texts)[:, 0]
        return _decided(self.predict_proba(texts), self.classes_, exclusive=kind != "multilabel")

    def _encoded(self, texts: tuple[str, ...]) -> tuple[list[int], list[int]]:
        """Pieces and segments of one input, with special pieces; longer texts are truncated."""
        template: list[int] = self.config_["template"]
        room = max(1, self.config_["room"])
        pieces = [self._pieces(text) for text in texts]
        if len(pieces) == 1:
            pieces = [pieces[0][:room] or [self.config_["unknown"]]]
        else:
            first, second = pieces
            kept = max(1, min(len(first), max(room - len(second), -(-room // 2))))
            pieces = [first[:kept], second[: max(1, room - kept)]]
        ids: list[int] = []
        segments: list[int] = []
        # The entries -1 and -2 of the template stand for the pieces of the texts.
        for entry, segment in zip(template, self.config_["segments"], strict=True):
            own = [entry] if entry >= 0 else pieces[-1 - entry]
            ids += own
            segments += [segment] * len(own)
        return ids, segments

    def _pieces(self, text: str) -> list[int]:
        settings = self.config_["segmentation"]
        if settings["name"] != "none":
            text = segmented(text, settings["separator"], always=settings["name"] != "auto")
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)
