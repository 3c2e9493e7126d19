"""Ranks, their correlation with the dev metrics, and the study on tiny encoders."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from components.errors import ArtifactError, ConfigError
from components.settings.tasks import TaskSource
from components.studies import ranking, which_source
from components.studies.frame import Outputs
from components.studies.ranking import Candidate, rank_correlations, ranks, spearman
from components.tasks.examples import ExamplesJob, examples


def candidate(name: str, objective: str, logme: float, pieces: float, entropy: float | None, score: float) -> Candidate:
    return Candidate(name, objective, logme, 0.0, pieces, entropy, score)


def test_ranks() -> None:
    found = ranks(
        [
            candidate("a", "causal", -0.1, 1.2, 5.0, 0.9),
            candidate("b", "causal", -0.3, 1.5, 6.0, 0.5),
            candidate("c", "masked", -0.2, 1.2, 2.0, 0.7),
            candidate("d", "masked", -0.4, 2.0, 3.0, 0.4),
        ]
    )
    assert found["LogME"].tolist() == [1, 3, 2, 4]
    assert found["vocabulary"].tolist() == [1.5, 3, 1.5, 4]
    # Ranks among two models with the same objective: masked models are not compared with causal ones.
    assert found["distance"].tolist() == [1.5, 3.5, 1.5, 3.5]
    assert found["combined"].tolist() == [1, 3, 2, 4]


def test_the_distance_is_omitted_if_a_candidate_has_no_likelihood() -> None:
    one, other = candidate("a", "causal", -0.1, 1.2, 5.0, 0.9), candidate("w", "static", -0.2, 1.0, None, 0.5)
    assert set(ranks([one, other])) == {"LogME", "vocabulary", "combined"}


def test_correlation_with_the_dev_metrics() -> None:
    found = [
        candidate(name, "causal", -number, 1 + number, number, 0.9 - 0.1 * number) for number, name in enumerate("abcd")
    ]
    evidence = rank_correlations(found, ranks(found))
    assert evidence["LogME"]["spearman"] == pytest.approx(1)
    # Two of the 24 permutations are as extreme: the identity and the reversal.
    assert evidence["LogME"]["spearman_p"] == pytest.approx(2 / 24)
    assert rank_correlations(found[:2], ranks(found[:2])) == {}


@pytest.mark.parametrize("tied", [False, True])
def test_exact_p_values_equal_those_of_a_permutation_test(tied: bool) -> None:
    x, y = np.random.default_rng(6).normal(size=(2, 6))
    if tied:
        x, y = np.asarray([1.0, 1.0, 2.0, 3.0, 4.0, 4.0]), np.asarray([2.0, 1.0, 3.0, 3.0, 3.0, 7.0])
    rho, p = spearman(x, y)
    independent = stats.permutation_test(
        (x,), lambda permuted: stats.spearmanr(permuted, y).statistic, permutation_type="pairings", n_resamples=np.inf
    )
    assert rho == pytest.approx(stats.spearmanr(x, y).statistic)
    assert p == pytest.approx(independent.pvalue)


def evaluation(scores: dict[str, float]) -> dict[str, Any]:
    cell = {"mean": 0.5, "low": 0.4, "high": 0.6}
    return {
        "main": "macro_f1",
        "systems": [
            {
                "system": system,
                "budgets": [
                    {
                        "budget": 5,
                        "scores": {"macro_f1": cell},
                        "training": {"seconds": 2.0, "selection_macro_f1": score},
                    }
                ],
            }
            for system, score in scores.items()
        ],
    }


def test_the_study(outputs: Outputs, add_task: Callable[..., Any], add_encoder: Any, write_evaluation: Any) -> None:
    add_task()
    for seed, name in enumerate(("ulmfit", "bert", "word2vec")):
        add_encoder(name, seed=seed)
    names = "ulmfit-adapted, bert, word2vec-adapted"
    unverified = which_source.run(outputs, encoders=names)
    assert "cannot be verified" in unverified.chapter.lead[1] and unverified.numbers["evidence"] == {}
    assert "evaluation/aws-type" not in outputs.read
    write_evaluation("aws-type", evaluation({"ulmfit-adapted": 0.7, "bert-adapted": 0.6, "word2vec-adapted": 0.5}))
    found = which_source.run(outputs, encoders=names)
    entries = {entry["name"]: entry for entry in found.numbers["candidates"]}
    assert {name: entry["score"] for name, entry in entries.items()} == {
        "ulmfit-adapted": 0.7,
        "bert-adapted": 0.6,
        "word2vec-adapted": 0.5,
    }
    # Word vectors have no likelihood; the distribution of an untrained model is almost uniform.
    assert entries["word2vec-adapted"]["cross_entropy"] is None
    assert entries["ulmfit-adapted"]["cross_entropy"] == pytest.approx(np.log(24) * 7 / 6, rel=0.1)
    assert all(entry["pieces_per_word"] == 1 and entry["unknown_rate"] == 0 for entry in entries.values())
    assert set(found.numbers["evidence"]) == {"LogME", "combined"}
    assert found.numbers["labels"] == 5
    assert which_source.run(outputs, encoders=names).numbers == found.numbers
    assert "macro F1 on dev" in found.chapter.figures[0].svg
    # A damaged evaluation is an error, unlike a missing one.
    (outputs.out / "evaluation" / "aws-type" / "evaluation.json").unlink()
    with pytest.raises(ArtifactError, match=r"evaluation\.json: missing, or its size differs"):
        which_source.run(outputs, encoders=names)


def write_task(outputs: Outputs, folder: Path, rows: list[dict[str, Any]], **source: Any) -> None:
    """The task aws-type with these rows in each of its splits."""
    for split in ("train", "dev", "test"):
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    made = TaskSource(path=str(folder), budgets=[5], seeds=[0], overlap="report", **source)
    examples(ExamplesJob(task="aws-type", source=made, output=outputs.out / "examples" / "aws-type"))


def test_the_vectors_of_a_file_sorted_by_label_have_all_labels(
    outputs: Outputs, add_encoder: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"text": f"the {word} is old {n}", "label": word} for word in ("apple", "iron", "pear") for n in range(6)]
    write_task(outputs, tmp_path, rows)
    for name in ("ulmfit", "bert"):
        add_encoder(name)
    seen: list[np.ndarray] = []
    monkeypatch.setattr(ranking, "VECTORS", 6)
    monkeypatch.setattr(ranking, "logme", lambda _, targets: float(seen.append(targets) or len(seen)))
    which_source.run(outputs, encoders="ulmfit-adapted, bert-adapted")
    assert [targets.sum(0).tolist() for targets in seen] == [[2, 2, 2], [2, 2, 2]]


def test_a_sample_with_one_label_is_refused(outputs: Outputs, add_encoder: Any, tmp_path: Path) -> None:
    rows = [{"words": ["the", "old", "apple"], "tags": ["O", "O", "O"]} for _ in range(40)]
    write_task(outputs, tmp_path, [{"words": ["iron"], "tags": ["B-METAL"]}, *rows], kind="tagging")
    for name in ("ulmfit", "bert"):
        add_encoder(name)
    with pytest.raises(ConfigError, match="aws-type: the sample of train has only one label, .*raise --budget"):
        which_source.run(outputs, encoders="ulmfit-adapted, bert-adapted")


def test_messages_about_missing_inputs(outputs: Outputs, add_task: Any) -> None:
    with pytest.raises(ArtifactError, match="examples/aws-type: missing; run `headstart stage examples --item"):
        which_source.run(outputs)
    add_task()
    with pytest.raises(ConfigError, match="--encoders: at least two candidates"):
        which_source.run(outputs, encoders="ulmfit-adapted")
    with pytest.raises(ArtifactError, match="run `headstart stage pretrain --item ulmfit`"):
        which_source.run(outputs)
