"""Classification: one label per text, or per pair of texts, from the pooled hidden states (encoding: see `inputs`)."""

from collections.abc import Sequence

from components.data.tasks.data import Fields
from components.learners.task_models.base import Encoded, Task, most_pieces
from components.learners.task_models.heads import ClassificationHead
from components.learners.task_models.inputs import (
    combination,
    compared,
    cut_texts,
    encode_pairs,
    encode_sequences,
    pooling_of_windows,
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


TASK = Task(
    kind="classification",
    reads="text",
    encode=encode,
    head=ClassificationHead.of,
    combine=pooling_of_windows,
    labels_rows=True,
    imitates=True,
    single=True,
)

PAIR = Task(
    kind="pair",
    reads="text",
    encode=encode_pairs,
    head=ClassificationHead.of,
    combine=combination(compared),
    labels_rows=True,
    imitates=True,
)
