"""The systems that `benchmarks/few_labels.py` compares with, one process per environment.

    python benchmarks/comparison/peers.py SYSTEM --encoder FOLDER

The process reads requests from standard input and writes one JSON line for each to standard output. It imports nothing
of Headstart: it runs in the environment of the system (benchmarks/comparison/requirements). A request names a file with
the set's texts (train with labels, test without) and the training rows; the answer is a label per test row with the
processor seconds and memory of learning and of prediction.

Every cell is learned in a process of its own, forked after the imports, with one thread. Seconds are those of the
processor (user and system, children included); those of the imports are counted apart, once for the process. Memory is
the peak of the resident set, imports included.

    python benchmarks/comparison/peers.py SYSTEM --encoder FOLDER --files TRAIN NEW

learns from a csv file with the columns text and label instead, for `benchmarks/first_model.py`: it writes the label of
the first row of NEW (column text) as soon as it is predicted, then a line of JSON with the labels of all rows.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

#: Pairs of SetFit's default strategy (all pairs, the smaller of both kinds repeated) from which R = 20 pairs of each
#: kind per text are used instead (Tunstall et al. 2022, section 4.2).
MOST_PAIRS = 16_000
PAIRS_PER_TEXT = 20
SEPARATOR = " [SEP] "

Fields = list[str]


@dataclass(frozen=True)
class Cell:
    """One request.

    Attributes:
        train: N inputs of one or two texts, with `labels` (N,).
        test: M inputs.
        encoder: folder of the sentence encoder.
        draw: seed.
        cache: folder for what several cells share.
    """

    name: str
    train: list[Fields]
    labels: list[int]
    test: list[Fields]
    encoder: str
    draw: int
    cache: Path


Predict = Callable[[], Sequence[int]]
#: Cell -> what predicts, and details of learning. Learning is over when it returns.
Learn = Callable[[Cell], tuple[Predict, dict[str, Any]]]


def processor_seconds() -> float:
    """User and system seconds of this process and its finished children."""
    parts = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(part.ru_utime + part.ru_stime for part in parts)


def joined(rows: list[Fields]) -> list[str]:
    """One text per row; the two of a pair with the separator of BERT's tokenizer."""
    return [SEPARATOR.join(row) for row in rows]


def folds(labels: Sequence[int]) -> int:
    """Folds of a cross-validation: as many as the smallest class has rows, at most 5; 0 if a class has one row."""
    least = min(list(labels).count(label) for label in set(labels))
    return min(5, least) if least > 1 else 0


def regression(
    features: Any, labels: Sequence[int], *, search: bool, weights: str | None = None
) -> tuple[Any, dict[str, Any]]:
    """Logistic regression with scikit-learn's C = 1, or with C of 10^-1 ... 10^3 by cross-validation (accuracy, with
    `weights: balanced` macro F1)."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV, StratifiedKFold

    count = folds(labels)
    model, metric = LogisticRegression(max_iter=1000, class_weight=weights), "f1_macro" if weights else "accuracy"
    if not search or not count:
        return model.fit(features, labels), {"c": 1.0}
    split = StratifiedKFold(count, shuffle=True, random_state=0)
    grid = {"C": [0.1, 1.0, 10.0, 100.0, 1000.0]}
    result = GridSearchCV(model, grid, cv=split, scoring=metric).fit(features, labels)
    return result.best_estimator_, {"c": result.best_params_["C"]}


def combined(first: Any, second: Any) -> Any:
    """Features of a pair: [u, v, |u - v|, u v] (Conneau et al. 2017); for sparse and dense matrices."""
    from scipy import sparse

    if sparse.issparse(first):
        return sparse.hstack([first, second, abs(first - second), first.multiply(second)], format="csr")
    import numpy as np

    return np.hstack([first, second, np.abs(first - second), first * second])


def tfidf(cell: Cell, *, characters: bool, weights: str | None = None) -> tuple[Predict, dict[str, Any]]:
    """TF-IDF of words and word pairs, or also of character n-grams; C by cross-validation. Thai is segmented."""
    from scipy import sparse
    from sklearn.feature_extraction.text import TfidfVectorizer

    thai = any("\u0e00" <= letter <= "\u0e7f" for row in cell.train for text in row for letter in text)
    settings: dict[str, Any] = {"sublinear_tf": True}
    if thai:
        from pythainlp.tokenize import word_tokenize

        words = {"tokenizer": lambda text: word_tokenize(text, keep_whitespace=False), "token_pattern": None}
    else:
        words = {}
    vectorizers = [TfidfVectorizer(ngram_range=(1, 2), **settings, **words)]
    if characters:
        vectorizers.append(TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 4), **settings))
    for vectorizer in vectorizers:
        vectorizer.fit([text for row in cell.train for text in row])

    def features(rows: list[Fields]) -> Any:
        parts = [
            sparse.hstack([vectorizer.transform([row[place] for row in rows]) for vectorizer in vectorizers])
            for place in range(len(rows[0]))
        ]
        return parts[0].tocsr() if len(parts) == 1 else combined(*(part.tocsr() for part in parts))

    model, details = regression(features(cell.train), cell.labels, search=True, weights=weights)
    return lambda: model.predict(features(cell.test)), details


def stored(cell: Cell, kind: str, make: Callable[[list[str]], Any]) -> tuple[Any, Callable[[dict[str, Any]], Any]]:
    """Features of the cell's training rows by a frozen encoder, and what gives the features of test. The features of
    test are computed once for all cells of the set; every cell is charged with the seconds of that
    (`shared_predict_seconds` of the details)."""
    import numpy as np

    def of(rows: list[Fields]) -> Any:
        parts = [make([row[place] for row in rows]) for place in range(len(rows[0]))]
        return parts[0] if len(parts) == 1 else combined(*parts)

    def test(details: dict[str, Any]) -> Any:
        path = cell.cache / f"{cell.name}-{kind}.npz"
        if path.is_file():
            with np.load(path) as file:
                details["shared_predict_seconds"] = float(file["seconds"])
                return file["features"]
        began = processor_seconds()
        features = of(cell.test)
        np.savez(path, features=features, seconds=processor_seconds() - began)
        return features

    return of(cell.train), test


def embeddings(cell: Cell, *, search: bool, weights: str | None = None) -> tuple[Predict, dict[str, Any]]:
    """sentence-transformers' frozen encoder and logistic regression."""
    from sentence_transformers import SentenceTransformer

    encoder = SentenceTransformer(cell.encoder, device="cpu")
    train, test = stored(
        cell, "embeddings", lambda texts: encoder.encode(texts, batch_size=32, show_progress_bar=False)
    )
    model, details = regression(train, cell.labels, search=search, weights=weights)
    return lambda: model.predict(test(details)), details


def model2vec(cell: Cell) -> tuple[Predict, dict[str, Any]]:
    """Static vectors distilled from the encoder (model2vec's defaults), and logistic regression with C = 1."""
    from model2vec import StaticModel
    from model2vec.distill import distill

    folder = cell.cache / "model2vec"
    if not folder.is_dir():
        distill(cell.encoder, device="cpu").save_pretrained(str(folder))
    static = StaticModel.from_pretrained(str(folder))
    train, test = stored(cell, "model2vec", static.encode)
    model, details = regression(train, cell.labels, search=False)
    return lambda: model.predict(test(details)), details


def setfit(cell: Cell) -> tuple[Predict, dict[str, Any]]:
    """SetFit with its defaults: 1 epoch over its pairs, batches of 16 pairs, rate 2e-5, logistic regression."""
    from datasets import Dataset, disable_progress_bars
    from setfit import SetFitModel, Trainer, TrainingArguments

    disable_progress_bars()
    model = SetFitModel.from_pretrained(cell.encoder, device="cpu")
    counts = [cell.labels.count(label) for label in set(cell.labels)]
    # Pairs within a class with replacement, and between classes; the fewer are repeated.
    equal = sum(count * (count + 1) // 2 for count in counts)
    unequal = (len(cell.labels) ** 2 - sum(count**2 for count in counts)) // 2
    pairs = 2 * max(equal, unequal)
    iterations = PAIRS_PER_TEXT if pairs > MOST_PAIRS else None
    if iterations:
        pairs = 2 * iterations * len(cell.labels)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            num_iterations=iterations,
            seed=cell.draw,
            report_to="none",
            save_strategy="no",
            show_progress_bar=False,
        )
        rows = Dataset.from_dict({"text": joined(cell.train), "label": cell.labels})
        Trainer(model=model, args=arguments, train_dataset=rows).train()
    return (
        lambda: [int(label) for label in model.predict(joined(cell.test), show_progress_bar=False)],
        {"pairs": pairs, "capped": bool(iterations)},
    )


def flair(cell: Cell) -> tuple[Predict, dict[str, Any]]:
    """flair's text classifier over the same encoder, fine-tuned as in its tutorial: 10 epochs at 5e-5, batches of 4."""
    import flair as library
    from flair.data import Corpus, Sentence
    from flair.datasets import FlairDatapointDataset
    from flair.embeddings import TransformerDocumentEmbeddings
    from flair.models import TextClassifier
    from flair.trainers import ModelTrainer

    library.set_seed(cell.draw)
    sentences = [_flair_row(Sentence, text, label) for text, label in zip(joined(cell.train), cell.labels, strict=True)]
    corpus = Corpus(train=FlairDatapointDataset(sentences), sample_missing_splits=False)
    document = TransformerDocumentEmbeddings(cell.encoder, fine_tune=True, cls_pooling="mean")
    labels = corpus.make_label_dictionary(label_type="class")
    classifier = TextClassifier(document, label_dictionary=labels, label_type="class")
    with tempfile.TemporaryDirectory() as folder:
        trainer = ModelTrainer(classifier, corpus)
        trainer.fine_tune(
            folder, learning_rate=5e-5, mini_batch_size=4, max_epochs=10, save_final_model=False, train_with_dev=False
        )

    def predict() -> list[int]:
        test = [Sentence(text) for text in joined(cell.test)]
        classifier.predict(test, mini_batch_size=32)
        return [int(sentence.get_label("class").value) for sentence in test]

    return predict, {"epochs": 10}


def autointent(cell: Cell) -> tuple[Predict, dict[str, Any]]:
    """AutoIntent's preset classic-light over the same encoder: classifiers of frozen features and a rule of decision,
    chosen by its search. -1: outside of the classes."""
    from autointent import Dataset, Pipeline
    from autointent.configs import LoggingConfig, SentenceTransformerEmbeddingConfig

    pipeline = Pipeline.from_preset("classic-light", seed=42 + cell.draw)
    pipeline.set_config(SentenceTransformerEmbeddingConfig(model_name=cell.encoder))
    pipeline.set_config(LoggingConfig(project_dir=cell.cache / "autointent"))
    pairs = zip(joined(cell.train), cell.labels, strict=True)
    pipeline.fit(Dataset.from_dict({"train": [{"utterance": text, "label": label} for text, label in pairs]}))
    return lambda: [-1 if label is None else label for label in pipeline.predict(joined(cell.test))], {}


def open_autonlu(cell: Cell) -> tuple[Predict, dict[str, Any]]:
    """OpenAutoNLU with its defaults over the same encoder: SetFit if the smallest class has at most 80 rows, otherwise
    fine-tuning with a search for settings, and a detector of foreign texts. -1: outside of the classes."""
    from torch.onnx import symbolic_opset14
    from torch.onnx._internal.torchscript_exporter import symbolic_opset14 as moved

    # Its optimum imports these for an export that is not made here; in torch 2.13 they have another module.
    for name in (
        "_attention_scale",
        "_causal_attention_mask",
        "_onnx_symbolic",
        "_type_utils",
        "jit_utils",
        "symbolic_helper",
    ):
        setattr(symbolic_opset14, name, getattr(moved, name))
    from open_autonlu.auto_classes import TextClassificationTrainingPipeline

    path = cell.cache / "open-autonlu.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        names = (f"class-{label}" for label in cell.labels)
        csv.writer(file).writerows([("text", "label"), *zip(joined(cell.train), names, strict=True)])
    pipeline = TextClassificationTrainingPipeline(str(path), config_overrides={"model_name_or_path": cell.encoder})
    pipeline.train()

    def predict() -> list[int]:
        answers = [answer.most_probable.label for answer in pipeline.method_manager.predict(joined(cell.test), 32)]
        return [int(name.removeprefix("class-")) if name.startswith("class-") else -1 for name in answers]

    return predict, {"method": pipeline.training_method_cls.__name__}


def _flair_row(sentence: Any, text: str, label: int) -> Any:
    row = sentence(text)
    row.add_label("class", str(label))
    return row


def fastai(cell: Cell) -> tuple[Predict, dict[str, Any]]:
    """fastai's text classifier (AWD-LSTM) by its tutorial's `fine_tune(4, 1e-2)`, from random weights: its published
    weights lie outside of the package index."""
    import pandas as pd
    from fastai.text.all import AWD_LSTM, TextDataLoaders, set_seed, text_classifier_learner

    set_seed(cell.draw)
    frame = pd.DataFrame({"text": joined(cell.train), "label": [str(label) for label in cell.labels]})
    loaders = TextDataLoaders.from_df(
        frame, text_col="text", label_col="label", valid_pct=0.0, bs=min(64, len(frame)), num_workers=0
    )
    learner = text_classifier_learner(loaders, AWD_LSTM, drop_mult=0.5, pretrained=False)
    with learner.no_bar(), learner.no_logging():
        learner.fine_tune(4, 1e-2)

    def predict() -> list[int]:
        batches = learner.dls.test_dl(joined(cell.test))
        with learner.no_bar():
            probabilities, _ = learner.get_preds(dl=batches, reorder=True)
        names = [int(name) for name in learner.dls.vocab[1]]
        return [names[row] for row in probabilities.argmax(-1).tolist()]

    return predict, {"pretrained": False}


#: System -> (what learns it, modules that are imported before the cells are forked).
SYSTEMS: dict[str, tuple[Learn, tuple[str, ...]]] = {
    "tfidf": (lambda cell: tfidf(cell, characters=False), ("sklearn.linear_model",)),
    "tfidf-characters": (lambda cell: tfidf(cell, characters=True), ("sklearn.linear_model",)),
    "tfidf-balanced": (lambda cell: tfidf(cell, characters=False, weights="balanced"), ("sklearn.linear_model",)),
    "embeddings-balanced": (
        lambda cell: embeddings(cell, search=False, weights="balanced"),
        ("sentence_transformers", "sklearn.linear_model"),
    ),
    "embeddings": (lambda cell: embeddings(cell, search=False), ("sentence_transformers", "sklearn.linear_model")),
    "embeddings-cv": (lambda cell: embeddings(cell, search=True), ("sentence_transformers", "sklearn.linear_model")),
    "model2vec": (model2vec, ("model2vec", "sklearn.linear_model")),
    "setfit": (setfit, ("setfit",)),
    "flair": (flair, ("flair",)),
    "fastai": (fastai, ("fastai.text.all",)),
    "autointent": (autointent, ("autointent",)),
    "open-autonlu": (open_autonlu, ("torch",)),
}


def answer(learn: Learn, cell: Cell) -> dict[str, Any]:
    wall, processor = time.perf_counter(), processor_seconds()
    predict, details = learn(cell)
    learned = {"learn_wall": time.perf_counter() - wall, "learn_seconds": processor_seconds() - processor}
    wall, processor = time.perf_counter(), processor_seconds()
    predicted = [int(label) for label in predict()]
    shared = details.pop("shared_predict_seconds", 0.0)
    return {
        "predicted": predicted,
        **learned,
        "predict_wall": time.perf_counter() - wall,
        "predict_seconds": processor_seconds() - processor + shared,
        "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "details": details,
    }


def forked(learn: Learn, cell: Cell) -> dict[str, Any]:
    """`answer` in a child process."""
    with tempfile.NamedTemporaryFile("r", suffix=".json") as file:
        child = os.fork()
        if not child:
            code = 1
            try:
                # Standard output belongs to the protocol; libraries print there too.
                os.dup2(2, 1)
                result = answer(learn, cell)
                Path(file.name).write_text(json.dumps(result), encoding="utf-8")
                code = 0
            except BaseException as error:
                Path(file.name).write_text(json.dumps({"error": f"{type(error).__name__}: {error}"}), encoding="utf-8")
                raise
            finally:
                sys.stderr.flush()
                os._exit(code)
        os.waitpid(child, 0)
        content = file.read()
    return json.loads(content) if content else {"error": "the process ended without an answer"}


def learn_files(learn: Learn, encoder: str, files: Sequence[Path], protocol: TextIO) -> None:
    """Learn from the first file; write the label of the second one's first row, and then of all its rows."""
    train, new = files
    with train.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    with new.open(encoding="utf-8", newline="") as file:
        texts = [[row["text"]] for row in csv.DictReader(file)]
    names = sorted({row["label"] for row in rows})
    with tempfile.TemporaryDirectory() as cache:
        cell = Cell(
            name=train.stem,
            train=[[row["text"]] for row in rows],
            labels=[names.index(row["label"]) for row in rows],
            test=texts[:1],
            encoder=encoder,
            draw=0,
            cache=Path(cache),
        )
        predict, _ = learn(cell)
        # -1, which is no label, is the row outside of the classes.
        names.append("")
        print(names[predict()[0]], file=protocol, flush=True)
        # `predict` reads the inputs of the cell.
        cell.test.extend(texts[1:])
        print(json.dumps([names[label] for label in predict()]), file=protocol, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("system", choices=SYSTEMS)
    parser.add_argument("--encoder", required=True)
    parser.add_argument("--files", nargs=2, type=Path, metavar=("TRAIN", "NEW"))
    arguments = parser.parse_args()
    learn, modules = SYSTEMS[arguments.system]
    protocol = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    if arguments.files:
        learn_files(learn, arguments.encoder, arguments.files, protocol)
        return
    for module in modules:
        __import__(module)
    imports = processor_seconds()
    data: dict[str, Any] = {}
    path = ""
    for line in sys.stdin:
        request = json.loads(line)
        if request["data"] != path:
            path = request["data"]
            data = json.loads(Path(path).read_text(encoding="utf-8"))
        rows = request["rows"]
        cell = Cell(
            name=request["set"],
            train=[data["train"][row] for row in rows],
            labels=[data["labels"][row] for row in rows],
            test=data["test"],
            encoder=arguments.encoder,
            draw=request["draw"],
            cache=Path(request["cache"]),
        )
        print(json.dumps({"import_seconds": imports} | forked(learn, cell)), file=protocol, flush=True)


if __name__ == "__main__":
    main()
