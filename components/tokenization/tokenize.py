"""The stage `tokenize`: a corpus, or the texts of a task, as memory-mapped token ids.

There is one Arrow shard per Parquet shard. Shards of unchanged Parquet shards are kept, so only new text is tokenized;
with another tokenizer, all shards are tokenized again. The texts of a task are the input of task-adaptive pretraining
(Gururangan et al. 2020, section 4): rows of train on which no score is computed, and those without a label, are trained
on, dev measures perplexity, and test is not read.

Sentences are split by rules, accurate enough to sample pairs of adjacent sentences. A sentence ends at `.`, `!`, `?` or
an ellipsis before white space, unless a lower-case letter follows; at Chinese and Japanese full stops; at a blank line;
and at a line break, unless a lower-case letter follows. A space between two Thai characters ends a clause.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Final

import numpy as np
from pydantic import Field

from components.cluster.shards import Facts, Work, digest_of, sharded
from components.core.artifacts import Draft, digest_file, read_manifest, write_atomic, writing
from components.core.errors import ArtifactError, DataError
from components.core.progress import Progress
from components.data.formats import corpus
from components.data.ingestion.matching import HeldOut
from components.data.segmenters import SEGMENTERS, insert_spaces
from components.data.tasks.data import Fields
from components.data.tasks.examples import read_rows_without_label
from components.data.tasks.judged import read_judged, texts_of
from components.data.tasks.results import read_columns
from components.settings.cluster import ClusterSettings
from components.settings.section import Section
from components.tokenization.base import Tokenizer, load_tokenizer
from components.tokenization.store import KIND, LAYOUT, Counts, EncodedDocuments, join_sentences, measure, write_shard

# Each alternative matches all following white space possessively, so that the scan is linear for every text.
_BREAK = re.compile(r"[.!?\u2026][\"'\u201d\u2019)\]]*+\s++|[\u3002\uff01\uff1f][\u300d\u300f\uff09]*+\s*+|\n\s*+")
_THAI_SPACE = re.compile(r"(?<=[\u0e01-\u0e5b])\s++(?=[\u0e01-\u0e5b])")


def sentence_starts(text: str, *, thai: bool = False) -> list[int]:
    """Character positions at which the sentences of `text` start, ascending, beginning with 0; white space between two
    sentences is part of the first."""
    starts = {0}
    for match in _BREAK.finditer(text):
        end = match.end()
        if end < len(text) and not (text[end].islower() and match.group().count("\n") < 2):
            starts.add(end)
    if thai:
        starts.update(match.end() for match in _THAI_SPACE.finditer(text))
    return sorted(starts)


#: Characters of text per record batch.
BATCH_CHARACTERS: Final = 2 << 20
#: The characters with Unicode's property White_Space.
WHITE_SPACE: Final = (
    "\t\n\x0b\x0c\r \x85\xa0\u1680" + "".join(map(chr, range(0x2000, 0x200B))) + ("\u2028\u2029\u202f\u205f\u3000")
)


class TokenizeJob(Section):
    corpus: Path
    tokenizer: Path
    output: Path
    cluster: ClusterSettings = ClusterSettings()
    code: str = ""


class TaskTokensJob(Section):
    """Inputs of the stage. `judged`: task of the run -> texts of the rows on which its scores are computed."""

    examples: Path
    judged: dict[str, Path] = Field(default_factory=dict)
    tokenizer: Path
    output: Path


def tokenize(job: TokenizeJob | TaskTokensJob) -> Path:
    """Tokenize the shards of `job.corpus` that are not in `job.output` yet, or the texts of a task; returns
    `job.output`.

    Raises:
        ArtifactError: the corpus or the tokenizer is incomplete or damaged.
        DataError: the corpus has no documents, or no text of the task is left to train on.
    """
    if isinstance(job, TaskTokensJob):
        return task_tokens(job)
    tokenizer = load_tokenizer(job.tokenizer)
    fingerprint = tokenizer.fingerprint()
    digests = read_manifest(job.corpus, kind=corpus.KIND).files
    splits = {split: corpus.shards(job.corpus, split) for split in corpus.SPLITS}
    sources = {f"{path.stem}.arrow": path for paths in splits.values() for path in paths}
    if not sources:
        raise DataError(f"{job.corpus}: has no documents; add raw text")
    origins = {name: str(digests[path.name]["sha256"]) for name, path in sources.items()}
    counts = _reusable(job.output, fingerprint=fingerprint, origins=origins)
    pending = {name: path for name, path in sources.items() if name not in counts}
    sizes = {name: measure(path) for name, path in pending.items()}
    with (
        sharded(job.output, settings=job.cluster, size=sum(size.text_bytes for size in sizes.values())) as steps,
        writing(job.output, kind=KIND, keep=bool(counts)) as draft,
    ):
        for stale in set(draft.path.glob("*.arrow")) - {draft.path / name for name in counts}:
            stale.unlink()
        items = {
            digest_of("tokenize", LAYOUT, job.code, fingerprint, origins[name]): Shard(
                steps.work.publish(path, path.name), job.tokenizer.absolute(), fingerprint, sizes[name].documents
            )
            for name, path in pending.items()
        }
        documents = sum(size.documents for size in sizes.values())
        with Progress(f"tokenize {job.output.name}", total=documents, unit="doc") as bar:
            results = steps.map(tokenize_shard, items, advance=lambda item: bar.advance(item.documents))
        for name, key, facts in zip(pending, items, results, strict=True):
            steps.work.fetch(f"{key}.arrow", draft.path / name)
            counts[name], draft.files[name] = Counts(**facts["counts"]), facts["file"]
        shards: dict[str, list[str]] = {
            split: [f"{path.stem}.arrow" for path in paths] for split, paths in splits.items()
        }
        # In corpus order, which samplers depend on.
        record(draft, tokenizer, shards=shards, counts=counts, origins=origins)
    return job.output


def record(
    draft: Draft,
    tokenizer: Tokenizer,
    *,
    shards: Mapping[str, list[str]],
    counts: Mapping[str, Counts],
    origins: Mapping[str, str],
) -> None:
    """Write the metrics and set the facts of a directory of token shards."""
    metrics = {split: metrics_of([counts[name] for name in names]) for split, names in shards.items()}
    write_atomic(draft.path / "metrics.json", json.dumps(metrics, indent=1, sort_keys=True) + "\n")
    draft.facts |= {
        "layout": LAYOUT,
        "tokenizer": tokenizer.fingerprint(),
        "vocabulary": tokenizer.vocab_size,
        "shards": shards,
        "counts": {name: asdict(of_shard) for name, of_shard in counts.items()},
        "origins": origins,
    }


def encode_corpus(rows: Iterable[tuple[str, ...]], *, tokenizer: Tokenizer) -> Iterator[EncodedDocuments]:
    """Encode the rows of a corpus, documents (text,) or pairs (text, target), in batches."""
    texts: list[tuple[str, ...]] = []
    size = 0
    for row in rows:
        texts.append(row)
        size += sum(map(len, row))
        if size >= BATCH_CHARACTERS:
            yield _encode_rows(texts, tokenizer=tokenizer)
            texts, size = [], 0
    if texts:
        yield _encode_rows(texts, tokenizer=tokenizer)


def _encode_rows(rows: list[tuple[str, ...]], *, tokenizer: Tokenizer) -> EncodedDocuments:
    texts, *targets = map(list, zip(*rows, strict=True))
    encoded = encode_documents(texts, tokenizer=tokenizer)
    for column in targets:
        other = encode_documents(column, tokenizer=tokenizer)
        encoded = replace(
            encoded, targets=other.ids, target_offsets=other.offsets, words=other.words, chars=other.chars
        )
    return encoded


def encode_documents(texts: list[str], *, tokenizer: Tokenizer) -> EncodedDocuments:
    """Encode documents sentence by sentence, which gives the same ids as encoding them as a whole."""
    sentences: list[str] = []
    per_document: list[int] = []
    words: list[int] = []
    for text in texts:
        segmenter = tokenizer.segmentation.choose(text)
        starts = sentence_starts(text, thai=segmenter is SEGMENTERS["thai"])
        parts = [text[start:end] for start, end in zip(starts, [*starts[1:], len(text)], strict=True)]
        if tokenizer.leads_with_space:
            parts = _spaces_first(parts)
        cut = [
            (part, []) if segmenter is None else insert_spaces(part, segmenter, tokenizer.separator) for part in parts
        ]
        # Every insertion splits one word into two.
        words.append(sum(len(part.split()) for part in parts) + sum(len(inserted) for _, inserted in cut))
        per_document.append(len(parts))
        sentences.extend([spaced for spaced, _ in cut] if tokenizer.segmented else parts)
    ids, offsets = tokenizer.encode_ragged(sentences)
    return join_sentences(
        ids,
        offsets,
        sentences=np.asarray(per_document, dtype=np.int64),
        words=words,
        chars=[len(text) for text in texts],
    )


def _spaces_first(parts: list[str]) -> list[str]:
    ends = [part.rstrip(WHITE_SPACE) for part in parts[:-1]]
    spaces = [part[len(end) :] for part, end in zip(parts, ends, strict=False)]
    return [space + end for space, end in zip(["", *spaces], [*ends, *parts[-1:]], strict=True)]


def _reusable(output: Path, *, fingerprint: str, origins: dict[str, str]) -> dict[str, Counts]:
    try:
        facts = read_manifest(output, kind=KIND, verify="changed").facts
    except ArtifactError:
        return {}
    if (facts["tokenizer"], facts["layout"]) != (fingerprint, LAYOUT):
        return {}
    return {
        name: Counts(**facts["counts"][name])
        for name, origin in facts["origins"].items()
        if origins.get(name) == origin
    }


@dataclass(frozen=True)
class Shard:
    """Inputs of `tokenize_shard`: the name of a Parquet shard in the work folder, and its number of documents."""

    name: str
    tokenizer: Path
    fingerprint: str
    documents: int


def tokenize_shard(item: Shard, key: str, work: Work) -> Facts:
    """Write the token shard of a Parquet shard as `KEY.arrow`; returns its counts, size and digest."""
    source, tokenizer = work.read(item.name), _loaded(item.tokenizer, item.fingerprint)
    with work.scratch() as folder:
        target = folder / "tokens"
        batches = encode_corpus(corpus.read_rows(source), tokenizer=tokenizer)
        counts = write_shard(target, batches, vocab_size=tokenizer.vocab_size, pairs=corpus.holds_pairs(source))
        entry = {"bytes": target.stat().st_size, "sha256": digest_file(target)}
        work.put(target, f"{key}.arrow")
    return {"counts": asdict(counts), "file": entry}


@lru_cache(maxsize=1)
def _loaded(directory: Path, fingerprint: str) -> Tokenizer:
    # Another tokenizer in the same directory has another fingerprint.
    return load_tokenizer(directory)


def metrics_of(shards: list[Counts]) -> dict[str, float]:
    """Totals of a split, tokens per word, and the rate of unknown tokens."""
    total = sum(shards, Counts())
    counts = asdict(total)
    if not total.targets:
        del counts["targets"]
    return counts | {
        "shards": len(shards),
        "tokens_per_word": (total.targets or total.tokens) / max(1, total.words),
        "unknown_rate": total.unknown / max(1, total.tokens + total.targets),
    }


#: Split of the tokens -> split of the task: training, and perplexity.
SPLITS: Final = {"train": "train", "heldout": "dev"}


def task_tokens(job: TaskTokensJob) -> Path:
    """Tokenize the distinct texts of train, without copies of `judged`, and of dev to measure the perplexity; returns
    `job.output`.

    Raises:
        ArtifactError: the examples or the tokenizer are incomplete or damaged.
        DataError: no text is left to train on.
    """
    tokenizer = load_tokenizer(job.tokenizer)
    examples = read_manifest(job.examples, kind="examples")
    kind = examples.facts["kind"]
    learned = _distinct(kind, [*_rows(job.examples, "train"), *read_rows_without_label(job.examples)])
    copies = HeldOut(read_judged(job.judged.values())).copies(learned)
    texts_of_split = {"train": [text for index, text in enumerate(learned) if index not in copies]}
    if not texts_of_split["train"]:
        raise DataError(
            f"{job.examples}: all {len(learned):,} texts of train are rows of a label budget, on which scores are "
            "computed, or their copies, so that none is left for adapt_task; set data.tasks.NAME.budgets to numbers "
            "that leave rows, add rows without a label (no_label: drop), or remove adapt_task"
        )
    texts_of_split["dev"] = _distinct(kind, _rows(job.examples, "dev"))
    with writing(job.output, kind=KIND) as draft:
        counts = {}
        for name, split in SPLITS.items():
            texts = texts_of_split[split]
            encoded = encode_corpus(((text,) for text in texts), tokenizer=tokenizer)
            counts[f"{name}.arrow"] = write_shard(
                draft.path / f"{name}.arrow", encoded, vocab_size=tokenizer.vocab_size
            )
        shards = {name: [f"{name}.arrow"] for name in SPLITS}
        record(draft, tokenizer, shards=shards, counts=counts, origins=examples.facts["digests"])
    return job.output


def _distinct(kind: str, rows: Iterable[Fields]) -> list[str]:
    return list(dict.fromkeys(text for fields in rows for text in texts_of(kind, fields)))


def _rows(examples: Path, split: str) -> list[Fields]:
    rows = read_columns(examples / f"{split}.parquet", ["fields"], stage="examples").column("fields").to_pylist()
    return [tuple(fields) for fields in rows]
