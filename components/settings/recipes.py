"""What `pretrain.<name>` and `finetune.<name>` leave out, by the family and the origin of the encoder. No torch is
imported to know it."""

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
    "llama": Family("bpe", causal=True),
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
#: `model_type` of a config.json -> family.
MODEL_TYPES: Final = {
    "bert": "bert",
    "distilbert": "bert",
    "roberta": "roberta",
    "xlm-roberta": "roberta",
    "camembert": "roberta",
    "albert": "albert",
    "mpnet": "mpnet",
    "modernbert": "modernbert",
    "gpt2": "gpt",
    "openai-gpt": "gpt",
    "llama": "llama",
    "xlnet": "xlnet",
    "transfo-xl": "transformer-xl",
}
#: Kinds of tokenizers that an imported model can have.
PUBLISHED: Final = ("wordpiece", "bpe", "unigram")
#: The model that is trained if text is given and no model: the larger model of `make full`.
OWN: Final = "ulmfit"
OWN_MODEL: Final = {"embedding": 320, "hidden": 640, "layers": 2, "static": 320}
#: Budget of a training in tokens.
TOKENS: Final = 3_000_000
#: Maximum number of passes over a text of families that predict the next piece: with more, the held-out loss of a
#: short text rises.
PASSES: Final = 4
#: Words of `data.unlabelled` from which a language model is trained that nobody asked for, and characters of a word:
#: the domain's text of `make run`, with which an adapted model is better than words models, has 5 million
#: (docs/results/make-run-differences.json); with 2 million words of reviews it is worse (docs/results/imdb.json).
LEAST_WORDS: Final = 5_000_000
CHARACTERS: Final = 6
#: An imported model is adapted with a smaller rate.
IMPORTED_RATE: Final = 0.0003
#: How an imported encoder learns a task: benchmarks/comparison/headstart.py.
IMPORTED: Final = {
    "method": "auto",
    "words": "auto",
    "layers": "last",
    "pooling": "trained",
    "pairs": "apart",
    "head_norm": "length",
    "head_penalties": [0.3, 1.0, 3.0, 10.0, 30.0, 100.0],
    "discriminative": 1.2,
    "unfreeze_epochs": 0,
    "epochs": 4,
    "min_steps": 60,
    "evaluations": 3,
    "contrastive": {"embeddings": False},
}
IMPORTED_TRAINING: Final = {"rate": 0.00005, "schedule": "slanted_triangular", "batch_size": 16}
#: How an own language model learns a task: params.yaml of the repository.
TRAINED: Final = {
    "words": "auto",
    "label_names": "auto",
    "layers": "all",
    "pooling": "lead",
    "head_dropout": 0.0,
    "head_steps": 100,
    "head_penalties": [30.0, 100.0, 300.0, 1000.0],
    "epochs": 5,
    "min_steps": 40,
    "evaluations": 2,
}
TRAINED_TRAINING: Final = {"rate": 0.0005, "schedule": "slanted_triangular", "batch_size": 16}
