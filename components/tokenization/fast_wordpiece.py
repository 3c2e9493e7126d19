"""WordPiece by tokie, with the ids of the `tokenizers` library.

tokie is faster than the library (docs/performance.md). Its Unicode tables are newer, and it strips accents if and only
if it lower-cases. So it encodes only texts that consist of the characters in `AGREED`, each of which
tests/tokenization/test_fast_wordpiece.py compares. If accents are kept but letters are lower-cased, as for Thai, Python
lower-cases the text first. The library encodes all other texts.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer as Backend

from components.tokenization.base import Ids


def _tokie() -> Any:
    """The library, or None where there is no wheel for the platform."""
    try:
        import tokie
    except ImportError:
        return None
    return tokie


tokie = _tokie()

#: Ranges of characters on which tokie 0.1.4 and tokenizers 0.23 agree: Latin, Greek, Cyrillic, Hebrew, Arabic, Indic
#: scripts, Thai, Lao, Georgian, Hangul, symbols, kana, Chinese characters, full-width forms, emoji.
AGREED: Final = (
    "\x00-\x7e\x80-\u0377\u038e-\u03a1\u03a3-\u052f\u0591-\u05c7\u05d0-\u05ea\u061e-\u070d\u08e3-\u0983\u0e01-\u0e3a"
    "\u0e3f-\u0e5b\u0e81-\u0e82\u0e94-\u0ea3\u0ea7-\u0eb9\u0ebb-\u0ebd\u0ec8-\u0ecd\u0ed0-\u0ed9\u10d0-\u1248\u1d00-\u1df5"
    "\u1e00-\u1f15\u1f20-\u1f45\u2000-\u2064\u2070-\u2071\u2074-\u208e\u20a0-\u20bf\u2100-\u218b\u2190-\u2426"
    "\u2460-\u2b73\u2e80-\u2e99\u2f00-\u2fd5\u3000-\u303f\u3041-\u3096\u3099-\u30ff\u3131-\u318e\u3220-\ua48c"
    "\uac00-\ud7a3\uf900-\ufa6d\ufe20-\ufe52\uff01-\uffbe\ufffc-\ufffd"
    "\U0001f300-\U0001f6d7\U0001f900-\U0001fa53\U00020000-\U0002a6df"
)
_OTHER: Final = re.compile(f"[^{AGREED}]")
#: Python lower-cases a capital sigma by its neighbours; the library does not.
_SIGMA: Final = "\u03a3"
#: ASCII text without the control characters that BERT's normaliser removes.
PRINTABLE: Final = re.compile(r"[\t\n\r -~]*")
_SPACES: Final = np.isin(np.arange(128), [ord(character) for character in "\t\n\r "])


def spans_of(text: str, lengths: NDArray[np.int64]) -> list[tuple[int, int]]:
    """(start, end) of pieces of the given lengths, which together are the `PRINTABLE` text without its white space."""
    places = np.flatnonzero(~_SPACES[np.frombuffer(text.encode("ascii"), dtype=np.uint8)])
    ends = np.cumsum(lengths)
    return list(zip(places[ends - lengths].tolist(), (places[ends - 1] + 1).tolist(), strict=True))


class _Threads:
    """tokie encodes on its own threads. A forked process does not have them, so the library encodes there."""

    lost = False


def _forget_threads() -> None:
    _Threads.lost = True


os.register_at_fork(after_in_child=_forget_threads)


class FastWordPiece:
    """Encodes the texts that it `accepts`.

    Args:
        backend: tokenizer of the library: BERT's normaliser and pre-tokenizer, and a WordPiece model.
        lowercase, strip_accents: settings of the normaliser; `suits` says which are possible.
    """

    def __init__(self, backend: Backend, *, lowercase: bool, strip_accents: bool) -> None:
        content = json.loads(backend.to_str())
        # Without stripped accents, text is lower-cased before.
        self._lower_first = lowercase and not strip_accents
        content["normalizer"] |= {"lowercase": strip_accents, "strip_accents": strip_accents}
        # tokie reads files only.
        with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
            json.dump(content, file)
            file.flush()
            self._tokie = tokie.Tokenizer.from_json(file.name)

    @staticmethod
    def suits(*, lowercase: bool, strip_accents: bool) -> bool:
        """Whether tokie is installed and gives the library's ids with this normaliser."""
        return tokie is not None and (lowercase or not strip_accents)

    def accepts(self, text: str) -> bool:
        """Whether `encode` gives the library's ids of a text."""
        if _Threads.lost or _OTHER.search(text):
            return False
        return not self._lower_first or _SIGMA not in text

    def encode(self, texts: Sequence[str]) -> tuple[Ids, NDArray[np.int64]]:
        """Flat ids (N,) int32 and the number of ids of each text, (len(texts),) int64."""
        if self._lower_first:
            texts = [text.lower() for text in texts]
        if len(texts) == 1:
            # Without the exchange with tokie's threads.
            single = np.array(self._tokie.encode(texts[0], add_special_tokens=False).ids, dtype=np.int32)
            return single, np.array([len(single)], dtype=np.int64)
        ids, lengths = self._tokie.encode_batch_flat(list(texts), add_special_tokens=False)
        return ids.astype(np.int32), lengths.astype(np.int64)
