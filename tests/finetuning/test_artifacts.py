"""The table, the stored model and the gate speak of one model with one interval."""

import json

import numpy as np
import pytest

from components.data.tasks.budgets import sample_rows
from components.data.tasks.examples import read_facts, read_split, strata_of
from components.data.tasks.kinds import scoring_for
from components.evaluation.stage import EvaluateJob, evaluate
from components.learners.baselines.stage import BaselineJob, baseline
from components.learners.finetuning.stage import finetune
from components.learners.loading import load_model
from components.registry.contest import BEST_BASELINE, rival_of, scored_rows
from components.registry.decide import Scored, decide
from components.settings.registry import PromotionRule

SYSTEM = "ulmfit-adapted"


@pytest.mark.parametrize(
    ("kind", "budget"), [("classification", 2), ("tagging", "all"), ("questions", "all"), ("regression", 4)]
)
def test_the_stored_model_is_the_evaluated_and_the_judged_one(kind, budget, make_job, in_process, tmp_path):
    finetuned = tmp_path / "finetuned"
    source = {"budgets": [budget], "seeds": [0, 1]}
    job = make_job("ulmfit", kind, source=source).model_copy(update={"output": finetuned / SYSTEM})
    finetune(job)
    baseline(BaselineJob(examples=job.examples, output=finetuned / "baselines"))
    evaluation = EvaluateJob(
        examples=job.examples,
        finetuned=finetuned,
        output=tmp_path / "evaluation",
        systems=[SYSTEM],
    )
    content = json.loads((evaluate(evaluation) / "evaluation.json").read_text())
    systems = {single["system"]: single for single in content["systems"]}

    facts, test = read_facts(job.examples), read_split(job.examples, "test")
    scoring = scoring_for(kind, facts.labels)
    folders = {SYSTEM: finetuned / SYSTEM / "classifier"}
    if (words := finetuned / "baselines" / "classifier").is_dir():
        folders[json.loads((words / "manifest.json").read_text())["facts"]["system"]] = words
    models = {name: load_model(folder) for name, folder in folders.items()}
    train = read_split(job.examples, "train")
    drawn = [sample_rows(strata_of(train, kind), facts.budgets[-1], seed=seed)[0] for seed in (0, 1)]
    for name, model in models.items():
        artifact, cell = systems[name]["artifact"], systems[name]["budgets"][-1]
        score = scoring.score(test.fields, test.targets, model.answer(test.fields))
        for metric, value in score.items():
            assert artifact["scores"][metric]["mean"] == pytest.approx(value, abs=1e-12), (name, metric)
        # Of words models whose answers have no mean, the first.
        seeds = [0, 1] if scoring.averages or name == SYSTEM else [0]
        assert artifact["seeds"] == seeds and artifact["labels"] == len(np.unique([drawn[seed] for seed in seeds]))
        assert artifact["selection"] == cell["training"][f"selection_{scoring.main}"]

    test_rows, statistics = scored_rows(facts, test, {SYSTEM: models[SYSTEM]})
    rival = rival_of(
        finetuned, facts=facts, split=test, scoring=scoring, metric=scoring.main, system=SYSTEM, rival=BEST_BASELINE
    )
    ours = Scored(SYSTEM, "digest", statistics[SYSTEM])
    made = decide(ours, None, PromotionRule(), rows=test_rows, baseline=rival)
    told = content["challenger"]
    assert made.against == f"baseline {told['against']}"
    assert made.candidate_score == pytest.approx(systems[SYSTEM]["artifact"]["scores"][scoring.main]["mean"])
    assert [made.gain, made.low, made.high] == pytest.approx([told["gain"][name] for name in ("mean", "low", "high")])
    figures = f"gain {made.gain:+.4f}, between {made.low:+.4f} and {made.high:+.4f}"
    assert figures in told["text"] and any(figures.replace("gain ", "") in reason for reason in made.reasons)
    assert np.isfinite(made.gain or np.nan)
