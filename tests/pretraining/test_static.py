"""Word vectors from an encoder: exact values, and agreement with an independent computation."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import sparse

from components.core.artifacts import read_manifest
from components.models.encoder import build_model, load_encoder
from components.models.sentence import Reading
from components.settings.training import StaticSettings
from components.tokenization.special import FIRST_ORDINARY
from components.training.pretraining import static as module
from components.training.pretraining.static import StaticJob, cut_passages, encode_pieces, fit_means, static, with_words
from tests.tokenization.conftest import WriteCorpus

TEXTS = ["the apple is red", "the pear is a small pear", "gold and zinc and iron", "the apple is here"] * 3


@pytest.fixture
def corpus(write_corpus: WriteCorpus, tmp_path: Path) -> Path:
    return write_corpus(tmp_path / "corpus", train=[TEXTS])


def job(teacher: Path, corpus: Path, output: Path, **settings: object) -> StaticJob:
    return StaticJob(
        name="words",
        teacher=teacher,
        corpus=corpus,
        output=output,
        settings=StaticSettings(teacher="bert", **settings),
        sample_megabytes=1,
    )


def test_vectors_equal_an_independent_computation(make_encoder, corpus, tmp_path):
    """The table is that of numpy: means of BERT's states, singular value decomposition, and weights by counts."""
    teacher = load_encoder(make_encoder("bert"))
    written = load_encoder(static(job(make_encoder("bert"), corpus, tmp_path / "out", width=6)))
    states = np.zeros((teacher.tokenizer.vocab_size, teacher.model.config.width))
    with torch.no_grad():
        for piece in range(len(states)):
            tokens = torch.tensor([[2, piece, 3]])
            states[piece] = teacher.model.hidden_states(tokens, torch.tensor([3]))[-1][0].double().mean(0).numpy()
    ordinary = states[FIRST_ORDINARY:]
    _, _, directions = np.linalg.svd(ordinary - ordinary.mean(0), full_matrices=False)
    counts = np.zeros(len(states))
    for ids in teacher.tokenizer.encode_batch(TEXTS):
        np.add.at(counts, ids, 1)
    counts = counts[FIRST_ORDINARY:]
    expected = (ordinary - ordinary.mean(0)) @ directions[:6].T * (0.01 / (0.01 + counts / counts.sum()))[:, None]
    actual = written.model.vectors()[FIRST_ORDINARY:].double().numpy()
    np.testing.assert_allclose(np.abs(actual), np.abs(expected), atol=1e-4)
    np.testing.assert_allclose(actual @ actual.T, expected @ expected.T, atol=1e-4)
    assert written.model.vectors()[[0, 2, 3, 4]].count_nonzero() == 0


def test_the_directory_names_its_parent_and_is_the_same_each_time(make_encoder, corpus, tmp_path):
    teacher = make_encoder("bert")
    once, twice = (static(job(teacher, corpus, tmp_path / name, width=8)) for name in ("once", "twice"))
    facts = read_manifest(once).facts
    assert facts["parent"] == read_manifest(teacher).digest
    assert (facts["trained"], facts["family"], facts["teacher"]["family"]) == (True, "word2vec", "bert")
    assert (once / "model.safetensors").read_bytes() == (twice / "model.safetensors").read_bytes()
    random = static(job(make_encoder("bert", trained=False), corpus, tmp_path / "random", width=8))
    assert not load_encoder(random).trained


def test_frequent_words_of_the_domain_get_vectors(make_encoder, corpus, tmp_path):
    """WordPiece: "and" (six times) is one piece instead of none; it is encoded as the teacher reads it."""
    teacher = make_encoder("bert")
    written = load_encoder(static(job(teacher, corpus, tmp_path / "out", words=5)))
    before = load_encoder(teacher).tokenizer
    assert written.tokenizer.pieces == [*before.pieces, "and"]
    (ids,) = written.tokenizer.encode_batch(["gold and zinc"])
    assert [written.tokenizer.pieces[index] for index in ids] == ["gold", "and", "zinc"]
    assert "and" not in before.pieces


@pytest.mark.parametrize("family", ["flair", "gpt", "elmo"])
def test_every_kind_of_tokenizer_can_be_a_teacher(family, make_encoder, corpus, tmp_path):
    """Other vocabularies than WordPiece are replaced by the frequent words."""
    teacher = make_encoder(family)
    written = load_encoder(static(job(teacher, corpus, tmp_path / "out", words=4, width=4)))
    vectors = written.model.vectors()
    assert bool(vectors.isfinite().all()) and bool(vectors[FIRST_ORDINARY:].any(1).all())
    if load_encoder(teacher).tokenizer.kind != "wordpiece":
        assert written.tokenizer.pieces[FIRST_ORDINARY:] == ["is", "the", "and", "apple"]


def test_passages_are_cut_at_spaces_and_evenly_spaced(monkeypatch):
    monkeypatch.setattr(module, "PASSAGE", 8)
    assert cut_passages(["one two three", "", "  ", "abcdefghijk", "ab"]) == [
        "one two",
        "three",
        "abcdefgh",
        "ijk",
        "ab",
    ]
    monkeypatch.setattr(module, "PASSAGES", 3)
    assert cut_passages(["a", "b", "c", "d", "e"]) == ["a", "c", "e"]


def test_the_second_step_is_the_solution_of_the_normal_equations():
    random = np.random.default_rng(0)
    shares = random.random((40, 12)) * (random.random((40, 12)) < 0.5)
    shares[:, 11] = 0  # no passage has it
    shares /= shares.sum(1, keepdims=True)
    means, table = random.standard_normal((40, 5)), random.standard_normal((12, 3)).astype(np.float32)
    actual = fit_means(sparse.csr_array(shares), torch.from_numpy(means), torch.from_numpy(table)).numpy()
    centred = means - means.mean(0)
    _, _, directions = np.linalg.svd(centred, full_matrices=False)
    signs = np.sign(directions[np.arange(5), np.abs(directions).argmax(1)])
    targets = centred @ (directions * signs[:, None])[:3].T
    inputs = np.hstack([shares @ table, np.ones((40, 1))])
    mapped = np.linalg.solve(inputs.T @ inputs, inputs.T @ targets)
    start = table @ mapped[:3] + mapped[3]
    expected = start + np.linalg.solve(shares.T @ shares + 0.01 * np.eye(12), shares.T @ (targets - shares @ start))
    expected[[0, 2, 3, 4]] = 0
    np.testing.assert_allclose(actual, expected, atol=1e-4)
    np.testing.assert_allclose(actual[11], start[11], atol=1e-5)


def test_texts_of_the_domain_teach_the_means_of_the_encoder(make_encoder, corpus, tmp_path, monkeypatch):
    teacher = load_encoder(make_encoder("bert"))
    ids = [teacher.tokenizer.encode_batch([text])[0].tolist() for text in TEXTS[:4]]
    with torch.no_grad():
        means = [
            teacher.model.hidden_states(torch.tensor([teacher.model.special_tokens(row)]), torch.tensor([len(row) + 2]))
            for row in ids
        ]
    targets = torch.stack([states[-1][0].mean(0) for states in means])

    def errors(output):
        vectors = load_encoder(output).model.vectors()
        texts = torch.stack([vectors[row].mean(0) for row in ids])
        # Distances between texts, which do not depend on the directions of the components.
        return float((torch.cdist(texts, texts) - torch.cdist(targets, targets)).abs().max())

    first = errors(static(job(make_encoder("bert"), corpus, tmp_path / "first", width=8)))
    monkeypatch.setattr(module, "LEAST_PASSAGES", 2)
    assert errors(static(job(make_encoder("bert"), corpus, tmp_path / "second", width=8))) < first / 5


def test_a_word_is_encoded_by_all_of_its_pieces(make_encoder, corpus):
    teacher = load_encoder(make_encoder("bert"))
    digits = teacher.tokenizer.encode_batch(["57"])[0].tolist()
    grown = with_words(teacher.tokenizer, ["57 57 57"], count=1)
    actual = encode_pieces(teacher, grown, name="static")[-1]
    tokens = torch.tensor([[2, *digits, 3]])
    with torch.no_grad():
        expected = teacher.model.hidden_states(tokens, torch.tensor([4]))[-1][0].mean(0)
    torch.testing.assert_close(actual, expected)


def test_a_sentence_encoder_gives_the_vectors_it_was_trained_for(make_encoder):
    teacher = load_encoder(make_encoder("bert"))
    reading = Reading(pooling=("first",), after=("normalize",), prompt=teacher.tokenizer.pieces[7])
    settings = teacher.model.config.model_dump(exclude={"vocabulary"}) | {"reading": reading}
    model = build_model("bert", vocabulary=teacher.tokenizer.vocab_size, settings=settings).eval()
    model.bind(teacher.tokenizer)
    actual = encode_pieces(replace(teacher, model=model), teacher.tokenizer, name="static")[9]
    tokens = torch.tensor([[2, *model.prompt, 9, 3]])
    with torch.no_grad():
        expected = model.hidden_states(tokens, torch.tensor([tokens.shape[1]]))[-1][0, 0]
    assert len(model.prompt) >= 1
    # Not scaled: the lengths of the vectors remain.
    torch.testing.assert_close(actual, expected)
