from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path

import pytest

from components.core.errors import DataError
from components.data.formats.textkey import text_key
from components.data.ingestion.builtin import aws, tasks
from components.data.ingestion.builtin import services as services_task
from components.data.ingestion.builtin.services import mask, maskers, service_of_documents
from components.data.ingestion.dedup import Shingles


def service(key: str, members: list[tuple[str, str]]) -> aws.Service:
    shape = aws.Shape("S", "", tuple(aws.Member(f"M{n}", kind, html) for n, (kind, html) in enumerate(members)))
    return aws.Service(key, {}, "", (), {"S": shape})


MODEL = {
    "metadata": {
        "serviceFullName": "Amazon Toy Box Service",
        "serviceId": "ToyBox",
        "serviceAbbreviation": "TB3",
        "endpointPrefix": "api.toybox",
    },
    "documentation": "<p>Keeps toys.</p>",
    "operations": {
        "GetToy": {
            "documentation": "<p>Gets a <code>Toy</code>.</p> <p>Once.</p>",
            "input": {"shape": "In"},
            "output": {"shape": "Out"},
        },
        "Ping": {"input": {"shape": "Nothing"}},
    },
    "shapes": {
        "In": {
            "type": "structure",
            "members": {"Name": {"shape": "Text", "documentation": "<p>The name.</p>"}, "Bare": {"shape": "Text"}},
        },
        "Out": {
            "type": "structure",
            "documentation": "<p/>",
            "members": {
                "Toy": {"shape": "Toy", "documentation": "<p>The toy &amp; its parts .</p>"},
                "Kind": {"shape": "Kind", "documentation": "<p>The kind.</p>"},
            },
        },
        "Toy": {
            "type": "structure",
            "documentation": "<p>A toy.</p>",
            "members": {"Size": {"shape": "Long", "documentation": "<p>Its size.</p>"}},
        },
        "Nothing": {"type": "structure", "members": {}},
        "Kind": {"type": "string", "enum": ["a", "b"], "documentation": "<p>A kind.</p>"},
        "Text": {"type": "string"},
        "Long": {"type": "long"},
        "Free": {"type": "structure", "document": True, "members": {}},
    },
}


def write_model(path: Path, model: object = MODEL) -> Path:
    path.write_bytes(gzip.compress(json.dumps(model).encode()))
    return path


@pytest.fixture
def toy(tmp_path: Path) -> aws.Service:
    return aws.read_service("toybox", write_model(tmp_path / "service-2.json.gz"))


def test_documents_are_operations_with_members_then_other_structures(toy):
    assert [(document.id, document.text) for document in aws.service_documents(toy)] == [
        ("toybox/overview", "Keeps toys."),
        ("toybox/GetToy", "Gets a Toy.\nOnce.\nThe name.\nThe toy & its parts.\nThe kind."),
        ("toybox/shapes/Toy", "A toy.\nIts size."),
    ]


def test_texts_of_the_splits_are_excluded_from_the_corpus(toy):
    documents = list(aws.service_documents(toy))
    rows = aws.corpus(documents, without={text_key("The NAME"), "keeps toys", "once"}, left_out={"toybox/shapes/Toy"})
    assert list(rows) == [{"id": "toybox/GetToy", "text": "Gets a Toy.\nThe toy & its parts.\nThe kind."}]


def test_pairs_are_descriptions_and_names_of_operations():
    names = {
        "CreateDBInstance2": "<p>Creates a database.</p><p>More of it.</p>",
        "ListTagsForResource": "<p>Lists   <i>tags</i>.</p>",
        "DeleteACL": "",
        "GetHeld": "<p>Held out!</p>",
        "GetLeft": "<p>Of a document that is left out.</p>",
    }
    actual = [aws.Operation(name, html, None, None) for name, html in names.items()]
    item, two = (aws.Service(key, {}, "", tuple(actual), {}) for key in ("one", "two"))
    other = aws.Service("other", {}, "", (aws.Operation("ListTags", "lists TAGS", None, None),), {})
    rows = services_task.translations([item, two, other], without={"held out"}, left_out={"one/GetLeft", "two/GetLeft"})
    assert list(rows) == [
        {"id": "one/CreateDBInstance2", "source": "Creates a database.", "target": "create db instance2"},
        {"id": "one/ListTagsForResource", "source": "Lists tags.", "target": "list tags for resource"},
        {"id": "other/ListTags", "source": "lists TAGS", "target": "list tags"},
    ]


def test_a_damaged_model_is_an_error(tmp_path):
    path = write_model(tmp_path / "service-2.json.gz")
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match=r"service-2\.json\.gz: damaged service model .*; reinstall botocore"):
        aws.read_service("toybox", path)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The Amazon Toy Box Service keeps toys.", "The this service keeps toys."),
        ("See toy-box, ToyBox and TOYBOX.", "See this service, this service and this service."),
        ("AWS::ToyBox::Toy or toybox:GetToy", "this service::Toy or this service:GetToy"),
        ("CreateTB3Toy and tb3Name", "Create this service Toy and this service Name"),
        ("tb30 and atb3 stay", "tb30 and atb3 stay"),
    ],
)
def test_names_are_masked_in_every_spelling(toy, text, expected):
    assert mask(text, maskers([toy])) == expected


def test_related_services_share_a_split():
    assert tasks.service_split("lex-models") == tasks.service_split("lexv2-runtime") == tasks.service_split("lex")
    splits = Counter(tasks.service_split(f"service{chr(97 + n % 26)}{n}x") for n in range(1000))
    assert splits["train"] == pytest.approx(600, abs=60)
    assert splits["dev"] == pytest.approx(150, abs=45)


TOLD_APART = {"datazone", "guardduty", "iotsitewise", "lightsail", "medialive"}


@pytest.fixture(scope="module")
def services() -> list[aws.Service]:
    """Real models: those of the classes, and a sample of the others."""
    models = sorted((aws.locate("botocore") / "botocore" / "data").glob("*/*/service-2.json.gz"))
    named = [model for model in models if model.parts[-3] in TOLD_APART]
    return [aws.read_service(model.parts[-3], model) for model in sorted({*models[::9], *named})]


def test_services_of_real_documents(services, monkeypatch):
    names = TOLD_APART
    monkeypatch.setattr(services_task, "CLASSES", len(names))
    some = [service for service in services if service.key in names]
    documents = [document for service in some for document in aws.service_documents(service)]
    splits, left_out = service_of_documents(some, documents)
    rows = [row for actual in splits.values() for row in actual]
    assert len({row["id"] for row in rows}) == len(rows)
    assert set(Counter(row["label"] for row in splits["test"]).values()) == {50}
    assert set(Counter(row["label"] for row in splits["dev"]).values()) == {20}
    assert {row["id"] for split in ("dev", "test") for row in splits[split]} <= left_out
    assert not left_out & {row["id"] for row in splits["train"]}
    assert all(30 <= len(row["text"].split()) <= 300 for row in rows)
    assert {row["label"] for row in rows} == names
    assert not [row["id"] for row in rows if names & set(text_key(row["text"]).split())]
    # No near duplicates in different splits: all pairs are compared, without hashing.
    sketches = {
        split: Shingles(ngram=3, permutations=256).sketches([row["text"] for row in actual])
        for split, actual in splits.items()
    }
    for left, right in (("test", "train"), ("dev", "train"), ("dev", "test")):
        most = max((row == sketches[right]).mean(axis=1).max() for row in sketches[left])
        assert most < 0.7, (left, right)


def test_a_service_model_has_names_types_and_html(toy):
    assert [operation.name for operation in toy.operations] == ["GetToy", "Ping"]
    assert toy.operations[0].html == "<p>Gets a <code>Toy</code>.</p> <p>Once.</p>"
    assert toy.shapes["Out"].members[1] == aws.Member("Kind", "enum", "<p>The kind.</p>")
    assert toy.shapes["Toy"].members[0].type == "long"


def test_parameter_types(monkeypatch):
    monkeypatch.setattr(tasks, "service_split", lambda key: key.split("-")[0])
    monkeypatch.setattr(tasks, "TYPE_ROWS", {"dev": 1, "test": 1})
    services = [
        service("train-a", [("long", "<p>A number</p>"), ("string", "A name"), ("string", "both"), ("blob", "bytes")]),
        service("train-b", [("integer", "a NUMBER."), ("enum", "both"), ("float", ""), ("string", "x" * 501)]),
        service("dev-a", [("float", "A share"), ("string", "A name"), ("double", "Another share"), ("map", "Tags")]),
        service("test-a", [("map", "tags."), ("map", "Pairs"), ("list", "Things")]),
    ]
    splits = tasks.parameter_types(services)
    actual = {split: {(row["label"], row["text"], row["service"]) for row in rows} for split, rows in splits.items()}
    # "Tags" occurs in dev and test and is dropped; "A name" is kept in train only; "both" has two types.
    assert actual["train"] == {("integer", "A number", "train-a"), ("string", "A name", "train-a")}
    assert actual["dev"] in ({("double", "A share", "dev-a")}, {("double", "Another share", "dev-a")})
    assert actual["test"] == {("map", "Pairs", "test-a"), ("list", "Things", "test-a")}
    assert [row["id"] for row in splits["train"] if row["label"] == "integer"] == ["train-a/S/M0"]


def test_balanced_rows_prefer_several_services():
    rows = [{"label": "a", "service": "big", "text": str(n)} for n in range(20)]
    rows += [{"label": "a", "service": f"s{n}", "text": "x"} for n in range(10)]
    rows += [{"label": "b", "service": "big", "text": str(n)} for n in range(16)]
    kept = tasks.balanced(rows, 16)
    assert Counter(row["label"] for row in kept) == {"a": 16, "b": 16}
    assert Counter(row["service"] for row in kept if row["label"] == "a")["big"] == 6
    assert [row for row in rows if row in kept] == kept
    assert len(tasks.balanced(rows, 100)) == 32
