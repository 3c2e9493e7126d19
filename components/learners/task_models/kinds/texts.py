"""Kinds that read one pooled vector per sequence, of one text, of two, or of a text and its choices (`inputs`)."""

from collections.abc import Sequence
from functools import partial

from components.data.tasks.data import Fields
from components.learners.task_models.base import Encoded, Task, most_pieces
from components.learners.task_models.heads import ChoiceHead, ClassificationHead, MultilabelHead, RegressionHead
from components.learners.task_models.inputs import (
    combination,
    compared,
    cut_texts,
    encode_pairs,
    encode_sequences,
    likened,
    pooling_of_windows,
    summed,
    window_size,
    windows,
)
from components.models.base import LanguageModel
from components.settings.finetune import FinetuneSettings
from components.tokenization import Tokenizer


def encode(
    rows: Sequence[Fields], tokenizer: Tokenizer, encoder: LanguageModel, settings: FinetuneSettings
) -> list[Encoded]:
    """One sequence per text, truncated to the maximum number of pieces; or its windows."""
    if (size := window_size(settings, encoder)) is None:
        return encode_sequences([[row] for row in rows], tokenizer, encoder, most_pieces(settings, encoder))
    most = settings.max_length - len(encoder.special_tokens([]))
    texts = cut_texts([text for (text,) in rows], tokenizer, most=most)
    return [Encoded.of_texts(windows(pieces, size=size, encoder=encoder)) for pieces in texts]


def encode_choices(
    rows: Sequence[Fields], tokenizer: Tokenizer, encoder: LanguageModel, settings: FinetuneSettings
) -> list[Encoded]:
    """One sequence per choice: the text, a delimiter, the choice."""
    sequences = [[(text, choice) for choice in choices] for text, *choices in rows]
    return encode_sequences(sequences, tokenizer, encoder, most_pieces(settings, encoder))


_kind = partial(Task, reads="text", imitates=True)
_text = partial(_kind, encode=encode, combine=pooling_of_windows, single=True)

CLASSIFICATION = _text("classification", head=ClassificationHead.of, labels_rows=True)
MULTILABEL = _text("multilabel", head=MultilabelHead.of, labels_rows=True)
REGRESSION = _text("regression", head=RegressionHead.of)
PAIR = _kind("pair", encode=encode_pairs, head=ClassificationHead.of, combine=combination(compared), labels_rows=True)
#: Symmetric: a causal Transformer reads both orders, and their representations are added (Radford et al. 2018, section
#: 3.3).
SIMILARITY = _kind(
    "similarity",
    encode=partial(encode_pairs, both_orders=True),
    head=RegressionHead.of,
    combine=combination(likened, turned=summed),
)
#: Each choice is a sequence with the text and has a score; a softmax over the row's choices gives probabilities.
CHOICE = _kind("choice", encode=encode_choices, head=ChoiceHead.of)
