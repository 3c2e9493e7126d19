"""WordPiece encoding compared with `tokenizers.encode_batch`: the same text, the same cores, identical ids.

    python benchmarks/tokenization.py data/general --megabytes 16 --repeats 5

Reads the texts of a folder or of one file (.txt, .jsonl with a column `text`, also .zst), trains a vocabulary of 8,000
tokens on them (or loads --tokenizer), and measures alternately `encode_batch`, `encode_batch_fast`, and Headstart's
encoder of distinct words with an empty and with a filled cache. Prints medians in MB/s and their ratios. Each encoder
may use all cores of this process.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.results import Column, add_record_option, record
from components.core.processors import cores
from components.data.segmenters import Segmentation
from components.settings.tokenizer import TokenizerSettings
from components.tokenization import load_tokenizer
from components.tokenization.bert import BertWordsTokenizer
from components.tokenization.distinct import DistinctWordEncoder
from components.tokenization.train import fit


def read_texts(path: Path, *, megabytes: float) -> list[str]:
    """The first `megabytes` of the documents (jsonl) or lines under `path`."""
    texts: list[str] = []
    size = 0
    for text in _texts(path):
        texts.append(text)
        size += len(text.encode())
        if size >= megabytes * 1e6:
            break
    return texts


def _texts(path: Path) -> Iterator[str]:
    files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
    for file in files:
        with pa.input_stream(str(file), compression="detect") as stream:
            for line in stream.read().decode().splitlines():
                if ".jsonl" in file.name:
                    yield json.loads(line)["text"]
                elif line.strip():
                    yield line


def seconds(run: Callable[[], object]) -> float:
    """Wall-clock seconds of one call."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path)
    parser.add_argument("--tokenizer", type=Path, help="directory of the tokenizer stage")
    parser.add_argument("--megabytes", type=float, default=16)
    parser.add_argument("--repeats", type=int, default=5)
    add_record_option(parser)
    options = parser.parse_args()
    texts = read_texts(options.text, megabytes=options.megabytes)
    size = sum(len(text.encode()) for text in texts) / 1e6
    tokenizer = (
        load_tokenizer(options.tokenizer)
        if options.tokenizer
        else fit(texts, kind="wordpiece", settings=TokenizerSettings(), segmentation=Segmentation("none"))
    )
    if not isinstance(tokenizer, BertWordsTokenizer):
        raise SystemExit(f"{options.tokenizer}: not a WordPiece tokenizer")
    # Thai is segmented beforehand, so all encoders see the same texts.
    texts = [tokenizer.segmentation.spaced(text) for text in texts]
    backend = tokenizer.backend

    expected = [encoding.ids for encoding in backend.encode_batch(texts, add_special_tokens=False)]
    ids, offsets = DistinctWordEncoder(tokenizer._encode_words, lowercase=tokenizer.lowercase).encode(texts)
    assert np.array_equal(offsets[1:], np.cumsum([len(row) for row in expected])), "the encodings differ in length"
    assert np.array_equal(ids, np.concatenate([np.asarray(row, dtype=np.int32) for row in expected])), (
        "the encodings differ"
    )
    print(f"{len(texts):,} texts, {size:.1f} MB, {len(ids):,} tokens, ids identical; {cores()} cores")

    cached = DistinctWordEncoder(tokenizer._encode_words, lowercase=tokenizer.lowercase)
    cached.encode(texts)
    runs: dict[str, Callable[[], object]] = {
        "tokenizers.encode_batch": lambda: backend.encode_batch(texts, add_special_tokens=False),
        "tokenizers.encode_batch_fast": lambda: backend.encode_batch_fast(texts, add_special_tokens=False),
        "distinct words, cache empty": lambda: DistinctWordEncoder(
            tokenizer._encode_words, lowercase=tokenizer.lowercase
        ).encode(texts),
        "distinct words, cache filled": lambda: cached.encode(texts),
    }
    sizes = dict.fromkeys(runs, size)
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(options.repeats):
        for name, run in runs.items():
            times[name].append(seconds(run))
    medians = {name: statistics.median(values) for name, values in times.items()}
    bases = dict.fromkeys(runs, medians["tokenizers.encode_batch"])
    for name, median in medians.items():
        spread = f"{min(times[name]):.3f}-{max(times[name]):.3f}"
        print(f"{name:30} {sizes[name] / median:8.1f} MB/s  {median:.3f} s ({spread})  {bases[name] / median:5.1f} x")
    record(
        options.record,
        title=f"WordPiece encoding, {size:.1f} MB, identical ids, medians of {options.repeats} turns",
        row_title="encoder",
        columns=[
            Column(name="speed", title="speed", format=".1f", unit=" MB/s"),
            Column(name="ratio", title="relative to tokenizers", format=".1f", unit=" x"),
        ],
        values={
            name: {"speed": sizes[name] / median, "ratio": bases[name] / median} for name, median in medians.items()
        },
    )


if __name__ == "__main__":
    main()
