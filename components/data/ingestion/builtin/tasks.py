"""The labelled tasks aws-type (type of a parameter) and aws-code (words of a description that are marked as code), and
the deterministic shuffling and splits that all tasks share."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from hashlib import blake2b
from typing import Any

from components.data.formats.textkey import text_key
from components.data.ingestion.builtin.aws import Service
from components.data.ingestion.cleaning import plain_text

Row = dict[str, str]
Splits = dict[str, list[Row]]

#: Model type -> label; the other types (blob, document) are too rare to learn.
TYPE_LABELS = {
    "boolean": "boolean",
    "integer": "integer",
    "long": "integer",
    "double": "double",
    "float": "double",
    "string": "string",
    "enum": "enum",
    "timestamp": "timestamp",
    "list": "list",
    "map": "map",
    "structure": "structure",
}
#: Maximum number of characters of a description; longer ones are treated as documents.
_TYPE_CHARACTERS = 500
#: Rows per class of the balanced splits of aws-type.
TYPE_ROWS = {"dev": 100, "test": 300}


def order_key(*parts: str) -> bytes:
    """A hash by which rows are sorted: a pseudo-random order that is the same on every machine."""
    return blake2b("\0".join(parts).encode(), digest_size=16).digest()


def service_split(key: str) -> str:
    """The split of a service; related services, with the same first word (`lex-models`, `lexv2-models`), share one."""
    family = re.sub(r"v?\d+$", "", key.split("-")[0])
    share = int.from_bytes(order_key("split", family)[:4], "big") / 2**32
    return "train" if share < 0.6 else "dev" if share < 0.75 else "test"


def parameter_types(services: list[Service]) -> Splits:
    """Rows {id, text, label, service} of train, dev and test of aws-type: a description and the type of its parameter.

    Splits are disjoint in services. Texts are compared by `text_key`: a text is used once per split, of the first
    service; a text with several types is dropped; a text in several splits is kept in train only. Dev and test are
    balanced; train has the other rows, shuffled, so that label budgets are nested prefixes.
    """
    labels: dict[str, set[str]] = defaultdict(set)
    splits: dict[str, set[str]] = defaultdict(set)
    first: dict[tuple[str, str], Row] = {}
    for service in services:
        split = service_split(service.key)
        for shape in service.shapes.values():
            for member in shape.members:
                if text := " ".join(member.text.split()):
                    key = text_key(text)
                    label = TYPE_LABELS.get(member.type, "")
                    labels[key].add(label)
                    splits[key].add(split)
                    row_id = f"{service.key}/{shape.name}/{member.name}"
                    row = {"id": row_id, "text": text, "label": label, "service": service.key}
                    first.setdefault((split, key), row)
    rows: Splits = {"train": [], "dev": [], "test": []}
    for (split, key), row in first.items():
        usable = len(labels[key]) == 1 and row["label"] and len(row["text"]) <= _TYPE_CHARACTERS
        if usable and (split == "train" or len(splits[key]) == 1):
            rows[split].append(row)
    for split, of_split in rows.items():
        of_split.sort(key=lambda row: order_key("aws-type", row["text"]))
        if split != "train":
            rows[split] = balanced(of_split, TYPE_ROWS[split])
    return rows


def balanced(rows: list[Row], per_class: int) -> list[Row]:
    """At most `per_class` rows of every class, the same number of each, in their order.

    A service supplies at most an eighth of a class unless the class lacks rows of other services.
    """
    classes: dict[str, list[Row]] = defaultdict(list)
    overflow: dict[str, list[Row]] = defaultdict(list)
    taken: Counter[tuple[str, str]] = Counter()
    for row in rows:
        taken[row["label"], row["service"]] += 1
        within = taken[row["label"], row["service"]] <= max(1, per_class // 8)
        (classes if within else overflow)[row["label"]].append(row)
    ranked = [classes[label] + overflow[label] for label in sorted(classes)]
    size = min([per_class, *map(len, ranked)])
    kept = {id(row) for of_class in ranked for row in of_class[:size]}
    return [row for row in rows if id(row) in kept]


TRAIN_SENTENCES = 20_000
#: Numbers of words of a sentence; shorter ones are headings and values, longer ones lists without full stops.
_WORDS = range(4, 61)
# Placeholders of the code elements while HTML is converted to text: private-use characters that no text contains.
_OPEN, _CLOSE = "\ue000", "\ue001"
_MARK = re.compile(f"([{_OPEN}{_CLOSE}])")
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
        for line in plain_text(raw).split("\n")
        for sentence in sentences(line)
        if (tagged := _tagged(sentence)) is not None and len(tagged[0]) in _WORDS
    ]


def _tagged(sentence: str) -> tuple[list[str], list[str]] | None:
    text, *parts = _MARK.split(sentence)
    # Elements do not nest: their ends alternate, the first is an opening one.
    if "".join(parts[::2]) != (_OPEN + _CLOSE) * (len(parts) // 4):
        return None
    if not parts:
        return (words := _WORD.findall(text)), ["O"] * len(words)
    spans: list[tuple[int, int]] = []
    for inside_element, after in zip(parts[1::4], parts[3::4], strict=True):
        spans.append((len(text), len(text) + len(inside_element)))
        text += inside_element + after
    words, tags = [], []
    inside = -1
    for match in _WORD.finditer(text):
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
