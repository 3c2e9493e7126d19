"""The language of texts, guessed from their script and their frequent words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

#: Scripts of languages: first and last character. Letters of other scripts belong to languages with spaces.
SCRIPTS: Final = {
    "th": (0x0E00, 0x0E7F),
    "lo": (0x0E80, 0x0EFF),
    "my": (0x1000, 0x109F),
    "km": (0x1780, 0x17FF),
    "ja": (0x3040, 0x30FF),
    "zh": (0x4E00, 0x9FFF),
    "ru": (0x0400, 0x04FF),
    "ar": (0x0600, 0x06FF),
    "hi": (0x0900, 0x097F),
    "el": (0x0370, 0x03FF),
    "ko": (0xAC00, 0xD7AF),
}
#: Frequent words of languages in Latin script.
STOPWORDS: Final = {
    "en": {"the", "of", "and", "is", "to", "in", "what", "a", "that", "it", "you", "for"},
    "de": {"der", "die", "und", "das", "ist", "nicht", "ein", "ich", "mit", "zu"},
    "fr": {"le", "la", "les", "et", "des", "est", "une", "pas", "que", "dans"},
    "es": {"el", "los", "las", "y", "es", "una", "que", "por", "con", "del"},
    "it": {"il", "che", "di", "gli", "una", "per", "non", "con", "della", "sono"},
    "pt": {"o", "os", "um", "uma", "que", "não", "com", "para", "do", "da"},
    "nl": {"het", "een", "van", "en", "niet", "dat", "ik", "op", "met", "zijn"},
}
#: Texts and characters that the language is guessed from.
_TEXTS, _CHARACTERS = 400, 40_000
#: Share of the letters from which a text is in a script, and of kana from which Han is Japanese.
SHARE: Final = 0.3
KANA: Final = 0.05


def language_of(texts: Sequence[str]) -> str:
    """The language by script, and in Latin script by frequent words; `en` if nothing tells.

    Han with kana is Japanese.
    """
    sample = " ".join(texts[:: max(1, len(texts) // _TEXTS)])[:_CHARACTERS]
    letters = [ord(character) for character in sample if character.isalpha() or "\u0e00" <= character <= "\u0e7f"]
    counts = {code: sum(first <= letter <= last for letter in letters) for code, (first, last) in SCRIPTS.items()}
    best = max(counts, key=counts.__getitem__)
    if counts["ja"] > KANA * len(letters) and counts["ja"] + counts["zh"] > SHARE * len(letters):
        return "ja"
    if counts[best] > SHARE * len(letters):
        return best
    words = Counter(sample.casefold().split())
    scores = {code: sum(words[word] for word in frequent) for code, frequent in STOPWORDS.items()}
    return max(scores, key=scores.__getitem__) if any(scores.values()) else "en"
