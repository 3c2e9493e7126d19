"""The whole of params.yaml, and its sections `run`, `budget`, `telemetry` and `gc`."""

import os
from dataclasses import dataclass
from typing import Self

from pydantic import Field, NonNegativeFloat, PositiveFloat, model_validator

from components.settings.checks import ChecksSettings
from components.settings.cluster import ClusterSettings
from components.settings.data import CorpusSource, DataSettings, IngestSettings
from components.settings.evaluate import EvaluateSettings, LeakageSettings
from components.settings.finetune import DistilSettings, FinetuneSettings, TogetherSettings
from components.settings.registry import DriftSettings, PromotionRule, RegistrySettings
from components.settings.section import NO_EFFECT, VECTORS, BlockName, Folder, Positive, Section, Seed, Start
from components.settings.tasks import OF_ONE_TEXT
from components.settings.tokenizer import TokenizerSettings
from components.settings.training import AdaptSettings, AdaptTaskSettings, PretrainSettings, StaticSettings


class TelemetrySettings(Section):
    """Live runs in MLflow, and gauges for Prometheus."""

    #: Whether every retraining has a run in MLflow from its first stage on, with a nested run per stage.
    mlflow: bool = True
    #: Folder of *.prom files for the textfile collector of node_exporter, relative to the repository; null: none.
    textfiles: str | None = ".headstart/metrics"

    @property
    def gateway(self) -> str | None:
        """The address of a Prometheus Pushgateway, such as pushgateway:9091."""
        return os.environ.get("HEADSTART_PUSHGATEWAY") or None

    @property
    def is_on(self) -> bool:
        """Whether a retraining needs a monitor."""
        return self.mlflow or self.textfiles is not None or self.gateway is not None


class RunSettings(Section):
    """What one run of the pipeline covers."""

    #: Output folder of all stages, relative to the repository.
    out: Folder = "artifacts"
    #: Blocks of `pretrain` that are compared; none: models of words only.
    families: list[str]
    #: Blocks of `data.tasks` that are learned.
    tasks: list[str] = Field(min_length=1)
    #: Initialisations of the encoder that are compared: random weights; `vectors`, as pretraining starts, with no step
    #: of language modelling; pretrained; pretrained and adapted.
    starts: list[Start]
    #: Seed of pretraining and adaptation. Fine-tuning uses `data.tasks.<name>.seeds`.
    seed: Seed = 0

    @model_validator(mode="after")
    def _a_start(self) -> Self:
        if self.families and not self.starts:
            raise ValueError("starts must name an initialisation: scratch, vectors, pretrained or adapted")
        return self


class GcSettings(Section, json_schema_extra=NO_EFFECT):
    """What `headstart gc` deletes. No key changes a result."""

    #: Newest versions of each registered model that are kept, besides those that are always kept: versions with an
    #: alias, the last champions, versions that a person chose, rolled back or marked, and parents of kept versions.
    keep_versions: Positive = 10
    #: Checkpoints that were not written for so many days are deleted, so that an interrupted run starts anew; and
    #: features of frozen encoders that were not used, which are computed again if needed.
    checkpoint_days: NonNegativeFloat = 7


class BudgetSettings(Section, json_schema_extra=NO_EFFECT):
    """The limit of one run. A run that is expected to exceed it is refused; one that does is stopped, and the next run
    resumes it."""

    #: Maximum hours; null: no limit.
    hours: PositiveFloat | None = None


#: Family of the encoders of `static`.
STATIC_FAMILY = "word2vec"


@dataclass(frozen=True)
class Block:
    """What a name in `run.families` stands for: a block of `pretrain`, or one that is computed from such blocks.

    Attributes:
        published: whether the encoder, or one that it is computed from, is imported.
        parents: the blocks that it is computed from; none for a block of `pretrain`.
    """

    family: str
    tokenizer: str
    published: bool
    parents: tuple[str, ...] = ()


class Params(Section):
    """The sections of params.yaml."""

    #: What the run covers.
    run: RunSettings
    #: Where training runs.
    cluster: ClusterSettings = ClusterSettings()
    #: Limits of one run.
    budget: BudgetSettings = BudgetSettings()
    #: Where the raw data is.
    data: DataSettings
    #: Comparison of new data with the last accepted version.
    checks: ChecksSettings = ChecksSettings()
    #: Cleaning, deduplication and sharding.
    ingest: IngestSettings = IngestSettings()
    #: Vocabularies.
    tokenizer: TokenizerSettings = TokenizerSettings()
    #: Block name -> language model.
    pretrain: dict[BlockName, PretrainSettings] = {}
    #: Block name -> word vectors from an encoder.
    static: dict[BlockName, StaticSettings] = {}
    #: Block name -> adaptation; may be empty if `run.starts` does not contain `adapted`.
    adapt: dict[BlockName, AdaptSettings] = {}
    #: Task -> continued pretraining on its texts.
    adapt_task: dict[BlockName, AdaptTaskSettings] = {}
    #: Tasks whose fine-tuned models are further initialisations of all other tasks.
    intermediate_tasks: list[BlockName] = []
    #: Block name -> fine-tuning.
    finetune: dict[BlockName, FinetuneSettings] = {}
    #: Group name -> tasks that are also learned together.
    together: dict[BlockName, TogetherSettings] = {}
    #: Group name -> students that learn from the predictions of teachers.
    distil: dict[BlockName, DistilSettings] = {}
    #: How systems are scored.
    evaluate: EvaluateSettings = EvaluateSettings()
    #: Test texts in what the models were trained on.
    leakage: LeakageSettings = LeakageSettings()
    #: What a retraining shows while it runs.
    telemetry: TelemetrySettings = TelemetrySettings()
    #: MLflow.
    registry: RegistrySettings = RegistrySettings()
    #: The promotion rule.
    promote: PromotionRule = PromotionRule()
    #: The log of served traffic and its comparison with training.
    drift: DriftSettings = DriftSettings()
    #: What `headstart gc` deletes.
    gc: GcSettings = GcSettings()

    @model_validator(mode="after")
    def _models_and_their_text(self) -> Self:
        trains = [name for name, block in self.pretrain.items() if block.source is None]
        if "adapted" in self.run.starts and self.data.general is None and trains:
            raise ValueError(
                f"run.starts: without data.general, {trains[0]} is pretrained on the text of the domain, so that there "
                "is nothing to adapt; name general text, or remove adapted"
            )
        blocks = {name: block for name in self.run.families if (block := self.block(name)) is not None}
        others = [name for name, block in blocks.items() if block.published or block.parents]
        if VECTORS in self.run.starts and others:
            raise ValueError(
                f"run.starts: {VECTORS} is a model before its pretraining, but {others[0]} is not pretrained here; "
                f"remove {VECTORS} or {others[0]}"
            )
        tasks = [self.data.tasks[name] for name in self.run.tasks if name in self.data.tasks]
        judged = all("all" in task.budgets and task.no_label == "refuse" for task in tasks)
        if self.collects_texts and not self.data.unlabelled and tasks and judged:
            raise ValueError(
                "data: the only text is that of the labelled rows, on all of which scores are computed (budgets: all), "
                "so that no language model may read it; name text in data.unlabelled or data.domain, or budgets that "
                "leave rows of train"
            )
        return self

    @property
    def learns_language(self) -> bool:
        """Whether a language model is trained or adapted, for which text is tokenized."""
        return any(block.source is None for block in self.pretrain.values()) or "adapted" in self.run.starts

    @property
    def reads_documents(self) -> bool:
        """Whether fine-tuning, words models, or an encoder that is computed from others read the domain corpus."""
        sources = [settings.source for settings in self.distil.values()]
        of_words = any(map(self.words_read_documents, self.run.tasks))
        return bool(self.static) or of_words or any(source != "task" for source in sources)

    def words_read_documents(self, task: str) -> bool:
        """Whether the words models of a task read the domain corpus: text without labels is given for rows of one
        text."""
        return bool(self.data.unlabelled) and self.data.tasks[task].kind in OF_ONE_TEXT

    @property
    def collects_texts(self) -> bool:
        """Whether the domain corpus is made from the texts of the tasks and `data.unlabelled`."""
        if self.data.domain is not None:
            return False
        learned = "adapted" in self.run.starts or (self.learns_language and self.data.general is None)
        return learned or self.reads_documents

    @property
    def corpora(self) -> dict[str, CorpusSource]:
        """The corpora of the run: `general` and `domain`, those that a stage reads."""
        general, domain = self.data.general, self.data.domain
        if self.collects_texts:
            domain = CorpusSource(path=f"{self.run.out}/domain-texts", id="id")
        named = {"general": general if self._trains else None, "domain": domain}
        reads = self._trains or self.reads_documents
        return {name: source for name, source in named.items() if reads and source is not None}

    @property
    def _trains(self) -> bool:
        return bool(self.learns_language or self.data.parallel or {*self.run.starts} - {"pretrained"})

    @property
    def vocabularies(self) -> list[str]:
        """The corpora of which vocabularies are learned."""
        return list(self.corpora) if self._trains else []

    @property
    def pretraining_corpus(self) -> str:
        """The corpus on which language models are pretrained: the domain's if there is no general text."""
        return "domain" if self.data.general is None else "general"

    @property
    def downstream_vocabulary(self) -> str:
        """The corpus whose vocabulary the domain's text and the tasks are read with."""
        return self.tokenizer.domain_vocabulary if self.data.general is not None else "domain"

    def block(self, name: str) -> Block | None:
        """The block of that name; None if there is none."""
        if (made := self.pretrain.get(name)) is not None:
            return Block(made.family or name, made.tokenizer, made.source is not None)
        if (static := self.static.get(name)) is not None:
            teacher = self.pretrain.get(static.teacher)
            if teacher is None:
                return None
            return Block(STATIC_FAMILY, teacher.tokenizer, teacher.source is not None, (static.teacher,))
        return None

    def origins(self, name: str) -> list[str]:
        """The blocks that a block is computed from."""
        return [*block.parents] if (block := self.block(name)) else []
