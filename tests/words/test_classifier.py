"""Words models as directories: the same bits when served, whatever the batch; damaged directories are refused."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer

from components.core.artifacts import digest_file
from components.core.errors import ArtifactError, ConfigError
from components.data.formats.words import words
from components.data.tasks.data import Fields, Split
from components.data.tasks.kinds import scoring_for
from components.learners.base import Rows
from components.learners.loading import load_model
from components.learners.words.classifier import WordsClassifier, WordsModel, read_model, write_model
from components.learners.words.features import Counted, WordFeatures, spaced
from components.learners.words.systems import SYSTEMS as TABLE
from components.registry.drift.measurements import SKETCH, measure, projection
from components.registry.exports.champion import export_encoder
from headstart import load
from tests.example_task import save_words

LABELS = ["fruit", "metal", "ผลไม้"]
TEXTS = [
    "an old apple",
    "Iron and zinc!",
    "apple, iron, apple",
    "ผมกินข้าวที่บ้าน",
    ":-)",
    "",
    "broken \ud800 half",
    "The the THE",
]
#: (Kind, system).
SYSTEMS = [(kind, name) for kind, systems in TABLE.items() for name in systems if name != "latent-words"]


def saved(kind: str, system: str, directory: Path) -> tuple[WordsModel, list[Fields]]:
    """A model of eight texts in a directory, and rows with and without an unseen word."""
    fields: list[Fields] = [
        (text, TEXTS[number // 2])[: 2 if kind in ("pair", "similarity") else 1] for number, text in enumerate(TEXTS)
    ]
    count = len(fields)
    rows = Split(fields, [np.asarray([number % 3], dtype=np.float64) for number in range(count)], [None] * count)
    training = Rows(rows, np.arange(count), rows, rows, LABELS, scoring_for(kind, LABELS))
    model = TABLE[kind][system](training)[-1].model
    assert isinstance(model, WordsModel)
    save_words(directory, models=[model], kind=kind, labels=LABELS, facts={"system": system})
    return model, [*fields, *[tuple(f"{part} unseen" for part in row) for row in fields]]


@pytest.mark.parametrize(("kind", "system"), SYSTEMS)
def test_served_is_trained_to_the_last_bit_in_every_batch(kind, system, tmp_path):
    model, rows = saved(kind, system, tmp_path / "classifier")
    loaded = load_model(tmp_path / "classifier")
    assert isinstance(loaded, WordsClassifier)
    assert (loaded.kind, list(loaded.labels)) == (kind, LABELS)
    expected = np.stack(model.answers(rows))
    assert expected.dtype == np.float32 and np.isfinite(expected).all()
    for size in (1, 3, len(rows)):
        np.testing.assert_array_equal(np.stack(loaded.answer(rows, size)), expected)
    np.testing.assert_array_equal(np.stack(loaded.answer(rows[::-1])), expected[::-1])
    answers, measured = measure(loaded, rows)
    np.testing.assert_array_equal(np.stack(answers), expected)
    parts = len(rows[0])
    assert measured.rows["pieces"][0] == 3 * parts
    assert measured.rows["unknown"][len(rows) // 2] == parts, "the word that was added"
    features = model.features.matrix(rows)
    sketch = features @ projection(features.shape[1]) * np.sqrt(features.shape[1])
    assert measured.rows["sketch"].shape == (len(rows), SKETCH)
    np.testing.assert_allclose(measured.rows["sketch"], sketch, atol=2e-3 * abs(sketch).max())
    assert loaded.answer([]) == measure(loaded, [])[0] == []


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"ngrams": (1, 2), "least": 2},
        {"ngrams": (2, 3)},
        {"most": 1},
        {"analyzer": "char_wb", "ngrams": (2, 4)},
        {"analyzer": "char_wb", "ngrams": (1, 5), "least": 3},
    ],
)
def test_tfidf_is_the_one_of_scikit_learn(settings, dtype):
    texts = ["An old apple, an OLD pear", "a", ":-) :-)", "", "old iron, old irons", "ขอโทษครับ apple", "straße  x\ty"]
    names = {"ngrams": "ngram_range", "least": "min_df", "most": "max_features", "analyzer": "analyzer"}
    reference = TfidfVectorizer(
        preprocessor=spaced,
        token_pattern=None,
        sublinear_tf=True,
        dtype=dtype,
        **({} if "analyzer" in settings else {"tokenizer": words}),
        **{names[name]: value for name, value in settings.items()},
    )
    expected = reference.fit_transform(texts)
    form = {name: settings[name] for name in ("analyzer", "ngrams") if name in settings}
    bounds = {name: settings[name] for name in ("least", "most") if name in settings}
    # Counted beside texts that are not fitted.
    actual = Counted(["old unseen", *texts], **form).fit(texts, **bounds, dtype=dtype)
    assert (actual.matrix(texts) != replace(actual, counted=None).matrix(texts)).nnz == 0
    assert actual.vocabulary == reference.vocabulary_
    np.testing.assert_allclose(actual.idf, reference.idf_, rtol=1e-6)
    unseen = ["an unseen irons apple", ""]
    for given, wanted in ((texts, expected), (unseen, reference.transform(unseen))):
        matrix = actual.matrix(given)
        assert matrix.dtype == dtype
        np.testing.assert_allclose(matrix.toarray(), wanted.toarray(), rtol=1e-6 if dtype == np.float32 else 1e-14)


@pytest.mark.parametrize("form", [{"ngrams": (1, 2)}, {"analyzer": "char_wb", "ngrams": (2, 4)}])
def test_an_emoji_is_one_word_with_and_without_a_variation_selector(form):
    plain = ["great \u2764", "\u2764 \u263a", "\u845b"]
    selected = ["great \u2764\ufe0f", "\u2764\ufe0e \u263a\ufe0f", "\u845b\U000e0100"]
    vectorizer = Counted(plain, **form).fit(plain)
    matrix = vectorizer.matrix(plain)
    assert (vectorizer.matrix(selected) != matrix).nnz == 0 and matrix.nnz


def test_features_of_pairs_by_hand():
    features = WordFeatures.fit([("a b", "b c")])
    assert features.coverage(("A b a d",)) == (4, 1)
    u, v = features.matrix([("a b",), ("b c",)]).toarray()
    pair, cosine = (replace(features, form=form) for form in ("pair", "cosine"))
    expected = np.concatenate([u, v, abs(u - v), u * v, [u @ v]])
    np.testing.assert_allclose(pair.matrix([("a b", "b c")]).toarray()[0], expected, rtol=1e-12)
    np.testing.assert_allclose(cosine.matrix([("a b", "b c")]), [[u @ v]], rtol=1e-12)
    assert (pair.width, cosine.width) == (13, 1)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("words.safetensors", b"not tensors", r"words\.safetensors"),
        ("config.json", b"{}", r"config\.json"),
        ("labels.json", None, r"labels\.json"),
        *((f"{name}.json", b"[" * 100_000, "nested too deeply") for name in ("config", "labels", "words", "manifest")),
    ],
)
def test_an_altered_directory_is_refused(name, content, message, tmp_path):
    saved("classification", "tfidf-words", tmp_path)
    path = tmp_path / name
    path.unlink() if content is None else path.write_bytes(content)
    if message == "nested too deeply" and name != "manifest.json":  # crafted with its digest
        manifest = json.loads((tmp_path / "manifest.json").read_text())
        manifest["files"][name] = {"bytes": len(content), "sha256": digest_file(path)}
        (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    for open_model in (load_model, load):
        with pytest.raises(ArtifactError, match=message):
            open_model(tmp_path)


def test_files_that_do_not_fit_each_other_are_refused(tmp_path):
    model, _ = saved("classification", "tfidf-words", tmp_path / "classifier")
    write_model(model, tmp_path)
    described = json.loads((tmp_path / "words.json").read_text())
    described["vectorizers"][0]["terms"].pop()
    (tmp_path / "words.json").write_text(json.dumps(described))
    with pytest.raises(ArtifactError, match="not a words model of this version"):
        read_model(tmp_path, kind="classification", labels=LABELS)
    with pytest.raises(ArtifactError, match="run its stage again"):
        read_model(tmp_path / "nowhere", kind="classification", labels=LABELS)


@pytest.mark.parametrize(
    ("modules", "library"),
    [
        (
            "components.learners.words.classifier, components.learners.loading, "
            "components.registry.drift.traffic, components.registry.champion",
            "torch",
        ),
        ("headstart, components.learners.baselines.stage", "sklearn"),
    ],
)
def test_no_large_library_is_imported_before_it_is_needed(modules, library):
    script = f"import sys, {modules}; assert {library!r} not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True, cwd=Path(__file__).parents[2], timeout=120)


def test_the_files_of_a_words_model(tmp_path):
    for name in ("classifier", "again"):
        saved("classification", "tfidf-words-pairs", tmp_path / name)
    files = sorted(path.name for path in (tmp_path / "classifier").iterdir())
    assert files == ["config.json", "labels.json", "manifest.json", "words.json", "words.safetensors"]
    stored = json.loads((tmp_path / "classifier" / "words.json").read_text())
    assert stored["form"] == "text"
    terms = stored["vectorizers"][0]["terms"]
    assert {"an", "old", "apple", "an old", "old apple"} <= set(terms) and terms == sorted(terms)
    assert all(
        (tmp_path / "again" / name).read_bytes() == (tmp_path / "classifier" / name).read_bytes() for name in files
    )
    with pytest.raises(
        ConfigError, match="is the words of a model, without an encoder to export; export the model: --format container"
    ):
        export_encoder(tmp_path / "classifier", output=tmp_path / "out", form="onnx")
