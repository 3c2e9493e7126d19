"""The whole of params.yaml."""

from __future__ import annotations

from components.settings.adapt import AdaptSettings, AdaptTaskSettings
from components.settings.cluster import ClusterSettings
from components.settings.data import DataSettings
from components.settings.evaluate import EvaluateSettings
from components.settings.finetune import FinetuneSettings
from components.settings.ingest import IngestSettings
from components.settings.names import BlockName
from components.settings.pretrain import PretrainSettings
from components.settings.promote import PromotionRule
from components.settings.registry import RegistrySettings
from components.settings.run import RunSettings
from components.settings.section import Section
from components.settings.together import TogetherSettings
from components.settings.tokenizer import TokenizerSettings


class Params(Section):
    """The whole of params.yaml. What dvc.yaml tracks has to stand there: DVC knows no defaults."""

    run: RunSettings
    cluster: ClusterSettings = ClusterSettings()
    data: DataSettings
    ingest: IngestSettings
    tokenizer: TokenizerSettings
    pretrain: dict[BlockName, PretrainSettings]
    #: Not needed where `run.starts` leaves out `adapted`.
    adapt: dict[str, AdaptSettings] = {}
    #: Task -> what differs from `adapt` when a model goes on with that task's texts.
    adapt_task: dict[str, AdaptTaskSettings] = {}
    finetune: dict[str, FinetuneSettings]
    #: Name of a group -> tasks that are also learned together, beside being learned alone.
    together: dict[BlockName, TogetherSettings] = {}
    evaluate: EvaluateSettings
    registry: RegistrySettings = RegistrySettings()
    promote: PromotionRule = PromotionRule()
