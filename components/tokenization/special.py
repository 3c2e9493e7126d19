"""Ids of the special pieces: the same in every vocabulary, so that models and samplers need not ask a tokenizer."""

from __future__ import annotations

from typing import Final

PAD: Final = 0
UNK: Final = 1
START: Final = 2
END: Final = 3
MASK: Final = 4

#: In the order of their ids; the names are BERT's.
SPECIAL_PIECES: Final = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
#: The first id that belongs to text.
FIRST_ORDINARY: Final = len(SPECIAL_PIECES)
