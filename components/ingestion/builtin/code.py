"""aws-code: tagging of the words of a description that its authors marked as code."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from components.formats.textkey import text_key
from components.ingestion.builtin.aws import Service
from components.ingestion.builtin.tasks import Splits, order_key, service_split
from components.ingestion.cleaning import plain_text

TRAIN_SENTENCES = 20_000
#: Numbers of words of a sentence; shorter ones are headings and values, longer ones lists without full stops.
_WORDS = range(4, 61)
# Placeholders of the code elements while HTML is converted to text: private-use characters that no text contains.
_OPEN, _CLOSE = "\ue000", "\ue001"
_OPENING = re.compile(r"<code(?:\s[^<>]*)?>", re.IGNORECASE)
_CLOSING = re.compile(r"</code\s*>", re.IGNORECASE)
_SENTENCE = re.compile(rf"(?<=[.!?])\s+(?=[A-Z\"'({_OPEN}])")
# Words are independent of the code elements: names with dots, colons and hyphens, or a single punctuation mark.
_WORD = re.compile(r"\w+(?:[-.:/]+\w+)*|[^\w\s]")

CodeRow = dict[str, Any]


def sentences(line: str) -> list[str]:
    """Split a line of plain text after sentence-final punctuation before a capital letter or a placeholder."""
    return _SENTENCE.split(line)


def marked(html: str) -> list[tuple[list[str], list[str]]]:
    """(words, BIO tags of `code` elements) of every sentence of an HTML fragment.

    Sentences are skipped if an element is not closed or ends within a word, or if they have fewer than 4 or more than
    60 words.
    """
    raw = _CLOSING.sub(_CLOSE, _OPENING.sub(_OPEN, html))
    return [
        tagged
        for line in plain_text(raw, any_tag=True).split("\n")
        for sentence in sentences(line)
        if (tagged := _tagged(sentence)) is not None and len(tagged[0]) in _WORDS
    ]


def _tagged(sentence: str) -> tuple[list[str], list[str]] | None:
    text: list[str] = []
    spans: list[tuple[int, int]] = []
    begin: int | None = None
    for character in sentence:
        if character == _OPEN:
            if begin is not None:
                return None
            begin = len(text)
        elif character == _CLOSE:
            if begin is None:
                return None
            spans.append((begin, len(text)))
            begin = None
        else:
            text.append(character)
    if begin is not None:
        return None
    words: list[str] = []
    tags: list[str] = []
    inside = -1
    for match in _WORD.finditer("".join(text)):
        over = [n for n, (start, end) in enumerate(spans) if start < match.end() and match.start() < end]
        if over and not (len(over) == 1 and spans[over[0]][0] <= match.start() and match.end() <= spans[over[0]][1]):
            return None
        words.append(match.group())
        tags.append("O" if not over else "I-code" if over[0] == inside else "B-code")
        inside = over[0] if over else -1
    return words, tags


def code_spans(services: list[Service], types: Splits, corpus: Iterable[str]) -> dict[str, list[CodeRow]]:
    """Rows {id, words, tags, service} of train, dev and test: the sentences of parameter descriptions.

    Dev and test use the descriptions in dev and test of aws-type, which are excluded from the domain corpus; train uses
    the services of aws-type's train split. Half of the sentences of a split contain code. Sentences are unique, and
    sentences of dev and test occur neither in train nor in the domain corpus.
    """
    held = {row["id"]: split for split in ("dev", "test") for row in types[split]}
    candidates: dict[str, list[tuple[str, CodeRow]]] = {"train": [], "dev": [], "test": []}
    for service in services:
        in_train = service_split(service.key) == "train"
        for shape in service.shapes.values():
            for member in shape.members:
                row_id = f"{service.key}/{shape.name}/{member.name}"
                split = held.get(row_id, "train" if in_train else None)
                if split is not None:
                    for number, (words, tags) in enumerate(marked(member.html)):
                        row = {"id": f"{row_id}#{number}", "words": words, "tags": tags, "service": service.key}
                        candidates[split].append((_key(" ".join(words)), row))
    taken = _in_corpus(corpus, {key for split in ("dev", "test") for key, _ in candidates[split]})
    rows: dict[str, list[CodeRow]] = {}
    for split in ("test", "dev", "train"):
        halves: dict[bool, list[CodeRow]] = {True: [], False: []}
        for key, row in sorted(candidates[split], key=lambda entry: order_key("aws-code", entry[0], entry[1]["id"])):
            if key not in taken:
                taken.add(key)
                halves["B-code" in row["tags"]].append(row)
        half = min(len(halves[True]), len(halves[False]), *([TRAIN_SENTENCES // 2] if split == "train" else []))
        rows[split] = sorted(
            halves[True][:half] + halves[False][:half], key=lambda row: order_key("aws-code", row["id"])
        )
    return {split: rows[split] for split in ("train", "dev", "test")}


def _key(sentence: str) -> str:
    return text_key(sentence).replace(" ", "")


def _in_corpus(corpus: Iterable[str], keys: set[str]) -> set[str]:
    return {
        key
        for text in corpus
        for line in text.split("\n")
        for sentence in sentences(line)
        if (key := _key(sentence)) in keys
    }
