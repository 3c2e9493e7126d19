"""aws-service: classification of documents by service, with the service names masked."""

from __future__ import annotations

import tempfile
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np

from components.ingestion.builtin.aws import Document, Service
from components.ingestion.builtin.masking import mask, maskers
from components.ingestion.builtin.tasks import Row, Splits, order_key
from components.ingestion.dedup import KeyFiles, Shingles, exact_keys

#: Number of classes: the services with the most documents of at least `_WORDS` words.
CLASSES = 20
_WORDS = 30
#: Longer documents are truncated to this many words.
_WORDS_KEPT = 300
#: Rows per class of the balanced splits.
SERVICE_ROWS = {"dev": 20, "test": 50}
# Documents with this estimated Jaccard similarity of word trigrams are near duplicates. Bands of 4 values find 87% of
# the pairs at the threshold; a higher recall would change the built-in data.
_THRESHOLD = 0.5
_NGRAM = 3
_PERMUTATIONS = 128


def service_of_documents(services: list[Service], documents: list[Document]) -> tuple[Splits, set[str]]:
    """Rows {id, text, label} of train, dev and test; the ids of the dev and test documents and their near duplicates.

    Of a cluster of near duplicates only the first document is kept, and none if they belong to several services, so
    no near duplicates are in different splits. Dev and test are balanced; train has the other rows, shuffled.
    """
    counts = Counter(document.service for document in documents if len(document.text.split()) >= _WORDS)
    chosen = {key for key, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:CLASSES]}
    names = maskers([service for service in services if service.key in chosen])
    rows: list[Row] = []
    for document in documents:
        if document.service in chosen:
            words = mask(" ".join(document.text.split()), names).split()
            if len(words) >= _WORDS:
                rows.append({"id": document.id, "text": " ".join(words[:_WORDS_KEPT]), "label": document.service})
    clusters = _clusters([row["text"] for row in rows])
    twins: dict[int, list[Row]] = defaultdict(list)
    for row, cluster in zip(rows, clusters, strict=True):
        twins[cluster].append(row)
    distinct = [cluster_rows for cluster_rows in twins.values() if len({row["label"] for row in cluster_rows}) == 1]
    distinct.sort(key=lambda cluster_rows: order_key("aws-service", cluster_rows[0]["id"]))
    taken: Counter[str] = Counter()
    splits: Splits = {"train": [], "dev": [], "test": []}
    left_out: set[str] = set()
    for cluster_rows in distinct:
        label = cluster_rows[0]["label"]
        taken[label] += 1
        rank = taken[label]
        split = "test" if rank <= SERVICE_ROWS["test"] else "dev" if rank <= sum(SERVICE_ROWS.values()) else "train"
        splits[split].append(cluster_rows[0])
        if split != "train":
            left_out |= {row["id"] for row in cluster_rows}
    return splits, left_out


def _clusters(texts: list[str]) -> list[int]:
    """The cluster of each text, as the index of its first member: connected components of near duplicates."""
    parents = np.arange(len(texts))

    def root(node: int) -> int:
        while parents[node] != node:
            parents[node] = parents[parents[node]]
            node = int(parents[node])
        return node

    shingles = Shingles(ngram=_NGRAM, permutations=_PERMUTATIONS)
    with tempfile.TemporaryDirectory() as folder, KeyFiles(Path(folder) / "keys", permutations=_PERMUTATIONS) as keys:
        keys.add(exact_keys(texts), shingles.sketches(texts))
        for later, earlier, _ in keys.near_pairs(_THRESHOLD, without=np.zeros(len(texts), dtype=bool)):
            for left, right in zip(later.tolist(), earlier.tolist(), strict=True):
                low, high = sorted((root(left), root(right)))
                parents[high] = low
    return [root(node) for node in range(len(texts))]
