"""The table of families from given numbers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from components.artifacts import writing
from components.errors import ArtifactError
from components.reporting import bakeoff


def cell(budget: int, accuracy: float, seconds: float = 4.0, *, dev: float | None = None) -> dict[str, object]:
    bounds = {"mean": accuracy, "low": accuracy - 0.1, "high": accuracy + 0.1}
    return {
        "budget": budget,
        "labels": float(budget),
        "scores": {"accuracy": bounds},
        "training": {"seconds": seconds, "selection_macro_f1": accuracy if dev is None else dev},
    }


@pytest.fixture
def out(tmp_path: Path) -> Path:
    for name, family, words in (("small-bert", "bert", None), ("ulmfit", "ulmfit", 81.25)):
        with writing(tmp_path / "encoder" / name / "pretrained", kind="encoder") as draft:
            (draft.path / "content").write_text(name)
            draft.facts["family"] = family
        numbers = {"parameters": 9000, "tokens": 12_000, "seconds": 60.0, "tokens_per_second": 200.0}
        write(tmp_path / "metrics" / "pretrain" / f"{name}.json", numbers | {"perplexity_per_word": words})
    systems = [
        {"system": "small-bert-pretrained", "budgets": [cell(5, 0.5), cell(50, 0.7, seconds=8.0, dev=0.6)]},
        {"system": "small-bert-pretrained-frozen", "budgets": [cell(5, 0.6), cell(50, 0.65)]},
        {"system": "ulmfit-pretrained", "budgets": [cell(5, 0.8), cell(50, 0.9)]},
        {"system": "tfidf-words", "budgets": [cell(5, 0.1), cell(50, 0.2)]},
    ]
    evaluation = {
        "labels": ["yes", "no"], "unit": "labels a class", "main": "macro_f1", "budgets": [5, 50], "systems": systems,
    }  # fmt: skip
    write(tmp_path / "evaluation" / "film" / "evaluation.json", evaluation)
    return tmp_path


def write(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


def test_rows_are_ordered_by_the_better_of_frozen_and_tuned_on_dev(out: Path) -> None:
    first, second = bakeoff.entries(out, families=["small-bert", "ulmfit"], tasks=["film"])
    assert (first["name"], first["family"], first["objective"]) == ("ulmfit", "ulmfit", "causal")
    assert (second["name"], second["objective"]) == ("small-bert", "masked")
    assert [first["quality"], second["quality"]] == pytest.approx([0.85, (0.6 + 0.65) / 2])
    assert second["tuning_seconds"] == 8.0
    assert second["scores"][0]["frozen"] == pytest.approx((0.6, 0.5, 0.7))
    assert first["scores"][1]["frozen"] is None and first["scores"][1]["labels"] == 100


def test_the_table(out: Path) -> None:
    columns, rows = bakeoff.table(bakeoff.entries(out, families=["small-bert", "ulmfit"], tasks=["film"]))
    assert columns[6:] == ["film 10 frozen", "film 10 tuned", "film 100 frozen", "film 100 tuned"]
    assert rows[0] == [
        "ulmfit", "9,000", "12,000", "200", "81.2", "", "", "0.800 [0.700, 0.900]", "", "0.900 [0.800, 1.000]",
    ]  # fmt: skip
    assert rows[1][6] == "0.600 [0.500, 0.700]"


def test_missing_outputs_are_named(out: Path) -> None:
    with pytest.raises(ArtifactError, match=r"metrics/pretrain/gpt\.json: missing; run `headstart retrain` first"):
        bakeoff.entries(out, families=["gpt"], tasks=["film"])
    write(out / "evaluation" / "film" / "evaluation.json", {"labels": ["a"], "budgets": [5], "systems": []})
    with pytest.raises(ArtifactError, match="film: no scores of ulmfit-pretrained; add .pretrained. to run.starts"):
        bakeoff.entries(out, families=["ulmfit"], tasks=["film"])
