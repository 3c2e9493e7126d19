"""Settings of the training loop, shared by pretraining, adaptation and fine-tuning."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from components.settings.section import Fraction, Positive, Section


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
