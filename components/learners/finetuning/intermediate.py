"""Stage `intermediate`: the encoder of a model that was fine-tuned on another task (Phang et al. 2018, STILTs)."""

import shutil
from pathlib import Path

from components.core.artifacts import json_of, read_manifest, writing
from components.data.tasks.members import encoder_of, members_of
from components.data.tasks.results import KIND
from components.models.encoder import KIND as ENCODER
from components.models.encoder import load_encoder, write_untrained
from components.settings.section import Section


class IntermediateJob(Section):
    """Inputs of the stage.

    Attributes:
        source: name of the intermediate task.
        finetuned: output directory of the stage `finetune` on that task.
        output: encoder directory.
    """

    source: str
    finetuned: Path
    output: Path


def intermediate(job: IntermediateJob) -> Path:
    """Write the encoder directory of a fine-tuned model; returns it. Warns where the model kept the encoder unchanged.

    Raises:
        ArtifactError: the output of fine-tuning is incomplete or altered.
    """
    manifest = read_manifest(job.finetuned, kind=KIND, verify=True)
    classifier = job.finetuned / "classifier"
    folder, facts = encoder_of(members_of(classifier)[0]), read_manifest(classifier).facts
    kept = (manifest.facts["system"], facts["budget"], facts["seeds"][0])
    record = {(run["system"], run["budget"], run["seed"]): run for run in json_of(job.finetuned / "runs.json")}[kept]
    if not record["best_step"] or record.get("way") == "features":
        print(
            f"{job.source}: warning: the head on the frozen encoder is best on this task, which leaves the encoder as "
            "it was: systems after it equal those without it. Give the task more labels, or train from the first step "
            "(finetune: head_steps: 0)"
        )
    encoder = load_encoder(folder, part=True)
    with writing(job.output, kind=ENCODER) as draft:
        shutil.copytree(folder, draft.path, dirs_exist_ok=True)
        write_untrained(draft.path, encoder.model, precision=manifest.facts["precision"])
        draft.facts |= {
            "trained": True,
            "family": encoder.family,
            "tokenizer": encoder.tokenizer.fingerprint(),
            "parent": manifest.digest,
            "task": job.source,
        }
    return job.output
