"""The stage `task-tokens`: the unlabelled texts of a task as memory-mapped token ids.

They are the input of task-adaptive pretraining (Gururangan et al. 2020, section 4): the texts of train are trained on,
the texts of dev measure perplexity, and test is not read. Without dev, perplexity is not measured.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from components.artifacts import read_manifest, writing
from components.errors import ArtifactError
from components.settings.section import Section
from components.tokenization.base import load_tokenizer
from components.tokenization.store import KIND, write_shard
from components.tokenization.tokenize import encode_corpus, record

#: Split of the tokens -> split of the task: training, and perplexity.
SPLITS: Final = {"train": "train", "heldout": "dev"}
#: Kinds of tasks whose fields are the words of one sentence; each field of the other kinds is a text.
WORDS: Final = ("tagging",)


class TaskTokensJob(Section):
    """Inputs and output of the stage.

    Attributes:
        examples: output directory of the stage `examples`.
        tokenizer: directory of the tokenizer.
        output: directory of token shards (a `TokenStore`).
    """

    examples: Path
    tokenizer: Path
    output: Path


def task_tokens(job: TaskTokensJob) -> Path:
    """Tokenize the distinct texts of train, and of dev to measure the perplexity; returns `job.output`.

    Raises:
        ArtifactError: the examples or the tokenizer are incomplete or damaged.
    """
    tokenizer = load_tokenizer(job.tokenizer)
    examples = read_manifest(job.examples, kind="examples")
    with writing(job.output, kind=KIND) as draft:
        counts = {}
        words = examples.facts["kind"] in WORDS
        for name, split in SPLITS.items():
            texts = _texts(job.examples / f"{split}.parquet", words=words)
            encoded = encode_corpus(((text,) for text in texts), tokenizer=tokenizer)
            counts[f"{name}.arrow"] = write_shard(
                draft.path / f"{name}.arrow", encoded, vocab_size=tokenizer.vocab_size
            )
        shards = {name: [f"{name}.arrow"] for name in SPLITS}
        record(draft, tokenizer, shards=shards, counts=counts, origins=examples.facts["digests"])
    return job.output


def _texts(path: Path, *, words: bool) -> Iterator[str]:
    """The distinct texts of a split, in order."""
    try:
        rows = pq.read_table(path, columns=["fields"]).column("fields").to_pylist()
    except (OSError, pa.ArrowException) as error:
        raise ArtifactError(f"{path}: not readable ({error}); run the stage examples again") from error
    texts = ([" ".join(fields)] if words else fields for fields in rows)
    yield from dict.fromkeys(text for parts in texts for text in parts if text.strip())
