"""Ids of strings in spaCy: 64-bit hashes, except that the names of its attributes and labels have small fixed ids.

https://spacy.io/api/stringstore; the list of names is that of spaCy 3 (spacy/symbols.pyx, MIT licence).
"""

from __future__ import annotations

from typing import Final

_FIRST: Final = """
    IS_ALPHA IS_ASCII IS_DIGIT IS_LOWER IS_PUNCT IS_SPACE IS_TITLE IS_UPPER LIKE_URL LIKE_NUM LIKE_EMAIL IS_STOP
    IS_OOV_DEPRECATED IS_BRACKET IS_QUOTE IS_LEFT_PUNCT IS_RIGHT_PUNCT IS_CURRENCY
"""
_MIDDLE: Final = """
    ID ORTH LOWER NORM SHAPE PREFIX SUFFIX LENGTH CLUSTER LEMMA POS TAG DEP ENT_IOB ENT_TYPE HEAD SENT_START SPACY
    PROB LANG ADJ ADP ADV AUX CONJ CCONJ DET INTJ NOUN NUM PART PRON PROPN PUNCT SCONJ SYM VERB X EOL SPACE
"""
_LAST: Final = """
    PERSON NORP FACILITY ORG GPE LOC PRODUCT EVENT WORK_OF_ART LANGUAGE LAW DATE TIME PERCENT MONEY QUANTITY ORDINAL
    CARDINAL acomp advcl advmod agent amod appos attr aux auxpass cc ccomp complm conj cop csubj csubjpass dep det
    dobj expl hmod hyph infmod intj iobj mark meta neg nmod nn npadvmod nsubj nsubjpass num number oprd obj obl
    parataxis partmod pcomp pobj poss possessive preconj prep prt punct quantmod relcl rcmod root xcomp acl
    ENT_KB_ID MORPH ENT_ID IDX _
"""
#: Names by id; the id of the empty text is 0.
SYMBOLS: Final = (
    "",
    *_FIRST.split(),
    *(f"FLAG{number}" for number in range(19, 64)),
    *_MIDDLE.split(),
    *(f"DEPRECATED{number:03d}" for number in range(1, 277)),
    *_LAST.split(),
)
_IDS: Final = {name: number for number, name in enumerate(SYMBOLS)}
ORTH: Final = _IDS["ORTH"]
ENT_IOB: Final = _IDS["ENT_IOB"]
ENT_TYPE: Final = _IDS["ENT_TYPE"]
SPACY: Final = _IDS["SPACY"]
_MASK: Final = 2**64 - 1
_FACTOR: Final = 0xC6A4A7935BD1E995


def string_id(text: str) -> int:
    """The id of a string: that of its name, or MurmurHash64A of its UTF-8 bytes with seed 1."""
    return _IDS[text] if text in _IDS else murmur_hash(text.encode("utf-8"), seed=1)


def murmur_hash(data: bytes, *, seed: int) -> int:
    """MurmurHash64A (Appleby, https://github.com/aappleby/smhasher, public domain), for 64-bit words."""
    state = (seed ^ (len(data) * _FACTOR)) & _MASK
    whole = len(data) // 8 * 8
    for start in range(0, whole, 8):
        word = int.from_bytes(data[start : start + 8], "little") * _FACTOR & _MASK
        word = (word ^ word >> 47) * _FACTOR & _MASK
        state = (state ^ word) * _FACTOR & _MASK
    if rest := data[whole:]:
        state = (state ^ int.from_bytes(rest, "little")) * _FACTOR & _MASK
    state = (state ^ state >> 47) * _FACTOR & _MASK
    return state ^ state >> 47
