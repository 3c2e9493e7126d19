"""Word vectors from an encoder (`static.<name>`) compared with the encoder itself: scores and speed of prediction.

    python benchmarks/static_vectors.py --teacher datasets/minilm --texts sst2/train.tsv --test sst2/dev.tsv
    python benchmarks/static_vectors.py --teacher DIR ... --words 20000 --width 128     # other vectors

`--teacher` is an encoder directory, or a published model in any form that `headstart import` reads. The files have the
columns text and label, separated by a tab, without a header. Words and frequencies are those of the training texts.

Both sides are frozen: logistic regression on the mean of the last layer, one L2 penalty for both. Prediction starts
from strings, on one thread and on all cores; the encoder reads `--encoder-rows` texts only.
`tokenization` is the tokenizer alone. Medians of `--repeats`.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from components.processors import cores
from components.training import threads

threads.prepare()

import numpy as np  # noqa: E402 (after the thread settings)
import pyarrow as pa  # noqa: E402

from components.artifacts import is_complete, writing  # noqa: E402
from components.finetuning.features import extract  # noqa: E402
from components.finetuning.probe import fit_head  # noqa: E402
from components.formats import corpus  # noqa: E402
from components.interchange.importing import import_encoder  # noqa: E402
from components.models.encoder import KIND, load_encoder  # noqa: E402
from components.pretraining.static import StaticJob, static  # noqa: E402
from components.reporting.recording import add_record_option, record  # noqa: E402
from components.reporting.results import Column  # noqa: E402
from components.settings.derive import StaticSettings  # noqa: E402
from components.settings.finetune import FinetuneSettings  # noqa: E402
from components.settings.training import Training  # noqa: E402
from components.task_models.classifier import TextClassifier  # noqa: E402
from components.task_models.heads import ClassificationHead  # noqa: E402
from components.task_models.kinds import find_task  # noqa: E402
from components.task_models.model import TaskModel  # noqa: E402

PENALTY = 100.0
Rows = list[tuple[str, str]]


def main() -> None:
    """Make the vectors, fit both heads, measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--teacher", type=Path, required=True)
    parser.add_argument("--texts", type=Path, required=True, help="training rows")
    parser.add_argument("--test", type=Path, required=True)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--words", type=int, default=0)
    parser.add_argument("--weights", choices=("sif", "zipf", "none"), default="sif")
    parser.add_argument("--smoothing", type=float, default=StaticSettings.model_fields["smoothing"].default)
    parser.add_argument("--max-length", type=int, default=128)
    parser.add_argument("--encoder-rows", type=int, default=500)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--keep", type=Path, help="folder for the encoders, reused by the next run")
    add_record_option(parser)
    arguments = parser.parse_args()
    train, test = read_rows(arguments.texts), read_rows(arguments.test)
    labels = sorted({label for _, label in train})
    texts = [text for text, _ in train]
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.keep or Path(temporary)
        teacher = teacher_of(arguments.teacher, folder)
        began = time.perf_counter()
        settings = StaticSettings(
            teacher="teacher",
            width=arguments.width,
            words=arguments.words,
            weights=arguments.weights,
            smoothing=arguments.smoothing,
        )
        vectors = vectors_of(teacher, texts, folder, settings=settings)
        print(f"vectors: {time.perf_counter() - began:.1f} s")
        encoder = _classifier(teacher, train, labels, arguments.max_length)
        fast = _classifier(vectors, train, labels, arguments.max_length)
    few = texts[: arguments.encoder_rows]
    found: dict[str, dict[str, float]] = {}
    for name, one, read in (("encoder", encoder, few), ("static vectors", fast, texts)):
        answers = one.predict([text for text, _ in test])
        right = [labels[best] == label for best, (_, label) in zip(answers.argmax(1), test, strict=True)]
        found[name] = {"score": float(np.mean(right))}
        for key, count in (("one", 1), ("all", cores())):
            threads.own(count)
            found[name][key] = rate_of(lambda one=one, read=read: one.predict(read), len(read), arguments.repeats)  # type: ignore[misc]
    threads.own(1)
    found["tokenization"] = {"one": rate_of(lambda: fast.tokenizer.encode_batch(texts), len(texts), arguments.repeats)}
    for name, values in found.items():
        print(f"{name:<16}" + "".join(f"{key} {value:>12,.3f}  " for key, value in values.items()))
    record(
        arguments.record,
        title=f"Prediction of {len(texts):,} texts, {cores()} cores, medians of {arguments.repeats} turns",
        row_title="system",
        columns=[
            Column(name="score", title="accuracy", format=".3f"),
            Column(name="one", title="texts per second, one thread", format=",.0f"),
            Column(name="all", title="texts per second, all cores", format=",.0f"),
        ],
        values=found,
    )


def read_rows(path: Path) -> Rows:
    """Text and label of each row."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [(text, label) for text, _, label in (line.rpartition("\t") for line in lines) if text]


def teacher_of(source: Path, folder: Path) -> Path:
    """The encoder directory of a teacher, imported below a folder if it is a published model."""
    if is_complete(source, kind=KIND):
        return source
    output = folder / "teacher"
    if not is_complete(output, kind=KIND):
        import_encoder(source, output=output)
    return output


def vectors_of(teacher: Path, texts: Sequence[str], folder: Path, *, settings: StaticSettings) -> Path:
    """The encoder directory of the word vectors of a teacher, below a folder; words are counted in the texts."""
    text = folder / "corpus"
    if not is_complete(text, kind=corpus.KIND):
        with writing(text, kind=corpus.KIND) as draft:
            writer = corpus.ShardWriter(draft.path, "train", schema=corpus.SCHEMA, limit=1 << 30)
            columns = [[str(row) for row in range(len(texts))], list(texts), ["texts"] * len(texts)]
            writer.write(pa.record_batch(columns, schema=corpus.SCHEMA))
            writer.close()
            draft.facts["shards"] = {"train": writer.names, "heldout": []}
    output = folder / "vectors-{width}-{words}-{weights}-{smoothing}".format(**dict(settings))
    if not is_complete(output, kind=KIND):
        static(StaticJob(name="vectors", teacher=teacher, corpus=text, output=output, settings=settings))
    return output


def _classifier(directory: Path, train: Rows, labels: Sequence[str], most: int) -> TextClassifier:
    """A classifier whose head is logistic regression on the frozen encoder."""
    loaded, task = load_encoder(directory), find_task("classification")
    training = Training(rate=0.01, batch_size=16)
    settings = FinetuneSettings(method="features", layers="last", pooling="mean", max_length=most, training=training)
    model = TaskModel(loaded.model, task=task, settings=settings, labels=labels).eval()
    classifier = TextClassifier(labels, model, loaded.tokenizer, task, settings)
    features = extract(model, classifier.encode([(text,) for text, _ in train])).vectors
    head = model.head
    assert isinstance(head, ClassificationHead)
    targets = np.asarray([labels.index(label) for _, label in train], dtype=np.int64)
    fit_head(head, features=features, labels=targets, dev=features, score=lambda _: 0.0, penalties=[PENALTY], steps=200)
    return classifier


def rate_of(work: Callable[[], object], rows: int, repeats: int) -> float:
    """Rows per second, the median of several turns after one that does not count."""
    times = []
    for _ in range(repeats + 1):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return rows / statistics.median(times[1:])


if __name__ == "__main__":
    main()
