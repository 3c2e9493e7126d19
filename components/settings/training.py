"""Settings of the training loop, and the blocks of `pretrain`, `static`, `adapt` and `adapt_task`."""

from __future__ import annotations

from typing import Any, Final, Literal

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveFloat, model_validator

from components.settings.section import Fraction, Positive, Section, TokenizerKind

#: Ratios of a long window to a short one, in the order of preference.
RATIOS: Final = (4, 2)


class Training(Section):
    """Settings of the training loop."""

    #: Peak learning rate.
    rate: PositiveFloat
    #: Learning rate schedule; `slanted_triangular` is the schedule of ULMFiT, section 3.2.
    schedule: Literal["constant", "linear", "cosine", "slanted_triangular"] = "cosine"
    #: Optimizer; `asgd` is SGD whose weights are averaged since the step at which the held-out loss stops falling
    #: (NT-ASGD, Merity et al. 2018; in pretraining and adaptation).
    optimizer: Literal["adamw", "sgd", "asgd", "adagrad"] = "adamw"
    #: Exponential decay rates of the gradient's first and second moments, for AdamW.
    betas: tuple[Fraction, Fraction] = (0.9, 0.99)
    #: Weight decay of matrices, an L2 penalty in SGD and AdaGrad and decoupled otherwise; biases and norms have none.
    weight_decay: float = 0.01
    #: Maximum norm of the gradient.
    clip: float = 0.5
    #: Rows per step over all workers.
    batch_size: Positive
    #: Data type of matrix products; weights stay float32. `auto` chooses by the device's capability and the model's
    #: size.
    precision: Literal["auto", "float32", "bf16"] = "auto"


class LanguageModelTraining(Training):
    """Training of a language model. Exactly one of `tokens` and `seconds` is set."""

    #: Rows per step over all workers.
    batch_size: Positive = 32
    #: Budget in input tokens (characters for a character model).
    tokens: Positive | None = None
    #: Budget in seconds: the only setting whose effect depends on the speed of the machine. The first steps measure the
    #: speed; the resulting number of steps is stored in the checkpoint and does not change when the run resumes.
    seconds: PositiveFloat | None = None
    #: Maximum number of passes over the text: training ends after them if the budget is larger. null: no limit.
    passes: PositiveFloat | None = None
    #: Learning rate of a layer divided by the rate of the layer below, for discriminative rates (ULMFiT, section 3.2:
    #: 2.6); the embeddings, which are also the output layer, and the other output parameters have the full rate. 1:
    #: equal.
    discriminative: PositiveFloat = 1.0
    #: Tokens per window (back-propagation through time for recurrent families).
    window: Positive = 64
    #: Tokens per window in every tenth step, which has fewer rows and as many tokens as the others, so that later
    #: positions are trained as well (Devlin et al. 2019, appendix A.2). A multiple of `window`. null: 4 or 2 times
    #: `window`, if `batch_size` is a multiple of this factor and the model has as many positions; else `window`. A new
    #: model has no positions beyond it. Only for families with a limited number of positions.
    long_window: Positive | None = None
    #: Standard deviation of the window length around `window` (AWD-LSTM, section 5), in tokens. Recurrent families
    #: only; 0 for a constant length.
    window_jitter: NonNegativeFloat = 5
    #: Whether embeddings without pretrained values are initialised with co-occurrence vectors of the same text. Not for
    #: character models.
    vectors: bool = False
    #: Held-out tokens of one measurement of perplexity: of the domain before and after training, and in adaptation of
    #: general text before and after. With fewer than 16,384, the curve has fewer held-out losses too.
    heldout: Positive = 32_768
    #: Factor on the model's dropout rates during pretraining (ULMFiT's drop multiplier); 0 suits one pass over much
    #: text. Fine-tuning has its own factor.
    dropout: NonNegativeFloat = 1.0

    @model_validator(mode="after")
    def _budget_and_windows(self) -> LanguageModelTraining:
        if (self.tokens is None) == (self.seconds is None):
            raise ValueError("needs a budget: either tokens or seconds")
        ratio, rest = divmod(self.long_window or self.window, self.window)
        if rest or self.batch_size % max(1, ratio):
            raise ValueError(
                f"long_window {self.long_window} must be a multiple of window {self.window}, and batch_size "
                f"{self.batch_size} a multiple of their ratio"
            )
        return self

    def only_windows(self) -> LanguageModelTraining:
        """The settings on which `longest` depends; all others have the same values in every run."""
        return LanguageModelTraining(
            tokens=1, rate=1.0, window=self.window, long_window=self.long_window, batch_size=self.batch_size
        )

    def longest(self, positions: int | None) -> int:
        """Tokens of the longest window for a model with this number of positions; None: without positions."""
        if positions is None:
            return self.window
        if self.long_window is not None:
            return self.long_window
        fits = (ratio for ratio in RATIOS if self.batch_size % ratio == 0 and self.window * ratio <= positions)
        return self.window * next(fits, 1)


class IncrementSettings(Section):
    """Adaptation to new text that continues from the last adapted model instead of the pretrained one, with a
    re-warmed learning rate and replay of text that it has already learned (Ibrahim et al. 2024)."""

    #: Every k-th adaptation to new text starts from the pretrained model and learns all text; null: only when needed.
    rebuild_every: Positive | None = 10


class AdaptSettings(Section):
    """Continued pretraining on the domain's text."""

    #: Training of the language model.
    training: LanguageModelTraining
    #: How new text is learned; null: every adaptation starts from the pretrained model.
    increment: IncrementSettings | None = IncrementSettings()


class AdaptTaskSettings(Section):
    """Continued pretraining of the adapted model on the unlabelled texts of one task's train split (Gururangan et al.
    2020), with the settings of `adapt.<name>.training`."""

    #: Passes over the texts; replaces the budget of `adapt.<name>.training`.
    epochs: PositiveFloat = 10


class PretrainSettings(Section):
    """One language model: its family, tokenizer, size and pretraining."""

    #: Model family; null: the name of the block. Two blocks may train one family in two sizes.
    family: str | None = None
    #: Tokenizer. `parallel` is the shared vocabulary of `data.parallel`; the model then learns from these pairs.
    tokenizer: TokenizerKind | Literal["parallel"]
    #: Published size by name, such as `bert-base`. Published keys of `training` (GPT: betas of Adam) apply
    #: where `training` does not set them.
    preset: str | None = None
    #: Keys of the family's config class; they take precedence over the preset.
    model: dict[str, Any] = {}
    #: Published model that is imported instead of trained: OWNER/NAME@COMMIT of the hub, or any form that `headstart
    #: import` reads. It determines the size, so `preset` must be empty, and `model` has no keys but dropout rates and,
    #: of ULMFiT, `activation` and `slowness`.
    source: str | None = None
    #: SHA-256 of the source, as `headstart check` prints it. The encoder is rebuilt when it changes. null: the files
    #: are not verified.
    digest: str | None = None
    #: Word vectors as text (word2vec, GloVe, fastText, or `headstart export --format vectors`). They fill the static
    #: channel of a model with `static`, which then has their width; the embedding table of other models starts from
    #: them. Pieces are matched with its words. null: random embeddings, and a channel of co-occurrence vectors of the
    #: text. Character models (FLAIR) have the channel only, and it needs a file.
    vectors: str | None = None
    #: SHA-256 of the vectors, as `headstart check` prints it.
    vectors_digest: str | None = None
    #: Training of the language model.
    training: LanguageModelTraining


class StaticSettings(Section):
    """Word vectors from an encoder: every piece of its vocabulary, encoded alone, reduced by principal components and
    weighted by its frequency (model2vec: Tulkens and van Dongen 2024), then fitted to the encoder's means of passages
    of the domain. The block has the initialisations of the encoder: `adapted` are the vectors of the adapted one."""

    #: Block of `pretrain`: the encoder, trained or imported.
    teacher: str
    #: Number of principal components that are kept; at most the width of the encoder.
    width: Positive = 256
    #: Number of frequent words of the domain corpus that get vectors of their own. They are added to the pieces of a
    #: WordPiece vocabulary; with other tokenizers they are the vocabulary.
    words: NonNegativeInt = 0
