"""Sentences that know the document around them, for tagging with context (Schweter and Akbik 2020, FLERT)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

Item = TypeVar("Item")
#: As `components.tasks.data.Fields`.
Words = tuple[str, ...]


class InDocument(tuple[str, ...]):
    """The words of a sentence, which are its `Fields`, and the sentences of its document.

    Equal to the same words without a document: only the context of the encoder differs.

    Attributes:
        document: the sentences in order; shared by all of them.
        place: number of this sentence among them.
    """

    document: Sequence[Words]
    place: int

    def __new__(cls, words: Iterable[str], document: Sequence[Words] = (), place: int = 0) -> InDocument:
        self = super().__new__(cls, words)
        self.document, self.place = document, place
        return self

    def before(self, count: int) -> list[str]:
        """The last `count` words before the sentence in its document, in order; fewer at the start."""
        words = (word for at in range(self.place - 1, -1, -1) for word in reversed(self.document[at]))
        return list(islice(words, count))[::-1]

    def after(self, count: int) -> list[str]:
        """The first `count` words after the sentence in its document; fewer at the end."""
        following = range(self.place + 1, len(self.document))
        return list(islice((word for at in following for word in self.document[at]), count))


def between(words: Words, *, left: Sequence[str] = (), right: Sequence[str] = ()) -> Words:
    """A sentence between the words before and after it."""
    return InDocument(words, [tuple(left), tuple(words), tuple(right)], 1) if left or right else words


def neighbours(words: Words, count: int) -> tuple[list[str], list[str]]:
    """At most `count` words on each side of a sentence in its document; none without a document."""
    return (words.before(count), words.after(count)) if isinstance(words, InDocument) and count else ([], [])


def in_documents(sentences: Sequence[Words], documents: Sequence[object]) -> list[Words]:
    """Sentences with their documents.

    Args:
        sentences: N sentences in order.
        documents: N values that are equal for sentences of one document; None: the sentence has no document.
    """
    found: dict[object, list[Words]] = {}
    for words, document in zip(sentences, documents, strict=True):
        if document is not None:
            found.setdefault(document, []).append(tuple(words))
    places: dict[object, int] = {}
    result: list[Words] = []
    for words, document in zip(sentences, documents, strict=True):
        if document is None:
            result.append(words)
        else:
            place = places[document] = places.get(document, -1) + 1
            result.append(InDocument(words, found[document], place))
    return result


def stream_in_documents(
    items: Iterable[Item],
    *,
    document: Callable[[Item], object],
    words: Callable[[Item], Words | None],
    replaced: Callable[[Item, Words], Item],
) -> Iterator[Item]:
    """Items of a stream with their sentences in documents, of which one at a time is in memory.

    Args:
        items: in order; those of a document follow each other.
        document: value of an item that is equal within a document; None: no document.
        words: sentence of an item; None: it has none.
        replaced: (item, sentence) -> the item with this sentence.
    """
    for part in _runs(items, document):
        own = [found for item in part if (found := words(item)) is not None]
        known = iter(in_documents(own, [document(part[0])] * len(own)))
        yield from (item if words(item) is None else replaced(item, next(known)) for item in part)


def _runs(items: Iterable[Item], key: Callable[[Item], object]) -> Iterator[list[Item]]:
    """Consecutive items with equal keys; each item without a key by itself."""
    part: list[Item] = []
    for item in items:
        if part and (key(item) is None or key(item) != key(part[0])):
            yield part
            part = []
        part.append(item)
    if part:
        yield part
