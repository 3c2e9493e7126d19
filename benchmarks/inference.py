"""Prediction compared with transformers' pipeline: the same weights, on one machine, in one run.

    python benchmarks/inference.py --texts imdb/test.jsonl.zst          # throughput and latency on these texts
    python benchmarks/inference.py --classifier DIR --texts ...         # with a fine-tuned BERT classifier
    python benchmarks/inference.py                                      # on random texts with the lengths of IMDb's

Without `--classifier` the model is a BERT with 4 layers of width 256, random weights and a vocabulary of 8,000 tokens
trained on the texts. It is exported as by `headstart export`, loaded by transformers, and given the same linear layer
on the first token. The probabilities of all systems are compared before anything is measured. All systems read at most
`--max-length` tokens of a text, start from strings, so that tokenization is included, and use all cores.

Throughput is texts per second over all texts. Headstart predicts as `headstart predict` does (batches by length, the
stored precision), and as with `--int8`. The pipeline uses batches of `--batch` texts, in the given order and sorted by
length, in float32 (its default) and in bfloat16 if the processor supports it. Latency is the time for one text, as 50th
and 99th percentile. The systems are measured alternately, and medians over `--repeats` are printed.

The machine should be otherwise idle. `--rows 25000 --sides ours --repeats 1` measures the whole test set of IMDb.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from components.core import threads
from components.core.processors import cores

threads.prepare()

import numpy as np  # noqa: E402 (after the thread settings)
import pyarrow as pa  # noqa: E402
import pyarrow.csv as csv  # noqa: E402
import torch  # noqa: E402
from torch import Tensor, nn  # noqa: E402

from benchmarks.results import (  # noqa: E402
    Column,
    add_record_option,
    record,
)
from components.core.artifacts import writing  # noqa: E402
from components.data.segmenters import Segmentation  # noqa: E402
from components.learners.task_models.classifier import TextClassifier, load_classifier  # noqa: E402
from components.learners.task_models.kinds import find_task  # noqa: E402
from components.learners.task_models.model import TaskModel  # noqa: E402
from components.models.encoder import build_model, load_encoder, save_encoder  # noqa: E402
from components.registry.exports.champion import export_encoder  # noqa: E402
from components.settings.finetune import FinetuneSettings  # noqa: E402
from components.settings.tokenizer import WordPieceSettings  # noqa: E402
from components.settings.training import Training  # noqa: E402
from components.tokenization.wordpiece import train_wordpiece  # noqa: E402
from components.training.precision import choose, has_bf16, product_size  # noqa: E402

PIECES = 8000
#: Number of texts that the vocabulary is trained on.
LEARNED_FROM = 2000
#: Mean and std of the logarithm of the number of words in IMDb's reviews.
LENGTH = (5.2, 0.6)
#: Number of texts whose latency is measured.
SINGLE = 300
#: Suffix of the names of systems that sort their texts by length.
SORTED = "sorted"

Label = Callable[[Sequence[str]], Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--classifier", type=Path, help="directory of a fine-tuned BERT classifier")
    parser.add_argument("--texts", type=Path, help="tsv or csv with a header, or jsonl; .gz, .zst")
    parser.add_argument("--column", default="text")
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--max-length", type=int, default=256)
    parser.add_argument("--batch", type=int, default=32, help="batch size of the pipeline")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--sides", choices=("both", "ours"), default="both")
    add_record_option(parser)
    arguments = parser.parse_args()
    threads.use(cores())
    texts = _texts(arguments)
    with tempfile.TemporaryDirectory() as folder:
        classifier, encoder = _classifier(arguments, texts, Path(folder))
        sides: dict[str, Label] = {"headstart": lambda part: np.stack(classifier.answer([(text,) for text in part]))}
        if arguments.sides == "both":
            sides |= _pipelines(classifier, encoder, Path(folder) / "export", arguments)
        _compare(sides, texts[:64])
        # Quantised products differ; docs/performance.md shows what that costs.
        quantised = classifier.quantised()
        sides["headstart, int8"] = lambda part: np.stack(quantised.answer([(text,) for text in part]))
        print(f"{len(texts)} texts, precision {classifier.precision}, {torch.get_num_threads()} threads")
        result = _throughput(sides, texts, arguments.repeats)
        single = {name: label for name, label in sides.items() if not name.endswith(SORTED)}
        for name, times in _latency(single, texts, arguments.repeats).items():
            result[name] |= times
    record(
        arguments.record,
        title=f"Prediction, {len(texts):,} texts, {classifier.precision}, medians of {arguments.repeats} turns",
        row_title="side",
        columns=[
            Column(name="rate", title="texts per second", format=",.0f"),
            Column(name="ratio", title="Headstart relative to it", format=".1f", unit=" x"),
            Column(name="p50", title="latency, p50", format=".1f", unit=" ms"),
            Column(name="p99", title="latency, p99", format=".1f", unit=" ms"),
        ],
        values=result,
    )


def _texts(arguments: argparse.Namespace) -> list[str]:
    if (path := arguments.texts) is not None:
        with pa.input_stream(str(path), compression="detect") as stream:
            if ".jsonl" in path.suffixes:
                result = [json.loads(line)[arguments.column] for line in stream.read().splitlines()]
            else:
                options = csv.ParseOptions(delimiter="\t" if ".tsv" in path.suffixes else ",", newlines_in_values=True)
                result = csv.read_csv(stream, parse_options=options).column(arguments.column).to_pylist()
        # Files are often sorted by label, so rows are sampled.
        order = np.random.default_rng(0).permutation(len(result))[: arguments.rows]
        return [str(result[row]) for row in order if result[row]]
    rng = np.random.default_rng(0)
    words = ["".join(rng.choice(list("etaoinshrdlu"), size=int(length))) for length in rng.integers(2, 10, 20_000)]
    # Zipf's law: the frequency of the n-th word is proportional to 1 / n.
    chances = 1 / np.arange(1, len(words) + 1)
    lengths = np.maximum(8, rng.lognormal(*LENGTH, size=arguments.rows)).astype(int)
    return [" ".join(rng.choice(words, size=length, p=chances / chances.sum())) for length in lengths]


def _classifier(arguments: argparse.Namespace, texts: Sequence[str], folder: Path) -> tuple[TextClassifier, Path]:
    """The classifier, and the directory of its encoder."""
    if arguments.classifier is not None:
        loaded = load_classifier(arguments.classifier)
        encoder = folder / "encoder"
        with writing(encoder, kind="encoder") as draft:
            tokenizer = arguments.classifier / "encoder" / "tokenizer"
            save_encoder(draft.path, family="bert", model=loaded.model.encoder, tokenizer=tokenizer)
        return loaded, encoder
    torch.manual_seed(0)
    tokenizer = train_wordpiece(
        texts[:LEARNED_FROM],
        settings=WordPieceSettings(vocabulary=PIECES, min_frequency=1),
        segmentation=Segmentation("none"),
    )
    tokenizer.save(folder / "tokenizer")
    sizes = {"width": 256, "layers": 4, "heads": 4, "positions": 512}
    model = build_model("bert", vocabulary=tokenizer.vocab_size, settings=sizes)
    with writing(folder / "encoder", kind="encoder") as draft:
        save_encoder(draft.path, family="bert", model=model, tokenizer=folder / "tokenizer")
    settings = FinetuneSettings(
        layers="last", pooling="summary", head_norm="none", max_length=arguments.max_length,
        training=Training(rate=1e-4, batch_size=16),
    )  # fmt: skip
    task = find_task("classification")
    encoder = load_encoder(folder / "encoder")
    whole = TaskModel(encoder.model, task=task, settings=settings, labels=["neg", "pos"]).eval()
    precision = choose("auto", device=torch.device("cpu"), size=product_size(encoder.model))
    return TextClassifier(whole, encoder.tokenizer, precision), folder / "encoder"


def _pipelines(
    classifier: TextClassifier, encoder: Path, exported: Path, arguments: argparse.Namespace
) -> dict[str, Label]:
    """Pipelines with the same weights: in the given order and sorted by length, in float32 and in bfloat16."""
    from transformers import AutoTokenizer, BertForSequenceClassification, TextClassificationPipeline, logging
    from transformers.modeling_outputs import SequenceClassifierOutput

    settings = classifier.settings
    wanted = ("last", "summary", "none", 0)
    if (settings.layers, settings.pooling, settings.head_norm, settings.head_hidden) != wanted:
        raise SystemExit(
            "--classifier: transformers has this head only with finetune.bert layers: last, pooling: summary, "
            "head_norm: none, head_hidden: 0; or measure Headstart alone with --sides ours"
        )

    class FirstToken(BertForSequenceClassification):  # type: ignore[misc]
        """A linear layer on the first token, without BERT's pooler between them."""

        def forward(self, input_ids: Tensor, **others: Any) -> Any:
            others = {name: others[name] for name in ("attention_mask", "token_type_ids") if name in others}
            return SequenceClassifierOutput(logits=self.classifier(self.bert(input_ids, **others)[0][:, 0]))

    # Silences two expected warnings: the class is not in transformers, and the export lacks the linear layer.
    logging.set_verbosity(logging.FATAL)
    logging.disable_progress_bar()
    export_encoder(encoder, output=exported)
    output = classifier.sharpened().model.head.output
    assert isinstance(output, nn.Linear)
    model = FirstToken.from_pretrained(exported, num_labels=output.out_features).eval()
    model.classifier.load_state_dict(output.state_dict())
    tokenizer = AutoTokenizer.from_pretrained(exported)
    options = {"truncation": True, "max_length": settings.max_length, "top_k": None, "function_to_apply": "softmax"}

    def labelling(computing: nn.Module) -> Label:
        pipe = TextClassificationPipeline(model=computing, tokenizer=tokenizer, device=torch.device("cpu"))

        def label(texts: Sequence[str]) -> np.ndarray:
            batch = min(arguments.batch, len(texts))
            # The pipeline sorts labels by score; a label's name ends in its index.
            return np.asarray(
                [
                    [entry["score"] for entry in sorted(result, key=lambda entry: int(entry["label"].split("_")[-1]))]
                    for result in pipe(list(texts), batch_size=batch, **options)
                ]
            )

        return label

    def by_length(label: Label) -> Label:
        def sorted_first(texts: Sequence[str]) -> np.ndarray:
            order = np.argsort([len(text) for text in texts], kind="stable")
            result: np.ndarray = label([texts[index] for index in order])
            return result[np.argsort(order)]

        return sorted_first

    sides = {"pipeline": labelling(model)}
    if has_bf16(torch.device("cpu")):
        sides["pipeline, bf16"] = labelling(copy.deepcopy(model).to(torch.bfloat16))
    return sides | {f"{name}, {SORTED}": by_length(label) for name, label in sides.items()}


def _compare(sides: dict[str, Label], texts: Sequence[str]) -> None:
    """End the benchmark if the probabilities of the systems differ by more than 0.02."""
    first, *others = (np.asarray(label(texts)) for label in sides.values())
    for name, result in zip(list(sides)[1:], others, strict=True):
        if (distance := float(np.abs(first - result).max())) > 0.02:
            raise SystemExit(f"{name}: probabilities differ by up to {distance:.3f}, so it is not the same model")


def _throughput(sides: dict[str, Label], texts: Sequence[str], repeats: int) -> dict[str, dict[str, float]]:
    """Print and return the texts per second of each system, and the ratio of Headstart's rate to it."""
    times: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(repeats):
        for name, label in sides.items():
            began = time.perf_counter()
            label(texts)
            times[name].append(time.perf_counter() - began)
    print(f"\n{'throughput':<24}{'seconds':>10}{'texts/s':>10}")
    for name, result in times.items():
        seconds = statistics.median(result)
        print(f"{name:<24}{seconds:>10.2f}{len(texts) / seconds:>10.0f}")
    medians = {name: statistics.median(result) for name, result in times.items()}
    ours = medians["headstart"]
    return {name: {"rate": len(texts) / median, "ratio": median / ours} for name, median in medians.items()}


def _latency(sides: dict[str, Label], texts: Sequence[str], repeats: int) -> dict[str, dict[str, float]]:
    """Print and return the latency of one text in milliseconds: p50 and p99 of each system."""
    single = texts[:SINGLE]
    result: dict[str, list[list[float]]] = {name: [] for name in sides}
    for _ in range(repeats):
        took: dict[str, list[float]] = {name: [] for name in sides}
        for text in single:
            for name, label in sides.items():
                began = time.perf_counter()
                label([text])
                took[name].append(1000 * (time.perf_counter() - began))
        for name, times in took.items():
            result[name].append(times)
    print(f"\n{'latency of one text':<24}{'p50 ms':>10}{'p99 ms':>10}")
    latency = {}
    for name, rounds in result.items():
        p50, p99 = (statistics.median(float(np.percentile(times, q)) for times in rounds) for q in (50, 99))
        print(f"{name:<24}{p50:>10.2f}{p99:>10.2f}")
        latency[name] = {"p50": p50, "p99": p99}
    return latency


if __name__ == "__main__":
    main()
