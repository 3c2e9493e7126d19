"""The choice of texts to label, as functions of features and probabilities.

Cold start, without labels: TypiClust (Hacohen et al. 2022, "Active learning on a budget: opposite strategies suit high
and low budgets", section 3): as many clusters as there will be labels; of the largest clusters without a label, the
text whose nearest neighbours in the cluster are closest.

With a model: BADGE (Ash et al. 2020, "Deep batch active learning by diverse, uncertain gradient lower bounds"): the
gradient of the head's loss for the predicted label is the outer product of (p - one-hot) and the features; k-means++ in
this space chooses texts that are uncertain and different. Distances are computed from both factors, so that the outer
products are not in memory. As texts unlike all others are uncertain too, the weight of a text in the random choice is
multiplied by its density (Settles and Craven 2008, "An analysis of active learning strategies for sequence labeling
tasks", section 3.4), the power `DENSITY` of its typicality.

Shapes: N candidates, L labelled texts, D features, C labels.
"""

import warnings
from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans, MiniBatchKMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.neighbors import NearestNeighbors

Floats = NDArray[np.float32]
#: Maximum number of clusters, least number of texts of a cluster, neighbours of a text (Hacohen et al., appendix F).
MOST_CLUSTERS, LEAST_TEXTS, NEIGHBOURS = 500, 5, 20
#: Exponent of the typicality; of 0, 1 and 4 the best on TREC and SST-2 with 8 to 64 labels a class.
DENSITY: Final = 4.0
#: Number of clusters from which k-means reads random batches.
MANY_CLUSTERS: Final = 50
#: Index of a candidate -> indices of its copies, itself included.
Copies = Callable[[int], NDArray[np.int64]]


def typical(features: Floats, *, labelled: Floats, count: int, copies: Copies) -> Iterator[tuple[int, int]]:
    """Typical texts of different clusters, one after the other.

    Args:
        features: (N, D) of the candidates, with norm 1.
        labelled: (L, D) of the labelled texts; a cluster with few of them is served first.

    Yields:
        Index of a candidate, and the number of candidates in its cluster.
    """
    everything = np.concatenate([features, labelled]).astype(np.float32)
    clusters = _clusters(everything, min(len(labelled) + count, MOST_CLUSTERS))
    cluster_of, served = clusters[: len(features)], np.bincount(clusters[len(features) :], minlength=clusters.max() + 1)
    sizes = np.bincount(cluster_of, minlength=len(served))
    open_rows = np.ones(len(features), dtype=bool)
    order: dict[int, list[int]] = {}
    for _ in range(min(count, len(features))):
        left = np.bincount(cluster_of[open_rows], minlength=len(served))
        if not left.any():
            return
        # Small clusters hold outliers; they come last.
        large = (left > 0) & (sizes >= LEAST_TEXTS)
        usable = np.flatnonzero(large if large.any() else left > 0)
        cluster = int(min(usable, key=lambda index: (served[index], -sizes[index], index)))
        if cluster not in order:
            members = np.flatnonzero(cluster_of == cluster)
            order[cluster] = members[np.argsort(-typicality(features[members]), kind="stable")].tolist()
        chosen = next(index for index in order[cluster] if open_rows[index])
        yield chosen, int(sizes[cluster])
        served[cluster] += 1
        open_rows[copies(chosen)] = False
        open_rows[chosen] = False


def _clusters(features: Floats, count: int) -> NDArray[np.int64]:
    distinct = len(np.unique(features, axis=0))
    count = max(1, min(count, distinct))
    # Batches of fewer rows than clusters would leave clusters empty.
    if count > MANY_CLUSTERS:
        model = MiniBatchKMeans(count, batch_size=max(1024, 4 * count), n_init=1, random_state=0)
    else:
        model = KMeans(count, n_init=4, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return np.asarray(model.fit_predict(features), dtype=np.int64)


def typicality(features: Floats) -> NDArray[np.float64]:
    """(N,) the inverse of the mean distance to the nearest neighbours, relative to the mean over the rows."""
    if len(features) < 3:
        return np.ones(len(features))
    # Each row is its own nearest neighbour.
    nearest = NearestNeighbors(n_neighbors=min(NEIGHBOURS + 1, len(features))).fit(features)
    distances = nearest.kneighbors(features)[0][:, 1:].mean(axis=1)
    # Rows with many copies have distance 0.
    inverse = 1 / np.maximum(distances, 1e-3 * max(float(distances.mean()), 1e-6))
    return np.asarray(inverse / inverse.mean(), dtype=np.float64)


def uncertain(
    features: Floats,
    probabilities: Floats,
    *,
    counts: NDArray[np.int64] | None,
    count: int,
    copies: Copies,
    exclusive: bool = True,
    seed: int = 0,
) -> Iterator[int]:
    """Uncertain and different texts, one after the other.

    Args:
        features: (N, D) of the candidates, as the head reads them.
        probabilities: (N, C) of the candidates.
        counts: (C,) labelled texts of each label. Each next text is one of those that the model gives the label with
            the fewest texts, chosen ones included. None: labels are not balanced.
        exclusive: whether a text has one label; otherwise labels from 0.5 are predicted.
    """
    predicted = probabilities.argmax(axis=1)
    target = np.eye(probabilities.shape[1], dtype=np.float32)[predicted] if exclusive else probabilities >= 0.5
    errors = (probabilities - target).astype(np.float32)
    norms = np.einsum("nc,nc->n", errors, errors) * np.einsum("nd,nd->n", features, features)
    # Squared distance to the nearest chosen text; before the first, the squared length of the gradient.
    distances, open_rows = norms.astype(np.float64), np.ones(len(features), dtype=bool)
    density = typicality(features) ** DENSITY
    rng = np.random.default_rng(seed)
    given = None if counts is None else counts.astype(np.float64).copy()
    for number in range(min(count, len(features))):
        allowed = open_rows if given is None else open_rows & _of_rarest(predicted, open_rows, given)
        weights = np.where(allowed, distances * density, 0.0)
        if not allowed.any():
            return
        if weights.sum() <= 0:
            chosen = int(np.flatnonzero(allowed)[0])
        elif number == 0:
            chosen = int(weights.argmax())
        else:
            chosen = int(rng.choice(len(weights), p=weights / weights.sum()))
        yield chosen
        if given is not None:
            given[predicted[chosen]] += 1
        open_rows[copies(chosen)] = False
        open_rows[chosen] = False
        products = (errors @ errors[chosen]) * (features @ features[chosen])
        apart = np.maximum(norms + norms[chosen] - 2 * products, 0.0)
        distances = np.minimum(distances, apart) if number else apart


def _of_rarest(
    predicted: NDArray[np.int64], open_rows: NDArray[np.bool_], given: NDArray[np.float64]
) -> NDArray[np.bool_]:
    """(N,) whether the model gives a candidate the label with the fewest texts, of those that it gives any."""
    left = np.bincount(predicted[open_rows], minlength=len(given)) > 0
    return np.asarray(predicted == int(np.where(left, given, np.inf).argmin()))
