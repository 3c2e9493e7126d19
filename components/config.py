"""params.yaml as typed, frozen objects.

One model per section; unknown keys and wrong types are errors. `components.params` reads and checks the file.
"""

from __future__ import annotations

import os
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from components.sections import Fraction, Positive, Section
from components.task_source import TaskSource

Start = Literal["scratch", "pretrained", "adapted"]
#: Name of the start that goes on from `adapted` with the task's own texts (`adapt_task`).
TASK_ADAPTED = "task-adapted"
#: Between a start and the group of tasks that it learned together with (`together`), in names of starts.
WITH = "-with-"
#: End of the name of a start whose encoder stayed frozen, where `finetune.<family>.frozen` asks for it.
FROZEN = "-frozen"
#: Family of the systems that learn from the labels alone, without a language model.
BASELINE = "baseline"
LayerChoice = Literal["last", "second_to_last", "sum", "sum_last_four", "concat_last_four", "first", "mix", "all"]
TokenizerKind = Literal["wordpiece", "word", "open_word", "char", "bpe", "unigram"]
#: Of a block in `pretrain`: it becomes part of the names of folders and stages.
BlockName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]


class RunSettings(Section):
    """What one run of the pipeline covers."""

    out: str
    families: list[str] = Field(min_length=1)
    tasks: list[str] = Field(min_length=1)
    starts: list[Start] = Field(min_length=1)
    seed: int


class ClusterSettings(Section):
    """Where training runs. None of it changes what is learned, so no stage depends on it."""

    launcher: Literal["ray", "local"] = "ray"
    workers: Positive | Literal["auto"] = "auto"
    address: str = "local"
    storage: str = ".headstart/checkpoints"
    #: Folder for what frozen encoders say of texts, so that it is computed once for all label budgets, seeds and heads;
    #: beyond so many gigabytes what was not used for longest goes.
    features: str = ".headstart/features"
    features_gigabytes: Annotated[float, Field(ge=0)] = 8


class CorpusSource(Section):
    """Raw text of one corpus: a folder of txt, jsonl, csv, tsv or parquet files, plain, .gz or .zst."""

    path: str
    text: str = "text"
    id: str | None = None
    language: str = "en"


class ParallelSource(Section):
    """Pairs of texts, one a translation of the other: a folder of jsonl, csv, tsv or parquet files with two columns."""

    path: str
    source: str = "source"
    target: str = "target"
    id: str | None = None


class DataSettings(Section):
    """Where the raw data lies; all of it below data/, which data.dvc versions."""

    general: CorpusSource
    domain: CorpusSource
    #: Pairs for families that learn to translate: what is pretrained on (`general`) and what adaptation goes on with
    #: (`domain`; the same folder where the domain has no pairs of its own). Empty: nothing is made of pairs.
    parallel: dict[Literal["general", "domain"], ParallelSource] = {}
    tasks: dict[str, TaskSource] = Field(min_length=1)

    @field_validator("parallel")
    @classmethod
    def _both(cls, parallel: dict[str, ParallelSource]) -> dict[str, ParallelSource]:
        if len(parallel) == 1:
            raise ValueError("must name both general and domain (the same folder, if there is only one)")
        return parallel


class NearDuplicates(Section):
    """MinHash over word n-grams; documents at least `threshold` alike (Jaccard, estimated) count as one."""

    threshold: Annotated[float, Field(gt=0, le=1)] = 0.8
    permutations: Positive = 64
    ngram: Positive = 5


class IngestSettings(Section):
    """Cleaning, dropping and sharding of raw text."""

    strip_markup: bool = True
    min_characters: int = 1
    near_duplicates: NearDuplicates | None = NearDuplicates()
    #: Share of documents set apart, by a hash of their text, to measure perplexity.
    heldout: Fraction = 0.01
    shard_megabytes: Positive = 32


class PublishedVocabulary(Section):
    """The vocabulary of a published model in place of a learned one; only its counts come from the corpus then."""

    #: A Hugging Face folder, and the SHA-256 of its tokenizer's files (`headstart check` names it).
    source: str | None = None
    digest: str | None = None


class WordPieceSettings(PublishedVocabulary):
    vocabulary: Positive = 8000
    lowercase: bool = True
    min_frequency: Positive = 2


class WordSettings(Section):
    """Of the kinds `word` and `open_word`: the latter gives unseen words ids of their own, for models that spell."""

    vocabulary: Positive = 12000
    lowercase: bool = True
    min_frequency: Positive = 3


class CharSettings(Section):
    min_frequency: Positive = 2
    max_vocabulary: Positive = 2000


class BytePairSettings(PublishedVocabulary):
    """Byte-level BPE: 256 bytes and the merges of pairs that come at least `min_frequency` times."""

    vocabulary: Positive = 8000
    min_frequency: Positive = 2


class UnigramSettings(PublishedVocabulary):
    """Pieces that make the text most probable, each drawn by itself (Kudo 2018)."""

    vocabulary: Positive = 8000
    lowercase: bool = True


class TokenizerSettings(Section):
    """Vocabularies, one block a kind. `segmenter` cuts languages without spaces into words beforehand."""

    #: The kinds to train: each family's `pretrain.<family>.tokenizer` must be among them.
    kinds: list[TokenizerKind] = Field(default=["wordpiece"], min_length=1)
    #: Kind of the vocabulary that both sides of `data.parallel` share, learned from the corpus and from the pairs.
    parallel: Literal["word", "wordpiece"] = "word"
    #: Whose vocabulary the domain's text gets: its own (the model is re-mapped to it), or the general one.
    domain_vocabulary: Literal["domain", "general"] = "domain"
    segmenter: Literal["auto", "none", "thai"] = "auto"
    sample_megabytes: Positive = 64
    wordpiece: WordPieceSettings = WordPieceSettings()
    word: WordSettings = WordSettings()
    char: CharSettings = CharSettings()
    bpe: BytePairSettings = BytePairSettings()
    unigram: UnigramSettings = UnigramSettings()


class Training(Section):
    """Settings that the one training loop understands; the same for pretraining, adaptation and fine-tuning.

    `rate` is the peak learning rate; `warmup` and `decay` are shares of all steps; `clip` is the gradient norm.
    """

    rate: Annotated[float, Field(gt=0)]
    schedule: Literal["constant", "linear", "cosine", "slanted_triangular"] = "cosine"
    warmup: Fraction = 0.1
    final_rate: Fraction = 0.05
    optimizer: Literal["adamw", "sgd", "asgd", "adagrad"] = "adamw"
    betas: tuple[Fraction, Fraction] = (0.9, 0.99)
    eps: float = 1e-8
    weight_decay: float = 0.01
    clip: float = 0.5
    batch_size: Positive
    precision: Literal["auto", "float32", "bf16"] = "auto"
    #: Wall-clock seconds between two checkpoints; changes nothing in what is learned.
    checkpoint_seconds: Annotated[float, Field(gt=0)] = 60
    average: Literal["none", "ema", "asgd"] = "none"


class LanguageModelTraining(Training):
    """The budget is either `tokens`, input tokens (characters for a character model), or `seconds` of training on the
    machine at hand: the first seconds measure its speed, the steps that fit are then fixed for every later attempt."""

    tokens: Positive | None = None
    seconds: Annotated[float, Field(gt=0)] | None = None
    window: Positive = 64
    #: Standard deviation of the window's length around `window` (AWD-LSTM section 5); recurrent models only, 0: none.
    window_jitter: Annotated[float, Field(ge=0)] = 5
    #: Start embeddings that are not learned yet from co-occurrence vectors of the same text; not for characters.
    vectors: bool = False
    #: Factor on the model's dropouts while it reads (ULMFiT's drop multiplier): 0 where one pass over much text leaves
    #: nothing to over-fit. Fine-tuning has a factor of its own.
    dropout: Annotated[float, Field(ge=0)] = 1.0

    @model_validator(mode="after")
    def _one_budget(self) -> LanguageModelTraining:
        if (self.tokens is None) == (self.seconds is None):
            raise ValueError("needs a budget: either tokens or seconds")
        return self


class PretrainSettings(Section):
    """One model's pretraining: its tokenizer, its size (`model`: keys of the family's config class) and the loop.

    `tokenizer: parallel` is the vocabulary of the pairs in `data.parallel`, and the pairs are what is learned from.
    """

    #: What is trained; without it the block's own name. So one family may stand under several names, in several sizes.
    family: str | None = None
    tokenizer: TokenizerKind | Literal["parallel"]
    preset: str | None = None
    model: dict[str, Any] = {}
    #: A published model to start from instead of training one: whatever `headstart import` reads. Its sizes are taken
    #: over, so `preset` and `model` stay empty.
    source: str | None = None
    #: SHA-256 of the source (`headstart check` names it): the encoder is made anew if and only if it changes.
    digest: str | None = None
    training: LanguageModelTraining


class AdaptSettings(Section):
    """Going on with the domain's text."""

    training: LanguageModelTraining


class AdaptTaskSettings(Section):
    """Going on from `adapted` with the texts of one task's train, without their labels (Gururangan et al. 2020), by the
    settings of `adapt.<family>` but for these."""

    #: How often the texts are read; takes the place of the budget.
    epochs: Annotated[float, Field(gt=0)] = 10
    rate: Annotated[float, Field(gt=0)] | None = None
    batch_size: Positive | None = None


class TogetherSettings(Section):
    """Tasks that one encoder learns at the same time, by the settings of `finetune.<family>`.

    Each step is of one task, drawn in proportion to its rows^(1 / temperature).
    """

    tasks: list[str] = Field(min_length=2)
    temperature: Annotated[float, Field(gt=0)] = 1.0


class ScratchSettings(Section):
    """What differs where the encoder starts from random weights: there is nothing yet that small rates protect, and
    frozen random features say nothing of what the model could learn."""

    method: Literal["features", "finetune"] = "finetune"
    rate: Annotated[float, Field(gt=0)] | None = None
    epochs: Annotated[float, Field(gt=0)] | None = None
    head_scale: Annotated[float, Field(gt=0, le=1)] = 1.0
    discriminative: Annotated[float, Field(ge=1)] = 1.0
    unfreeze_epochs: Annotated[float, Field(ge=0)] = 0.0


class FinetuneSettings(Section):
    """How the labels are learned (SYSTEMS.md section 2), one block a family.

    The head learns first, on features of the frozen encoder (`head_steps`); with method `finetune` everything then
    goes on from there, group by group (Kumar et al. 2022, "linear probing then fine-tuning").
    """

    #: `features`: the head alone on the frozen encoder; `finetune`: everything. So word vectors are random (start
    #: `scratch`), frozen (`features`) or fine-tuned; CoVe's states come with its word vectors, [E(w); CoVe(w)], and
    #: those may be GloVe's (`pretrain.<name>.training.vectors`).
    method: Literal["features", "finetune"] = "finetune"
    #: With method `finetune`: score the head alone, on the frozen encoder, as a system of its own (not from scratch).
    frozen: bool = False
    #: Which hidden states the head reads.
    layers: LayerChoice = "all"
    #: How they become one vector a text; `summary` is the first token (BERT) or the last state (causal models),
    #: `lead` a mean that counts a text's beginning more.
    pooling: Literal["concat", "summary", "mean", "lead", "max"] = "concat"
    #: How two texts are read: `joined` in one sequence, or `apart`, the head comparing their vectors u and v by
    #: [u, v, |u - v|, u v] (Conneau et al. 2017); `auto` joins them where the encoder attends from one to the other.
    pairs: Literal["auto", "joined", "apart"] = "auto"
    #: Width of a hidden layer in the head; 0 for none.
    head_hidden: Annotated[int, Field(ge=0)] = 0
    #: Normalisation of the head's input: `fixed` by the training features' mean and deviation, `batch`, or `none`.
    head_norm: Literal["fixed", "batch", "none"] = "fixed"
    head_dropout: Fraction = 0.1
    #: Most steps of the head alone on the frozen encoder's features; 0 starts it at random weights.
    head_steps: Annotated[int, Field(ge=0)] = 200
    #: Learning rate of a head that learns on features by gradient steps (linear heads of one vector a text are solved
    #: for); null: `training.rate`.
    head_rate: Annotated[float, Field(gt=0)] | None = None
    #: Factor on the head's rate while the encoder learns with it. Adam moves every weight alike, so what a linear head
    #: says moves with the number of its inputs: one of thousands loses in a few steps what was solved for. A rate in
    #: inverse proportion to the width keeps it (Yang et al. 2022, Tensor Programs V, table 3).
    head_scale: Annotated[float, Field(gt=0, le=1)] = 1.0
    #: Strengths of the L2 penalty tried in that phase (inverse of C in logistic regression); dev decides.
    head_penalties: list[Annotated[float, Field(gt=0)]] = Field(default=[1.0, 10.0, 100.0, 1000.0], min_length=1)
    #: Rate of a layer group is the rate of the group above divided by this (ULMFiT section 3.2: 2.6).
    discriminative: Annotated[float, Field(ge=1)] = 2.6
    #: In which order layer groups learn: from the top, each joining those above (`gradual`, ULMFiT section 3.3); each
    #: alone, from the bottom, then all together (`chain_thaw`, Felbo et al. 2017); or all from the start (`none`).
    unfreezing: Literal["gradual", "chain_thaw", "none"] = "gradual"
    #: Epochs after which the next group begins to learn; 0 lets all learn from the start.
    unfreeze_epochs: Annotated[float, Field(ge=0)] = 1
    epochs: Annotated[float, Field(gt=0)] = 8
    min_steps: Annotated[int, Field(ge=0)] = 0
    #: Times that dev is scored, spread evenly over the steps; the best one is kept, the head alone among them.
    evaluations: Positive = 8
    #: Evaluations without a better score after which a run ends; null runs all steps.
    patience: Positive | None = None
    #: Weight of the language-model loss on the same texts: loss of the task + lm_weight * mean negative log-likelihood
    #: of a piece (Radford et al. 2018, section 3.2: 0.5); masked families read each text twice for it.
    lm_weight: Annotated[float, Field(ge=0)] = 0.0
    #: Pieces of a text that are read, special ones included; with `chunk`, thousands.
    max_length: Positive = 128
    #: Pieces of a chunk in which long texts are read (ULMFiT section 3.3: 70); null reads them at once. Recurrent
    #: families carry their state from chunk to chunk, of others each chunk is a window by itself; pooling sees all.
    chunk: Annotated[int, Field(ge=8)] | None = None
    #: Chunks of a text that gradients go through, the last ones that are read; memory for gradients grows with them.
    chunks_learned: Positive = 4
    #: What tags each word (tagging): its own scores, a CRF over them, or a biLSTM and a CRF; width of each LSTM.
    tagger: Literal["linear", "crf", "bilstm_crf"] = "linear"
    tagger_hidden: Positive = 256
    #: Pieces between the beginnings of two windows, where a text is longer than `max_length` and read in windows
    #: (tagging, questions); null: half of a window.
    stride: Positive | None = None
    #: Windows of one context that a step learns from (questions): one that holds the answer, and others as drawn.
    windows_learned: Positive = 8
    #: Characters of the longest answer to a question.
    longest_answer: Positive = 160
    #: Factor on the encoder's own dropout rates.
    dropout: Annotated[float, Field(ge=0)] = 1.0
    training: Training
    scratch: ScratchSettings = ScratchSettings()


class EvaluateSettings(Section):
    """How systems are scored; `ensembles`: name -> families whose mean class probabilities are scored as one more."""

    confidence: Annotated[float, Field(gt=0, lt=1)] = 0.95
    resamples: Positive = 1000
    calibration_bins: Positive = 15
    ensembles: dict[BlockName, Annotated[list[str], Field(min_length=2)]] = {}
    #: Classes and slices with fewer test rows are not looked at one by one for harm that transfer does.
    part_rows: Positive = 20


class PromotionRule(Section):
    """When a challenger takes the champion's place. Scores are shares between 0 and 1."""

    #: A score of the task's kind (`components.scoring`); null: its deciding one.
    metric: str | None = None
    #: The challenger must be better by at least this ...
    least_gain: Annotated[float, Field(ge=0)] = 0.0
    #: ... with this confidence (one-sided, paired bootstrap over test rows).
    confidence: Annotated[float, Field(gt=0.5, lt=1)] = 0.95
    resamples: Positive = 2000
    #: No slice with at least `slice_rows` rows may lose more than this, beyond what chance explains.
    largest_slice_loss: Annotated[float, Field(ge=0)] = 0.05
    slice_rows: Positive = 50
    #: Milliseconds for one text at the 50th percentile; null for no bound.
    latency_ms: Annotated[float, Field(gt=0)] | None = 50


class RegistrySettings(Section):
    """MLflow: `MLFLOW_TRACKING_URI` wins over `tracking`, as everywhere."""

    tracking: str = "sqlite:///mlflow.db"
    artifacts: str | None = None
    experiment: str = "headstart"
    prefix: str = "headstart"

    @property
    def address(self) -> str:
        """The one in use."""
        return os.environ.get("MLFLOW_TRACKING_URI") or self.tracking


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
