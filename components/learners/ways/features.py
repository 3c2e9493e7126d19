"""`method: features`: the encoder stays frozen. A linear head is solved for, any other head is trained on features."""

from collections.abc import Sequence

from torch import nn

from components.learners.task_models.model import Objective, TaskModel
from components.learners.ways.base import Way
from components.settings.finetune import FinetuneSettings
from components.settings.training import Training
from components.training.optim import ParameterGroup, decayed

#: Minimum learning rate of a linear head. On dev of WNUT17, with 1,000 sentences and MiniLM, span F1 is .02 with .0002,
#: which suits the encoder, .10 with .002, and .37 with .01.
HEAD_RATE = 0.01


class Features(Way):
    """The head alone, on features of the frozen encoder."""

    trains_encoder = False

    def training(self, settings: FinetuneSettings) -> Training:
        """The settings of training with a rate that suits a linear head; the configured rate is for the encoder."""
        linear = settings.tagger != "bilstm_crf" and not settings.head_hidden
        rate = max(settings.training.rate, HEAD_RATE if linear else 0.0)
        return settings.training.model_copy(update={"rate": rate})

    def trained(self, models: Sequence[TaskModel]) -> nn.Module:
        """The head, and the weights of the mixture of layers."""
        (model,) = models
        return Objective(filter(None, (model.head, model.features.mix)), model.loss)

    def groups(
        self, models: Sequence[TaskModel], settings: FinetuneSettings, *, unfreeze_every: int
    ) -> list[ParameterGroup]:
        return decayed(self.trained(models).parameters())
