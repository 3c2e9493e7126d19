"""Ids of the special pieces, which are the same in every vocabulary."""

from typing import Final

PAD: Final = 0
UNK: Final = 1
START: Final = 2
END: Final = 3
MASK: Final = 4

#: In the order of their ids; the names are BERT's.
SPECIAL_PIECES: Final = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
#: Number of special pieces, and the first id of an ordinary piece.
FIRST_ORDINARY: Final = len(SPECIAL_PIECES)
#: Special pieces that decoding omits; UNK and MASK are shown.
OMITTED: Final = frozenset({PAD, START, END})
