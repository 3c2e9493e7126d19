"""Contract of every family with every kind: it trains, is stored and loaded, and resumes bit-identical.

All entries of both tables are tested; a new kind needs rows in `ROWS`.
"""

from __future__ import annotations

from itertools import cycle, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from components.core.artifacts import read_manifest
from components.data.scoring import Scoring
from components.data.tasks.data import Fields
from components.data.tasks.examples import read_facts, read_split
from components.data.tasks.kinds import scoring_for
from components.data.tasks.members import extract_member, members_of
from components.data.tasks.results import best_score, read_answers, read_averages
from components.learners.finetuning.stage import finetune
from components.learners.loading import load_model
from components.learners.task_models.classifier import load_classifier
from components.learners.task_models.kinds import TASKS
from components.models import FAMILIES
from components.registry.drift.measurements import projection
from components.registry.register import write_bundle
from components.settings.systems import FROZEN
from tests.finetuning.interruption import (
    BUDGET,
    FAST,
    contents,
    finish_interrupted,
    learned,
    records_of,
    with_checkpoints,
)

#: How much probabilities may differ of a text that an LSTM of one direction computes as one row.
ALONE = 1e-6


def pairs() -> list[Any]:
    """All families with all kinds. Those that are not slow cover every family with a kind of texts and one of units,
    and every kind with attention and with an LSTM."""
    cycles = [cycle(kind for kind in sorted(TASKS) if TASKS[kind].reads == reads) for reads in ("text", "units")]
    covering = {(family, next(kinds)) for family in sorted(FAMILIES) for kinds in cycles}
    covering |= {(family, kind) for family in ("bert", "ulmfit") for kind in TASKS}
    return [
        pytest.param(*pair, marks=[] if pair in covering else pytest.mark.slow)
        for pair in product(sorted(FAMILIES), sorted(TASKS))
    ]


@pytest.mark.parametrize(("family", "kind"), pairs())
def test_every_family_learns_every_kind(family, kind, make_job, in_process):
    # The frozen encoder as a system of its own: of a kind of texts and of a kind of units.
    frozen = kind in ("classification", "tagging")
    job = make_job(family, kind, source={"seeds": [0, 1]}, frozen=frozen)
    output = finetune(job)
    facts, test, dev = read_facts(job.examples), read_split(job.examples, "test"), read_split(job.examples, "dev")
    scoring = scoring_for(kind, facts.labels)
    records = records_of(output)
    for record in records:
        key = (record["system"], record["budget"], record["seed"])
        actual = read_answers(output, "test")[key]
        assert len(actual) == len(test) and all(np.isfinite(answer).all() for answer in actual)
        assert record["score"] == scoring.main
        assert [point["step"] for point in record["curve"]] == (
            [0] if key[0].endswith(FROZEN) and kind == "classification" else [0, 3]
        )
        on_dev = scoring.score(dev.fields, dev.targets, read_answers(output, "dev")[key])[scoring.main]
        assert on_dev == pytest.approx(best_score(record), abs=1e-5)
    for part, system in (("classifier", f"{family}-adapted"), ("classifier-frozen", f"{family}-adapted{FROZEN}")):
        if (output / part).is_dir():
            check_average(output, part, system, scoring, test.fields)


def check_average(output: Path, part: str, system: str, scoring: Scoring, rows: list[Fields]) -> None:
    """The stored classifier answers as the mean of its seeds, in any batch, and after its files were copied as a
    registered model's. The answer to a row by itself differs by rounding at most (contract 17)."""
    assert read_manifest(output / part).facts["seeds"] == [0, 1]
    members = [load_classifier(path) for path in extracted(output / part)]
    served = load_classifier(output / part)
    answers = served.answer(rows)
    runs = [read_answers(output, "test")[system, -1, seed] for seed in (0, 1)]
    for member, run in zip(members, runs, strict=False):
        np.testing.assert_equal(member.answer(rows), list(run))
    expected = read_averages(output, averages=scoring.averages)[system].answers
    np.testing.assert_equal(answers, list(expected))
    for row, answer in zip(rows, answers, strict=True):
        (alone,) = served.answer([row])
        np.testing.assert_allclose(alone, answer, rtol=ALONE, atol=ALONE)
        assert np.argmax(alone) == np.argmax(answer)
    np.testing.assert_equal(served.answer(rows, batch_size=5), answers)
    measured, counts, sketches = served.answer_measured(rows, projection)
    np.testing.assert_equal(measured, answers)
    assert len(counts) == len(sketches) == len(rows)
    assert (output / part / "encoder").is_dir() or part == "classifier", "heads on one encoder store it once"
    copy = write_bundle(output / part, output.parent / f"copy-{part}", kind="classifier")
    np.testing.assert_equal(load_model(copy).answer(rows), answers)


def extracted(directory: Path) -> list[Path]:
    folders = [directory.parent.parent / f"{directory.name}-{number}" for number in range(len(members_of(directory)))]
    for number, folder in enumerate(folders):
        extract_member(directory, number, folder)
    return folders


INTERRUPTED: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = [
    *(("gpt", kind, {}, {"head_hidden": 4}) for kind in sorted(TASKS)),
    ("gpt", "tagging", {}, {"method": "features"}),
    ("gpt", "questions", BUDGET, {"head_hidden": 4}),
    ("gpt", "multilabel", {}, {"class_weight": "balanced"}),
    ("gpt", "classification", BUDGET, {"head_norm": "auto", "method": "contrastive"}),
    ("ulmfit", "classification", {}, {"layers": "mix", "head_norm": "batch", "epochs": 3}),
    ("bert", "tagging", {}, {"head_norm": "batch"}),
    ("ulmfit", "classification", {}, {"unfreezing": "chain_thaw", "unfreeze_epochs": 0.4, "epochs": 3}),
    ("ulmfit", "classification", BUDGET, {"lm_weight": 0.5, "chunk": 8, "chunks_learned": 1, "max_length": 500}),
]


@pytest.mark.usefixtures("few_pairs")
@pytest.mark.parametrize(("family", "kind", "source", "changes"), INTERRUPTED)
def test_an_interrupted_run_ends_bit_identical(family, kind, source, changes, make_job, in_process, monkeypatch):
    monkeypatch.setitem(FAMILIES["ulmfit"].tiny, "layers", 1)

    def job(name):
        made = make_job(family, kind, name=name, source=source, frozen=True, evaluations=2, **changes)
        return with_checkpoints(made)

    unbroken, broken = finetune(job("unbroken")), job("broken")
    # Contrastive fine-tuning takes tens of steps.
    assert finish_interrupted(broken, monkeypatch, every=11 if "contrastive" in changes.values() else 2) > 1
    assert contents(broken.output) == contents(unbroken)


@pytest.mark.parametrize("kind", sorted(TASKS))
def test_on_a_frozen_encoder_linear_text_heads_are_fitted_in_closed_form_and_others_trained(kind, make_job, in_process):
    record = learned(make_job("ulmfit", kind, method="features", epochs=4, training=FAST, tagger="bilstm_crf"))
    solved, first, last = TASKS[kind].reads == "text", record["curve"][0], record["curve"][-1]
    assert ("penalty" in record) == solved
    assert [point["step"] for point in record["curve"]] == ([0] if solved else [0, 12])
    assert first["train_loss"] is None and record["steps"] == last["step"]
    assert (last["train_loss"] is None) == solved


def test_the_recipe_of_ulmfit_learns(make_job, in_process, settings):
    """A random head with batch norm that learns alone first, gradual unfreezing, discriminative and slanted triangular
    rates, concat pooling (Howard and Ruder 2018, section 3.3)."""
    training = settings.training.model_copy(update={"rate": 0.02, "betas": (0.7, 0.99), "batch_size": 12})
    recipe = {
        "layers": "last",
        "pooling": "concat",
        "head_hidden": 10,
        "head_norm": "batch",
        "head_steps": 0,
        "unfreeze_epochs": 1,
        "epochs": 40,
        "evaluations": 4,
        "chunk": 8,
        "chunks_learned": 3,
        "training": training,
    }
    record = learned(make_job("ulmfit", "classification", **recipe))
    assert "penalty" not in record and record["steps"] == 40
    assert record["curve"][0]["train_loss"] is None and record["curve"][-1]["train_loss"] < 0.2
