"""`finetune.<name>`: how the labels are learned."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from components.settings.names import LayerChoice
from components.settings.section import Fraction, Positive, Section
from components.settings.training import Training


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
