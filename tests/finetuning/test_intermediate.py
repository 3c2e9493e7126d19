"""A model that was fine-tuned on another task as initialisation."""

from pathlib import Path

import pytest

from components.core.artifacts import is_complete, read_manifest
from components.data.tasks.results import KIND as FINETUNED
from components.learners.finetuning.intermediate import (
    FinetuneAfterJob,
    IntermediateJob,
    finetune_after,
    intermediate,
)
from components.learners.finetuning.stage import finetune
from components.learners.task_models.classifier import load_classifier
from components.models.encoder import KIND, load_encoder


def after(job, source: str, encoder: Path, output: Path) -> FinetuneAfterJob:
    changed = job.model_dump() | {"start": f"adapted-after-{source}", "encoder": encoder, "output": output}
    return FinetuneAfterJob(**changed, source=source)


@pytest.mark.parametrize("family", ["elmo", "gpt", "ulmfit"])
def test_the_encoder_of_the_fine_tuned_model_is_the_start(family, make_job, in_process, tmp_path):
    other = finetune(make_job(family, "multilabel", name="other"))
    encoder = intermediate(IntermediateJob(source="other", finetuned=other, output=tmp_path / "encoder"))
    manifest = read_manifest(encoder, kind=KIND, verify=True)
    assert (manifest.facts["task"], manifest.facts["parent"]) == ("other", read_manifest(other).digest)
    expected = load_classifier(other / "classifier").encoder.state_dict()
    actual = load_encoder(encoder).model.state_dict()
    assert actual.keys() == expected.keys() and all(actual[name].equal(expected[name]) for name in actual)

    output = finetune_after(after(make_job(family, "classification"), "other", encoder, tmp_path / "after"))
    facts = read_manifest(output, kind=FINETUNED).facts
    assert facts["system"] == f"{family}-adapted-after-other" and facts["encoder"] == manifest.digest
    load_classifier(output / "classifier")


def test_a_task_does_not_start_from_itself(make_job, tmp_path):
    job = after(make_job("bert", "classification"), "things", tmp_path / "missing", tmp_path / "itself")
    output = finetune_after(job)
    assert is_complete(output, kind=FINETUNED) and [path.name for path in output.iterdir()] == ["manifest.json"]
