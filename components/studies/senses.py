"""The senses of a word: its occurrences in the plane of the first two principal components, clustered by 2-means.

Shape suffixes: N occurrences, D width.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.metrics import silhouette_score
from sklearn.preprocessing import normalize

from components.core.errors import DataError
from components.models.encoder import Encoder
from components.reporting import figures
from components.reporting.figures import Cloud
from components.reporting.findings import Chapter, Drawing, Table
from components.studies.occurrences import Sentence, states

#: Minimum number of occurrences of the word, and number of examples of each sense.
LEAST, EXAMPLES = 10, 3
#: Silhouette (between -1 and 1) below which the clusters do not count as two senses.
SEPARATE = 0.1

Floats = NDArray[np.float32]


def two_senses(vectors_ND: Floats) -> tuple[NDArray[np.int64], float]:
    """2-means on the normalised vectors. Returns (N,) cluster of each occurrence, 0 for the larger one; and the
    silhouette, 1 for clearly separated clusters."""
    directions_ND = normalize(vectors_ND)
    if len(np.unique(directions_ND.round(5), axis=0)) < 2:
        return np.zeros(len(vectors_ND), dtype=np.int64), 0.0
    clusters_N = KMeans(2, n_init=5, random_state=0).fit_predict(directions_ND).astype(np.int64)
    if clusters_N.mean() > 0.5:
        clusters_N = 1 - clusters_N
    return clusters_N, float(silhouette_score(directions_ND, clusters_N))


def planar(vectors_ND: NDArray[np.floating]) -> NDArray[np.floating]:
    """(N, D) -> (N, 2), the first two principal components; the largest absolute value of each axis is positive."""
    if len(vectors_ND) < 3:
        raise DataError(f"{len(vectors_ND)} words are too few for a map; name at least three")
    positions: NDArray[np.floating] = PCA(2, svd_solver="full").fit_transform(vectors_ND)
    oriented: NDArray[np.floating] = positions * np.sign(positions[np.abs(positions).argmax(0), [0, 1]])
    return oriented


def add_senses(
    chapter: Chapter, encoder: Encoder, occurrences: Sequence[tuple[Sentence, int]], *, word: str, name: str
) -> dict[str, Any]:
    """Add the occurrences of a word in the last layer to a chapter; returns the numbers."""
    kept, vectors = [], []
    for number, indices, layers in states(encoder, [sentence for sentence, _ in occurrences]):
        if (index := occurrences[number][1]) in indices:
            kept.append(occurrences[number])
            vectors.append(layers[-1][indices.index(index)])
    if len(kept) < LEAST:
        within = f", {len(kept)} of them within the positions of {name}" if occurrences else ""
        raise DataError(f"{word!r}: occurs {len(occurrences)} times in the corpus{within}; at least {LEAST} are needed")
    directions_ND = normalize(np.stack(vectors))
    clusters_N, silhouette = two_senses(directions_ND)
    positions_N2 = planar(directions_ND)
    clouds, rows, clusters = {}, [], []
    for cluster, letter in enumerate("AB"):
        members = np.flatnonzero(clusters_N == cluster)
        if not len(members):
            continue
        cosines = directions_ND[members] @ directions_ND[members].mean(0)
        nearest = members[np.argsort(-cosines, kind="stable")[:EXAMPLES]]
        snippets = [sentence.snippet(index) for sentence, index in (kept[row] for row in nearest)]
        clusters.append({"occurrences": len(members), "examples": snippets})
        heads = [[letter, str(len(members))], *[["", ""]] * EXAMPLES]
        rows += [[*head, snippet] for head, snippet in zip(heads, snippets, strict=False)]
        clouds[f"{letter} ({len(members)})"] = Cloud(
            positions_N2[members, 0].tolist(), positions_N2[members, 1].tolist()
        )
    verdict = "two clusters" if silhouette >= SEPARATE else "one cluster"
    sentence = (
        f"{name}: {len(kept)} occurrences of {word!r} form {verdict} in the last layer (silhouette {silhouette:.2f})."
    )
    chapter.lead.append(sentence)
    caption = f"{name}: occurrences of {word!r}, last layer, two principal components."
    chapter.figures.append(Drawing(figures.scatter(clouds), caption))
    columns = ["cluster", "occurrences", f"{name}: sentences with {word!r} nearest to the centre"]
    chapter.tables.append(Table(columns, rows))
    return {"word": word, "silhouette": silhouette, "clusters": clusters, "sentence": sentence}
