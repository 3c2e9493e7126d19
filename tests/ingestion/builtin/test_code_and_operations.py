"""aws-code and aws-operation: exact rows of invented services, and properties of real ones."""

import pytest

from components.data.ingestion.builtin import aws
from components.data.ingestion.builtin import services as services_task
from components.data.ingestion.builtin import tasks as code


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        (
            "<p>Set <code>MaxItems</code> (<code>1-10</code>).</p>",
            "Set/O MaxItems/B-code (/O 1-10/B-code )/O ./O",
        ),
        (
            "<p>Use <code class='x'>--no-wait true</code> <code>s3:GetObject</code> here</p>",
            "Use/O -/B-code -/I-code no-wait/I-code true/I-code s3:GetObject/B-code here/O",
        ),
        ("Code <i><code>a.b</code></i> &lt;x&gt; stays.", "Code/O a.b/B-code </O x/O >/O stays/O ./O"),
    ],
)
def test_words_and_tags_of_code_elements(html, expected):
    ((words, tags),) = code.marked(html)
    assert " ".join(f"{word}/{tag}" for word, tag in zip(words, tags, strict=True)) == expected


@pytest.mark.parametrize(
    "html",
    ["The <code>Foo</code>s are here now", "An <code>open mark is left out", "A closed</code> one is too", "Too short"],
)
def test_sentences_with_broken_elements_are_skipped(html):
    assert code.marked(html) == []


def test_sentences_are_not_split_within_names():
    text = "It is version 1.2 of it. <code>Foo</code> is new here. e.g. this goes on with it"
    actual = [" ".join(words) for words, _ in code.marked(text)]
    assert actual == ["It is version 1.2 of it .", "Foo is new here . e.g . this goes on with it"]
    assert code.sentences("One. Two (three). four") == ["One.", "Two (three). four"]


def service(key: str, htmls: list[str]) -> aws.Service:
    members = tuple(aws.Member(f"M{number}", "string", html) for number, html in enumerate(htmls))
    return aws.Service(key, {}, "", (), {"S": aws.Shape("S", "", members)})


def test_dev_and_test_are_those_of_aws_type_without_other_occurrences(
    monkeypatch,
):
    monkeypatch.setattr(code, "service_split", lambda key: key)
    plain = [f"This is a sentence number {number}." for number in range(8)]
    coded = [f"Set it to <code>value{number}</code> there." for number in range(8)]
    services = [
        service("train", [*plain[:4], *coded[:4], coded[0].upper(), coded[6]]),
        service("test", [*plain[4:6], *coded[4:8], "Not held, with <code>code</code> in it."]),
        service("dev", [plain[6], coded[7].replace("Set", "Put")]),
    ]
    types = {
        "train": [],
        "dev": [{"id": f"dev/S/M{number}"} for number in range(2)],
        "test": [{"id": f"test/S/M{number}"} for number in range(6)],
    }
    corpus = ["Some text.\nMore of it. Set it to VALUE5 there! (See below.)"]
    splits = code.code_spans(services, types, corpus)
    actual = {split: {row["id"] for row in rows} for split, rows in splits.items()}
    # value5 occurs in the corpus; test has two plain sentences and therefore two of three with code.
    assert actual["test"] >= {"test/S/M0#0", "test/S/M1#0"} and len(actual["test"]) == 4
    assert actual["test"] <= {f"test/S/M{number}#0" for number in (0, 1, 2, 4, 5)}
    assert actual["dev"] == {"dev/S/M0#0", "dev/S/M1#0"}
    texts = [" ".join(row["words"]).lower() for rows in splits.values() for row in rows]
    assert len(set(texts)) == len(texts)
    assert len(splits["train"]) == 8 and all(row["service"] == "train" for row in splits["train"])


NAMES = {
    "CreateToy": "<p>Creates a toy.</p><p>More.</p>",
    "DeleteToy": "Deletes a toy.",
    "ListBoxes": "Lists boxes.",
    "ListAllBoxes": "Lists boxes.",
    "Ping": "",
}


def test_names_with_matching_and_other_descriptions(monkeypatch):
    services = [
        aws.Service(key, {}, "", tuple(aws.Operation(name, html, None, None) for name, html in names.items()), {})
        for key, names in {
            "toys": NAMES,
            "big": {"GetX": "Gets the x.", "GetY": "Gets the y.", "PutZ": "Puts a z."},
            "lone": {"Only": "The only one."},
        }.items()
    ]
    documents = {
        "train": [],
        "dev": [{"id": "big/GetX", "label": "big"}],
        "test": [{"id": "big/GetY", "label": "big"}, {"id": "big/PutZ", "label": "big"}],
    }
    splits = services_task.names_and_descriptions(services, documents, ["Puts a Z!\nother"])
    rows = {split: {(row["first"], row["second"], row["label"]) for row in actual} for split, actual in splits.items()}
    assert rows["dev"] == {("get x", "Gets the x.", "belongs"), ("get y", "Gets the x.", "other")}
    assert rows["test"] == {("get y", "Gets the y.", "belongs"), ("get x", "Gets the y.", "other")}
    train = sorted(rows["train"])
    # "Lists boxes." describes two operations: one pair of rows, and neither name is the other's negative.
    assert ("create toy", "Deletes a toy.", "other") in train and ("delete toy", "Creates a toy.", "other") in train
    lists = [(first, label) for first, second, label in train if second == "Lists boxes."]
    assert len(lists) == 2 and {label for _, label in lists} == {"belongs", "other"}
    assert next(first for first, label in lists if label == "other") in {"create toy", "delete toy"}
    assert not {second for _, second, _ in train} & {"The only one.", "Puts a z."}
