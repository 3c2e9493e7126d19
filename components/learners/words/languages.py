"""Languages by how they are written."""

from typing import Final

#: Languages that are written without spaces between words.
UNSPACED: Final = frozenset(("th", "zh", "ja", "lo", "km", "my"))
