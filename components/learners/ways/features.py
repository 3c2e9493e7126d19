"""`method: features`: the encoder stays frozen. A linear head is solved for, any other head is trained on features."""

from collections.abc import Sequence

from torch import nn

from components.learners.task_models.model import TaskModel
from components.learners.task_models.probe import FeatureSampler, HeadAlone
from components.learners.ways.base import TrainingRows, Way
from components.settings.finetune import FinetuneSettings
from components.training.optim import ParameterGroup, decayed
from components.training.rng import counter_seed
from components.training.windows import Sampler


class Features(Way):
    """The head alone, on features of the frozen encoder."""

    trains_encoder = False

    def operations(self, settings: FinetuneSettings) -> float:
        """0: features are computed by forward passes, which are counted apart."""
        return 0.0

    def stored(self, model: TaskModel) -> nn.Module:
        """The head, and the weights of the mixture of layers."""
        return HeadAlone(model.head, above=model.above, mix=model.features.mix)

    def groups(
        self, models: Sequence[TaskModel], settings: FinetuneSettings, *, unfreeze_every: int
    ) -> list[ParameterGroup]:
        return decayed(self.stored(models[0]).parameters())

    def sampler(self, rows: TrainingRows) -> Sampler:
        size = rows.settings.training.batch_size
        return FeatureSampler(rows.features(), rows.targets, batch_size=size, seed=counter_seed(rows.seed, "batches"))
