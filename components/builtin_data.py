"""The built-in data, extracted from the documentation of the locked packages: general text from docstrings, and a
corpus, labelled tasks and pairs of texts from the service models of botocore.

The same lock file gives the same bytes on every machine: packages and files are read in sorted order, rows are ordered
by digests, and nothing depends on paths, time or hash seeds.
"""

import ast
import gc
import inspect
import io
import json
import re
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from hashlib import blake2b
from importlib import metadata
from itertools import chain
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from components.core.artifacts import partial_path, unwritable
from components.core.errors import ArtifactError, DataError
from components.core.processors import cores
from components.core.progress import Progress
from components.data.formats.textkey import text_key
from components.data.ingestion.cleaning import plain_text
from components.data.ingestion.dedup import Shingles
from components.data.ingestion.duplicates import near_pairs

Row = dict[str, Any]
#: Service -> model of botocore.
Models = Mapping[str, Mapping[str, Any]]

#: Uncompressed bytes of a file of a corpus, so that a change affects some files only.
FILE_BYTES = 6_000_000
#: Distributions whose docstrings are the general text, in this order.
PACKAGES = (
    *("numpy", "scipy", "pandas", "scikit-learn", "SQLAlchemy", "networkx", "matplotlib", "ray", "mlflow", "prefect"),
    *("torch", "huggingface_hub", "hypothesis"),
)
#: Splits of a task; a text that is a candidate of several belongs to the first.
SPLITS = ("test", "dev", "train")
#: Types of parameters that are labels; the others (blob, document) are too rare to learn.
TYPES = frozenset(("boolean", "integer", "double", "string", "enum", "timestamp", "list", "map", "structure"))
#: Maximum number of characters of a description of a parameter; longer ones are treated as documents.
TYPE_CHARACTERS = 500
#: Rows per class of the balanced splits.
TYPE_ROWS = {"dev": 100, "test": 300}
SERVICE_ROWS = {"dev": 20, "test": 50}
#: Classes of aws-service: the services with the most documents of at least 30 words; 300 words of a document are kept.
CLASSES, LEAST_WORDS, MOST_WORDS = 20, 30, 300
#: Maximum numbers of sentences with and without code, and of operations, in train.
HALF_SENTENCES, TRAIN_OPERATIONS = 10_000, 10_000
MASK = "this service"


def build(directory: Path) -> None:
    """Write general/, domain/aws/, parallel/aws/, and aws-type, aws-service, aws-code and aws-operation in tasks/.

    The folder is complete or absent. Texts of the dev and test splits of the tasks are excluded from the domain corpus
    and the pairs.

    Raises:
        ArtifactError: the folder contains files, or cannot be written.
        DataError: a required package is not installed.
    """
    directory = directory.resolve()
    if directory.is_dir() and any(directory.iterdir()):
        raise ArtifactError(f"{directory}: contains files; delete it to make the built-in data anew, or choose another")
    try:
        # Millions of small objects that live to the end: collections would cost half of the time.
        gc.disable()
        with partial_path(directory, folder=True) as partial:
            for name, rows in _parts():
                if not isinstance(rows, pd.DataFrame):
                    write_corpus(partial / name, rows)
                    continue
                (partial / name).mkdir(parents=True)
                for split, of_split in rows.groupby("split"):
                    lines = map(_line, of_split.drop(columns="split").to_dict("records"))
                    (partial / name / f"{split}.jsonl").write_text("".join(lines), encoding="utf-8")
            partial.rename(directory)
    except OSError as error:
        raise unwritable(directory, error) from error
    finally:
        gc.enable()


def _parts() -> Iterator[tuple[str, pd.DataFrame | Iterable[Row]]]:
    """The folders and their content: the rows of a task, with their split, or of a corpus."""
    models = read_models()
    described, used = members(models), operations(models)
    types = parameter_types(described)
    held = {*map(text_key, types.text[types.split != "train"])}
    documents = [document for service, model in models.items() for document in documents_of(service, model)]
    by_service, left_out = service_of_documents(models, documents)
    texts = list(corpus(documents, without=held, left_out=left_out))
    lines = [line for row in texts for line in row["text"].split("\n")]
    yield "tasks/aws-type", types
    yield "tasks/aws-service", by_service
    yield "domain/aws", texts
    yield "parallel/aws", translations(used, without=held, left_out=left_out)
    # The dev and test texts of aws-code and aws-operation are also in aws-type or aws-service: they are excluded.
    yield "tasks/aws-code", code_spans(described, types, lines)
    yield "tasks/aws-operation", names_and_descriptions(used, by_service, lines)
    yield "general", docstrings()


def write_corpus(directory: Path, documents: Iterable[Row], *, size: int = FILE_BYTES) -> None:
    """Write part-000.jsonl.zst, part-001 ..., of about `size` bytes uncompressed."""
    directory.mkdir(parents=True)
    parts: list[io.StringIO] = []
    for row in documents:
        if not parts or parts[-1].tell() >= size:
            parts.append(io.StringIO())
        parts[-1].write(_line(row))
    for number, part in enumerate(parts):
        # One call in one thread: the bytes depend on the text, the level and the locked library only.
        data = pa.Codec("zstd", compression_level=9).compress(part.getvalue().encode(), asbytes=True)
        (directory / f"part-{number:03d}.jsonl.zst").write_bytes(data)


def _line(row: Row) -> str:
    return json.dumps(row, ensure_ascii=False) + "\n"


def order(*parts: str) -> bytes:
    """A digest by which rows are sorted: a pseudo-random order that is the same on every machine."""
    return blake2b("\0".join(parts).encode(), digest_size=16).digest()


def shuffled(table: pd.DataFrame, task: str, *columns: str) -> pd.DataFrame:
    """The rows of test, dev and train, each in the order of the digests of columns."""
    digests = [order(task, *values) for values in zip(*(table[name] for name in columns), strict=True)]
    ranks = table.split.map(SPLITS.index)
    return table.assign(rank=ranks, digest=digests).sort_values(["rank", "digest"]).drop(columns=["rank", "digest"])


def disjoint(table: pd.DataFrame, keys: Collection[str]) -> pd.DataFrame:
    """The first row of every key, and of dev and test only those whose key is not in `keys`."""
    table = table.drop_duplicates("key")
    return table[(table.split == "train") | ~table.key.isin(keys)]


def balanced(table: pd.DataFrame, column: str, most: Mapping[str, int]) -> pd.DataFrame:
    """Of every value of a column the same number of rows of a split, at most `most` of the split: the first ones."""
    counts = table.groupby(["split", column])[column].transform("size").groupby(table.split).transform("min")
    limit = np.minimum(counts, table.split.map(most).fillna(np.inf))
    return table[table.groupby(["split", column]).cumcount() < limit]


def read_models() -> Models:
    """The newest version of every service model in the installed botocore, sorted by the name of its folder.

    Raises:
        DataError: botocore is not installed, or a model is damaged.
    """
    try:
        from botocore.loaders import Loader

        loader = Loader([Loader.BUILTIN_DATA_PATH], include_default_search_paths=False)
        names = loader.list_available_services("service-2")
        # Without the additions for the SDK (`Loader.load_service_model`).
        newest = [f"{name}/{loader.determine_latest_version(name, 'service-2')}/service-2" for name in names]
        if not newest:
            raise FileNotFoundError(f"there are none in {Loader.BUILTIN_DATA_PATH}")
        return dict(zip(names, map(loader.load_data, newest), strict=True))
    except (ImportError, OSError, EOFError, ValueError) as error:
        raise DataError(f"botocore: no service models ({error}); install the version of requirements.lock") from error


plain = cache(plain_text)


class Document(NamedTuple):
    """The texts of an operation and the members of its input and output, or of a shape and its members, in order."""

    service: str
    id: str
    texts: list[str]


def documents_of(service: str, model: Mapping[str, Any]) -> Iterator[Document]:
    """The documents of a service: overview, operations, and the structures that no operation covers."""
    left, documents = dict(model["shapes"]), {"overview": [model]}
    for name, operation in model["operations"].items():
        given = [operation[side]["shape"] for side in ("input", "output") if side in operation]
        documents[name] = [operation, *(left.pop(shape) for shape in given if shape in left)]
    documents |= {f"shapes/{name}": [shape] for name, shape in left.items() if shape.get("members")}
    for name, parts in documents.items():
        documented = (each for part in parts for each in (part, *part.get("members", {}).values()))
        if texts := [text for each in documented if (text := plain(each.get("documentation", "")))]:
            yield Document(service, f"{service}/{name}", texts)


def corpus(documents: Iterable[Document], *, without: Collection[str], left_out: Collection[str]) -> Iterator[Row]:
    """The domain corpus {id, text}, without texts of dev and test and paragraphs that are such a text."""
    for document in documents:
        texts = [text for text in document.texts if text_key(text) not in without]
        lines = [line for text in texts for line in text.split("\n") if text_key(line) not in without]
        if lines and document.id not in left_out:
            yield {"id": document.id, "text": "\n".join(lines)}


def members(models: Models) -> pd.DataFrame:
    """The members of all structures (id, text, label, service): HTML, and the type as documented; empty for a rare
    one."""
    rows = []
    for service, model in models.items():
        for shape, structure in model["shapes"].items():
            for name, member in structure.get("members", {}).items():
                of = model["shapes"][member["shape"]]
                kind = "enum" if "enum" in of else "document" if of.get("document") else of["type"]
                kind = {"long": "integer", "float": "double"}.get(kind, kind)
                html = member.get("documentation", "")
                rows.append((f"{service}/{shape}/{name}", html, kind if kind in TYPES else "", service))
    return pd.DataFrame(rows, columns=["id", "text", "label", "service"])


def service_split(service: str) -> str:
    """The split of a service; related services, with the same first word (`lex-models`, `lexv2-models`), share one."""
    family = re.sub(r"v?\d+$", "", service.split("-")[0])
    share = int.from_bytes(order("split", family)[:4], "big") / 2**32
    return "train" if share < 0.6 else "dev" if share < 0.75 else "test"


def parameter_types(described: pd.DataFrame) -> pd.DataFrame:
    """aws-type: a description and the type of its parameter (id, text, label, service, split).

    Splits are disjoint in services. Texts are compared by `text_key`: a text is used once per split, of the first
    service; a text with several types is dropped; a text in several splits is kept in train only. Dev and test are
    balanced, and a service supplies at most an eighth of a class unless the class lacks rows of other services; train
    has the other rows, shuffled, so that label budgets are nested prefixes.
    """
    table = described.assign(text=[" ".join(plain(html).split()) for html in described.text])
    table = table[table.text != ""]
    table = table.assign(key=table.text.map(text_key), split=table.service.map(service_split))
    alike = table.groupby("key")
    usable = (alike.label.transform("nunique") == 1) & (table.label != "")
    usable &= (alike.split.transform("nunique") == 1) | (table.split == "train")
    table = table[usable & ~table.duplicated(["split", "key"]) & (table.text.str.len() <= TYPE_CHARACTERS)]
    table = shuffled(table, "aws-type", "text").drop(columns="key")
    train, judged = table[table.split == "train"], table[table.split != "train"]
    more = judged.groupby(["label", "service"]).cumcount() >= judged.split.map(TYPE_ROWS) // 8
    judged = balanced(judged.iloc[more.argsort(kind="stable")], "label", TYPE_ROWS)
    return pd.concat([train, shuffled(judged, "aws-type", "text")])


# Placeholders of the code elements while HTML is converted to text: private-use characters that no text contains.
_OPENING, _CLOSING = re.compile(r"<code(?:\s[^<>]*)?>", re.IGNORECASE), re.compile(r"</code\s*>", re.IGNORECASE)
_MARKS = re.compile("[\ue000\ue001]")
_SENTENCE = re.compile("(?<=[.!?])\\s+(?=[A-Z\"'(\ue000])")
# Words are independent of the code elements: names with dots, colons and hyphens, or a single punctuation mark.
_WORD = re.compile(r"\w+(?:[-.:/]+\w+)*|[^\w\s]")


def marked(html: str) -> Iterator[tuple[list[str], list[str]]]:
    """(words, BIO tags of `code` elements) of the sentences of an HTML fragment that have 4 to 60 words and no element
    that is not closed or ends within a word."""
    text = plain_text(_CLOSING.sub("\ue001", _OPENING.sub("\ue000", html)))
    for sentence in (sentence for line in text.split("\n") for sentence in _SENTENCE.split(line)):
        words, tokens, tags, tag = _WORD.findall(_MARKS.sub("", sentence)), _WORD.findall(sentence), [], "O"
        marks = _MARKS.findall(sentence)
        # Elements do not nest: their ends alternate, the first is an opening one.
        alternate = marks == ["\ue000", "\ue001"] * (len(marks) // 2)
        for token in tokens:
            if token in marks:
                tag = "B-code" if token == "\ue000" else "O"
            else:
                tags.append(tag)
                tag = tag.replace("B", "I")
        if 4 <= len(words) <= 60 and alternate and words == [token for token in tokens if token not in marks]:
            yield words, tags


def code_spans(described: pd.DataFrame, types: pd.DataFrame, lines: Iterable[str]) -> pd.DataFrame:
    """aws-code: the sentences of descriptions of parameters (id, words, tags, service, split).

    Dev and test use the descriptions in dev and test of aws-type; train uses the services of its train split. Half of
    the sentences of a split contain code. Sentences are unique, and those of dev and test are not in `lines`.
    """

    def key_of(sentence: str) -> str:
        return text_key(sentence).replace(" ", "")

    held = dict(zip(*types.loc[types.split != "train", ["id", "split"]].values.T, strict=True))
    rows = []
    for member in described.itertuples():
        split = held.get(member.id, service_split(member.service))
        for number, (words, tags) in enumerate(marked(member.text) if split == "train" or member.id in held else ()):
            key = key_of(" ".join(words))
            rows.append((f"{member.id}#{number}", words, tags, member.service, split, key, "B-code" in tags))
    table = pd.DataFrame(rows, columns=["id", "words", "tags", "service", "split", "key", "code"])
    taken = {key_of(sentence) for line in lines for sentence in _SENTENCE.split(line)}
    table = balanced(disjoint(shuffled(table, "aws-code", "key", "id"), taken), "code", {"train": HALF_SENTENCES})
    return shuffled(table, "aws-code", "id").drop(columns=["key", "code"])


# aws-service: documents by service, with the service names masked, so that a text does not contain its label.

#: Service of a class -> spellings that the metadata lacks: products, abbreviations, former names.
ALIASES: dict[str, tuple[str, ...]] = {
    "bedrock": ("Bedrock",),
    "bedrock-agentcore-control": ("AgentCore", "Agent Core", "Bedrock"),
    "ec2": ("Elastic Compute Cloud",),
    "ecs": ("Elastic Container Service", "EC2 Container Service"),
    "iotsitewise": ("SiteWise", "IoT SiteWise"),
    "lexv2-models": ("Lex", "Lex V2"),
    "medialive": ("Elemental MediaLive", "Elemental"),
    "quicksight": ("Quick Suite", "Quick"),
    "rds": ("Relational Database Service",),
    "sagemaker": ("SageMaker AI",),
    "securityhub": ("Security Hub CSPM",),
    "ssm": ("Systems Manager", "Simple Systems Manager"),
}
_METADATA = ("serviceFullName", "serviceAbbreviation", "serviceId", "endpointPrefix", "signingName", "targetPrefix")
# The vendor's name before a mask; boundaries between a mask and an adjacent word.
_VENDOR = re.compile(rf"(?:Amazon Web Services|Amazon|AWS)(?:::|[\s_-]*)(?={MASK})", re.IGNORECASE)
_JOINED = re.compile(rf"(?<=[A-Za-z0-9])(?={MASK})|(?<={MASK})(?=[A-Za-z0-9])")
# Words of a camel-case name: DBInstance2 -> DB, Instance2.
_PARTS = re.compile(r"[A-Z]+(?![a-z])\d*|[A-Z]?[a-z]+\d*|\d+")
#: A string that the lower-cased text contains wherever a name occurs, and the pattern of the name.
Masker = tuple[str, re.Pattern[str]]


def maskers(models: Models) -> list[Masker]:
    """Patterns of all spellings of the services, longest first: their keys, their names in the metadata without the
    vendor, and their aliases. The words of a name may be joined, spaced or hyphenated, in any case."""
    raw: set[str] = set()
    for service, model in models.items():
        names = (re.sub(r"_?[Vv]?\d{8}$", "", model["metadata"].get(field, "")) for field in _METADATA)
        parts = {part for name in names for part in re.split(r"[().]", name)}
        raw |= {service, *ALIASES.get(service, ()), *(part for part in parts if part.strip() != "api")}
    raw = {re.sub(r"^\s*(?:Amazon|AWS)\s*", "", name).strip() for name in raw}
    raw |= {name.removesuffix(" Service") for name in raw}
    return [_masker(name) for name in sorted(raw, key=lambda name: (-len(name), name)) if len(name) > 1]


def _masker(name: str) -> Masker:
    words = [word for part in re.split(r"[\s_-]+", name) for word in _PARTS.findall(part) or [part]]
    letters, spaced = "".join(words), r"[\s_-]?".join(map(re.escape, words))
    # Long names are also masked within a word (`sagemakergeospatial`). Within identifiers (`AwsEc2Instance`,
    # `s3Bucket`) a short one must be delimited by capitals or punctuation.
    if len(letters) >= 8:
        return words[0].lower(), re.compile(spaced, re.IGNORECASE)
    capitals = "|".join(sorted({letters, letters.upper(), letters.capitalize()} - {letters.lower()}))
    alone, inside = rf"(?<![A-Za-z0-9])(?i:{spaced})(?![A-Za-z0-9])", rf"(?<![A-Z])(?:{capitals})(?![a-z])"
    return words[0].lower(), re.compile(rf"{alone}|{inside}|(?<![A-Za-z0-9]){letters.lower()}(?=[A-Z_:])")


def masked(text: str, names: Iterable[Masker]) -> str:
    """The text with every name, and a vendor's name before it, replaced by `this service` as separate words."""
    lower = text.lower()
    for stem, pattern in names:
        if stem in lower:
            text = pattern.sub(MASK, text)
    return _JOINED.sub(" ", _VENDOR.sub("", text)) if MASK in text else text


def service_of_documents(models: Models, documents: list[Document]) -> tuple[pd.DataFrame, set[str]]:
    """aws-service: rows (id, text, label, split); and the ids of the dev and test documents and their near duplicates.

    Of a cluster of near duplicates, whose estimated Jaccard similarity of word trigrams is 0.5, only the first document
    is kept, and none if they belong to several services, so no near duplicates are in different splits. Dev and test
    are balanced; train has the other rows, shuffled.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    long = pd.Series([each.service for each in documents if sum(map(len, map(str.split, each.texts))) >= LEAST_WORDS])
    counts = long.value_counts().sort_index().sort_values(ascending=False, kind="stable")
    chosen = {*counts.index[:CLASSES]}
    names = maskers({service: models[service] for service in models if service in chosen})
    rows = [
        (document.id, " ".join(words[:MOST_WORDS]), document.service)
        for document in documents
        if document.service in chosen
        and len(words := masked(" ".join(" ".join(document.texts).split()), names).split()) >= LEAST_WORDS
    ]
    table = pd.DataFrame(rows, columns=["id", "text", "label"])
    # Bands of 4 values find 87% of the pairs at the threshold; a higher recall would change the built-in data.
    signatures = Shingles(ngram=3, permutations=128).sketches(table.text.tolist())
    pairs = [(later, earlier) for later, earlier, _ in near_pairs(signatures, 0.5, rows=4)]
    later, earlier = map(np.concatenate, zip(*pairs, strict=True))
    graph = coo_array((np.ones(len(later)), (later, earlier)), shape=(len(table), len(table)))
    table["cluster"] = connected_components(graph, directed=False)[1]
    first = ~table.cluster.duplicated() & (table.groupby("cluster").label.transform("nunique") == 1)
    kept = shuffled(table[first].assign(split="train"), "aws-service", "id")
    ranks = kept.groupby("label").cumcount()
    kept.loc[ranks < sum(SERVICE_ROWS.values()), "split"] = "dev"
    kept.loc[ranks < SERVICE_ROWS["test"], "split"] = "test"
    left_out = table.id[table.cluster.isin(kept.cluster[kept.split != "train"])]
    return kept.drop(columns="cluster"), {*left_out}


def operations(models: Models) -> pd.DataFrame:
    """The operations with a description, in the order of the models: their name split into words, the first paragraph
    of their documentation, and its key."""
    rows = []
    for service, model in models.items():
        for name, operation in model["operations"].items():
            if description := " ".join(plain(operation.get("documentation", "")).partition("\n")[0].split()):
                words = " ".join(_PARTS.findall(name)).lower()
                rows.append((service, f"{service}/{name}", words, description, text_key(description)))
    return pd.DataFrame(rows, columns=["service", "id", "name", "description", "key"])


def translations(used: pd.DataFrame, *, without: Collection[str], left_out: Collection[str]) -> list[Row]:
    """Distinct rows {id, source, target}: description and name of an operation ("Creates a new S3 bucket." -> "create
    bucket")."""
    rows = used[~used.key.isin(without) & ~used.id.isin(left_out)].drop_duplicates(["key", "name"])
    rows = rows[["id", "description", "name"]].rename(columns={"description": "source", "name": "target"})
    return rows.to_dict("records")


def names_and_descriptions(used: pd.DataFrame, documents: pd.DataFrame, lines: Iterable[str]) -> pd.DataFrame:
    """aws-operation: a name, a description, and whether they match (id, first, second, label, service, split).

    Each operation has one row with its own name, and one with the name of another operation of its service, which
    shares a word with it if possible. Dev and test use operations whose documents are in dev and test of aws-service
    and that are not in `lines`; train uses operations of services that are not in aws-service, shuffled.
    """
    judged = documents[documents.split != "train"].set_index("id").split
    classified = {*documents.label[documents.split == "test"]}
    splits = [
        judged.get(id_, "" if of in classified else "train") for id_, of in zip(used.id, used.service, strict=True)
    ]
    rows = []
    for _, operations in used.assign(split=splits).groupby("service"):
        for each in (every := list(operations.itertuples())):
            # With a different description, and if possible a word of the name.
            others = [other for other in every if other.name != each.name and other.key != each.key]
            near = [other for other in others if {*each.name.split()} & {*other.name.split()}]
            if each.split and others:
                other = min(near or others, key=lambda other: order(each.id, other.id))
                rows.append((each.id, each.key, each.split, each.service, each.description, each.name, other.name))
    table = pd.DataFrame(rows, columns=["id", "key", "split", "service", "second", "belongs", "other"])
    table = disjoint(shuffled(table, "aws-operation", "id"), {*map(text_key, lines)})
    table = balanced(table, "split", {"train": TRAIN_OPERATIONS})
    table = table.melt(["id", "second", "service", "split"], ["belongs", "other"], "label", "first")
    table = shuffled(table.assign(id=table.id + "/" + table.label), "aws-operation", "id")
    return table[["id", "first", "second", "label", "service", "split"]]


# The general corpus: docstrings of installed packages, module by module, in file order.

# Tests have little documentation; vendored and generated code is repetitive; the other files are written by a package's
# build and differ between the wheels of one version (CPU and CUDA builds of torch, platforms of scipy).
_SKIPPED = re.compile(
    r"(.*/)?((tests|test|testing|_testing|externals|extern|vendor|_vendor|vendored|thirdparty|thirdparty_files"
    r"|third_party|_thirdparty|protos|generated|gapic)/.*|(_?version|__config__|_version_meson|version_info"
    r"|_distributor_init\w*|_build_config|torch_version|build_info|conftest|setup|test_\w+|\w+_pb2(_grpc)?)\.py)"
)
#: A document ends at the first top-level definition after this many characters, and within a class after more.
_DOCUMENT_CHARACTERS, _CLASS_CHARACTERS = 8_000, 32_000
# Line separators that not all readers recognise (form feed, U+2028) and other control characters.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")
# Placeholders that a package substitutes at import: `{input}`, `%(params)s`. Underlines of headings and rules of
# tables: each character would be a token, a twentieth of all tokens.
_PLACEHOLDER = re.compile(r"^[ \t]*(?:\{\w+\}|%\([^()\n]*\)s)[ \t]*$\n?", re.MULTILINE)
_RULER = re.compile(r"^[ \t]*([-=~^*#+_.\"'`:])\1{2,}(?:[ \t]+\1{3,})*[ \t]*(?:\n|\Z)", re.MULTILINE)


def docstrings() -> Iterator[Row]:
    """Rows {id, text}: the distinct docstrings of every module of `PACKAGES`, in file order, in documents of about
    8,000 characters.

    Raises:
        DataError: a package is not installed.
    """
    files = [file for name in PACKAGES for file in python_files(name) if not is_skipped(str(file))]
    seen: set[bytes] = set()
    with (
        Progress("data: general text", total=len(files), unit="files") as bar,
        ProcessPoolExecutor(cores(), mp_context=get_context("spawn"), initializer=gc.disable) as pool,
    ):
        for path, groups in zip(
            files, pool.map(_extract_file, [file.locate() for file in files], chunksize=32), strict=True
        ):
            yield from cut(str(path), groups, seen)
            bar.advance()


def is_skipped(path: str) -> bool:
    return _SKIPPED.fullmatch(path) is not None


def _extract_file(path: Path) -> list[list[str]]:
    return extract(path.read_bytes())


def cut(path: str, groups: list[list[str]], seen: set[bytes]) -> Iterator[Row]:
    """The documents of a module, split at top-level definitions, so that a topic is not; a class of more than 32,000
    characters is split at a method."""
    documents: list[list[str]] = [[]]
    for text, first in ((text, text is group[0]) for group in groups for text in group):
        if (key := order(text)) not in seen:
            seen.add(key)
            if sum(map(len, documents[-1])) >= (_DOCUMENT_CHARACTERS if first else _CLASS_CHARACTERS):
                documents.append([])
            documents[-1].append(text)
    for number, texts in enumerate(documents if documents[0] else ()):
        yield {"id": f"{path}#{number}", "text": "\n\n".join(texts)}


def extract(source: bytes) -> list[list[str]]:
    """The documentation in Python source, one list per top-level statement, in file order: docstrings; strings assigned
    to names that contain `doc`; long strings passed to functions whose names contain `doc` (`add_newdoc`, decorators).
    Empty for source that this version of Python cannot parse."""
    with warnings.catch_warnings():
        # Third-party docstrings contain invalid escapes.
        warnings.simplefilter("ignore")
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError):
            return []
    groups = [[ast.get_docstring(tree) or ""], *(list(_texts(node)) for node in tree.body)]
    groups = [[_RULER.sub("", _PLACEHOLDER.sub("", _CONTROL.sub(" ", raw))).strip() for raw in raws] for raws in groups]
    return [cleaned for group in groups if (cleaned := [text for text in group if text])]


def _texts(node: ast.AST) -> Iterator[str]:
    nested: list[Any] = []
    match node:
        case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
            yield from chain.from_iterable(map(_texts, node.decorator_list))
            yield ast.get_docstring(node) or ""
            nested = node.body if isinstance(node, ast.ClassDef) else []
        case ast.If() | ast.Try() | ast.With() | ast.For():
            nested = [*node.body, *getattr(node, "orelse", ())]
        case ast.Expr():
            nested = [node.value]
        case ast.Assign(targets=[target], value=value):
            if "doc" in ast.unparse(target).lower():
                yield _long(value)
            nested = [value]
        case ast.Call() if "doc" in getattr(node.func, "attr", getattr(node.func, "id", "")).lower():
            # The long strings that are passed.
            for argument in [*node.args, *(keyword.value for keyword in node.keywords)]:
                yield from map(_long, argument.elts if isinstance(argument, ast.Tuple) else [argument])
    yield from chain.from_iterable(map(_texts, nested))


def _long(node: ast.expr) -> str:
    text = _string(node)
    return inspect.cleandoc(text) if len(text) >= 80 and " " in text else ""


def _string(node: ast.expr) -> str:
    """The constant text of an expression: literals, `+`, and the template of `%` and `.format()`."""
    match node:
        case ast.Constant(value=str(value)):
            return value
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _string(left) + _string(right)
        case ast.BinOp(left=left, op=ast.Mod()):
            return _string(left)
        case ast.Call(func=ast.Attribute(value=value, attr="format")):
            return _string(value).replace("{{", "{").replace("}}", "}")
    return ""


def python_files(name: str) -> list[metadata.PackagePath]:
    """The .py files that a distribution installed, relative to site-packages, sorted by their parts.

    Raises:
        DataError: the distribution is not installed or has no list of files.
    """
    try:
        files = metadata.files(name) or ()
    except metadata.PackageNotFoundError:
        files = ()
    if not files:
        raise DataError(f"built-in data: package {name!r} is not installed; install the packages of requirements.lock")
    python = {file for file in files if file.suffix == ".py" and ".." not in file.parts}
    return sorted(python, key=lambda file: file.parts)
