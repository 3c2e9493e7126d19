"""`pretrain.<name>`: one language model and its pretraining."""

from __future__ import annotations

from typing import Any, Literal

from components.settings.names import TokenizerKind
from components.settings.section import Section
from components.settings.training import LanguageModelTraining


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
    #: Published model that is imported instead of trained, in any form that `headstart import` reads. It determines
    #: the size, so `preset` must be empty, and `model` has no keys but dropout rates and, of ULMFiT, `activation` and
    #: `slowness`.
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
