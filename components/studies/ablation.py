"""What each technique of fine-tuning is worth: without pretraining, without adaptation, and with one technique of the
settings switched off at a time (Howard and Ruder 2018, section 5, tables 5 to 7). The score is that of the last step:
a head on frozen features, which is the first point of a curve, does not stand in for a run that is worse."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from components.settings.finetune import FinetuneSettings
from components.studies.frame import Measured, Outputs, Sheet
from components.studies.labelled import Labelled, beside

WHOLE: Final = "all techniques"
#: Technique -> the values of `finetune.<name>`, and of its section `training`, that switch it off.
TECHNIQUES: Final[Mapping[str, Mapping[str, Any]]] = {
    "gradual unfreezing": {"unfreeze_epochs": 0.0},
    "discriminative rates": {"discriminative": 1.0},
    "schedule of the rate": {"training": {"schedule": "constant"}},
    "dropout": {"dropout": 0.0, "head_dropout": 0.0},
    "activation regularisation": {"activation_penalty": 0.0},
    "mean and maximum in pooling": {"pooling": "summary"},
    "gradients through all chunks": {"chunks_learned": 1},
    "language model as an auxiliary objective": {"lm_weight": 0.0},
    "head on frozen features first": {"head_steps": 0},
}
#: Starts that lack a part of the training of the encoder -> what they lack.
EARLIER: Final = {"pretrained": "adaptation to the domain", "scratch": "pretraining and adaptation"}


def without(technique: str, settings: FinetuneSettings) -> FinetuneSettings:
    """The settings without a technique; the same settings if they do not use it."""
    changes = dict(TECHNIQUES[technique])
    if "chunks_learned" in changes and not settings.chunk:
        return settings
    if "training" in changes:
        changes["training"] = settings.training.model_copy(update=changes["training"])
    return settings.model_copy(update=changes)


def measure(outputs: Outputs, *, task: str = "", encoder: str = "", budget: int = 0, seeds: int = 3) -> Measured:
    """Fine-tune with all techniques, and without each of them, on the same labels."""
    data, (block, start) = Labelled.of(outputs, task, budget), outputs.chosen(encoder)[0]
    settings, vocabulary = outputs.finetuning(block), outputs.encoder(block, start).tokenizer.fingerprint()
    present = [other for other in EARLIER if other != start and outputs.exists("encoder", block, other)]
    # With another vocabulary, a row would have two differences.
    same = [other for other in present if outputs.encoder(block, other).tokenizer.fingerprint() == vocabulary]
    changed = {technique: without(technique, settings) for technique in TECHNIQUES}
    variants = {WHOLE: (start, settings)} | {f"without {EARLIER[other]}": (other, settings) for other in same}
    variants |= {f"without {technique}": (start, of) for technique, of in changed.items() if of != settings}
    scores = {
        name: data.learned(
            data.job(outputs, block, *of),
            seeds,
            lambda run: np.asarray([run.record["curve"][-1][run.record["score"]]]),
            title=name,
        )
        for name, of in variants.items()
    }
    rows, about = beside(scores, WHOLE, "fine-tuning", "change"), f"{data.facts.task}, {block}-{start}"
    text = f"{data.described}; means over {seeds} samples of the labels with their intervals."
    return Measured([Sheet(rows, about, {"change": "+.3f"}, "change", reference=0.0)], [text])
