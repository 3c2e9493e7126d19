"""Stacked encoders: the states of their parts, stored, loaded and fine-tuned."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from components.artifacts import read_manifest
from components.errors import ConfigError
from components.finetuning.stage import FinetuneJob, finetune
from components.models.base import LanguageModel
from components.models.encoder import Encoder, load_encoder
from components.models.stacked import Stacked
from components.pretraining.stacked import StackedJob, stacked
from components.settings.derive import StackedSettings
from components.task_models.classifier import load_classifier
from components.task_models.kinds import TASKS
from components.task_models.sampler import pad
from components.tasks.examples import read_split
from components.tokenization.stacked import StackedTokenizer
from components.tokenization.words import encode_words
from tests.finetuning.interruption import digests, finish_interrupted, with_checkpoints

WORDS = [["the", "Apple", "is", "57"], ["gold"]]


@pytest.fixture
def stack(make_encoder: Callable[..., Path], tmp_path: Path) -> Callable[..., Path]:
    """stack("flair", "bert", layers="last", trained=True) -> an encoder directory; a part may be a directory."""

    def make(*names: str | Path, layers: str = "last", trained: bool = True, name: str = "stack") -> Path:
        first, second = (one if isinstance(one, Path) else make_encoder(one, trained=trained) for one in names)
        settings = StackedSettings(of=["a", "b"], layers=layers)
        return stacked(StackedJob(first=first, second=second, output=tmp_path / name, settings=settings))

    return make


def states(encoder: Encoder, texts: list[list[str]]) -> torch.Tensor:
    ids = [np.concatenate(encoder.tokenizer.encode_batch(words)).astype(np.int64) for words in texts]
    tokens, lengths = pad(ids)
    with torch.no_grad():
        (hidden,) = encoder.model.hidden_states(tokens, lengths)
    return hidden


def state_of_part(part: Encoder, words: list[str], *, layers: str) -> torch.Tensor:
    """(words, D): computed for one text alone."""
    model: LanguageModel = part.model
    (found,) = encode_words(part.tokenizer, [words])
    sequence = model.special_tokens(found.ids.tolist())
    lead = model.special_tokens([-1]).index(-1)
    with torch.no_grad():
        hidden = model.hidden_states(torch.tensor([sequence]), torch.tensor([len(sequence)]))
        units = torch.from_numpy(found.spans + lead)[None]
        chosen = hidden if layers == "all" else hidden[-1:]
        return torch.cat([model.unit_states(layer, units)[0] for layer in chosen], dim=-1)


@pytest.mark.parametrize(("first", "second", "layers"), [("flair", "word2vec", "last"), ("elmo", "bert", "all")])
def test_states_are_those_of_the_parts_side_by_side(
    first: str, second: str, layers: str, stack, make_encoder: Callable[..., Path]
) -> None:
    found = states(load_encoder(stack(first, second, layers=layers), verify=True), WORDS)
    parts = [load_encoder(make_encoder(name)) for name in (first, second)]
    for row, words in enumerate(WORDS):
        expected = torch.cat([state_of_part(part, words, layers=layers) for part in parts], dim=-1)
        torch.testing.assert_close(found[row, : len(words)], expected, atol=1e-5, rtol=1e-5)


def test_a_stack_of_a_stack(stack, make_encoder: Callable[..., Path]) -> None:
    inner = stack("flair", "word2vec", name="inner")
    outer = load_encoder(stack(inner, "gpt", name="outer"))
    found = states(outer, WORDS)
    expected = torch.cat([states(load_encoder(inner), WORDS), states(load_encoder(stack("gpt", "gpt")), WORDS)], -1)
    torch.testing.assert_close(found, expected[..., : found.shape[-1]], atol=1e-5, rtol=1e-5)
    assert read_manifest(inner).facts["parents"] == [
        read_manifest(make_encoder(name)).digest for name in ("flair", "word2vec")
    ]


def test_long_texts_are_read_in_windows_by_parts_with_a_limit(stack) -> None:
    """GPT's test model has 24 positions; the first words have the same context as in a short text."""
    encoder = load_encoder(stack("gpt", "word2vec"))
    words = ["apple", "iron", "red", "old"] * 12
    found = states(encoder, [words])
    assert found.shape[1] == 48 and bool(found.isfinite().all())
    torch.testing.assert_close(found[0, :8], states(encoder, [words[:8]])[0], atol=1e-5, rtol=1e-5)


def test_words_are_kept_as_written_and_ids_belong_to_them(stack) -> None:
    encoder = load_encoder(stack("flair", "word2vec"))
    tokenizer = encoder.tokenizer
    assert isinstance(tokenizer, StackedTokenizer)
    ids, spans = tokenizer.encode_with_offsets(" U.S. apple  Apple")
    assert [tokenizer.spelling(int(id_)) for id_ in ids] == ["U.S.", "apple", "Apple"]
    assert spans == [(1, 5), (6, 11), (13, 18)]
    again = load_encoder(stack("flair", "word2vec", name="again")).tokenizer
    assert again.fingerprint() == tokenizer.fingerprint()
    assert tokenizer.decode(ids) == "U.S. apple Apple"


def test_a_stack_has_no_objective(stack) -> None:
    model = load_encoder(stack("flair", "word2vec")).model
    assert isinstance(model, Stacked)
    with pytest.raises(ConfigError, match="is not trained as a language model"):
        model.losses({})
    assert len(model.layer_groups()) == 1


@pytest.mark.parametrize("kind", sorted(TASKS))
def test_stacks_learn_every_kind(kind: str, stack, make_job, in_process) -> None:
    """The stored model answers as in the run, and alone as together."""
    job: FinetuneJob = make_job("word2vec", kind, layers="last")
    output = finetune(job.model_copy(update={"encoder": stack("flair", "word2vec"), "family": "stack"}))
    test = read_split(job.examples, "test")
    served = load_classifier(output / "classifier")
    table = pq.read_table(output / "runs.parquet", filters=[("split", "=", "test")])
    together = served.answer(test.fields)
    for fields, answer, expected in zip(test.fields, together, table.column("answer").to_pylist(), strict=True):
        np.testing.assert_array_equal(answer, np.asarray(expected, dtype=np.float32))
        np.testing.assert_array_equal(served.answer([fields])[0], answer)


@pytest.mark.parametrize("trained", [True, False])
def test_an_interrupted_run_of_tagging_ends_bit_identical(
    trained: bool, stack, make_job, in_process, monkeypatch
) -> None:
    encoder = stack("flair", "bert", trained=trained)

    def job(name: str) -> FinetuneJob:
        made = make_job("word2vec", "tagging", name=name, layers="last", tagger="bilstm_crf", tagger_hidden=4)
        return with_checkpoints(made.model_copy(update={"encoder": encoder, "family": "stack"}))

    unbroken, broken = finetune(job("unbroken")), job("broken")
    assert finish_interrupted(broken, monkeypatch, at_step=2) == 2
    assert digests(broken.output) == digests(unbroken)
