"""What `pretrain.<name>` leaves out, by its family. No torch is imported to know it."""

from typing import Final, NamedTuple


class Family(NamedTuple):
    """Defaults of a family.

    Attributes:
        tokenizer: `pretrain.<name>.tokenizer`, a kind that the family supports.
        rate: `pretrain.<name>.training.rate`, at which a model of the default size learns.
        causal: whether it predicts the next piece (`ModelFamily.objective`).
    """

    tokenizer: str = "wordpiece"
    rate: float = 0.001
    causal: bool = False


#: The families of `components.models.FAMILIES`.
FAMILIES: Final = {
    "ulmfit": Family(rate=0.0085, causal=True),
    "bert": Family(),
    "flair": Family("char", 0.004, causal=True),
    "elmo": Family("open_word", 0.008, causal=True),
    "gpt": Family("bpe", causal=True),
    "roberta": Family("bpe"),
    "mpnet": Family(),
    "modernbert": Family("bpe"),
    "albert": Family(),
    "word2vec": Family("word", 0.015),
    "glove": Family("word", 0.1),
    "fasttext": Family("open_word", 0.015),
    "cove": Family("parallel", 0.006),
    "transformer": Family("parallel"),
    "transformer-xl": Family(causal=True),
    "xlnet": Family(),
}
