"""A model that was fine-tuned on another task as initialisation."""

import json

import pytest

from components.core.artifacts import read_manifest
from components.data.tasks.results import KIND as FINETUNED
from components.learners.finetuning.intermediate import IntermediateJob, intermediate
from components.learners.finetuning.stage import finetune
from components.learners.task_models.classifier import load_classifier
from components.models.encoder import KIND, load_encoder


@pytest.mark.parametrize("family", ["elmo", "gpt", "ulmfit"])
def test_the_encoder_of_the_fine_tuned_model_is_the_start(family, make_job, in_process, tmp_path):
    other = finetune(make_job(family, "multilabel", name="other"))
    encoder = intermediate(IntermediateJob(source="other", finetuned=other, output=tmp_path / "encoder"))
    manifest = read_manifest(encoder, kind=KIND, verify=True)
    assert (manifest.facts["task"], manifest.facts["parent"]) == ("other", read_manifest(other).digest)
    expected = load_classifier(other / "classifier").encoder.state_dict()
    actual = load_encoder(encoder).model.state_dict()
    assert actual.keys() == expected.keys() and all(actual[name].equal(expected[name]) for name in actual)

    after = {"start": "adapted-after-other", "encoder": encoder, "output": tmp_path / "after"}
    output = finetune(make_job(family, "classification").model_copy(update=after))
    facts = read_manifest(output, kind=FINETUNED).facts
    assert facts["system"] == f"{family}-adapted-after-other" and facts["encoder"] == manifest.digest
    load_classifier(output / "classifier")


@pytest.mark.parametrize("frozen", [False, True])
def test_a_task_that_leaves_the_encoder_as_it_was_is_named(frozen, make_job, in_process, tmp_path, capsys):
    job = make_job("gpt", "classification", name="other")
    settings = job.settings.model_copy(update={"head_steps": 0}) if not frozen else job.settings.by("features")
    other = finetune(job.model_copy(update={"settings": settings}))
    runs = json.loads((other / "runs.json").read_text())
    capsys.readouterr()
    intermediate(IntermediateJob(source="other", finetuned=other, output=tmp_path / "encoder"))
    unchanged = frozen or not runs[0]["best_step"]
    assert ("other: warning: the head on the frozen encoder is best" in capsys.readouterr().out) == unchanged
