"""Names that several sections and packages share."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

#: Initialisation of the encoder before fine-tuning.
Start = Literal["scratch", "pretrained", "adapted"]
#: Initialisation with the adapted encoder after continued pretraining on the task's own texts (`adapt_task`).
TASK_ADAPTED = "task-adapted"
#: Separator of initialisation and task group in the names of multi-task systems (`together`).
WITH = "-with-"
#: Suffix of systems whose encoder stays frozen (`finetune.<name>.frozen`).
FROZEN = "-frozen"
#: Family name of systems without a language model.
BASELINE = "baseline"
#: Hidden states that a head reads.
LayerChoice = Literal["last", "second_to_last", "sum", "sum_last_four", "concat_last_four", "first", "mix", "all"]
#: Kind of a tokenizer.
TokenizerKind = Literal["wordpiece", "word", "open_word", "char", "bpe", "unigram"]
#: Name of a block in params.yaml; it becomes part of file and stage names.
BlockName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]
