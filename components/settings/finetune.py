"""`finetune.<name>`, `together.<group>` and `distil.<name>`: how the labels are learned."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, model_validator

from components.settings import contrastive
from components.settings.contrastive import ContrastiveSettings
from components.settings.section import Fraction, LayerChoice, Positive, Section
from components.settings.tasks import TextSource
from components.settings.training import Training

#: One way to learn from the labels.
Way = Literal["features", "contrastive", "finetune", "distil"]
#: Those that a block can ask for; students of `distil` also learn by `distil`.
OwnWay = Literal["features", "contrastive", "finetune"]


class ScratchSettings(Section):
    """Overrides for an encoder with random weights. Its layers need neither the small learning rates nor the gradual
    unfreezing that protect pretrained weights, and a head on frozen random features would be too weak a baseline."""

    #: Peak learning rate; null: `training.rate`.
    rate: PositiveFloat | None = None
    #: Epochs; null: `epochs`.
    epochs: PositiveFloat | None = None


class AutoSettings(Section):
    """What `method: auto` tries."""

    #: Ways to learn, in the order of their cost. The one with the best score of selection is used, the cheapest at a
    #: tie. `contrastive` is left out for pairs.
    ways: list[OwnWay] = Field(default=["features", "contrastive", "finetune"], min_length=1)
    #: Maximum cost of a label budget and seed in minutes, over all folds of all ways. A way that costs more than is
    #: left is trained with fewer steps, or left out if these are less than an eighth. What is left is divided equally
    #: among the ways still to be tried. Estimated from the number of pieces and parameters at 50 GFLOP/s, so that the
    #: choice does not depend on the machine's load; null: no limit.
    minutes: PositiveFloat | None = None


class ReadingSettings(Section):
    """How an encoder reads a row. The features of a frozen encoder depend on these settings and on no others."""

    #: Hidden states that the head reads.
    layers: LayerChoice = "all"
    #: Pooling of hidden states to one vector per text: `summary` is the first token (BERT) or the last state (causal
    #: models), `lead` a mean with weight 1 / (3 + t) at position t, `concat` is [last, max, mean] (ULMFiT, section
    #: 3.3), `trained` the pooling and the further layers with which a sentence encoder was trained (modules.json), and
    #: `mean` for others.
    pooling: Literal["concat", "summary", "mean", "lead", "max", "trained"] = "concat"
    #: Whether the vectors of a text are scaled to length 1 after pooling, each layer's by itself, as by models of
    #: sentence-transformers (Reimers and Gurevych 2019); of kinds with one vector per text.
    unit_length: bool = False
    #: Encoding of text pairs: `joined` in one sequence, or `apart`, with the vectors u and v combined to
    #: [u, v, |u - v|, u v] (Conneau et al. 2017). `auto`: joined if the encoder has attention.
    pairs: Literal["auto", "joined", "apart"] = "auto"
    #: Maximum number of pieces per text, special pieces included; more are truncated.
    max_length: Positive = 128
    #: Pieces per chunk for long texts (BPTT for text classification, ULMFiT, section 3.3: 70); null: no chunks.
    #: Recurrent families carry their state to the next chunk, other families encode each chunk independently. Pooling
    #: covers all chunks.
    chunk: Annotated[int, Field(ge=8)] | None = None
    #: Number of chunks, counted from the end of a text, that receive gradients.
    chunks_learned: Positive = 4


class LayerSettings(Section):
    """The rates and the order in which the layer groups of an encoder are trained; of ways that train it."""

    #: Factor on the head's learning rate while the encoder is trained. Adam's update is of the same size for every
    #: weight, so the logits of a head change in proportion to its number of inputs; a rate inversely proportional to
    #: the width compensates (Yang et al. 2022, Tensor Programs V, table 3).
    head_scale: Annotated[float, Field(gt=0, le=1)] = 1.0
    #: Discriminative learning rates: the rate of a layer group is the rate of the group above divided by this factor
    #: (ULMFiT, section 3.2: 2.6).
    discriminative: Annotated[float, Field(ge=1)] = 2.6
    #: What has the full rate: the head and the top layer group (`top`), or the head alone (`head`), so that the top
    #: layer group has the rate of the head divided by `discriminative`, as in the published code of ULMFiT.
    discriminative_from: Literal["top", "head"] = "top"
    #: Order in which layer groups are unfrozen: from the top down, cumulatively (`gradual`; ULMFiT, section 3.3); each
    #: alone from the bottom up, then all (`chain_thaw`; Felbo et al. 2017); or all at once (`none`).
    unfreezing: Literal["gradual", "chain_thaw", "none"] = "gradual"
    #: Epochs between the unfreezing of two layer groups; 0 trains all from the first step.
    unfreeze_epochs: NonNegativeFloat = 1
    #: Learning rate schedule: one over all steps (`whole`), or one in each interval between two changes of the trained
    #: layer groups (`stages`), as in the published code of ULMFiT.
    unfreeze_schedule: Literal["whole", "stages"] = "whole"


#: Key of `finetune.<name>` -> values of `method` that read it.
KEYS_OF_WAYS: Final[dict[str, tuple[str, ...]]] = {
    "auto": ("auto",),
    "contrastive": ("auto", "contrastive"),
    **dict.fromkeys(LayerSettings.model_fields, ("auto", "contrastive", "finetune", "distil")),
}


class FinetuneSettings(ReadingSettings, LayerSettings):
    """Fine-tuning of one language model. The head is first trained on features of the frozen encoder (`head_steps`).
    With `method: finetune` the encoder is then trained with it, layer group by layer group (linear probing, then
    fine-tuning: Kumar et al. 2022). With `method: contrastive` the encoder alone is trained, and the head is fitted
    again to its features at every evaluation."""

    #: `features`: only the head is trained, on frozen-encoder features; `finetune`: head and encoder are trained;
    #: `contrastive`: the encoder is trained on pairs of texts (`contrastive`), the head on its features; `auto`: one of
    #: several ways (`auto`).
    method: Way | Literal["auto"] = "finetune"
    #: With `method: auto`: the ways that are tried.
    auto: AutoSettings = AutoSettings()
    #: Contrastive training; `epochs`, `min_steps`, `evaluations`, `training.rate` and `training.batch_size` do not
    #: apply to it.
    contrastive: ContrastiveSettings = ContrastiveSettings()
    #: Whether the head on the frozen encoder is also scored, as a separate system, which learns by `method: features`.
    #: Not applied to an encoder with random weights.
    frozen: bool = False
    #: Words beside the encoder, for kinds with probabilities of labels. `auto` chooses as `selection` says: no words,
    #: or a mean of the probabilities of a TF-IDF model and of the encoder with some weight.
    words: Literal["none", "auto"] = "none"
    #: Whether the name of each label (`data.tasks.<name>.label_texts`) is one more training text of its class (Yehudai
    #: and Bandel 2024, FastFit). Classification and multilabel. `auto`, the default with `method: auto`, compares
    #: training with and without names when the penalty is chosen; it uses no names if one of them is not a word, or if
    #: the head is not linear.
    label_names: Literal["none", "always", "auto"] = "none"
    #: Of a linear head on frozen features, and of the last head of contrastive training: `balanced` subtracts the log
    #: frequency of each class from its logit, so that classes are decided as if they were equally frequent (Menon et
    #: al. 2021, logit adjustment); `none` does not; `auto`: chosen by the primary metric together with the penalty.
    #: Classification, pair and multilabel, unless the metric is accuracy or the classes are equally frequent.
    class_weight: Literal["none", "balanced", "auto"] = "auto"
    #: Width of the head's hidden layer; 0 for none.
    head_hidden: NonNegativeInt = 0
    #: Normalisation of the head's input: `fixed` with mean and std of each training feature; `block`, with one std for
    #: the features of each block (pooled layer, part of a pair); `length`, as `block`, then each block of a text scaled
    #: to one length; `batch` norm; `none`; or `auto`, of linear heads that are solved on features: the best of fixed,
    #: block and length, chosen with the penalty (the default with `method: auto`).
    head_norm: Literal["fixed", "block", "length", "auto", "batch", "none"] = "fixed"
    #: Dropout rate before each linear layer of the head: one for all, or one for each in order (ULMFiT: [0.4, 0.1], the
    #: pooled features and the hidden layer).
    head_dropout: Fraction | list[Fraction] = 0.1
    #: Maximum number of steps of the head on the frozen encoder's features; 0: the head keeps its random
    #: initialisation.
    head_steps: NonNegativeInt = 200
    #: Candidates for the L2 penalty of each label's weights on features: 1 / C of scikit-learn's LogisticRegression, of
    #: heads with numbers alpha of its Ridge on targets scaled to [0, 1]; the best one is chosen on dev or by
    #: cross-validation (`data.tasks.<name>.selection`).
    head_penalties: list[PositiveFloat] = Field(default=[1.0, 10.0, 100.0, 1000.0], min_length=1)
    #: Epochs of fine-tuning.
    epochs: PositiveFloat = 8
    #: Minimum number of steps, if `epochs` amounts to fewer.
    min_steps: NonNegativeInt = 0
    #: Evaluations, evenly spaced over the steps, on dev or on the rows of each fold; one with `method: contrastive`,
    #: at its end. The weights of the best one are
    #: the result; the initial weights, with the head on the frozen encoder, are one of the candidates.
    evaluations: Positive = 8
    #: Weight lambda of the auxiliary language-model loss on the same texts, L = L_task + lambda * L_lm (Radford et al.
    #: 2018, section 3.2: 0.5). Only families with a causal model of whole texts: ULMFiT, GPT and Transformer-XL.
    lm_weight: NonNegativeFloat = 0.0
    #: Output layer of tagging: linear, linear-chain CRF, or biLSTM and CRF.
    tagger: Literal["linear", "crf", "bilstm_crf"] = "linear"
    #: Factor on the encoder's dropout rates.
    dropout: NonNegativeFloat = 1.0
    #: Factor on the encoder's activation regularisation (AR and TAR: `activation` and `slowness` of the model) in the
    #: loss. Only ULMFiT (fastai: 1).
    activation_penalty: NonNegativeFloat = 0.0
    #: Training of head and encoder.
    training: Training
    #: Overrides for an encoder with random weights.
    scratch: ScratchSettings = ScratchSettings()

    @property
    def own_task_tokens(self) -> bool:
        """Whether GPT's inputs have start, delimiter and extract tokens of their own, randomly initialised (Radford et
        al. 2018, section 3.3), instead of the tokens of pretraining: if the encoder is trained."""
        return self.method != "features"

    @property
    def step_rows(self) -> int:
        return contrastive.ROWS if self.method == "contrastive" else self.training.batch_size

    @model_validator(mode="before")
    @classmethod
    def _defaults_of_auto(cls, values: Any) -> Any:
        is_auto = isinstance(values, dict) and values.get("method") == "auto"
        return {"head_norm": "auto", "label_names": "auto"} | values if is_auto else values

    @model_validator(mode="after")
    def _keys_that_fit(self) -> FinetuneSettings:
        layers = 2 if self.head_hidden else 1
        if isinstance(self.head_dropout, list) and len(self.head_dropout) != layers:
            raise ValueError(
                f"head_dropout has {len(self.head_dropout)} rates, but with head_hidden {self.head_hidden} the head "
                f"has {layers} linear layer{'s' if layers > 1 else ''}; give one number, or one rate for each"
            )
        if wrong := [
            f"{key} belongs to method {', '.join(methods)}, and method is {self.method}; remove {key}"
            for key, methods in KEYS_OF_WAYS.items()
            if self.method not in methods and getattr(self, key) != type(self).model_fields[key].default
        ]:
            raise ValueError("; ".join(wrong))
        if self.method == "contrastive" and not self.head_steps:
            raise ValueError("head_steps must be at least 1 with method contrastive, which fits the head on features")
        return self

    def by(self, method: str, **changes: Any) -> FinetuneSettings:
        """These settings with another method: the keys of the ways to learn that it lacks have their defaults."""
        fields = type(self).model_fields
        absent = {key: fields[key].default for key, methods in KEYS_OF_WAYS.items() if method not in methods}
        return self.model_copy(update=absent | {"method": method} | changes)


class TogetherSettings(Section):
    """Multi-task learning: one encoder, one head per task, with the settings of `finetune.<name>`."""

    #: Names of the tasks.
    tasks: list[str] = Field(min_length=2)
    #: The task of a step is sampled with probability proportional to rows^(1 / temperature).
    temperature: PositiveFloat = 1.0


class DistilSettings(Section):
    """Distillation (Hinton et al. 2015): the teachers label text without labels, and the students learn their
    probabilities. For each label budget, seed and fold of a cross-validation, a student learns from teachers that have
    learned from the same labelled rows. The head on the student's frozen encoder, and the student's own way to learn
    without teachers, are candidates too."""

    #: Texts without labels that teachers label and students learn.
    source: TextSource = "task"
    #: Systems of the run: a block and an initialisation, as in `minilm-pretrained`. The predictions of several teachers
    #: are averaged.
    teachers: list[str] = Field(min_length=1)
    #: Systems of the run: a block and an initialisation, as in `static-pretrained`.
    students: list[str] = Field(min_length=1)
