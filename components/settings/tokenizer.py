"""`tokenizer`: vocabularies, one block per tokenizer."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from components.settings.names import TokenizerKind
from components.settings.section import Positive, Section


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
