"""The stage `tokenizer` on a corpus that changes: when the vocabulary stays, and when it is learned again."""

import json
from pathlib import Path
from typing import Any

import pytest

from components.core.artifacts import digest_tree, read_manifest
from components.tokenization import load_tokenizer, train
from components.tokenization.train import TokenizerJob, VocabularyJob, fit_vocabulary, train_tokenizer

OLD = ["the name of the list", "the list of the names"] * 4
SAME = ["the list of the list", "the names of the name"]
OTHER = ["quick foxes jump over lazy dogs", "jump over quick lazy foxes"]
SETTINGS = {"word": {"min_frequency": 1, "vocabulary": 10}, "wordpiece": {"vocabulary": 34}}


@pytest.fixture(autouse=True)
def few_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train, "NEW_WORDS", 5)


def job(folder: Path, *, kind: str = "wordpiece", **changes: Any) -> VocabularyJob:
    values = {
        "corpus": folder / "corpus",
        "output": folder / "tokenizer",
        "record": folder / "record",
        "kind": kind,
        "settings": SETTINGS,
    }
    return VocabularyJob.model_validate(values | changes)


def decision(made: VocabularyJob) -> str:
    return read_manifest(made.record).facts["decision"]


def numbers(made: VocabularyJob) -> dict[str, float]:
    return json.loads((made.record / "metrics.json").read_text())


def test_a_first_run_is_that_of_train_tokenizer(tmp_path, write_corpus):
    write_corpus(tmp_path / "corpus", train=[OLD])
    made = job(tmp_path)
    assert fit_vocabulary(made) == made.record
    plain = TokenizerJob.model_validate(made.model_dump(exclude={"record", "rebuild", "code"}))
    train_tokenizer(plain.model_copy(update={"output": tmp_path / "plain"}))
    assert digest_tree(made.output) == digest_tree(tmp_path / "plain")
    assert (decision(made), numbers(made)["learned"]) == ("first run", 1)


def test_a_vocabulary_that_fits_new_text_stays(tmp_path, write_corpus, capsys):
    write_corpus(tmp_path / "corpus", train=[OLD])
    made = job(tmp_path)
    fit_vocabulary(made)
    before = digest_tree(made.output)
    write_corpus(tmp_path / "corpus", train=[OLD, SAME])
    fit_vocabulary(made)
    assert digest_tree(made.output) == before
    actual = numbers(made)
    assert (actual["learned"], actual["new_words"], actual["new_pieces_per_word"]) == (0, 10, 1.0)
    assert decision(made) == (
        "1.000 pieces per word and 0.00% unknown on 10 new words; 1.000 and 0.00% where it was learned"
    )
    assert capsys.readouterr().out.endswith(f"tokenizer tokenizer: kept ({decision(made)})\n")


@pytest.mark.parametrize(("kind", "bound"), [("wordpiece", "pieces_per_word"), ("word", "unknown_rate")])
def test_a_vocabulary_that_does_not_fit_is_learned_again(tmp_path, write_corpus, kind, bound):
    write_corpus(tmp_path / "corpus", train=[OLD, ["a quick brown fox jumps over the lazy dog"]])
    made = job(
        tmp_path,
        kind=kind,
        settings=SETTINGS | {"wordpiece": {"vocabulary": 60}, "word": {"vocabulary": 16, "min_frequency": 1}},
    )
    fit_vocabulary(made)
    before = load_tokenizer(made.output).fingerprint()
    write_corpus(tmp_path / "corpus", train=[OLD, ["a quick brown fox jumps over the lazy dog"], SAME, OTHER, SAME[:1]])
    fit_vocabulary(made)
    assert decision(made).startswith(f"{bound} has grown too much: ")
    assert load_tokenizer(made.output).fingerprint() != before
    assert numbers(made)["learned"] == 1
    fresh = made.model_copy(update={"output": tmp_path / "fresh", "record": tmp_path / "fresh-record"})
    fit_vocabulary(fresh)
    assert digest_tree(made.output) == digest_tree(fresh.output)


def test_a_vocabulary_of_pairs_is_learned_again_if_the_corpus_or_the_pairs_change(tmp_path, write_corpus):
    write_corpus(tmp_path / "corpus", train=[OLD])
    write_corpus(tmp_path / "pairs", train=[[("the bridge", "boat")]])
    settings = {"word": {"min_frequency": 1, "vocabulary": 12}}
    made = job(tmp_path, kind="word", pairs=tmp_path / "pairs", settings=settings)
    fit_vocabulary(made)
    assert decision(made) == "first run" and "boat" in load_tokenizer(made.output).pieces
    before = digest_tree(made.record)
    fit_vocabulary(made)
    assert digest_tree(made.record) == before
    write_corpus(tmp_path / "pairs", train=[[("the sea", "sea bridge")]])
    fit_vocabulary(made)
    assert decision(made) == "the corpus or the pairs changed" and "sea" in load_tokenizer(made.output).pieces
    write_corpus(tmp_path / "corpus", train=[OLD, ["fox fox fox"]])
    fit_vocabulary(made)
    assert numbers(made)["learned"] == 1 and "fox" in load_tokenizer(made.output).pieces


def test_a_stage_that_is_repeated_after_a_kill_leaves_the_same_record(tmp_path, write_corpus):
    write_corpus(tmp_path / "corpus", train=[OLD])
    made = job(tmp_path)
    fit_vocabulary(made)
    before = digest_tree(made.record)
    fit_vocabulary(made)
    assert digest_tree(made.record) == before and numbers(made)["learned"] == 1


def test_few_words_are_not_judged_until_there_are_more(tmp_path, write_corpus, monkeypatch):
    made = job(tmp_path, kind="word", settings=SETTINGS)
    monkeypatch.setattr(train, "NEW_WORDS", 12)
    write_corpus(tmp_path / "corpus", train=[OLD])
    fit_vocabulary(made)
    write_corpus(tmp_path / "corpus", train=[OLD, OTHER[:1]])
    fit_vocabulary(made)
    assert decision(made) == "fewer than 12 new words, too few to judge its fit"
    write_corpus(tmp_path / "corpus", train=[OLD, OTHER[:1], OTHER, OTHER])
    fit_vocabulary(made)
    assert decision(made).startswith(("pieces_per_word", "unknown_rate"))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"rebuild": "drift"}, "requested: drift"),
        ({"code": "other"}, "code or libraries changed"),
        ({"settings": SETTINGS | {"wordpiece": {"vocabulary": 33}}}, "settings changed"),
    ],
)
def test_reasons_to_learn_again(tmp_path, write_corpus, change, reason):
    write_corpus(tmp_path / "corpus", train=[OLD])
    fit_vocabulary(job(tmp_path))
    write_corpus(tmp_path / "corpus", train=[OLD, SAME])
    made = job(tmp_path, **change)
    fit_vocabulary(made)
    assert (decision(made), numbers(made)["learned"]) == (reason, 1)


def test_a_piece_of_removed_text_does_not_stay(tmp_path, write_corpus):
    texts = [*OLD, "the rare list"]
    write_corpus(tmp_path / "corpus", train=[texts, SAME, ["the list of zanzibar", "zanzibar names"]])
    made = job(tmp_path, kind="word", settings=SETTINGS | {"word": {"vocabulary": 11, "min_frequency": 1}})
    fit_vocabulary(made)
    assert "zanzibar" in load_tokenizer(made.output).pieces
    write_corpus(tmp_path / "corpus", train=[texts, SAME])
    fit_vocabulary(made)
    assert decision(made) == "text was removed or written again"
    assert "zanzibar" not in load_tokenizer(made.output).pieces


def test_a_record_of_another_tokenizer_is_ignored(tmp_path, write_corpus):
    """As after a kill between the two outputs."""
    write_corpus(tmp_path / "corpus", train=[[*OLD, "one two"]])
    made = job(tmp_path, kind="word", settings=SETTINGS | {"word": {"vocabulary": 11, "min_frequency": 1}})
    fit_vocabulary(made)
    write_corpus(tmp_path / "corpus", train=[[*OLD, "one two"], OTHER])
    train_tokenizer(TokenizerJob.model_validate(made.model_dump(exclude={"record", "rebuild", "code"})))
    again = digest_tree(made.output)
    fit_vocabulary(made)
    assert (decision(made), digest_tree(made.output)) == ("first run", again)
