"""Multiple choice: a text and several continuations or answers, one of them correct. Each choice is one sequence with
the text (Radford et al. 2018, section 3.3) and has a score; a softmax over the row's choices gives probabilities."""

from collections.abc import Sequence

from components.data.tasks.data import Fields
from components.learners.task_models.base import Encoded, Task, most_pieces
from components.learners.task_models.heads import ChoiceHead
from components.learners.task_models.inputs import encode_sequences
from components.models.base import LanguageModel
from components.settings.finetune import FinetuneSettings
from components.tokenization import Tokenizer


def encode(
    rows: Sequence[Fields], tokenizer: Tokenizer, encoder: LanguageModel, settings: FinetuneSettings
) -> list[Encoded]:
    """One sequence per choice: the text, a delimiter, the choice."""
    sequences = [[(text, choice) for choice in choices] for text, *choices in rows]
    return encode_sequences(sequences, tokenizer, encoder, most_pieces(settings, encoder))


TASK = Task(
    kind="choice",
    reads="text",
    encode=encode,
    head=ChoiceHead.of,
    imitates=True,
)
