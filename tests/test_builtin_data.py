import gzip
import json
from collections import Counter
from pathlib import Path, PurePosixPath

import pandas as pd
import pytest

from components import builtin_data
from components.core.artifacts import digest_tree
from components.core.errors import ArtifactError, DataError
from components.data.formats.lines import Reading
from components.data.formats.textkey import text_key
from components.data.ingestion.dedup import Shingles
from components.data.ingestion.readers import raw_files, read_documents
from components.settings.data import CorpusSource, ParallelSource
from tests.conftest import python

# The real builder on two packages and a few services, in a separate process.
SCRIPT = """
import sys
from pathlib import Path
from components import builtin_data
builtin_data.PACKAGES = ("pluggy", "hypothesis")
models = dict([*builtin_data.read_models().items()][::20])
builtin_data.read_models = lambda: models
if __name__ == "__main__":
    builtin_data.build(Path(sys.argv[1]))
"""


@pytest.mark.slow
def test_the_bytes_do_not_depend_on_the_hash_seed(tmp_path):
    for seed in ("1", "2"):
        python("-c", SCRIPT, tmp_path / seed, PYTHONHASHSEED=seed, OMP_NUM_THREADS="1")
    assert digest_tree(tmp_path / "1") == digest_tree(tmp_path / "2")
    built = tmp_path / "1"
    assert sorted(path.relative_to(built).as_posix() for path in built.glob("*/*/*") if path.is_file()) == [
        "domain/aws/part-000.jsonl.zst",
        "parallel/aws/part-000.jsonl.zst",
        *(
            f"tasks/{task}/{split}.jsonl"
            for task in ("aws-code", "aws-operation", "aws-service", "aws-type")
            for split in ("dev", "test", "train")
        ),
    ]
    # The pipeline can read the files, and the texts of dev and test are not in the corpus.
    corpus = CorpusSource(path=str(built / "domain" / "aws"), id="id")
    lines = {
        line
        for path in raw_files(Path(corpus.path))[0]
        for _, (text,), _ in read_documents(path, corpus, Reading())
        for line in text.split("\n")
    }
    assert len(lines) > 1_000
    pairs = ParallelSource(path=str(built / "parallel" / "aws"), id="id")
    translated = {
        source: target
        for path in raw_files(Path(pairs.path))[0]
        for _, (source, target), _ in read_documents(path, pairs, Reading())
    }
    assert len(translated) > 100
    assert all(target == target.lower() and target for target in translated.values())
    for split in ("dev", "test"):
        for task, column in (("aws-type", "text"), ("aws-operation", "second")):
            texts = {json.loads(row)[column] for row in (built / "tasks" / task / f"{split}.jsonl").open()}
            assert texts and not (lines | translated.keys()) & texts


def test_a_folder_with_files_is_not_built(tmp_path):
    (tmp_path / "mine.csv").write_text("text,label\n")
    with pytest.raises(ArtifactError, match="contains files; delete it to make the built-in data anew"):
        builtin_data.build(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.csv"]


def test_a_corpus_is_written_in_parts(tmp_path):
    documents = ({"id": str(n), "text": "x" * 400_000} for n in range(5))
    builtin_data.write_corpus(tmp_path / "new", documents, size=1_000_000)
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["part-000.jsonl.zst", "part-001.jsonl.zst"]


def model_of(members=(), operations=None):
    """A service model with one structure of (type, HTML) members, and operations by name."""
    shapes = {kind: {"type": kind} | ({"enum": ["a"]} if kind == "enum" else {}) for kind, _ in members}
    named = {f"M{n}": {"shape": kind, "documentation": html} for n, (kind, html) in enumerate(members)}
    operations = {name: {"documentation": html} for name, html in (operations or {}).items()}
    return {"metadata": {}, "operations": operations, "shapes": {"S": {"type": "structure", "members": named}} | shapes}


TOY = {
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
        "In": {"members": {"Name": {"shape": "Text", "documentation": "<p>The name.</p>"}, "Bare": {"shape": "Text"}}},
        "Out": {
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
    },
}


def test_documents_are_operations_with_members_then_other_structures():
    documents = list(builtin_data.documents_of("toybox", TOY))
    assert [(document.id, "\n".join(document.texts)) for document in documents] == [
        ("toybox/overview", "Keeps toys."),
        ("toybox/GetToy", "Gets a Toy.\nOnce.\nThe name.\nThe toy & its parts.\nThe kind."),
        ("toybox/shapes/Toy", "A toy.\nIts size."),
    ]
    without = {text_key("The NAME"), "keeps toys", "once"}
    assert list(builtin_data.corpus(documents, without=without, left_out={"toybox/shapes/Toy"})) == [
        {"id": "toybox/GetToy", "text": "Gets a Toy.\nThe toy & its parts.\nThe kind."}
    ]


def test_a_damaged_model_is_an_error(tmp_path, monkeypatch):
    model = tmp_path / "toys" / "2020-01-01" / "service-2.json.gz"
    model.parent.mkdir(parents=True)
    model.write_bytes(gzip.compress(json.dumps(TOY).encode())[:-20])
    monkeypatch.setattr("botocore.loaders.Loader.BUILTIN_DATA_PATH", str(tmp_path))
    with pytest.raises(
        DataError, match=r"botocore: no service models \(.*\); install the version of requirements.lock"
    ):
        builtin_data.read_models()


def test_pairs_are_descriptions_and_names_of_operations():
    one = model_of(
        operations={
            "CreateDBInstance2": "<p>Creates a database.</p><p>More of it.</p>",
            "ListTagsForResource": "<p>Lists   <i>tags</i>.</p>",
            "DeleteACL": "",
            "GetHeld": "<p>Held out!</p>",
            "GetLeft": "<p>Of a document that is left out.</p>",
        }
    )
    models = {"one": one, "two": one, "other": model_of(operations={"ListTags": "lists TAGS"})}
    used = builtin_data.operations(models)
    assert builtin_data.translations(used, without={"held out"}, left_out={"one/GetLeft", "two/GetLeft"}) == [
        {"id": "one/CreateDBInstance2", "source": "Creates a database.", "target": "create db instance2"},
        {"id": "one/ListTagsForResource", "source": "Lists tags.", "target": "list tags for resource"},
        {"id": "other/ListTags", "source": "lists TAGS", "target": "list tags"},
    ]


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
def test_names_are_masked_in_every_spelling(text, expected):
    assert builtin_data.masked(text, builtin_data.maskers({"toybox": TOY})) == expected


def test_related_services_share_a_split():
    split = builtin_data.service_split
    assert split("lex-models") == split("lexv2-runtime") == split("lex")
    splits = Counter(split(f"service{chr(97 + n % 26)}{n}x") for n in range(1000))
    assert splits["train"] == pytest.approx(600, abs=60)
    assert splits["dev"] == pytest.approx(150, abs=45)


def test_services_of_real_documents(monkeypatch):
    names = {"datazone", "guardduty", "iotsitewise", "lightsail", "medialive"}
    monkeypatch.setattr(builtin_data, "CLASSES", len(names))
    listed = "botocore.loaders.Loader.list_available_services"
    monkeypatch.setattr(listed, lambda loader, kind: sorted(names))
    models = builtin_data.read_models()
    documents = [document for name in models for document in builtin_data.documents_of(name, models[name])]
    rows, left_out = builtin_data.service_of_documents(models, documents)
    assert rows.id.is_unique and rows.text.str.split().str.len().between(30, 300).all() and {*rows.label} == names
    sizes = {split: {*of.label.value_counts()} for split, of in rows.groupby("split")}
    assert (sizes["test"], sizes["dev"]) == ({50}, {20})
    assert {*rows.id[rows.split != "train"]} <= left_out and not left_out & {*rows.id[rows.split == "train"]}
    assert not [row.id for row in rows.itertuples() if names & set(text_key(row.text).split())]
    # No near duplicates in different splits: all pairs are compared, without hashing.
    sketches = Shingles(ngram=3, permutations=256).sketches(rows.text.tolist())
    for left, right in (("test", "train"), ("dev", "train"), ("dev", "test")):
        others = sketches[rows.split == right]
        most = max((row == others).mean(axis=1).max() for row in sketches[rows.split == left])
        assert most < 0.7, (left, right)


def types_of(models):
    return builtin_data.parameter_types(
        builtin_data.members({name: model_of(members) for name, members in models.items()})
    )


def test_parameter_types(monkeypatch):
    monkeypatch.setattr(builtin_data, "service_split", lambda key: key.split("-")[0])
    monkeypatch.setattr(builtin_data, "TYPE_ROWS", {"dev": 1, "test": 1})
    models = {
        "train-a": [("long", "<p>A number</p>"), ("string", "A name"), ("string", "both"), ("blob", "bytes")],
        "train-b": [("integer", "a NUMBER."), ("enum", "both"), ("float", ""), ("string", "x" * 501)],
        "dev-a": [("float", "A share"), ("string", "A name"), ("double", "Another share"), ("map", "Tags")],
        "test-a": [("map", "tags."), ("map", "Pairs"), ("list", "Things")],
    }
    rows = types_of(models)
    actual = {
        split: {*of[["label", "text", "service"]].itertuples(index=False, name=None)}
        for split, of in rows.groupby("split")
    }
    # "Tags" occurs in dev and test and is dropped; "A name" is kept in train only; "both" has two types.
    assert actual["train"] == {("integer", "A number", "train-a"), ("string", "A name", "train-a")}
    assert actual["dev"] in ({("double", "A share", "dev-a")}, {("double", "Another share", "dev-a")})
    assert actual["test"] == {("map", "Pairs", "test-a"), ("list", "Things", "test-a")}
    assert rows.id[(rows.split == "train") & (rows.label == "integer")].tolist() == ["train-a/S/M0"]


def test_balanced_rows_prefer_several_services(monkeypatch):
    monkeypatch.setattr(builtin_data, "service_split", lambda key: "test")
    models = {f"s{n}": [("list", f"list {n}")] for n in range(10)}
    models["big"] = [(kind, f"a {kind} {n}") for kind, most in (("list", 20), ("map", 16)) for n in range(most)]
    for most, of_class in ((16, 16), (100, 16)):
        monkeypatch.setattr(builtin_data, "TYPE_ROWS", {"test": most})
        kept = types_of(models)
        assert Counter(kept.label) == {"list": of_class, "map": of_class}
        assert most == 100 or Counter(kept.service[kept.label == "list"])["big"] == 6


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        (
            "<p>Set <code>MaxItems</code> (<code>1-10</code>).</p>",
            ["Set/O MaxItems/B-code (/O 1-10/B-code )/O ./O"],
        ),
        (
            "<p>Use <code class='x'>--no-wait true</code> <code>s3:GetObject</code> here</p>",
            ["Use/O -/B-code -/I-code no-wait/I-code true/I-code s3:GetObject/B-code here/O"],
        ),
        ("Code <i><code>a.b</code></i> &lt;x&gt; stays.", ["Code/O a.b/B-code </O x/O >/O stays/O ./O"]),
        ("The <code>Foo</code>s are here now", []),
        ("An <code>open mark is left out", []),
        ("A closed</code> one is too", []),
        ("Too short", []),
        (
            "It is version 1.2 of it. <code>Foo</code> is e.g. new",
            ["It/O is/O version/O 1.2/O of/O it/O ./O", "Foo/B-code is/O e.g/O ./O new/O"],
        ),
    ],
)
def test_words_and_tags_of_code_elements(html, expected):
    rows = [zip(words, tags, strict=True) for words, tags in builtin_data.marked(html)]
    assert [" ".join(f"{word}/{tag}" for word, tag in row) for row in rows] == expected


def test_code_of_dev_and_test_is_that_of_aws_type_without_other_occurrences(monkeypatch):
    monkeypatch.setattr(builtin_data, "service_split", lambda key: key)
    plain = [f"This is a sentence number {number}." for number in range(8)]
    coded = [f"Set it to <code>value{number}</code> there." for number in range(8)]
    texts = {
        "train": [*plain[:4], *coded[:4], coded[0].upper(), coded[6]],
        "test": [*plain[4:6], *coded[4:8], "Not held, with <code>code</code> in it."],
        "dev": [plain[6], coded[7].replace("Set", "Put")],
    }
    models = {name: model_of([("string", html) for html in of_model]) for name, of_model in texts.items()}
    held = [*(("dev", number) for number in range(2)), *(("test", number) for number in range(6))]
    types = pd.DataFrame({"id": [f"{of}/S/M{number}" for of, number in held], "split": [of for of, _ in held]})
    corpus = ["Some text.", "More of it. Set it to VALUE5 there! (See below.)"]
    rows = builtin_data.code_spans(builtin_data.members(models), types, corpus)
    actual = {split: {*of.id} for split, of in rows.groupby("split")}
    # value5 occurs in the corpus; test has two plain sentences and therefore two of three with code.
    assert actual["test"] >= {"test/S/M0#0", "test/S/M1#0"} and len(actual["test"]) == 4
    assert actual["test"] <= {f"test/S/M{number}#0" for number in (0, 1, 2, 4, 5)}
    assert actual["dev"] == {"dev/S/M0#0", "dev/S/M1#0"}
    assert rows.words.map(" ".join).str.lower().is_unique
    train = rows[rows.split == "train"]
    assert len(train) == 8 and {*train.service} == {"train"}


def test_names_with_matching_and_other_descriptions():
    names = {
        "toys": {
            "CreateToy": "<p>Creates a toy.</p><p>More.</p>",
            "DeleteToy": "Deletes a toy.",
            "ListBoxes": "Lists boxes.",
            "ListAllBoxes": "Lists boxes.",
            "Ping": "",
        },
        "big": {"GetX": "Gets the x.", "GetY": "Gets the y.", "PutZ": "Puts a z."},
        "lone": {"Only": "The only one."},
    }
    models = {name: model_of(operations=operations) for name, operations in names.items()}
    held = {"big/GetX": "dev", "big/GetY": "test", "big/PutZ": "test"}
    documents = pd.DataFrame({"id": [*held], "label": "big", "split": [*held.values()]})
    table = builtin_data.names_and_descriptions(builtin_data.operations(models), documents, ["Puts a Z!", "other"])
    rows = {
        split: {*of[["first", "second", "label"]].itertuples(index=False, name=None)}
        for split, of in table.groupby("split")
    }
    assert rows["dev"] == {("get x", "Gets the x.", "belongs"), ("get y", "Gets the x.", "other")}
    assert rows["test"] == {("get y", "Gets the y.", "belongs"), ("get x", "Gets the y.", "other")}
    train = sorted(rows["train"])
    # "Lists boxes." describes two operations: one pair of rows, and neither name is the other's negative.
    assert ("create toy", "Deletes a toy.", "other") in train and ("delete toy", "Creates a toy.", "other") in train
    lists = [(first, label) for first, second, label in train if second == "Lists boxes."]
    assert len(lists) == 2 and {label for _, label in lists} == {"belongs", "other"}
    assert next(first for first, label in lists if label == "other") in {"create toy", "delete toy"}
    assert not {second for _, second, _ in train} & {"The only one.", "Puts a z."}


SOURCE = b'''
"""The module.

    Heading
    -------
    Indented on.

    ====  ====
    one   two
    ====  ====
"""
import os

@deprecated_doc("short", see="A decorator's documentation, long enough to count as text and not as a name at all.")
class First:
    """First, with a \\x0c form feed."""

    if os.name:
        def conditional(self):
            """Inside an if."""

    def method(self):
        """A method.

        {placeholder}
        %(params)s
        Ends here.
        """
        text = "not documentation, though it is a long string that stands inside a function of a class"

add_newdoc("numpy", "abs", ("""
    The documentation of a function written in C, which is handed to a call.

    Its {{braces}} are doubled. """ + r"""It goes on in another literal.
    """).format(**common))
log("A long message that is handed to some other call, whose name does not say that it is documentation at all")
_shared_docs["x"] = "A template of documentation that several functions share, %(with)s a placeholder inside."
message = "A long string that is bound to a name which does not say that it is documentation, so it is left out."

async def last():
    """Last."""
'''


def test_documentation_is_extracted_in_file_order():
    assert builtin_data.extract(SOURCE) == [
        ["The module.\n\nHeading\nIndented on.\n\none   two"],
        [
            "A decorator's documentation, long enough to count as text and not as a name at all.",
            "First, with a   form feed.",
            "Inside an if.",
            "A method.\n\nEnds here.",
        ],
        [
            "The documentation of a function written in C, which is handed to a call.\n\n"
            "Its {braces} are doubled. It goes on in another literal."
        ],
        ["A template of documentation that several functions share, %(with)s a placeholder inside."],
        ["Last."],
    ]


def test_source_that_does_not_parse_has_no_documentation():
    assert builtin_data.extract(b'def f[T](x): pass\n"""x"""\nprint \'old\'') == []
    assert builtin_data.extract(b'"""nul \0"""') == []
    assert builtin_data.extract(b"") == []


def test_documents_are_split_between_definitions():
    path = "pkg/a.py"
    seen: set[bytes] = set()
    long = ["x" * 5_000, "y" * 5_000]
    groups = [["module"], long, ["after", "last"], ["module"], [str(n) * 20_000 for n in range(3)]]
    documents = list(builtin_data.cut(path, groups, seen))
    assert [document["id"] for document in documents] == ["pkg/a.py#0", "pkg/a.py#1", "pkg/a.py#2"]
    assert documents[0]["text"] == "\n\n".join(["module", *long])
    assert documents[1]["text"] == "\n\n".join(["after", "last", "0" * 20_000, "1" * 20_000])
    assert documents[2]["text"] == "2" * 20_000
    assert list(builtin_data.cut(path, groups, seen)) == []


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        ("numpy/linalg/_linalg.py", True),
        ("numpy/lib/_function_base_impl.py", True),
        ("numpy/tests/test_x.py", False),
        ("numpy/__config__.py", False),
        ("torch/version.py", False),
        ("torch/_version_meson.py", False),
        ("ray/thirdparty_files/psutil/__init__.py", False),
        ("mlflow/protos/service_pb2.py", False),
        ("scipy/_distributor_init_local.py", False),
    ],
)
def test_files_that_differ_between_builds_are_skipped(path: str, wanted: bool) -> None:
    assert builtin_data.is_skipped(path) is not wanted


def test_files_of_a_distribution_are_sorted():
    files = builtin_data.python_files("pluggy")
    assert PurePosixPath("pluggy/_hooks.py") in files and files == sorted(files, key=lambda path: path.parts)
    assert all(Path(path.locate()).is_file() for path in files)
    with pytest.raises(DataError, match="built-in data: package 'no-such-package' is not installed; install the"):
        builtin_data.python_files("no-such-package")


def test_every_package_of_the_list_is_locked():
    lock = (Path(__file__).parents[1] / "requirements.lock").read_text().lower().replace("_", "-")
    assert [name for name in builtin_data.PACKAGES if f"\n{name.lower().replace('_', '-')}==" not in f"\n{lock}"] == []
