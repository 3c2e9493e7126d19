"""`tokenizer`: vocabularies, one block per tokenizer."""

from typing import Final, Literal

from pydantic import Field

from components.settings.section import Positive, Section, TokenizerKind

#: Default numbers of pieces, and of words.
PIECES: Final = 8000
WORDS: Final = 12000


class SubwordSettings(Section):
    """Subword vocabulary, learned or published. For a published one, only frequencies are counted in the corpus."""

    #: Hugging Face folder of a published vocabulary; null: the vocabulary is learned.
    source: str | None = None
    #: SHA-256 of the published tokenizer's files, as `headstart check` prints it; null: not verified.
    digest: str | None = None
    #: Number of pieces, special pieces included. Null: 8,000, or as many as the corpus yields if those are fewer.
    vocabulary: Positive | None = None

    @property
    def size(self) -> int:
        """The number of pieces that are learned if the corpus yields them."""
        return self.vocabulary or PIECES


class BytePairSettings(SubwordSettings):
    """Byte-level BPE: 256 bytes and merges of pairs (Sennrich et al. 2016; Radford et al. 2019)."""


class WordPieceSettings(SubwordSettings):
    """WordPiece (Schuster and Nakajima 2012; Devlin et al. 2019)."""

    #: Minimum frequency of a merged pair.
    min_frequency: Positive = 2
    #: Whether text is lower-cased.
    lowercase: bool = True


class UnigramSettings(SubwordSettings):
    """Unigram language model over pieces (Kudo 2018)."""

    #: Whether text is lower-cased.
    lowercase: bool = True


class WordSettings(Section):
    """Kinds `word` and `open_word`; the latter also assigns ids to unseen words, for models that read characters."""

    #: Number of words, special pieces included. Null: 12,000, or as many as the corpus yields if those are fewer.
    vocabulary: Positive | None = None
    #: Whether text is lower-cased.
    lowercase: bool = True
    #: Minimum frequency of a word.
    min_frequency: Positive = 3

    @property
    def size(self) -> int:
        """The number of words that are learned if the corpus yields them."""
        return self.vocabulary or WORDS


class CharSettings(Section):
    """A vocabulary of single characters."""

    #: Maximum number of pieces: characters and special pieces.
    max_vocabulary: Positive = 2000


class TokenizerSettings(Section):
    """Vocabularies: which kinds are learned, from how much text, and the settings of each kind."""

    #: Kinds to learn; the tokenizer of every block of `pretrain` must be among them.
    kinds: list[TokenizerKind] = Field(default=["wordpiece"], min_length=1)
    #: Vocabulary of the domain corpus: its own, to which the model's embeddings are re-mapped, or the general one.
    domain_vocabulary: Literal["domain", "general"] = "domain"
    #: Megabytes of text from which a vocabulary is learned.
    sample_megabytes: Positive = 64
    wordpiece: WordPieceSettings = WordPieceSettings()
    word: WordSettings = WordSettings()
    char: CharSettings = CharSettings()
    bpe: BytePairSettings = BytePairSettings()
    unigram: UnigramSettings = UnigramSettings()
