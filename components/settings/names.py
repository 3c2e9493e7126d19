"""Names shared by several sections: initialisations, suffixes of system names, tokenizers, layer choices."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

Start = Literal["scratch", "pretrained", "adapted"]
#: Name of the start that goes on from `adapted` with the task's own texts (`adapt_task`).
TASK_ADAPTED = "task-adapted"
#: Between a start and the group of tasks that it learned together with (`together`), in names of starts.
WITH = "-with-"
#: End of the name of a start whose encoder stayed frozen, where `finetune.<family>.frozen` asks for it.
FROZEN = "-frozen"
#: Family of the systems that learn from the labels alone, without a language model.
BASELINE = "baseline"
LayerChoice = Literal["last", "second_to_last", "sum", "sum_last_four", "concat_last_four", "first", "mix", "all"]
TokenizerKind = Literal["wordpiece", "word", "open_word", "char", "bpe", "unigram"]
#: Of a block in `pretrain`: it becomes part of the names of folders and stages.
BlockName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]
