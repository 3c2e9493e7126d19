"""Incremental retraining beside the full rebuild: quality and cost of every addition of text.

    python benchmarks/increments.py wiki/docs.jsonl reviews/unsup.jsonl reviews/train.jsonl --record increments

A small ULMFiT is pretrained on general text and adapted to a first part of the domain's text, to which parts of equal
size are then added. After each, one model continues from the previous one (stages ingest, tokenizer, tokenize, adapt on
their existing outputs), and another is built from empty folders on the same text. Both are measured on texts that are
in neither: perplexity per word, and accuracy of a logistic regression on frozen features with a number of labels.

Seconds are those of the processor: the stages run in this process, so other load on the machine does not change them
much. All paths are files of raw text; formats and columns as in `data.domain`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from components.formats.lines import Reading
from components.inference.perplexity import measure_texts
from components.ingestion.readers import read_texts
from components.ingestion.stage import IngestJob, ingest
from components.models.encoder import load_encoder
from components.pretraining.adapt import AdaptJob, adapt
from components.pretraining.pretrain import PretrainJob, pretrain
from components.registry.embedding import embed
from components.reporting.recording import add_record_option, record
from components.reporting.results import Column
from components.settings.adapt import IncrementSettings
from components.settings.cluster import ClusterSettings
from components.settings.data import CorpusSource
from components.settings.ingest import IngestSettings
from components.settings.tokenizer import TokenizerSettings
from components.settings.training import LanguageModelTraining
from components.tokenization.tokenize import TokenizeJob, tokenize
from components.tokenization.vocabulary import VocabularyJob, fit_vocabulary
from components.training import threads

FAMILY, KIND = "ulmfit", "wordpiece"
MODEL = {"embedding": 128, "hidden": 256, "layers": 2}
TOKENIZER = TokenizerSettings.model_validate({"kinds": [KIND], KIND: {"vocabulary": 4000}})
#: Seeds of the labelled samples.
SAMPLES = 5


def texts(path: Path) -> Iterator[str]:
    """The texts of a raw file."""
    return (text for _, text, _ in read_texts(path, CorpusSource(path=str(path)), Reading()))


def take(source: Iterator[str], characters: int) -> list[str]:
    """The next texts, of `characters` in total."""
    found: list[str] = []
    for text in source:
        found.append(text)
        characters -= len(text)
        if characters <= 0:
            break
    return found


def write(path: Path, rows: list[str]) -> None:
    """A raw file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in rows), encoding="utf-8")


class Line:
    """One way to retrain: its folder, and processor seconds of each stage."""

    def __init__(self, folder: Path, *, general: Path, budget: int, increment: IncrementSettings | None) -> None:
        self.folder, self.general, self.budget, self.increment = folder, general, budget, increment
        self.seconds: dict[str, float] = {}

    def stage(self, name: str, function: Callable[[], object]) -> None:
        """Run a stage and add its seconds."""
        began = time.process_time()
        function()
        self.seconds[name] = time.process_time() - began

    def corpus(self, raw: Path, folder: Path) -> None:
        """Ingest, tokenizer and tokenize."""
        source = CorpusSource(path=str(raw))
        made = {name: folder / name for name in ("corpus", "tokenizer", "record", "tokens")}
        job = IngestJob(name=folder.name, source=source, settings=IngestSettings(), output=made["corpus"])
        vocabulary = VocabularyJob(
            corpus=made["corpus"], output=made["tokenizer"], record=made["record"], kind=KIND, settings=TOKENIZER
        )
        tokens = TokenizeJob(corpus=made["corpus"], tokenizer=made["tokenizer"], output=made["tokens"])
        self.stage("ingest", lambda: ingest(job))
        self.stage("tokenizer", lambda: fit_vocabulary(vocabulary))
        self.stage("tokenize", lambda: tokenize(tokens))

    def retrain(self, raw: Path) -> Path:
        """All stages on the domain's text; returns the adapted encoder."""
        self.corpus(raw, self.folder)
        job = AdaptJob(
            family=FAMILY,
            pretrained=self.general / "pretrained",
            tokens=self.folder / "tokens",
            tokenizer=self.folder / "tokenizer",
            general_tokens=self.general / "tokens",
            general_corpus=self.general / "corpus",
            output=self.folder / "adapted",
            training=training(self.budget),
            increment=self.increment,
            cluster=cluster(self.folder),
        )
        self.stage("adapt", lambda: adapt(job))
        return job.output


def training(tokens: int) -> LanguageModelTraining:
    """The settings of params.yaml with another budget and without initial vectors."""
    return LanguageModelTraining(tokens=tokens, rate=0.0057, batch_size=32, window=64, precision="float32")


def cluster(folder: Path) -> ClusterSettings:
    """In this process."""
    return ClusterSettings(launcher="local", workers=1, storage=str(folder / "checkpoints"))


def accuracies(directory: Path, labelled: list[tuple[str, str]], *, labels: int) -> tuple[float, float]:
    """Mean and standard deviation over samples of the accuracy on the rows that are not in the sample."""
    vectors = np.array(embed(load_encoder(directory), [text for text, _ in labelled]))
    classes = np.array([label for _, label in labelled])
    scores = []
    for seed in range(SAMPLES):
        order = np.random.default_rng(seed).permutation(len(classes))
        chosen, rest = order[:labels], order[max(labels, len(order) // 2) :]
        model = make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=500))
        scores.append(model.fit(vectors[chosen], classes[chosen]).score(vectors[rest], classes[rest]))
    return float(np.mean(scores)), float(np.std(scores))


def main() -> None:
    """Measure every addition; print and record one row per addition."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("general", type=Path, help="general text")
    parser.add_argument("domain", type=Path, help="text of the domain")
    parser.add_argument("labelled", type=Path, help="labelled texts of the domain, with the column label")
    parser.add_argument("--characters", type=int, default=1_200_000, help="of the first part, and of the general text")
    parser.add_argument("--share", type=float, default=0.05, help="of each addition in the first part")
    parser.add_argument("--increments", type=int, default=10)
    parser.add_argument("--tokens", type=int, default=300_000, help="budget of an adaptation")
    parser.add_argument("--rates", type=float, nargs="+", default=[0.5], help="adapt.<name>.increment.rate")
    parser.add_argument("--replays", type=float, nargs="+", default=[1.0], help="adapt.<name>.increment.replay")
    parser.add_argument("--labels", type=int, default=200)
    parser.add_argument("--rows", type=int, default=1_000, help="labelled rows that are used")
    parser.add_argument("--documents", type=int, default=120, help="of the domain, to measure perplexity")
    add_record_option(parser)
    arguments = parser.parse_args()
    threads.prepare()
    threads.own(2)
    with tempfile.TemporaryDirectory() as folder:
        run(arguments, Path(folder))


def run(arguments: argparse.Namespace, root: Path) -> None:
    """Prepare the text, retrain in every way, and compare."""
    general = root / "general"
    write(root / "raw-general" / "0.jsonl", take(texts(arguments.general), arguments.characters))
    setup = Line(general, general=general, budget=arguments.tokens, increment=None)
    setup.corpus(root / "raw-general", general)
    pretrain(
        PretrainJob(
            family=FAMILY,
            model=MODEL,
            tokens=general / "tokens",
            tokenizer=general / "tokenizer",
            output=general / "pretrained",
            training=training(arguments.tokens),
            cluster=cluster(general),
        )
    )
    domain = texts(arguments.domain)
    heldout = list(itertools.islice(domain, arguments.documents))
    labelled = sample_labelled(arguments.labelled, arguments.rows)
    raw = root / "raw"
    write(raw / "00.jsonl", take(domain, arguments.characters))
    ways = [(rate, replay) for rate in arguments.rates for replay in arguments.replays]
    lines = {
        f"rate {rate:g}, replay {replay:g}": Line(
            root / f"increments-{rate:g}-{replay:g}",
            general=general,
            budget=arguments.tokens,
            increment=IncrementSettings(rate=rate, replay=replay, rebuild_every=None),
        )
        for rate, replay in ways
    }
    first = next(iter(lines.values()))
    first.retrain(raw)
    for line in lines.values():
        if line is not first:
            shutil.copytree(first.folder, line.folder)
    measured: dict[str, dict[str, float | tuple[float, ...]]] = {}

    def note(row: str, way: str, directory: Path, seconds: dict[str, float], *, score: bool) -> None:
        found = measured.setdefault(row, {})
        found[f"{way} perplexity"] = measure_texts(load_encoder(directory), heldout).per_word
        if score:
            found[f"{way} accuracy"] = accuracies(directory, labelled, labels=arguments.labels)[0]
        found[f"{way} seconds"] = sum(seconds.values())
        print(row, way, {name: round(value, 4) for name, value in found.items() if name.startswith(way)}, flush=True)
        print(row, way, {name: round(value, 2) for name, value in seconds.items()}, flush=True)

    note("0", "rebuild", first.folder / "adapted", first.seconds, score=True)
    for number in range(1, arguments.increments + 1):
        write(raw / f"{number:02d}.jsonl", take(domain, int(arguments.share * arguments.characters)))
        score = number in (arguments.increments // 2, arguments.increments)
        for way, line in lines.items():
            note(str(number), way, line.retrain(raw), line.seconds, score=score)
        whole = Line(root / "rebuild", general=general, budget=arguments.tokens, increment=None)
        shutil.rmtree(whole.folder, ignore_errors=True)
        note(str(number), "rebuild", whole.retrain(raw), whole.seconds, score=score)
    report(measured, arguments, list(lines))


def sample_labelled(path: Path, rows: int) -> list[tuple[str, str]]:
    """Evenly spaced labelled rows: files are often sorted by label."""
    labels = [label for _, label, _ in read_texts(path, CorpusSource(path=str(path), text="label"), Reading())]
    pairs = list(zip(texts(path), map(str, labels), strict=True))
    return pairs[:: max(1, len(pairs) // rows)][:rows]


def report(
    measured: dict[str, dict[str, float | tuple[float, ...]]], arguments: argparse.Namespace, ways: list[str]
) -> None:
    """Record the table: additions in rows."""
    columns = []
    for way in ["rebuild", *ways]:
        title = "full rebuild" if way == "rebuild" else "increments" if len(ways) == 1 else way
        columns += [
            Column(name=f"{way} perplexity", title=f"{title}: perplexity", format=".1f"),
            Column(name=f"{way} accuracy", title="accuracy", format=".3f"),
            Column(name=f"{way} seconds", title="seconds", format=".1f"),
        ]
    record(
        arguments.record,
        title=f"Perplexity per word, accuracy with {arguments.labels} labels (texts that are in neither corpus), and "
        f"processor seconds from raw text to the adapted model, after each addition of {arguments.share:.0%}",
        row_title="addition",
        columns=columns,
        values=measured,
        seeds=[0],
        selection="dev",
        notes=f"ULMFiT {MODEL['embedding']}/{MODEL['hidden']}; {arguments.characters / 1e6:g} million characters and a "
        f"budget of {arguments.tokens:,} tokens at first. Accuracy: logistic regression on frozen features, means over "
        f"{SAMPLES} samples of labels.",
    )


if __name__ == "__main__":
    main()
