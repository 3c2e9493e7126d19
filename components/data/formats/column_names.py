"""Usual names of columns, by what they hold."""

from __future__ import annotations

from typing import Final

#: Names of columns that hold a text, or a label; earlier names take precedence.
TEXTS: Final = (
    *("text", "sentence", "review", "utterance", "content", "body", "message", "comment", "document", "texts", "tweet"),
    *("headline", "description", "question", "note", "feedback"),
)
LABELS: Final = (
    *("label", "labels", "intent", "class", "category", "categories", "sentiment", "topic", "target", "tag"),
    "tags",
    "verdict",
)
LABELS_TOO: Final = ("gold_label", "entailment_judgment", "stars", "rating", "y", "action", "object", "type", "score")
#: Words in the names of columns whose values are groups of rows that are not independent.
GROUPS: Final = frozenset(
    (
        *("group", "customer", "client", "user", "member", "author", "speaker", "writer", "reviewer", "patient"),
        *("account", "company", "organisation", "organization", "document", "doc", "article", "page", "book", "thread"),
        *("conversation", "dialog", "dialogue", "session", "ticket", "case", "order", "product", "device", "id"),
    )
)
#: Further names that begin a table.
OTHERS: Final = ("id", "index", "idx", "title", "headline", "name", "date", "time", "url", "user", "group", "language")
#: All of them.
USUAL: Final = frozenset((*TEXTS, *LABELS, *LABELS_TOO, *OTHERS))
