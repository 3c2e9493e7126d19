"""Adaptation to text that is added to a corpus: increments, rebuilds, and when each happens."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from components.core.artifacts import digest_tree, read_manifest
from components.core.errors import TrainingError
from components.data.ingestion.stage import IngestJob, ingest
from components.settings.data import CorpusSource, IngestSettings
from components.settings.training import IncrementSettings
from components.tokenization.store import TokenStore
from components.tokenization.tokenize import TokenizeJob, tokenize
from components.tokenization.train import VocabularyJob, fit_vocabulary
from components.training.pretraining import adapt as stage
from components.training.pretraining import increments
from components.training.pretraining.adapt import AdaptJob, adapt
from components.training.pretraining.increments import IncrementText
from tests.training.helpers import (
    adapt_job,
    lm_settings,
    metrics_of,
    run_interrupted,
    same_bits,
    tokenizer_of,
    weights,
)

WORDS = "the bucket policy grants role access to objects and queue sends messages"
LONG = lm_settings(tokens=4 * 8 * 40)


def write_raw(path: Path, *, seed: int, documents: int) -> None:
    rng = np.random.default_rng(seed)
    rows = [{"text": " ".join(rng.choice(WORDS.split(), 9))} for _ in range(documents)]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(map(json.dumps, rows)))


class Growing:
    """A domain corpus to which files are added; each becomes a shard."""

    def __init__(self, inputs: Path, folder: Path, pretrained: Mapping[str, Path]) -> None:
        self.inputs, self.folder, self.pretrained, self.files = inputs, folder, pretrained, 0

    def add(self, family: str, *, documents: int = 60) -> Path:
        """Add a file; returns the token shards."""
        write_raw(self.folder / "raw" / f"{self.files}.jsonl", seed=self.files, documents=documents)
        self.files += 1
        return self.tokens(family)

    def tokens(self, family: str) -> Path:
        source, settings = CorpusSource(path=str(self.folder / "raw")), IngestSettings(near_duplicates=None)
        corpus = ingest(IngestJob(name="d", source=source, settings=settings, output=self.folder / "corpus"))
        tokenizer = self.inputs / "tokenizer" / f"domain-{tokenizer_of(family)}"
        return tokenize(TokenizeJob(corpus=corpus, tokenizer=tokenizer, output=self.folder / "tokens"))

    def job(self, family: str = "ulmfit", **changes: Any) -> AdaptJob:
        """A job whose first run is done."""
        values = {"tokens": self.add(family), "training": lm_settings(), "increment": IncrementSettings()}
        job = adapt_job(self.inputs, family, self.pretrained[family], self.folder, **values | changes)
        adapt(job)
        return job


@pytest.fixture
def corpus(inputs: Path, tmp_path: Path, pretrained: Mapping[str, Path]) -> Growing:
    return Growing(inputs, tmp_path, pretrained)


@pytest.fixture(autouse=True)
def _any_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """The held-out text is a single document of random words: its loss says nothing."""
    monkeypatch.setattr(increments, "WORSE", 10.0)


def chain(job: AdaptJob) -> dict[str, Any]:
    return read_manifest(job.output).facts["chain"]


def test_an_increment_learns_new_text_and_replays_old(corpus, capsys):
    job = corpus.job(training=LONG)
    first, all_tokens = read_manifest(job.output), TokenStore(job.tokens).tokens
    assert chain(job)["increment"] == 0 and chain(job)["previous"] is None
    assert (metrics_of(job.output)["increment"], metrics_of(job.output)["new_tokens"]) == (0, all_tokens)

    corpus.add("ulmfit", documents=12)
    store = TokenStore(job.tokens)
    new = store.tokens - all_tokens
    adapt(job)
    actual, after = chain(job), metrics_of(job.output)
    assert (actual["increment"], actual["new_tokens"], actual["previous"]) == (1, new, first.digest)
    assert new <= actual["replayed_tokens"] < new + 12
    assert set(actual["learned"]) == set(store.shards)
    # As many passes over its text as the first run made over all.
    step = job.training.batch_size * job.training.window
    passes = LONG.tokens / store.tokens
    assert after["steps"] == max(1, round(passes * (new + actual["replayed_tokens"]) / step))
    assert after["before_perplexity"] > after["perplexity"]
    assert after["previous_perplexity"] > 0
    assert read_manifest(job.output).facts["parent"] == read_manifest(job.pretrained).digest
    assert f"adapt ulmfit: increment 1 from the last adapted model, {new:,} new tokens and " in capsys.readouterr().out


def test_the_text_of_an_increment(corpus):
    corpus.add("ulmfit", documents=30)
    old = TokenStore(corpus.tokens("ulmfit"))
    store = TokenStore(corpus.add("ulmfit", documents=5))
    text = IncrementText(learned=tuple(old.shards), replay=25).select(store, seed=3)
    new = [store.document(number).tolist() for number in range(old.documents, store.documents)]
    documents = [
        text.span(int(text.offsets[at]), int(np.diff(text.offsets)[at])).tolist() for at in range(text.documents)
    ]
    assert documents[-len(new) :] == new
    replayed = documents[: -len(new)]
    earlier = [old.document(number).tolist() for number in range(old.documents)]
    assert all(document in earlier for document in replayed) and len({*map(tuple, replayed)}) == len(replayed)
    assert sum(map(len, replayed[:-1])) < 25 <= sum(map(len, replayed))
    # The stream starts again after the last piece.
    flat = [piece for document in documents for piece in document]
    assert text.tokens == len(flat)
    assert text.span(len(flat) - 3, 8).tolist() == flat[-3:] + flat[:5]
    assert text.sentence_starts(0).tolist() == [0]
    other = IncrementText(learned=tuple(old.shards), replay=25).select(store, seed=4)
    assert other.span(0, 60).tolist() != text.span(0, 60).tolist()


@pytest.mark.parametrize("family", ["ulmfit", "word2vec"])
def test_an_interrupted_increment_ends_bit_identical(corpus, tmp_path, family):
    job = corpus.job(family, training=LONG)
    corpus.add(family, documents=30)
    other = job.model_copy(update={"output": tmp_path / "other" / "adapted"})
    other.output.parent.mkdir()
    shutil.copytree(job.output, other.output)
    adapt(other)
    run_interrupted(adapt, job)
    assert same_bits(weights(other.output), weights(job.output))
    assert chain(other) == chain(job)
    # Nothing is left to learn: the output stays, also after a kill before DVC has recorded it.
    digest = digest_tree(job.output)
    adapt(job)
    assert digest_tree(job.output) == digest


def test_a_rebuild_of_all_stages_equals_a_run_in_an_empty_folder(inputs, pretrained, tmp_path, monkeypatch):
    monkeypatch.setattr("components.tokenization.train.NEW_WORDS", 5)
    settings = {"wordpiece": {"vocabulary": 50}}

    def run(folder, rebuild=""):
        source = CorpusSource(path=str(tmp_path / "raw"))
        made = {name: folder / name for name in ("corpus", "record", "tokenizer", "tokens")}
        ingest(IngestJob(name="d", source=source, settings=IngestSettings(), output=made["corpus"], rebuild=rebuild))
        learned = {"corpus": made["corpus"], "output": made["tokenizer"], "record": made["record"]}
        learned |= {"kind": "wordpiece", "settings": settings, "rebuild": rebuild}
        fit_vocabulary(VocabularyJob.model_validate(learned))
        tokenize(TokenizeJob(corpus=made["corpus"], tokenizer=made["tokenizer"], output=made["tokens"]))
        values = {"tokens": made["tokens"], "tokenizer": made["tokenizer"], "increment": IncrementSettings()}
        return adapt(adapt_job(inputs, "ulmfit", pretrained["ulmfit"], folder, rebuild=rebuild, **values))

    # The file that is added precedes the first one in the order of names.
    for name, count in (("b", 60), ("a", 12)):
        write_raw(tmp_path / "raw" / f"{name}.jsonl", seed=count, documents=count)
        adapted = run(tmp_path / "grown")
    assert read_manifest(adapted).facts["chain"]["increment"] == 1
    fresh = run(tmp_path / "fresh")
    assert not same_bits(weights(adapted), weights(fresh))
    run(tmp_path / "grown", "drift")
    assert read_manifest(adapted).facts["chain"]["reason"] == "requested: drift"
    assert same_bits(weights(adapted), weights(fresh))
    for name in ("corpus", "tokenizer", "tokens"):
        assert read_manifest(tmp_path / "grown" / name).digest == read_manifest(tmp_path / "fresh" / name).digest


CHANGES = [
    ({"training": lm_settings(tokens=320)}, "settings changed"),
    ({"code": "other"}, "code or libraries changed"),
    ({"seed": 1}, "settings changed"),
    ({"increment": None}, "adapt.<name>.increment is null"),
    ({"increment": IncrementSettings(rebuild_every=1)}, "adapt.<name>.increment.rebuild_every: 1"),
]


def test_reasons_to_rebuild(corpus, monkeypatch):
    """They are found before anything is trained."""

    def reason(job, **changes):
        made = []
        with monkeypatch.context() as patch, pytest.raises(TrainingError):
            patch.setattr(stage, "_trained", lambda job, decision, store: made.append(decision) or fail())
            adapt(job.model_copy(update=changes))
        assert made[0].number == 0
        return made[0].reason

    counted = corpus.job("glove")
    corpus.add("glove", documents=12)
    assert reason(counted) == "glove: its co-occurrence counts are those of the whole text"
    job = corpus.job()
    corpus.add("ulmfit", documents=12)
    assert [reason(job, **changes) for changes, _ in CHANGES] == [expected for _, expected in CHANGES]
    corpus.add("ulmfit", documents=400)
    assert reason(job) == "there is more new than earlier text"
    (corpus.folder / "raw" / "0.jsonl").unlink()
    corpus.tokens("ulmfit")
    assert reason(job).startswith("text was removed: ")


def fail(*_: Any, **__: Any) -> None:
    raise TrainingError("the loss is not finite")


def test_an_increment_that_raises_the_held_out_loss_is_replaced_by_a_rebuild(corpus, monkeypatch):
    job = corpus.job()
    corpus.add("ulmfit", documents=12)
    monkeypatch.setattr(increments, "WORSE", -10.0)
    adapt(job)
    assert chain(job)["increment"] == 0
    assert chain(job)["reason"].startswith("the increment raised the held-out perplexity from ")


def test_a_failed_increment_leaves_the_last_model(corpus, monkeypatch):
    job = corpus.job()
    before = digest_tree(job.output)
    corpus.add("ulmfit", documents=12)
    with monkeypatch.context() as patch, pytest.raises(TrainingError):
        patch.setattr(stage, "train_encoder", fail)
        adapt(job)
    assert digest_tree(job.output) == before
    adapt(job)
    assert chain(job)["increment"] == 1
