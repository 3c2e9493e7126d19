"""Self-training of a head that is solved on frozen features (`finetune.<name>.unlabelled`).

Every round is a point of the run's curve: round 0 is the head without unlabelled text, and the round is chosen by the
score of selection. The teacher of a round has learned from the run's own rows only. With
`unlabelled.words`, a regression on latent semantic vectors and one on means of word vectors teach and learn with the
head; they are fitted on the unlabelled texts. In a fold, the texts that belong to its rows are no unlabelled texts.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from components.artifacts import read_manifest
from components.finetuning.features import FeatureTable, cached
from components.finetuning.specs import Rows, RunSpec, all_training_rows
from components.task_models.heads import LabelHead, TextHead
from components.task_models.kinds import find_task
from components.tasks.data import Fields, Split, one_hot
from components.tasks.examples import read_facts, read_split
from components.training.checkpoint import fingerprint
from components.training.rng import counter_seed
from components.unlabelled import texts
from components.unlabelled.self_training import Round, View, rounds
from components.words.latent import PENALTIES, LatentSemantics, WordMeans, dimensions_of


def rounds_of(spec: RunSpec) -> int:
    """Number of rounds of a run; 0 if nothing is learned from unlabelled text on frozen features."""
    settings, facts = spec.settings, read_facts(spec.examples)
    if (
        settings.unlabelled is None
        or spec.unlabelled is None
        or settings.method != "features"
        or settings.layers == "mix"
    ):
        return 0
    head = find_task(facts.kind).head(settings, 1, facts.labels)
    solved = settings.head_steps > 0 and isinstance(head, LabelHead) and head.is_linear
    return settings.unlabelled.rounds if solved else 0


def train_rounds(
    spec: RunSpec,
    head: LabelHead,
    splits: dict[str, Split],
    rows: Rows,
    *,
    labelled: FeatureTable,
    unlabelled: FeatureTable,
) -> Iterator[dict[str, Any]]:
    """The rounds; after each one the head holds its weights, and details of the round are returned.

    Args:
        spec: of the run.
        head: fitted to the labelled rows alone.
        splits: of the run; the texts of train and dev are no pseudo-labels.
        rows: of the run.
        labelled: inputs of the head for the training rows.
        unlabelled: inputs of the head for all texts of the stage `unlabelled`.
    """
    settings, exclusive = spec.settings.unlabelled, head.exclusive
    assert settings is not None
    targets = one_hot(splits["train"].targets, labels=head.output.out_features)
    pool = pool_of(spec, splits, rows)
    if not len(pool):
        # Every round is the head itself, and round 0 is kept.
        yield from ({"texts": 0, "pseudo_labels": 0} for _ in range(settings.rounds))
        return
    with torch.inference_mode():
        own, others = (head.norm(table.matrix()).numpy() for table in (labelled, unlabelled.take(pool)))
    views = [View(own, others, [head.penalty / head.penalty_of(1.0, splits["train"].targets)])]
    if settings.words:
        views += _word_views(spec, rows, pool, labels=targets.shape[1])
    found = rounds(
        views,
        targets,
        exclusive=exclusive,
        count=settings.rounds,
        confidence=settings.confidence,
        weight=settings.weight,
        steps=spec.settings.head_steps,
        seed=counter_seed(spec.seed, "self-training"),
        units=splits["train"].units,
    )
    next(found)  # the head itself
    for one in found:
        _set(head, one)
        yield {
            "texts": len(pool),
            "pseudo_labels": one.pseudo_labels,
            "temperatures": [round(temperature, 4) for temperature in one.temperatures],
        }


def pool_of(spec: RunSpec, splits: dict[str, Split], rows: Rows) -> NDArray[np.int64]:
    """Indices of the texts of the stage `unlabelled` that are neither labelled rows of the run nor rows of its dev, nor
    belong to the rows of its fold."""
    assert spec.unlabelled is not None
    used = rows.left_out.union(*(splits[name].digests for name in ("train", "dev")))
    found = texts.read_unlabelled(spec.unlabelled)
    return np.asarray([row for row, fields in enumerate(found) if texts.digest_of(fields) not in used], dtype=np.int64)


def digest_of_pool(directory: Path) -> str:
    """Digest of the output of the stage `unlabelled`."""
    return read_manifest(directory, kind=texts.KIND).digest


def _set(head: TextHead, found: Round) -> None:
    model = found.models[0]
    with torch.no_grad():
        head.output.weight.copy_(torch.from_numpy(model.weight))
        head.output.bias.copy_(torch.from_numpy(model.bias))


def _word_views(spec: RunSpec, rows: Rows, pool: NDArray[np.int64], *, labels: int) -> Iterator[View]:
    """Vectors of the training rows and of the unlabelled texts by their words."""
    assert spec.unlabelled is not None
    train, facts = read_split(spec.examples, "train"), read_facts(spec.examples)
    given = texts.read_unlabelled(spec.unlabelled)
    free = [row for row, fields in enumerate(given) if texts.digest_of(fields) not in rows.left_out]
    # Without a fold, the vectors of all labelled rows are shared by the runs of all budgets and seeds.
    held = all_training_rows(spec, train, facts) if rows.held is None else rows.learned
    content = fingerprint(
        unlabelled=digest_of_pool(spec.unlabelled),
        train=facts.digests["train"],
        free=free,
        rows=held.tolist(),
        code=spec.code,
    )
    for model, size in zip((LatentSemantics, WordMeans), dimensions_of(labels), strict=True):

        def vectors(file: Path, model: Any = model, size: int = size) -> FeatureTable:
            read = [whole(given[row]) for row in free]
            fitted = model.fit(read, dimensions=size)
            found = np.concatenate([fitted.vectors(read), fitted.vectors([whole(train.fields[row]) for row in held])])
            stored = np.lib.format.open_memmap(file, mode="w+", dtype=np.float32, shape=found.shape)
            stored[:] = found
            return FeatureTable.of_texts(torch.from_numpy(stored))

        table = cached(spec.tables, f"words-{model.__name__}-{size}-{content}", vectors)
        matrix = table.vectors.numpy()
        labelled = matrix[len(free) :][np.searchsorted(held, rows.learned)]
        yield View(labelled, matrix[np.searchsorted(free, pool)], PENALTIES)


def whole(fields: Fields) -> str:
    """An input as one text."""
    return "\n".join(fields)
