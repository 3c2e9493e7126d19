"""Words models as directories: the same bits when served, whatever the batch; damaged directories are refused."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
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
from components.learners.words.classifier import (
    WordsClassifier,
    WordsModel,
    load_words,
    read_model,
    save_words,
    write_model,
)
from components.learners.words.features import WordFeatures
from components.learners.words.systems import SYSTEMS as TABLE
from components.learners.words.text import Counted, spaced
from components.registry.drift.measurements import SKETCH, measure, projection
from components.registry.exports.champion import export_encoder
from headstart import load

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
#: System -> (kind, candidates of its hyper-parameter).
SYSTEMS = {
    name if kind == "classification" else f"{kind}-{name}": (kind, system)
    for kind, systems in TABLE.items()
    for name, system in systems.items()
    if name != "latent-words"
}


def training(kind: str) -> Rows:
    fields: list[Fields] = [
        (text, TEXTS[number // 2])[: 2 if kind in ("pair", "similarity") else 1] for number, text in enumerate(TEXTS)
    ]
    count = len(fields)
    rows = Split(fields, [np.asarray([number % 3], dtype=np.float64) for number in range(count)], [None] * count)
    return Rows(rows, np.arange(count), rows, rows, LABELS, scoring_for(kind, LABELS))


def saved(system: str, directory: Path) -> tuple[WordsModel, list[Fields]]:
    kind, candidates = SYSTEMS[system]
    given = training(kind)
    model = candidates(given)[-1].model
    assert isinstance(model, WordsModel)
    save_words(directory, models=[model], kind=kind, labels=LABELS, facts={"system": system})
    return model, [*given.labelled.fields, *[tuple(f"{part} unseen" for part in row) for row in given.labelled.fields]]


@pytest.mark.parametrize("system", SYSTEMS)
def test_served_is_trained_to_the_last_bit_in_every_batch(system, tmp_path):
    model, rows = saved(system, tmp_path / "classifier")
    loaded = load_model(tmp_path / "classifier")
    assert isinstance(loaded, WordsClassifier)
    assert (loaded.kind, list(loaded.labels)) == (SYSTEMS[system][0], LABELS)
    expected = np.stack(model.answers(rows))
    assert expected.dtype == np.float32 and np.isfinite(expected).all()
    for size in (1, 3, len(rows)):
        np.testing.assert_array_equal(np.stack(loaded.answer(rows, size)), expected)
    np.testing.assert_array_equal(np.stack(loaded.answer(rows[::-1])), expected[::-1])
    assert loaded.answer([]) == []


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
    settings = dict(settings)
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
    form = {name: settings.pop(name) for name in ("analyzer", "ngrams") if name in settings}
    # Counted beside texts that are not fitted.
    actual, fitted = Counted(["old unseen", *texts], **form).fit(texts, **settings, dtype=dtype)
    stored = replace(actual, counted=None)
    assert (fitted != actual.matrix(texts)).nnz == (fitted != stored.matrix(texts)).nnz == 0
    assert actual.vocabulary == reference.vocabulary_
    np.testing.assert_allclose(actual.idf, reference.idf_, rtol=1e-6)
    unseen = ["an unseen irons apple", ""]
    for given, wanted in ((texts, expected), (unseen, reference.transform(unseen))):
        matrix = actual.matrix(given)
        assert matrix.dtype == dtype
        np.testing.assert_allclose(matrix.toarray(), wanted.toarray(), rtol=1e-6 if dtype == np.float32 else 1e-14)


@pytest.mark.parametrize("form", [{"ngrams": (1, 2)}, {"analyzer": "char_wb", "ngrams": (2, 4)}])
def test_an_emoji_is_one_word_with_and_without_a_variation_selector(form):
    plain, selected = (
        ["great \u2764", "\u2764 \u263a", "\u845b"],
        ["great \u2764\ufe0f", "\u2764\ufe0e \u263a\ufe0f", "\u845b\U000e0100"],
    )
    vectorizer, fitted = Counted(plain, **form).fit(plain)
    assert (replace(vectorizer, counted=None).matrix(selected) != fitted).nnz == 0 and fitted.nnz


def test_features_of_a_pair_by_hand():
    vectorizer, _ = Counted(["a b", "b c"]).fit(["a b", "b c"])
    u, v = (vectorizer.matrix([text]).toarray()[0] for text in ("a b", "b c"))
    rows: Sequence[Fields] = [("a b", "b c")]
    expected = np.concatenate([u, v, abs(u - v), u * v, [u @ v]])
    np.testing.assert_allclose(WordFeatures("pair", (vectorizer,)).matrix(rows).toarray()[0], expected, rtol=1e-12)
    np.testing.assert_allclose(WordFeatures("cosine", (vectorizer,)).matrix(rows), [[u @ v]], rtol=1e-12)
    assert WordFeatures("pair", (vectorizer,)).width == 13 and WordFeatures("cosine", (vectorizer,)).width == 1


@pytest.mark.parametrize("system", ["tfidf-words", "tfidf-words-characters", "pair-tfidf-both", "pair-tfidf-cosine"])
def test_measurements_do_not_change_the_answers(system, tmp_path):
    _, rows = saved(system, tmp_path / "classifier")
    loaded = load_words(tmp_path / "classifier")
    assert hasattr(loaded, "answer_measured")
    answers, measured = measure(loaded, rows)
    np.testing.assert_array_equal(np.stack(answers), np.stack(loaded.answer(rows)))
    parts = 2 if SYSTEMS[system][0] in ("pair", "similarity") else 1
    assert measured.rows["pieces"][0] == 3 * parts
    assert measured.rows["unknown"][len(rows) // 2] == parts, "the word that was added"
    features = loaded.models[0].features.matrix(rows)
    expected = features @ projection(features.shape[1]) * np.sqrt(features.shape[1])
    assert measured.rows["sketch"].shape == (len(rows), SKETCH)
    np.testing.assert_allclose(measured.rows["sketch"], expected, atol=2e-3 * abs(expected).max())
    assert measure(loaded, [])[0] == []


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("words.safetensors", b"not tensors", r"words\.safetensors"),
        ("config.json", b"{}", r"config\.json"),
        ("labels.json", None, r"labels\.json"),
    ],
)
def test_an_altered_directory_is_refused(name, content, message, tmp_path):
    saved("tfidf-words", tmp_path / "classifier")
    path = tmp_path / "classifier" / name
    path.unlink() if content is None else path.write_bytes(content)
    with pytest.raises(ArtifactError, match=message):
        load_words(tmp_path / "classifier")


def test_files_that_do_not_fit_each_other_are_refused(tmp_path):
    model, _ = saved("tfidf-words", tmp_path / "classifier")
    write_model(model, tmp_path)
    described = json.loads((tmp_path / "words.json").read_text())
    described["vectorizers"][0]["terms"].pop()
    (tmp_path / "words.json").write_text(json.dumps(described))
    with pytest.raises(ArtifactError, match="not a words model of this version"):
        read_model(tmp_path, kind="classification", labels=LABELS)
    with pytest.raises(ArtifactError, match="run its stage again"):
        read_model(tmp_path / "nowhere", kind="classification", labels=LABELS)


def test_no_torch_is_imported():
    script = (
        "import sys, components.learners.words.classifier, components.learners.loading, "
        "components.registry.drift.traffic, components.registry.champion; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True, cwd=Path(__file__).parents[2], timeout=120)


def test_scikit_learn_is_imported_by_the_first_fit_alone():
    script = "import sys, headstart, components.learners.baselines.stage; assert 'sklearn' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True, cwd=Path(__file__).parents[2], timeout=120)


def test_a_words_model_is_not_exported(tmp_path):
    saved("tfidf-words", tmp_path / "classifier")
    with pytest.raises(
        ConfigError, match="is the words of a model, without an encoder to export; export the model: --format container"
    ):
        export_encoder(tmp_path / "classifier", output=tmp_path / "out", form="onnx")


def test_the_files_of_a_words_model(tmp_path):
    saved("tfidf-words-pairs", tmp_path / "classifier")
    files = sorted(path.name for path in (tmp_path / "classifier").iterdir())
    assert files == ["config.json", "labels.json", "manifest.json", "words.json", "words.safetensors"]
    stored = json.loads((tmp_path / "classifier" / "words.json").read_text())
    assert stored["form"] == "text"
    terms = stored["vectorizers"][0]["terms"]
    assert {"an", "old", "apple", "an old", "old apple"} <= set(terms) and terms == sorted(terms)
    again = tmp_path / "again"
    saved("tfidf-words-pairs", again)
    assert all((again / name).read_bytes() == (tmp_path / "classifier" / name).read_bytes() for name in files)


def test_tfidf_of_a_row_by_hand():
    features = WordFeatures("text", (Counted(["a b", "b c"]).fit(["a b", "b c"])[0],))
    # idf = ln((1 + N) / (1 + n)) + 1 with N = 2 texts, of which n have the word; tf = 1 + ln(count).
    once, twice = np.log(3 / 2) + 1, np.log(3 / 3) + 1
    result = np.asarray([(1 + np.log(2)) * once, twice, 0.0])
    np.testing.assert_allclose(
        features.matrix([("A b a d",)]).toarray()[0], result / np.linalg.norm(result), rtol=1e-12
    )
    assert features.words(("A b a d",)) == (4, 1)


@pytest.mark.parametrize("name", ["config.json", "labels.json", "words.json", "manifest.json"])
def test_deeply_nested_json_of_a_crafted_model_is_refused(name, tmp_path):
    saved("tfidf-words", tmp_path)
    (tmp_path / name).write_text("[" * 100_000 + "]" * 100_000)
    if name != "manifest.json":
        manifest = json.loads((tmp_path / "manifest.json").read_text())
        manifest["files"][name] = {"bytes": 200_000, "sha256": digest_file(tmp_path / name)}
        (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    for open_model in (load_model, load):
        with pytest.raises(ArtifactError, match="nested too deeply"):
            open_model(tmp_path)
