"""Whether the vocabulary of an encoder suits the language of some texts."""

from collections.abc import Iterable
from itertools import islice
from typing import Final

import numpy as np

from components.data.formats.words import words_of
from components.interchange.starts.registry import read_starts
from components.tokenization import Tokenizer
from components.tokenization.special import UNK

#: Number of texts that are read.
TEXTS: Final = 200
#: Limits for texts in a language of the vocabulary: mean number of pieces of a word, and percentage of unknown pieces.
MOST_PIECES, MOST_UNKNOWN = 2.5, 10


def other_language(name: str, tokenizer: Tokenizer, texts: Iterable[str], *, language: str) -> str:
    """A warning about the encoder `name` if its vocabulary splits the words of the first `TEXTS` texts, of a `language`
    such as `th`, into many pieces, or does not know them; else empty."""
    words = [text[start:end] for text in islice(texts, TEXTS) for start, end in words_of(text, marks="none")]
    # Words with digits, such as numbers of orders, have many pieces in every language.
    words = [word for word in words if word[0].isalpha() and not any(map(str.isdigit, word))]
    if not words:
        return ""
    spaced = [f" {word}" for word in words] if tokenizer.leads_with_space else words
    ids = np.concatenate(tokenizer.encode_batch(spaced))
    pieces, unknown = len(ids) / len(words), 100 * float((ids == UNK).mean())
    if (pieces <= MOST_PIECES or tokenizer.kind == "char") and unknown <= MOST_UNKNOWN:
        return ""
    fitting = [
        start.name
        for start in read_starts().values()
        if start.package and {language, "multilingual"} & set(start.languages)
    ]
    others = [other for other in fitting if other != name]
    return (
        f"{name} reads these texts as another language: {pieces:.1f} pieces a word, {unknown:.0f}% of them unknown"
        + (f"; use a start for the language: {', '.join(others)} (`headstart starts`)" if others else "")
    )
