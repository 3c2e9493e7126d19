"""aws-service: documents by service, with the service names masked, so that a text does not contain its label. And
names and descriptions of operations: the task aws-operation, whether both match, and translation pairs."""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from components.data.formats.textkey import text_key
from components.data.ingestion.builtin.aws import Document, Service
from components.data.ingestion.builtin.tasks import Row, Splits, order_key
from components.data.ingestion.dedup import Shingles
from components.data.ingestion.duplicates import near_pairs

MASK = "this service"

#: Service -> spellings that the metadata lacks: products, abbreviations, former names.
ALIASES: dict[str, tuple[str, ...]] = {
    "bedrock": ("Bedrock",),
    "bedrock-agent": ("Bedrock Agent", "Bedrock Agents", "Bedrock"),
    "bedrock-agentcore-control": ("AgentCore", "Agent Core", "Bedrock"),
    "cleanrooms": ("Clean Rooms",),
    "cognito-idp": ("Cognito",),
    "dms": ("Database Migration Service",),
    "ec2": ("Elastic Compute Cloud",),
    "ecs": ("Elastic Container Service", "EC2 Container Service"),
    "iam": ("Identity and Access Management",),
    "iotsitewise": ("SiteWise", "IoT SiteWise"),
    "lexv2-models": ("Lex", "Lex V2"),
    "logs": ("CloudWatch Logs",),
    "medialive": ("Elemental MediaLive", "Elemental"),
    "mediaconvert": ("Elemental MediaConvert", "Elemental"),
    "quicksight": ("Quick Suite", "Quick"),
    "rds": ("Relational Database Service",),
    "s3": ("Simple Storage Service",),
    "sagemaker": ("SageMaker AI",),
    "securityhub": ("Security Hub CSPM",),
    "ssm": ("Systems Manager", "Simple Systems Manager"),
}
_METADATA = ("serviceFullName", "serviceAbbreviation", "serviceId", "endpointPrefix", "signingName", "targetPrefix")
# The vendor's name before a mask; boundaries between a mask and an adjacent word.
_VENDOR = re.compile(rf"(?:Amazon Web Services|Amazon|AWS)(?:::|[\s_-]*)(?={MASK})", re.IGNORECASE)
_JOINED = re.compile(rf"(?<=[A-Za-z0-9])(?={MASK})|(?<={MASK})(?=[A-Za-z0-9])")
# Words of a camel-case name: DBInstance2 -> DB, Instance2.
WORDS = re.compile(r"[A-Z]+(?![a-z])\d*|[A-Z]?[a-z]+\d*|\d+")
# Names of at least this length are also masked within a word (`sagemakergeospatial`).
_DISTINCTIVE = 8


def spellings(service: Service) -> set[str]:
    """Names of a service: its key, its names in the metadata without the vendor, and its aliases."""
    raw = {service.key, *ALIASES.get(service.key, ())}
    for field in _METADATA:
        name = re.sub(r"_?[Vv]?\d{8}$", "", service.metadata.get(field, ""))
        raw |= {part for part in re.split(r"[().]", name) if part.strip() not in ("", "api")}
    names = {re.sub(r"^\s*(?:Amazon|AWS)\s*", "", name).strip() for name in raw}
    return {name for name in names | {name.removesuffix(" Service") for name in names} if len(name) > 1}


#: A string that the lower-cased text contains wherever a name occurs, and the pattern of the name.
Masker = tuple[str, re.Pattern[str]]


def maskers(services: Iterable[Service]) -> list[Masker]:
    """Patterns of all spellings of the services, longest first.

    The words of a name may be joined, spaced or hyphenated, in any case. Within identifiers (`AwsEc2Instance`,
    `s3Bucket`) a name must be delimited by capitals or punctuation.
    """
    names = sorted({name for service in services for name in spellings(service)}, key=lambda name: (-len(name), name))
    return [_masker(name) for name in names]


def _masker(name: str) -> Masker:
    words = [word for part in re.split(r"[\s_-]+", name) for word in WORDS.findall(part) or [part]]
    letters = "".join(words)
    spaced = r"[\s_-]?".join(map(re.escape, words))
    if len(letters) >= _DISTINCTIVE:
        return words[0].lower(), re.compile(spaced, re.IGNORECASE)
    capitals = "|".join(sorted({letters, letters.upper(), letters.capitalize()} - {letters.lower()}))
    forms = (
        rf"(?<![A-Za-z0-9])(?i:{spaced})(?![A-Za-z0-9])",
        rf"(?<![A-Z])(?:{capitals})(?![a-z])",
        rf"(?<![A-Za-z0-9]){letters.lower()}(?=[A-Z_:])",
    )
    return words[0].lower(), re.compile("|".join(forms))


def mask(text: str, names: Iterable[Masker]) -> str:
    """The text with every name, and a vendor's name before it, replaced by `this service` as separate words."""
    lower = text.lower()
    for stem, pattern in names:
        if stem in lower:
            text = pattern.sub(MASK, text)
    return _JOINED.sub(" ", _VENDOR.sub("", text)) if MASK in text else text


#: Number of classes: the services with the most documents of at least `_WORDS` words.
CLASSES = 20
_WORDS = 30
#: Longer documents are truncated to this many words.
_WORDS_KEPT = 300
#: Rows per class of the balanced splits.
SERVICE_ROWS = {"dev": 20, "test": 50}
# Documents with this estimated Jaccard similarity of word trigrams are near duplicates. Bands of 4 values find 87% of
# the pairs at the threshold; a higher recall would change the built-in data.
_THRESHOLD = 0.5
_NGRAM = 3
_PERMUTATIONS = 128


def service_of_documents(services: list[Service], documents: list[Document]) -> tuple[Splits, set[str]]:
    """Rows {id, text, label} of train, dev and test; the ids of the dev and test documents and their near duplicates.

    Of a cluster of near duplicates only the first document is kept, and none if they belong to several services, so
    no near duplicates are in different splits. Dev and test are balanced; train has the other rows, shuffled.
    """
    counts = Counter(document.service for document in documents if len(document.text.split()) >= _WORDS)
    chosen = {key for key, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:CLASSES]}
    names = maskers([service for service in services if service.key in chosen])
    rows: list[Row] = []
    for document in documents:
        if document.service in chosen:
            words = mask(" ".join(document.text.split()), names).split()
            if len(words) >= _WORDS:
                rows.append({"id": document.id, "text": " ".join(words[:_WORDS_KEPT]), "label": document.service})
    clusters = _clusters([row["text"] for row in rows])
    twins: dict[int, list[Row]] = defaultdict(list)
    for row, cluster in zip(rows, clusters, strict=True):
        twins[cluster].append(row)
    distinct = [cluster_rows for cluster_rows in twins.values() if len({row["label"] for row in cluster_rows}) == 1]
    distinct.sort(key=lambda cluster_rows: order_key("aws-service", cluster_rows[0]["id"]))
    taken: Counter[str] = Counter()
    splits: Splits = {"train": [], "dev": [], "test": []}
    left_out: set[str] = set()
    for cluster_rows in distinct:
        label = cluster_rows[0]["label"]
        taken[label] += 1
        rank = taken[label]
        split = "test" if rank <= SERVICE_ROWS["test"] else "dev" if rank <= sum(SERVICE_ROWS.values()) else "train"
        splits[split].append(cluster_rows[0])
        if split != "train":
            left_out |= {row["id"] for row in cluster_rows}
    return splits, left_out


def _clusters(texts: list[str]) -> list[int]:
    """The number of the cluster of each text: connected components of near duplicates."""
    sketches = Shingles(ngram=_NGRAM, permutations=_PERMUTATIONS).sketches(texts)
    pairs = [(later, earlier) for later, earlier, _ in near_pairs(sketches, _THRESHOLD, rows=4)]
    ends = np.hstack([np.stack(pair) for pair in pairs])
    links = coo_array((np.ones(ends.shape[1], dtype=np.int8), tuple(ends)), (len(texts), len(texts)))
    clusters: list[int] = connected_components(links, directed=False)[1].tolist()
    return clusters


#: Maximum number of operations in train; each has two rows.
TRAIN_OPERATIONS = 10_000
BELONGS, OTHER = "belongs", "other"


@dataclass(frozen=True)
class Described:
    """An operation: its name split into words, and the first paragraph of its documentation."""

    service: str
    id: str
    name: str
    description: str

    @cached_property
    def key(self) -> str:
        return text_key(self.description)

    @cached_property
    def words(self) -> frozenset[str]:
        return frozenset(self.name.split())


def described(services: Iterable[Service]) -> Iterator[Described]:
    """The operations with a description, in model order."""
    for service in services:
        for operation in service.operations:
            if description := " ".join(operation.text.partition("\n")[0].split()):
                name = " ".join(WORDS.findall(operation.name)).lower()
                yield Described(service.key, f"{service.key}/{operation.name}", name, description)


def translations(
    services: list[Service], *, without: Collection[str], left_out: Collection[str]
) -> Iterator[dict[str, str]]:
    """Distinct rows {id, source, target} in model order: description and name of an operation ("Creates a new S3
    bucket." -> "create bucket").
    """
    seen: set[tuple[str, str]] = set()
    for operation in described(services):
        key = operation.key
        if key not in without and operation.id not in left_out and (key, operation.name) not in seen:
            seen.add((key, operation.name))
            yield {"id": operation.id, "source": operation.description, "target": operation.name}


def names_and_descriptions(services: list[Service], documents: Splits, corpus: Iterable[str]) -> Splits:
    """Rows {id, first, second, label, service} of train, dev and test: name, description, and whether they match.

    Each operation has one row with its own name, and one with the name of another operation of its service, which
    shares a word with it if possible. Dev and test use operations whose documents are in dev and test of aws-service,
    which are excluded from the domain corpus; train uses operations of services that are not in aws-service, shuffled.
    """
    split_of = {row["id"]: split for split in ("dev", "test") for row in documents[split]}
    classified = {row["label"] for row in documents["test"]}
    by_service: dict[str, list[Described]] = defaultdict(list)
    for operation in described(services):
        by_service[operation.service].append(operation)
    candidates: dict[str, list[Described]] = {"train": [], "dev": [], "test": []}
    for service, operations in by_service.items():
        for operation in operations:
            split = split_of.get(operation.id, None if service in classified else "train")
            if split is not None and len(operations) > 1:
                candidates[split].append(operation)
    held = {operation.key for split in ("dev", "test") for operation in candidates[split]}
    taken = {key for text in corpus for line in text.split("\n") if (key := text_key(line)) in held}
    rows: Splits = {"train": [], "dev": [], "test": []}
    for split in ("test", "dev", "train"):
        count = 0
        for operation in sorted(candidates[split], key=lambda entry: order_key("aws-operation", entry.id)):
            key = operation.key
            other = _other(operation, by_service[operation.service])
            if key not in taken and other is not None and (split != "train" or count < TRAIN_OPERATIONS):
                taken.add(key)
                count += 1
                rows[split] += _rows(operation, other)
        rows[split].sort(key=lambda row: order_key("aws-operation", row["id"]))
    return rows


def _rows(operation: Described, other: Described) -> list[Row]:
    return [
        {
            "id": f"{operation.id}/{label}",
            "first": name,
            "second": operation.description,
            "label": label,
            "service": operation.service,
        }
        for name, label in ((operation.name, BELONGS), (other.name, OTHER))
    ]


def _other(operation: Described, operations: Collection[Described]) -> Described | None:
    """Another operation with a different description, preferably one whose name shares a word; None: there is none."""
    others = [entry for entry in operations if entry.name != operation.name and entry.key != operation.key]
    near = [entry for entry in others if not operation.words.isdisjoint(entry.words)]
    return min(near or others, key=lambda entry: order_key(operation.id, entry.id), default=None)
