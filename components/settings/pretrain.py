"""`pretrain.<name>`: one language model and its pretraining."""

from __future__ import annotations

from typing import Any, Literal

from components.settings.names import TokenizerKind
from components.settings.section import Section
from components.settings.training import LanguageModelTraining


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
